"""Compiles the jobs of processes that the attack on /dev/shm disturbs."""

from collections.abc import Sequence
from pathlib import Path

from tests.runtime.builds import STAND_INS, compile_all, link
from tests.runtime.executor_tables import session_table
from tests.runtime.test_executor import build_nccl, host_sources, libraries


def compile_shm_job(folder: Path, flags: Sequence[str] = ()) -> list[Path]:
    """The objects that it is linked of; the stand-in of NCCL, for ranks in several processes.

    Args:
        folder: Where they go.
        flags: Of the compiler, as the sanitizers'.
    """
    of_processes = [*flags, "-DSTAND_IN_PROCESSES"]
    build_nccl(folder, *of_processes)
    names = ("shm_job.cc", "shm_neighbours.cc", "stand_in_device.cc")
    own = [STAND_INS / name for name in names]
    return compile_all(folder, [*own, *host_sources()], *of_processes)


def link_shm_job(folder: Path, objects: Sequence[Path], flags: Sequence[str] = ()) -> Path:
    """The program, beside its stand-in of NCCL and its tables."""
    (folder / "table.tuccl").write_bytes(session_table())
    (folder / "across_hosts.tuccl").write_bytes(session_table(across_hosts=True))
    return link(folder / "shm_job", objects, "-rdynamic", *libraries(folder), *flags)
