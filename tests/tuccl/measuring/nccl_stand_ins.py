"""CUDA's driver and NCCL as stand-ins that really do collectives, and the libraries under test."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runtime.conftest import ROOT, compile_c

NATIVE = ROOT / "tests" / "runtime" / "native"
sys.path.append(str(ROOT / "scripts"))

from measuring_job import build_libraries  # noqa: E402


def build_stand_ins(folder: Path) -> dict[str, str]:
    """Compile everything; the variables with which a process uses it."""
    shared = ("-O1", "-fPIC", "-shared")
    compile_c(folder / "libcuda.so.1", [NATIVE / "stand_in_cuda.c"], *shared)
    nccl = compile_c(folder / "libnccl.so.2", [NATIVE / "stand_in_nccl.c"], *shared)
    libraries = build_libraries(folder / "built")
    return {
        "LD_LIBRARY_PATH": str(folder),
        "TUCCL_NCCL_LIBRARY": str(nccl),
        "PYTHONPATH": f"{ROOT}:{libraries}",
    }
