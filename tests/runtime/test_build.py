"""What the build asks of the compiler: strict where we build, lenient where users do."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def commands(folder: Path, *options: str) -> list[str]:
    """The compiler command of each C, C++ and CUDA file."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake")
    configure = [cmake, "-S", str(ROOT), "-B", str(folder), "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    done = subprocess.run([*configure, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [
        entry["command"] for entry in json.loads((folder / "compile_commands.json").read_text())
    ]


@pytest.mark.parametrize(
    ("options", "strict"),
    [
        ([], False),  # What `pip install .` configures: a new compiler's warning is no error.
        (["-DTUCCL_BUILD_TESTS=ON"], True),
        (["-DTUCCL_WARNINGS_AS_ERRORS=ON"], True),
    ],
)
def test_warnings_are_errors_for_developers_only(
    options: list[str], strict: bool, tmp_path: Path
) -> None:
    lines = commands(tmp_path, *options)
    assert len(lines) >= 8
    # nvcc hands its host compiler's options on.
    assert all("-Wall -Wextra" in line or "-Xcompiler=-Wall,-Wextra" in line for line in lines)
    assert {"-Werror" in line for line in lines} == {strict}


def architectures(lines: list[str], source: str) -> set[str]:
    """For which GPUs a CUDA file is compiled, as nvcc names them."""
    (line,) = [line for line in lines if f"/{source} " in line]
    return {name for names in re.findall(r"code=\[([^]]*)\]", line) for name in names.split(",")}


def test_kernels_are_compiled_for_the_gpus_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    asked = tmp_path / "bin" / "nvidia-smi"
    asked.parent.mkdir()
    asked.write_text("#!/bin/sh\nprintf '9.0\\n9.0\\n8.6\\n'\n")
    asked.chmod(0o755)
    monkeypatch.setenv("PATH", f"{asked.parent}:{os.environ['PATH']}")
    for _ in range(2):  # CMake remembers what it once took, which is no choice of the user.
        lines = commands(tmp_path / "build")
        executor = architectures(lines, "executor/patterns.cu")
        assert executor == {"sm_90", "compute_90", "sm_86", "compute_86"}
        assert {"sm_80", "sm_90", "compute_90"} <= architectures(lines, "benchmark/kernels.cu")
    lines = commands(tmp_path / "build", "-DCMAKE_CUDA_ARCHITECTURES=80-real")
    assert architectures(lines, "executor/patterns.cu") == {"sm_80"}
    assert architectures(lines, "benchmark/kernels.cu") == {"sm_80"}
