"""The CUDA code compiles for the GPUs that are named, whichever this build is for.

`scripts/check/check_architectures.py` without arguments does all four.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path("scripts", "check", "check_architectures.py")
NO_COMPILER = 77


def check(architecture: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / SCRIPT), architecture]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def project_with(kernel: str, folder: Path) -> Path:
    """A project of one CUDA file beside the real script."""
    (folder / "scripts" / "check").mkdir(parents=True)
    shutil.copy(ROOT / SCRIPT, folder / SCRIPT)
    for place in ("tuccl/runtime", "probes/p2p/benchmark"):
        (folder / place).mkdir(parents=True)
    (folder / "tuccl" / "runtime" / "kernel.cu").write_text(kernel)
    return folder


@pytest.mark.parametrize(
    "architecture",
    ["90", *(pytest.param(name, marks=pytest.mark.slow) for name in ("70", "80", "100"))],
)
def test_the_cuda_code_compiles(architecture: str) -> None:
    done = check(architecture)
    if done.returncode == NO_COMPILER:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    files = len([*ROOT.glob("tuccl/runtime/**/*.cu"), *ROOT.glob("probes/p2p/benchmark/*.cu")])
    assert done.stdout.startswith(f"sm_{architecture}: {files} files, ")


@pytest.mark.parametrize(
    "kernel",
    [
        "__global__ void kernel(int *at) { int unused; *at = 1; }",
        "__global__ void kernel() {}\nvoid host() { int unused; }",
    ],
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
    assert "sm_999: nvcc is not there, or does not know it" in done.stderr


@pytest.mark.parametrize("variable", ["TUCCL_CLANG", "TUCCL_CUDA_12"])
def test_what_the_environment_names_is_taken_or_refused(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "/nonexistent")
    # An architecture that no nvcc of today knows, so that clang is asked for.
    done = check("30", project_with("__global__ void kernel() {}", tmp_path))
    if done.returncode == NO_COMPILER:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 2
    assert f"{variable}=/nonexistent" in done.stderr


def test_half_a_cuda_is_named_and_not_used(tmp_path: Path) -> None:
    project = project_with("__global__ void kernel() {}", tmp_path)
    (project / "build" / "cuda-12").mkdir(parents=True)
    done = check("30", project)
    if done.returncode == NO_COMPILER:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 2
    assert "cuda-12 is no whole CUDA 12; remove it" in done.stderr
