"""The CUDA code compiles for GPUs that this build is not for.

An installation without a GPU compiles for 80 and 90. Here `scripts/check_architectures.sh` does the
oldest and the newest; without arguments it does all four.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_COMPILER = 77


def check(architecture: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(root / "scripts" / "check_architectures.sh"), architecture]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def project_with(kernel: str, folder: Path) -> Path:
    """A project of one CUDA file beside the real script."""
    (folder / "scripts").mkdir()
    for name in ("check_architectures.sh", "python_environment.sh"):
        shutil.copy(ROOT / "scripts" / name, folder / "scripts")
    for place in ("tuccl/runtime", "probes/p2p/benchmark"):
        (folder / place).mkdir(parents=True)
    (folder / "tuccl" / "runtime" / "kernel.cu").write_text(kernel)
    return folder


@pytest.mark.parametrize("architecture", ["70", "100"])
def test_the_cuda_code_compiles(architecture: str) -> None:
    done = check(architecture)
    if done.returncode == NO_COMPILER:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    files = len([*ROOT.glob("tuccl/runtime/**/*.cu"), *ROOT.glob("probes/p2p/benchmark/*.cu")])
    assert done.stdout.startswith(f"sm_{architecture}: {files} files, ")


@pytest.mark.parametrize(
    "kernel",
    ["__global__ void kernel(int *at) { int unused; *at = 1; }", "__global__ int kernel() {}"],
)
def test_a_warning_is_an_error(kernel: str, tmp_path: Path) -> None:
    done = check("90", project_with(kernel, tmp_path))
    if done.returncode == NO_COMPILER:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 1
    assert done.stdout == ""
    assert "sm_90 does not compile" in done.stderr


def test_a_gpu_that_no_compiler_knows_is_told_apart_from_an_error(tmp_path: Path) -> None:
    done = check("999", project_with("__global__ void kernel() {}", tmp_path))
    assert done.returncode == NO_COMPILER
    assert "sm_999: nvcc is not there or does not know it" in done.stderr
