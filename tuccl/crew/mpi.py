"""The ranks of a job as places: rank 0 leads, each rank hosts the workers of its device.

A launcher of MPI, or any other (`tuccl.crew.meeting`), tells the ranks the leader's address and the
key of the run. After that all messages take sockets, where a lost rank is noticed at once and no
process polls. No collective operation of MPI is used, because one rank that hangs would hang all.
mpi4py is imported on first use.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from probes.host.report import HostIdentity
from tuccl.crew.asking import Member
from tuccl.crew.connection import Connection, Greeting, connect
from tuccl.crew.cores import own_cores
from tuccl.crew.duties import Duties
from tuccl.crew.hosting import Hosting
from tuccl.crew.interrupts import failures_by_signals, tell_stopped
from tuccl.crew.meeting import Leader, Meeting, slurm_tasks, started_rank, whole_number
from tuccl.crew.messages import from_bytes, to_bytes
from tuccl.crew.mpi_start import end_on_sigterm, flush, join_mpi, own_identity
from tuccl.crew.places import HostedPlaces, Place, dismiss
from tuccl.crew.serving import serve
from tuccl.errors import (
    ConnectionLostError,
    ExitCode,
    MeasurementError,
    MessageError,
    OtherReleaseError,
    Terminated,
    exit_code_of,
)

_WHERE = 21
"""Tag of the message with the leader's address and the run's key."""
_RANK_PAUSE_S = 0.01
START_S = 60.0
"""Time for MPI to start, and for ranks to report."""


def mpi_tasks(environment: Mapping[str, str]) -> int:
    """Return the number of tasks that an MPI launcher started with this one; 0 without a launcher.

    Open MPI's mpirun sets OMPI_COMM_WORLD_SIZE, MPICH's and Intel's set PMI_SIZE, srun describes
    its step; a batch script without srun is not a step.
    """
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if (tasks := whole_number(environment.get(name, ""))) > 0:
            return tasks
    if "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        return tasks if (tasks := slurm_tasks(environment)) > 1 else 0
    return 1 if "PMIX_RANK" in environment else 0


def run_ranks(
    lead: Callable[[RankPlaces | None], int],
    timeout_s: float = START_S,
    environment: Mapping[str, str] | None = None,
    *,
    all_report: bool = True,
    meeting: Path | None = None,
) -> int:
    """Lead on rank 0, host workers on all ranks; every rank returns rank 0's exit code.

    If ranks are lost, the job ends when rank 0 exits. Without a launcher this process leads alone.

    Args:
        lead: Runs on rank 0 with the places, if there are several ranks, and returns the exit code.
        timeout_s: Time for MPI to start, and for ranks to report.
        environment: Environment of this rank's workers; that of this process if left out.
        all_report: Whether a rank that does not report is an error; otherwise its place is lost.
        meeting: Directory in which ranks find each other that a launcher started without MPI; None:
            such a rank leads alone.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher; or rank 0 left no address
            in the directory.
        MeasurementError: A rank did not report.
    """
    launch = _launch(timeout_s, meeting)
    if launch is None:
        return lead(None)
    own = dict(os.environ if environment is None else environment)
    if launch.rank:
        return _follow(launch, own, timeout_s)
    places: RankPlaces | None = None
    code = 1
    try:
        with failures_by_signals():
            places = RankPlaces(launch, own)
            places.call_roll(timeout_s, all_report=all_report)
            code = lead(places)
    except Terminated:
        _end_terminated()
    except BaseException as error:
        code = exit_code_of(error)
        raise
    finally:
        _dismiss(launch, places, code)
    return code


def _launch(timeout_s: float, meeting: Path | None) -> Launch | None:
    """Return what this process was started by; None: by no launcher of several."""
    started = None if meeting is None else started_rank(os.environ)
    if meeting is not None and started is not None:
        end_on_sigterm(leads=started.rank == 0)
        return Meeting(meeting, started)
    tasks = mpi_tasks(os.environ)
    return None if tasks < 2 else MpiLaunch(join_mpi(tasks, timeout_s))


class MpiLaunch:
    """The ranks that a launcher of MPI started."""

    name = "MPI"
    hint = ""

    def __init__(self, comm: Any) -> None:
        """Take the communicator of all ranks."""
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self._comm = comm

    def tell(self, leader: Leader) -> Callable[[], None]:
        """Send all ranks where the leader is; the result lets MPI go on with what is left."""
        sent = {"addresses": leader.addresses, "key": leader.key}
        sending = [self._comm.isend(sent, dest=rank, tag=_WHERE) for rank in range(1, self.size)]

        def go_on() -> None:
            sending[:] = [request for request in sending if not request.Test()]

        return go_on

    def hear(self, _timeout_s: float) -> Iterator[Leader]:
        """Yield where the leader is; MPI's own time limit is behind."""
        request = self._comm.irecv(source=0, tag=_WHERE)
        while not (found := request.test())[0]:
            time.sleep(_RANK_PAUSE_S)
        addresses = [(str(host), int(port)) for host, port in found[1]["addresses"]]
        yield Leader(tuple(addresses), found[1]["key"])

    def close(self) -> None:
        """Leave MPI as it is."""

    def abort(self, exit_code: int) -> None:
        """End all ranks."""
        self._comm.Abort(exit_code)


Launch: TypeAlias = MpiLaunch | Meeting


class RankPlaces(HostedPlaces):
    """The leader's side: one place per rank, rank 0 included."""

    def __init__(self, launch: Launch, environment: dict[str, str]) -> None:
        super().__init__([Place("", 0)] * launch.size, {}, environment)
        self._launch = launch

    def call_roll(self, timeout_s: float, *, all_report: bool = True) -> None:
        """Tell all ranks the leader's address, and wait for their reports.

        Raises:
            MeasurementError: A rank did not report, and all must.
        """
        size, name = self._launch.size, self._launch.name
        go_on = self._launch.tell(Leader(self.listener.addresses, self.listener.key.hex()))
        reports = {0: _own_report()}
        lost: dict[int, str] = {}
        deadline = time.monotonic() + timeout_s
        while len(reports) + len(lost) < size and time.monotonic() < deadline:
            go_on()
            try:
                if (found := self.listener.accept(0.1)) is not None:
                    connection, greeting = found
                    self._hosts[greeting.number] = Member(f"rank {greeting.number}", connection)
                    report = from_bytes(greeting.text.encode()).content(RankReport)
                    reports[greeting.number] = report
            except OtherReleaseError as error:
                lost[error.number] = str(error)
        self._launch.close()
        where = self.listener.addresses[0][0]
        for rank in set(range(size)) - reports.keys():
            why = f"it did not report within {timeout_s:g} s over TCP to {where}{self._launch.hint}"
            self._hosts[rank] = Member(f"rank {rank}", None, lost=lost.get(rank, why))
        if all_report and len(reports) < size:
            late = next(host for _, host in sorted(self._hosts.items()) if host.lost)
            raise MeasurementError(f"{name} {late.name}: {late.lost}")
        self.places = places_of([reports.get(rank) for rank in range(size)])
        for rank, host in self._hosts.items():
            if not host.lost:
                host.name = f"{name} rank {rank} on {self.places[rank].host}"

    def dismiss(self, exit_code: int) -> Collection[int]:
        """Send every rank its exit code; return the lost ranks, silent ones included."""
        self._leave()
        missing = set(range(1, self._launch.size)) - self._hosts.keys()
        return missing | dismiss(self._hosts, exit_code)

    def say_farewell(self) -> None:
        """Let the ranks finalize MPI."""
        for host in self._hosts.values():
            if host.connection is not None:
                with suppress(ConnectionLostError):
                    host.connection.send(b"farewell")


def _dismiss(launch: Launch, places: RankPlaces | None, exit_code: int) -> None:
    # Any rank may be lost if there is no leader or this is interrupted.
    lost: Collection[int] = range(1, launch.size)
    try:
        if places is not None:
            lost = places.dismiss(exit_code)
    except BaseException:
        exit_code = exit_code or 1
        raise
    finally:
        launch.close()
        if lost and isinstance(launch, MpiLaunch):
            _abort_at_exit(launch, exit_code, lost)
        elif places is not None:
            places.say_farewell()


def _abort_at_exit(launch: MpiLaunch, exit_code: int, lost: Collection[int]) -> None:
    """Make this process abort the job when it exits, as MPI_Finalize would wait for lost ranks."""
    ranks = ", ".join(map(str, sorted(lost)))

    def abort() -> None:
        flush()
        with suppress(OSError):
            os.write(2, f"tuccl: no answer from rank {ranks}: the MPI job is ended\n".encode())
        launch.abort(exit_code)

    atexit.register(abort)


def _end_terminated() -> None:
    """End rank 0 after SIGTERM, without a word to the other ranks.

    The launcher, which sends SIGTERM to all ranks and kills them a moment later, has ended most of
    them by then: rank 0 would wait for their answers, and for them to finalize MPI.
    """
    tell_stopped(ExitCode.TERMINATED)
    gc.collect()  # Named semaphores of worker processes go with their objects.
    flush()
    os._exit(ExitCode.TERMINATED)


def _follow(launch: Launch, environment: dict[str, str], timeout_s: float) -> int:
    """Run a rank other than 0: find the leader, then do what it asks until it is dismissed."""
    found: list[Connection] = []
    if isinstance(launch, MpiLaunch):
        atexit.register(_await_farewell, found)
    greeting = Greeting("host", launch.rank, to_bytes(launch.rank, _own_report()).decode())
    why: Exception | None = None
    for leader in launch.hear(timeout_s):
        try:
            connection = connect(leader.addresses, bytes.fromhex(leader.key), greeting)
        except OtherReleaseError as error:
            raise MeasurementError(f"{launch.name} rank {launch.rank}: {error}") from error
        except (ConnectionLostError, MessageError) as error:
            why = error
            continue
        found.append(connection)
        # Workers need not try the addresses at which this host failed.
        hosting = Hosting(environment, (connection.peer,), leader.key)
        return serve(connection, Duties(environment, {"hosting": hosting}))
    raise MeasurementError(f"{launch.name} rank {launch.rank}: {why}") from why


def _await_farewell(leader: Sequence[Connection]) -> None:
    """Delay MPI_Finalize of this process until the leader's farewell, its last message.

    If ranks are lost the leader aborts instead. A rank inside MPI_Finalize can then hang mpirun
    forever: Open MPI 4.1.4 with PMIx 4.2.2 did in 13 of 197 jobs, and in none of 800 without such
    a rank.
    """
    flush()
    try:
        for connection in leader:
            connection.receive()
            return
    except (ConnectionLostError, MessageError):
        pass
    while True:
        signal.pause()


@dataclass(frozen=True, slots=True)
class RankReport:
    """A rank's host, and the cores on which its workers may run."""

    identity: HostIdentity
    cores: frozenset[int]


def _own_report() -> RankReport:
    return RankReport(own_identity(), own_cores())


def places_of(reports: Sequence[RankReport | None]) -> tuple[Place, ...]:
    """Return the places in the order of the ranks; local ranks count from 0 on each host.

    Hosts of equal names, as containers may have, are numbered from the second on. A rank without a
    report counts as a host of its own.
    """
    namesakes: dict[str, list[HostIdentity]] = {}
    identities = [
        HostIdentity(f"rank {rank}") if report is None else report.identity
        for rank, report in enumerate(reports)
    ]
    places = []
    for rank, (identity, report) in enumerate(zip(identities, reports, strict=True)):
        hosts = namesakes.setdefault(identity.hostname, [])
        if identity not in hosts:
            hosts.append(identity)
        number = hosts.index(identity)
        name = f"{identity.hostname}#{number + 1}" if number else identity.hostname
        cores = frozenset[int]() if report is None else report.cores
        places.append(Place(name, identities[:rank].count(identity), cores))
    return tuple(places)
