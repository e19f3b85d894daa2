"""A real libnvidia-ml.so.1 with two simulated GPUs (`nvml_library.c`), for a Python process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def build_nvml(folder: Path) -> Path:
    """Compile the library into a folder, or skip where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc) to build a stand-in for libnvidia-ml.so.1")
    source = Path(__file__).with_name("nvml_library.c")
    built = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-o", built, source], check=True)
    return folder


def python_with_nvml(folder: Path, code: str, scene: str = "") -> str:
    """Run code with the library of this folder and return its output."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_SCENE": scene}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout
