"""MPI as the launcher of ranks: its start, failures included, and how ranks find rank 0.

After that no collective operation of MPI is used, because one rank that hangs would hang all.
mpi4py is imported on first use.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tuccl.crew.interrupts import interrupts_held
from tuccl.crew.meeting import Leader
from tuccl.crew.started_rank import is_rank_0
from tuccl.errors import HostError

_WHERE = 21
"""Tag of the message with the leader's address and the run's key."""
_RANK_PAUSE_S = 0.01
_LATER_S = 5.0


def join_mpi(tasks: int, timeout_s: float) -> Any:
    """Return the communicator of all ranks.

    Args:
        tasks: Number of tasks that the launcher started.
        timeout_s: Time limit for MPI to start.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher.
    """
    if "mpi4py.MPI" in sys.modules:
        return _world(tasks)
    with _deadline(timeout_s, tasks):
        return _world(tasks)


@contextmanager
def _deadline(timeout_s: float, tasks: int) -> Iterator[None]:
    """End this process if MPI does not start in time.

    MPI_Init waits for all tasks in C with the GIL held, so only another process can end it.
    """
    text = (
        f"tuccl: MPI did not start within {timeout_s:g} s: one of its {tasks} tasks hangs, "
        "or its host lacks mpi4py\n"
    )
    speaks = is_rank_0(os.environ)  # First: mpirun ends all ranks once one has ended.
    watcher, writing = _watch(timeout_s + (0 if speaks else _LATER_S), text if speaks else "")
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(watcher, 0)


def _watch(timeout_s: float, text: str) -> tuple[int, int]:
    """Fork a process that says this and kills this one after a time.

    Returns:
        Its identifier, and the end of a pipe: it ends when that is closed, as by an exit.
    """
    reading, writing = os.pipe()
    with interrupts_held():  # mpirun sends SIGTERM to the group: the watcher would report it, too.
        watcher = os.fork()
        if watcher == 0:
            os.close(writing)
            if not select.select([reading], [], [], timeout_s)[0]:
                os.write(2, text.encode())
                os.kill(os.getppid(), signal.SIGKILL)
            os._exit(0)
    os.close(reading)
    return watcher, writing


def _world(tasks: int) -> Any:
    try:
        mpi = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise HostError(
            f"started by MPI with {tasks} tasks, but mpi4py cannot be used ({error}): "
            "pip install tuccl[mpi] on every host, or start it without MPI"
        ) from error
    size = mpi.COMM_WORLD.Get_size()
    if size != tasks:
        raise HostError(
            f"started as one of {tasks} tasks, but MPI sees {size}: mpi4py was "
            "built for another MPI than this launcher's; install it again with that MPI's mpicc"
        )
    return mpi.COMM_WORLD


class MpiLaunch:
    """The ranks that a launcher of MPI started."""

    name = "MPI"
    hint = ""
    agreed: Leader | None = None

    def __init__(self, comm: Any) -> None:
        """Take the communicator of all ranks."""
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self._comm = comm
        self._sending: list[Any] = []

    def tell(self, leader: Leader) -> None:
        """Send all ranks where the leader is."""
        sent = {"addresses": leader.addresses, "key": leader.key}
        others = range(1, self.size)
        self._sending = [self._comm.isend(sent, dest=rank, tag=_WHERE) for rank in others]

    def go_on(self) -> None:
        """Let MPI go on with what it has not sent yet."""
        self._sending = [request for request in self._sending if not request.Test()]

    def hear(self, _timeout_s: float) -> Iterator[Leader]:
        """Yield where the leader is; MPI's own time limit is behind."""
        request = self._comm.irecv(source=0, tag=_WHERE)
        while not (found := request.test())[0]:
            time.sleep(_RANK_PAUSE_S)
        addresses = [(str(host), int(port)) for host, port in found[1]["addresses"]]
        yield Leader(tuple(addresses), found[1]["key"])

    def close(self) -> None:
        """Leave MPI as it is."""

    def end_within(self, timeout_s: float, exit_code: int) -> None:
        """End the job if this process has not exited by then.

        A rank that was stopped keeps the others in MPI_Finalize, which is in C as MPI_Init is.
        """
        done = f"the command itself has ended with exit code {exit_code}"
        _watch(timeout_s, f"tuccl: a rank hangs in MPI_Finalize: the MPI job is ended; {done}\n")

    def abort(self, exit_code: int) -> None:
        """End all ranks."""
        self._comm.Abort(exit_code)
