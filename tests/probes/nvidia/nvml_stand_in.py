"""A real libnvidia-ml.so.1 with two simulated GPUs (`nvml_library.c`), for a Python process."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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


def read_scenes(folder: Path, function: str, scenes: Iterable[str]) -> dict[str, Any]:
    """Call a function of `probes.nvidia` with the library of this folder, once for each scene.

    All calls are made in one process; a refusal is the field `refused`.
    """
    module, _, name = function.rpartition(".")
    code = f"""
import dataclasses, json, os, sys
from tuccl.errors import MachineError
from probes.nvidia.{module} import {name} as read

def answer(scene):
    os.environ["NVML_SCENE"] = scene
    try:
        return dataclasses.asdict(read())
    except MachineError as error:
        return {{"refused": str(error)}}

print(json.dumps({{scene: answer(scene) for scene in sys.argv[1:]}}))
"""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    done = subprocess.run(
        [sys.executable, "-c", code, *scenes],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
