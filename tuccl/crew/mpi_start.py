"""Start of an MPI job, failures included; mpi4py is imported on first use."""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from probes.host.report import HostIdentity
from tuccl.crew.worker_process import kill_children
from tuccl.errors import HostError

_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def join_mpi(tasks: int, timeout_s: float) -> Any:
    """Return the communicator of all ranks; from now on SIGTERM ends this process and its children.

    Rank 0 keeps its own handler of SIGTERM if it has one.

    Args:
        tasks: Number of tasks that the launcher started.
        timeout_s: Time limit for MPI to start.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher.
    """
    if "mpi4py.MPI" in sys.modules:
        comm = _world(tasks)
    else:
        with _deadline(timeout_s, tasks):
            comm = _world(tasks)
    end_on_sigterm(leads=comm.Get_rank() == 0)
    return comm


def end_on_sigterm(*, leads: bool) -> None:
    """Let SIGTERM end this process and its children; rank 0 keeps its own handler if it has one."""
    if not leads or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: _end(report=leads))


def own_identity() -> HostIdentity:
    """Identity that two ranks share exactly if they run on one host."""
    namespace = boot_id = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/net")  # noqa: PTH115 - not a path but a name
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return HostIdentity(socket.gethostname(), boot_id, namespace)


def flush() -> None:
    """Write what is left of both streams."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # The reader is gone, which does not end the job.
            stream.flush()


@contextmanager
def _deadline(timeout_s: float, tasks: int) -> Iterator[None]:
    """End this process if MPI does not start in time.

    MPI_Init waits for all tasks in C with the GIL held, so only another process can end it.
    """
    first = "0" in (os.environ.get(name) for name in _RANK_VARIABLES)
    reading, writing = os.pipe()
    watcher = os.fork()
    if watcher == 0:
        os.close(writing)
        started, _, _ = select.select([reading], [], [], timeout_s)
        if not started:
            text = (
                f"tuccl: MPI did not start within {timeout_s:g} s: one of its {tasks} tasks hangs\n"
            )
            os.write(2, text.encode() if first else b"")
            os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(watcher, 0)


def _end(*, report: bool) -> NoReturn:
    """End this process: launchers send SIGTERM when a rank dies, and SIGKILL a moment later."""
    if report:
        text = "tuccl: stopped by the launcher, which says why: a rank died, or time is up\n"
        os.write(2, text.encode())
    kill_children()
    os._exit(143)


def _world(tasks: int) -> Any:
    try:
        mpi = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise HostError(
            f"started by MPI with {tasks} tasks, but mpi4py cannot be used ({error}): "
            "pip install tuccl[mpi] on every host, or start it without MPI"
        ) from error
    size = mpi.COMM_WORLD.Get_size()
    if tasks > 1 and size != tasks:
        raise HostError(
            f"started as one of {tasks} tasks, but MPI sees {size}: mpi4py was "
            "built for another MPI than this launcher's; install it again with that MPI's mpicc"
        )
    return mpi.COMM_WORLD
