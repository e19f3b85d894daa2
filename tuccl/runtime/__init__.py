"""The compiled libraries of the runtime, and where they were installed.

`libnccl-tuner-tuccl.so` (C11) is compiled by the package build. NCCL loads it by path from
NCCL_TUNER_PLUGIN; it answers from the bundle that TUCCL_BUNDLE names. See
docs/reference/runtime.md. `libtuccl-measure.so` (C11) runs collectives in workers of the `nccl`
backend, beside the computation of `computation.ptx` where it is told to. See
docs/reference/nccl-backend.md. `libnccl-profiler-tuccl.so` (C11) counts a job's calls
for `tuccl workload record`; NCCL loads it by path from NCCL_PROFILER_PLUGIN. `libtuccl-executor.so`
(C++17 and CUDA) runs schedules on NCCL's communicators; the package build compiles it where it
finds GPUs, `tuccl build-executor` when asked. See docs/reference/executor.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from probes.nvidia.gpu_programs import GpuProgram, find_build
from tuccl.errors import HostError

PLUGIN_NAME = "libnccl-tuner-tuccl.so"
MEASURE_LIBRARY_NAME = "libtuccl-measure.so"
COMPUTATION_NAME = "computation.ptx"
PROFILER_NAME = "libnccl-profiler-tuccl.so"
EXECUTOR_NAME = "libtuccl-executor.so"
EXECUTOR_MISSING = (
    f"this installation has no {EXECUTOR_NAME}: `tuccl build-executor` compiles it for the GPUs "
    "here, or for those that its --arch names; it needs nvcc (CUDA 12.0 or later) and g++"
)


def plugin_path() -> Path:
    """Return the path of the compiled plugin.

    Raises:
        HostError: The package runs from a source tree that was never built.
    """
    return _compiled(PLUGIN_NAME)


def measure_library_path() -> Path:
    """Return the path of the compiled library that times NCCL.

    Raises:
        HostError: The package runs from a source tree that was never built.
    """
    return _compiled(MEASURE_LIBRARY_NAME)


def computation_ptx() -> bytes:
    """Return the kernel beside which the measuring library times calls, as the driver takes it."""
    return (Path(__file__).parent / COMPUTATION_NAME).read_bytes()


def profiler_path() -> Path:
    """Return the path of the compiled profiler plugin.

    Raises:
        HostError: The package runs from a source tree that was never built.
    """
    return _compiled(PROFILER_NAME)


def executor_path() -> Path:
    """Return the path of the compiled executor, for `LD_PRELOAD`.

    Raises:
        HostError: No executor was compiled from this installation's sources.
    """
    build = find_build(executor_program())
    if build is None:
        raise HostError(EXECUTOR_MISSING)
    return build.path


def has_executor() -> bool:
    """Return whether this installation has the executor."""
    try:
        executor_path()
    except HostError:
        return False
    return True


def executor_program() -> GpuProgram:
    """Return how the executor is compiled, and its path."""
    package = Path(next(iter(__path__)))
    return GpuProgram(EXECUTOR_NAME, package, "tuccl/runtime", package / "executor")


def _compiled(name: str) -> Path:
    # An editable install leaves the sources where they are and compiles into site-packages.
    installed = (Path(entry) / "tuccl" / "runtime" for entry in sys.path)
    for folder in (*map(Path, __path__), *installed):
        candidate = folder / name
        if candidate.is_file():
            return candidate
    raise HostError(
        f"{Path(__file__).parent} has no {name}; `pip install .` compiles it, which needs a C "
        "compiler"
    )
