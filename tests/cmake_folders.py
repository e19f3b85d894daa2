"""Build folders in which CMake has found the compilers, which it looks for once for all tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kept_builds import ROOT, compiler_words, content_sum, kept

TWO_KINDS = r"printf '9.0\n9.0\n8.6\n'"
"""A command that prints the capabilities of two kinds of GPUs, as nvidia-smi does."""

_GPU_CODE = (ROOT / "probes" / "p2p" / "benchmark", ROOT / "tuccl" / "runtime" / "executor")
_VARIABLES = (
    *("CC", "CXX", "CUDACXX", "CUDA_HOME", "CUDA_PATH"),
    *("CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS"),
)


def stand_in_nvidia_smi(folder: Path, command: str) -> Path:
    """Make a folder for the PATH with an nvidia-smi that runs a shell command."""
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(0o755)
    return folder


def first_configured(folder: Path) -> Path:
    """Make a build folder as CMake's first configuration leaves it where there are `TWO_KINDS`."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake")

    def configure(whole: Path) -> None:
        gpus = stand_in_nvidia_smi(whole / "bin", TWO_KINDS)
        options = ["-G", "Unix Makefiles", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
        done = subprocess.run(
            [cmake, "-S", str(ROOT), "-B", str(whole / "build"), *options],
            env={**os.environ, "PATH": f"{gpus}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    names = [cmake, *(os.environ.get(name, "") for name in _VARIABLES[:3]), "cc", "c++", "nvcc"]
    compilers = [word for name in names if shutil.which(name) for word in compiler_words(name)]
    given = [os.environ.get(name, "") for name in _VARIABLES]
    lists = [ROOT / "CMakeLists.txt", *sorted(ROOT.glob("cmake/*.cmake"))]
    lists += [part / name for part in _GPU_CODE for name in ("CMakeLists.txt", "sources.cmake")]
    made = kept(content_sum([*compilers, *given], lists), configure) / "build"
    shutil.copytree(made, folder, dirs_exist_ok=True)
    cache = folder / "CMakeCache.txt"
    text = cache.read_text()
    # CMake refuses a folder that was made at another place.
    (place,) = re.findall(r"^CMAKE_CACHEFILE_DIR:INTERNAL=(.*)$", text, re.MULTILINE)
    cache.write_text(text.replace(place, str(folder)))
    return folder
