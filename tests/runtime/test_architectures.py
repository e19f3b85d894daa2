"""The CUDA code compiles for the GPUs that are named, whichever this build is for.

`scripts/check/check_architectures.py` without arguments does all four.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kept_builds import compiler_words, content_sum, kept

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path("scripts", "check", "check_architectures.py")
NO_COMPILER = 77
COMPILERS = ("nvcc", "clang++", "c++")
SOURCES = frozenset({".c", ".cc", ".cpp", ".cu", ".cuh", ".h"})


def check(
    architecture: str, root: Path = ROOT, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / SCRIPT), architecture, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def project_with(kernel: str, folder: Path) -> Path:
    """A project of one CUDA file beside the real script."""
    (folder / "scripts" / "check").mkdir(parents=True)
    shutil.copy(ROOT / SCRIPT, folder / SCRIPT)
    for place in ("tuccl/runtime", "probes/p2p/benchmark"):
        (folder / place).mkdir(parents=True)
    (folder / "tuccl" / "runtime" / "kernel.cu").write_text(kernel)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        # A third of the time that the build's optimization takes, for the same errors and warnings.
        ("90", ("--fast",)),
        *(pytest.param(name, (), marks=pytest.mark.slow) for name in ("70", "80", "90", "100")),
    ],
)
def test_the_cuda_code_compiles(architecture: str, options: tuple[str, ...]) -> None:
    def compile_all(folder: Path) -> None:
        done = check(architecture, options=options)
        if done.returncode == NO_COMPILER:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        (folder / "said").write_text(done.stdout)

    places = [ROOT / "tuccl" / "runtime", ROOT / "probes" / "p2p" / "benchmark"]
    sources = [path for place in places for path in place.rglob("*.*") if path.suffix in SOURCES]
    compilers = [word for name in COMPILERS if shutil.which(name) for word in compiler_words(name)]
    named = [os.environ.get(name, "") for name in ("TUCCL_CLANG", "TUCCL_CUDA_12")]
    everything = [ROOT / SCRIPT, *sorted(sources)]
    said = (
        kept(content_sum([architecture, *options, *compilers, *named], everything), compile_all)
        / "said"
    )
    files = len([path for path in sources if path.suffix == ".cu"])
    assert said.read_text().startswith(f"sm_{architecture}: {files} files, ")


@pytest.mark.long
@pytest.mark.parametrize(
    "kernel",
    [
        "__global__ void kernel(int *at) { int unused; *at = 1; }",
        "__global__ void kernel() {}\nvoid host() { int unused; }",
    ],
)
def test_a_warning_is_an_error(kernel: str, tmp_path: Path) -> None:
    done = check("90", project_with(kernel, tmp_path), ("--fast",))
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
