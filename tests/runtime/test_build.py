"""Compiler flags of the build: strict for development, lenient for users."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from probes.nvidia.gpu_programs import build_name
from probes.p2p.run import p2p_program
from tuccl.runtime import executor_program

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


def configure(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake")
    command = [cmake, "-S", str(ROOT), "-B", str(folder), "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def need_nvcc() -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")


def put_gpus(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an nvidia-smi on the PATH that runs a shell command."""
    asked = folder / "nvidia-smi"
    asked.parent.mkdir(exist_ok=True)
    asked.write_text(f"#!/bin/sh\n{command}\n")
    asked.chmod(0o755)
    monkeypatch.setenv("PATH", f"{asked.parent}:{os.environ['PATH']}")


@dataclass(frozen=True)
class FreshFolder:
    """A build folder whose compilers CMake has found, which takes it seconds."""

    folder: Path
    lines: tuple[list[str], ...]
    """Compiler commands of its first two configurations, on a host with two kinds of GPUs."""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> FreshFolder:
    folder = tmp_path_factory.mktemp("configured")
    with pytest.MonkeyPatch.context() as patch:
        put_gpus(folder.with_name("gpus"), r"printf '9.0\n9.0\n8.6\n'", patch)
        return FreshFolder(folder, tuple(commands(folder) for _ in range(2)))


@pytest.fixture
def configured(fresh: FreshFolder) -> Path:
    return fresh.folder


def commands(folder: Path, *options: str) -> list[str]:
    """Return the compiler command of each C, C++ and CUDA file.

    Of earlier configurations in the folder the compilers alone count.
    """
    done = configure(folder, "-UTUCCL_BUILD_*", "-UTUCCL_WARNINGS_*", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return [
        entry["command"] for entry in json.loads((folder / "compile_commands.json").read_text())
    ]


@pytest.mark.parametrize(
    ("options", "strict"),
    [
        ([], False),  # What `pip install .` configures: a new compiler's warning is no error.
        (["-DCMAKE_CUDA_ARCHITECTURES=90"], False),
        (["-DTUCCL_WARNINGS_AS_ERRORS=ON", "-DCMAKE_CUDA_ARCHITECTURES=90"], True),
        (["-DTUCCL_WARNINGS_AS_ERRORS=ON"], True),
    ],
)
def test_warnings_are_errors_for_developers_only(
    options: list[str], strict: bool, configured: Path
) -> None:
    lines = commands(configured, "-UCMAKE_CUDA_ARCHITECTURES", *options)
    assert len(lines) >= 8
    # nvcc hands its host compiler's options on.
    assert all("-Wall -Wextra" in line or "-Xcompiler=-Wall,-Wextra" in line for line in lines)
    assert {"-Werror" in line for line in lines} == {strict}


def architectures(lines: list[str], source: str) -> set[str]:
    """Return the GPU architectures that a CUDA file is compiled for, as nvcc names them."""
    (line,) = [line for line in lines if f"/{source} " in line]
    return {name for names in re.findall(r"code=\[([^]]*)\]", line) for name in names.split(",")}


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put an nvidia-smi on the PATH that runs a shell command."""

    return lambda command: put_gpus(tmp_path / "bin", command, monkeypatch)


def test_kernels_are_compiled_for_the_gpus_of_this_machine(
    fresh: FreshFolder, gpus: Callable[[str], None]
) -> None:
    need_nvcc()
    # CMake remembers what it once took, which is no choice of the user.
    for lines in fresh.lines:
        for source in ("executor/patterns.cu", "benchmark/kernels.cu"):
            assert architectures(lines, source) == {"sm_90", "compute_90", "sm_86", "compute_86"}
    gpus(r"printf '9.0\n9.0\n8.6\n'")
    lines = commands(fresh.folder, "-DCMAKE_CUDA_ARCHITECTURES=80-real")
    assert architectures(lines, "executor/patterns.cu") == {"sm_80"}
    assert architectures(lines, "benchmark/kernels.cu") == {"sm_80"}


NO_GPUS = ["echo 'No devices were found'; exit 6", "exit 9", "echo 'No devices were found'"]


@pytest.mark.parametrize("nvidia_smi", NO_GPUS)
def test_without_gpus_nothing_is_compiled_with_nvcc(
    nvidia_smi: str, configured: Path, gpus: Callable[[str], None]
) -> None:
    gpus(nvidia_smi)
    lines = commands(configured, "-UCMAKE_CUDA_ARCHITECTURES")
    assert len(lines) >= 8
    assert not [line for line in lines if re.search(r"\.(cc|cpp|cu)\b", line)]


@pytest.mark.parametrize(
    ("option", "executor", "p2p"),
    [
        ("-DCMAKE_CUDA_ARCHITECTURES=90", {"sm_90", "compute_90"}, {"sm_90", "compute_90"}),
        ("-DTUCCL_BUILD_EXECUTOR=ON", {"sm_80", "compute_80", "sm_90", "compute_90"}, None),
        ("-DTUCCL_BUILD_P2P=ON", None, {"sm_80", "compute_80", "sm_90", "compute_90"}),
    ],
)
def test_without_gpus_what_is_asked_for_is_compiled(
    option: str,
    executor: set[str] | None,
    p2p: set[str] | None,
    configured: Path,
    gpus: Callable[[str], None],
) -> None:
    need_nvcc()
    gpus(NO_GPUS[0])
    lines = commands(configured, "-UCMAKE_CUDA_ARCHITECTURES", option)
    for source, wanted in (("executor/patterns.cu", executor), ("benchmark/kernels.cu", p2p)):
        if wanted is None:
            assert not [line for line in lines if source in line]
        else:
            assert architectures(lines, source) == wanted


def test_a_gpu_that_nvcc_does_not_know_costs_only_its_own_code(
    configured: Path, gpus: Callable[[str], None]
) -> None:
    need_nvcc()
    gpus(r"printf '9.0\n99.9\n'")
    lines = commands(configured, "-UCMAKE_CUDA_ARCHITECTURES")
    assert architectures(lines, "executor/patterns.cu") == {"sm_90", "compute_90"}


def test_an_executor_that_is_demanded_and_cannot_be_compiled_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDACXX", "false")
    done = configure(tmp_path / "build", "-DTUCCL_BUILD_EXECUTOR=ON")
    assert done.returncode != 0
    assert "libtuccl-executor.so is not compiled" in done.stderr


def test_builds_are_installed_under_the_name_that_is_looked_for(configured: Path) -> None:
    need_nvcc()
    commands(configured, "-DCMAKE_CUDA_ARCHITECTURES=80;90-real")
    for program, folder in (
        (executor_program(), "tuccl/runtime/executor"),
        (p2p_program(), "probes/p2p/benchmark"),
    ):
        script = (configured / folder / "cmake_install.cmake").read_text()
        name = build_name(program, ["80", "90-real"])
        assert f"/{program.import_name}/built/{name}/{program.name}" in script
