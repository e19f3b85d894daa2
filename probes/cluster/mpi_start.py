"""Start and end of an MPI job that rank 0 leads, failures included.

mpi4py is imported on first use.
"""

from __future__ import annotations

import atexit
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from probes.cluster.mpi_post import RANK_PAUSE_S, Post
from probes.cluster.station import kill_children
from probes.host.report import HostIdentity
from tuccl.errors import HostError

_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_FAREWELL = 31
"""Tag of the leader's last message, after which ranks may finalize MPI."""


class Leader(Protocol):
    """Rank 0's side of a job."""

    def call_roll(self, timeout_s: float) -> None:
        """Wait for the ranks to report."""

    def dismiss(self, exit_code: int) -> Collection[int]:
        """Tell every rank its exit code; return the lost ranks."""


L = TypeVar("L", bound=Leader)


def run_ranks(
    comm: Any,
    leader_of: Callable[[Any], L],
    lead: Callable[[L], int],
    follow: Callable[[Any], int],
    code_of_error: Callable[[BaseException], int],
    timeout_s: float,
) -> int:
    """Lead on rank 0, follow on the other ranks; return the exit code of this rank.

    If ranks are lost, the job ends when rank 0 exits.

    Args:
        comm: The communicator of `join_mpi`.
        leader_of: Creates rank 0's side of the job.
        lead: Runs on rank 0 between roll call and dismissal; returns the exit code.
        follow: Runs on every other rank until its dismissal; returns the exit code it received.
        code_of_error: Returns the exit code when roll call or `lead` raises.
        timeout_s: Time limit for ranks to report.
    """
    if comm.Get_rank():
        _await_farewell_at_exit(comm)
        return follow(comm)
    leader: L | None = None
    code = 1
    try:
        leader = leader_of(comm)
        leader.call_roll(timeout_s)
        code = lead(leader)
    except BaseException as error:
        code = code_of_error(error)
        raise
    finally:
        _dismiss(comm, leader, code)
    return code


def _dismiss(comm: Any, leader: Leader | None, exit_code: int) -> None:
    # Any rank may be lost if there is no leader or this is interrupted.
    lost: Collection[int] = range(1, comm.Get_size())
    try:
        if leader is not None:
            lost = leader.dismiss(exit_code)
    except BaseException:
        exit_code = exit_code or 1
        raise
    finally:
        if lost:
            _abort_at_exit(comm, exit_code, lost)
        else:
            _say_farewell(comm)


def _await_farewell_at_exit(comm: Any) -> None:
    """Delay MPI_Finalize of this process until the leader's farewell.

    If ranks are lost the leader aborts instead. A rank inside MPI_Finalize can then hang mpirun
    forever: Open MPI 4.1.4 with PMIx 4.2.2 did in 13 of 197 jobs, and in none of 800 without such
    a rank.
    """

    def wait() -> None:
        _flush()
        post = Post(comm)
        while post.take(_FAREWELL) is None:
            time.sleep(RANK_PAUSE_S)

    atexit.register(wait)


def _say_farewell(comm: Any) -> None:
    post = Post(comm)
    for rank in range(1, comm.Get_size()):
        post.send(rank, _FAREWELL, b"farewell")
    post.wait_until_sent()


def _abort_at_exit(comm: Any, exit_code: int, lost: Collection[int]) -> None:
    """Make this process abort the job when it exits, as MPI_Finalize would wait for lost ranks."""
    ranks = ", ".join(map(str, sorted(lost)))

    def abort() -> None:
        _flush()
        with suppress(OSError):
            os.write(2, f"tuccl: no answer from rank {ranks}: the MPI job is ended\n".encode())
        comm.Abort(exit_code)

    atexit.register(abort)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # The reader is gone, which does not end the job.
            stream.flush()


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
    leads = comm.Get_rank() == 0
    if not leads or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: _end_on_sigterm(report=leads))
    return comm


def own_identity() -> HostIdentity:
    """Identity that two ranks share exactly if they run on one host."""
    namespace = boot_id = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/net")  # noqa: PTH115 - not a path but a name
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return HostIdentity(socket.gethostname(), boot_id, namespace)


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


def _end_on_sigterm(*, report: bool) -> NoReturn:
    """End this process: launchers send SIGTERM when a rank dies, and SIGKILL a moment later."""
    if report:
        text = "tuccl: stopped by the launcher of MPI, which says why: a rank died, or time is up\n"
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
