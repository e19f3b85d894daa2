"""CUDA's driver and NCCL as stand-ins that really do collectives, and the libraries under test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from measuring_job import JobError

from probes.nvidia.gpu_programs import build_name
from tests.kept_builds import ROOT
from tests.runtime.builds import LOADER, RUNTIME, compile_native
from tests.tuccl.measuring.engines.measuring_job import JobResult, build_libraries, run_job
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME, executor_program

NATIVE = ROOT / "tests" / "runtime" / "native"

__all__ = [
    "ROOT",
    "JobError",
    "JobResult",
    "StandIns",
    "build_release",
    "build_stand_ins",
    "run_job",
]


@dataclass(frozen=True)
class StandIns:
    """Where everything was compiled to."""

    folder: Path

    @property
    def nccl(self) -> Path:
        return self.folder / "libnccl.so.2"

    @property
    def executor(self) -> Path:
        # For more architectures than any real build, so that it is the one that is taken.
        build = build_name(executor_program(), [str(number) for number in range(100, 110)])
        return self.libraries / "tuccl" / "runtime" / "built" / build / EXECUTOR_NAME

    @property
    def libraries(self) -> Path:
        """For PYTHONPATH: the plugin and the measuring library."""
        return self.folder / "built"

    @property
    def plugin(self) -> Path:
        return self.libraries / "tuccl" / "runtime" / PLUGIN_NAME

    @property
    def variables(self) -> dict[str, str]:
        """With these a process uses the stand-ins."""
        return {"LD_LIBRARY_PATH": str(self.folder), LIBRARY_VARIABLE: str(self.nccl)}

    def slow_variables(self, gpus: int) -> dict[str, str]:
        """With these a command has so many GPUs, an executor, and an NCCL whose choice is slow."""
        assert self.executor.exists()
        return {
            **self.variables,
            "PYTHONPATH": str(self.libraries),
            "STAND_IN_GPUS": str(gpus),
            "STAND_IN_CHANNELS": "1",
            "STAND_IN_SLOW_MS": "2",
        }


def build_release(folder: Path, version: int, own_channels: int = 0) -> Path:
    """Another release of the stand-in, which takes so many channels by itself; 0: many."""
    folder.mkdir(parents=True)
    said = (f"-DSTAND_IN_VERSION={version}", f"-DSTAND_IN_OWN_CHANNELS={own_channels}")
    flags = ("-O1", "-shared", *said)
    return compile_native(folder / "libnccl.so.2", [NATIVE / "stand_in_nccl.c"], *flags)


def build_stand_ins(base: Path) -> StandIns:
    """Compile everything, once below `base`."""
    stand_ins = StandIns(base / "nccl-stand-ins")
    if not stand_ins.folder.exists():
        stand_ins.folder.mkdir()
        shared = ("-O1", "-shared")
        compile_native(stand_ins.folder / "libcuda.so.1", [NATIVE / "stand_in_cuda.c"], *shared)
        compile_native(stand_ins.nccl, [NATIVE / "stand_in_nccl.c"], *shared)
        build_libraries(stand_ins.libraries)
        stand_ins.executor.parent.mkdir(parents=True)
        sources = [NATIVE / "stand_in_executor.c", RUNTIME / "bundle.c", *LOADER]
        # What is its own alone is seen: the plugin in the same process has the same loader.
        compile_native(stand_ins.executor, sources, *shared, "-fvisibility=hidden")
    return stand_ins
