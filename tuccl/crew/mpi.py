"""The ranks of an MPI job as places: rank 0 leads, each rank hosts the workers of its device.

MPI is used once, to send the ranks the leader's address and the key of the run. After that all
messages take sockets, where a lost rank is noticed at once and no process polls. No collective
operation is used, because one rank that hangs would hang all. mpi4py is imported on first use.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from probes.host.report import HostIdentity
from tuccl.crew.asking import Member
from tuccl.crew.connection import Connection, Greeting, connect
from tuccl.crew.cores import own_cores
from tuccl.crew.duties import Duties
from tuccl.crew.hosting import Hosting
from tuccl.crew.interrupts import failures_by_signals, tell_stopped
from tuccl.crew.messages import from_bytes, to_bytes
from tuccl.crew.mpi_start import flush, join_mpi, own_identity
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
        if (tasks := _number(environment.get(name, ""))) > 0:
            return tasks
    if "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        count = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS", "")
        return tasks if (tasks := _number(count)) > 1 else 0
    return 1 if "PMIX_RANK" in environment else 0


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0


def run_ranks(
    lead: Callable[[MpiPlaces | None], int],
    timeout_s: float = START_S,
    environment: Mapping[str, str] | None = None,
    *,
    all_report: bool = True,
) -> int:
    """Lead on rank 0, host workers on all ranks; every rank returns rank 0's exit code.

    If ranks are lost, the job ends when rank 0 exits. Without MPI this process leads alone.

    Args:
        lead: Runs on rank 0 with the places, if MPI started several, and returns the exit code.
        timeout_s: Time for MPI to start, and for ranks to report.
        environment: Environment of this rank's workers; that of this process if left out.
        all_report: Whether a rank that does not report is an error; otherwise its place is lost.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher.
        MeasurementError: A rank did not report.
    """
    tasks = mpi_tasks(os.environ)
    if tasks < 2:
        return lead(None)
    comm = join_mpi(tasks, timeout_s)
    own = dict(os.environ if environment is None else environment)
    if comm.Get_rank():
        return _follow(comm, own)
    places: MpiPlaces | None = None
    code = 1
    try:
        with failures_by_signals():
            places = MpiPlaces(comm, own)
            places.call_roll(timeout_s, all_report=all_report)
            code = lead(places)
    except Terminated:
        _end_terminated()
    except BaseException as error:
        code = exit_code_of(error)
        raise
    finally:
        _dismiss(comm, places, code)
    return code


class MpiPlaces(HostedPlaces):
    """The leader's side: one place per rank, rank 0 included."""

    def __init__(self, comm: Any, environment: dict[str, str]) -> None:
        super().__init__([Place("", 0)] * comm.Get_size(), {}, environment)
        self._comm = comm

    def call_roll(self, timeout_s: float, *, all_report: bool = True) -> None:
        """Send all ranks the leader's address, and wait for their reports.

        Raises:
            MeasurementError: A rank did not report, and all must.
        """
        size = self._comm.Get_size()
        leader = {"addresses": self.listener.addresses, "key": self.listener.key.hex()}
        sending = [self._comm.isend(leader, dest=rank, tag=_WHERE) for rank in range(1, size)]
        reports = {0: _own_report()}
        lost: dict[int, str] = {}
        deadline = time.monotonic() + timeout_s
        while len(reports) + len(lost) < size and time.monotonic() < deadline:
            # This also lets MPI go on with what it still has to send.
            sending = [request for request in sending if not request.Test()]
            try:
                if (found := self.listener.accept(0.1)) is not None:
                    connection, greeting = found
                    self._hosts[greeting.number] = Member(f"rank {greeting.number}", connection)
                    report = from_bytes(greeting.text.encode()).content(RankReport)
                    reports[greeting.number] = report
            except OtherReleaseError as error:
                lost[error.number] = str(error)
        where = self.listener.addresses[0][0]
        for rank in set(range(size)) - reports.keys():
            why = f"it did not report within {timeout_s:g} s over TCP to {where}"
            self._hosts[rank] = Member(f"rank {rank}", None, lost=lost.get(rank, why))
        if all_report and len(reports) < size:
            late = next(host for _, host in sorted(self._hosts.items()) if host.lost)
            raise MeasurementError(f"MPI {late.name}: {late.lost}")
        self.places = places_of([reports.get(rank) for rank in range(size)])
        for rank, host in self._hosts.items():
            if not host.lost:
                host.name = f"MPI rank {rank} on {self.places[rank].host}"

    def dismiss(self, exit_code: int) -> Collection[int]:
        """Send every rank its exit code; return the lost ranks, silent ones included."""
        self._leave()
        missing = set(range(1, self._comm.Get_size())) - self._hosts.keys()
        return missing | dismiss(self._hosts, exit_code)

    def say_farewell(self) -> None:
        """Let the ranks finalize MPI."""
        for host in self._hosts.values():
            if host.connection is not None:
                with suppress(ConnectionLostError):
                    host.connection.send(b"farewell")


def _dismiss(comm: Any, places: MpiPlaces | None, exit_code: int) -> None:
    # Any rank may be lost if there is no leader or this is interrupted.
    lost: Collection[int] = range(1, comm.Get_size())
    try:
        if places is not None:
            lost = places.dismiss(exit_code)
    except BaseException:
        exit_code = exit_code or 1
        raise
    finally:
        if lost:
            _abort_at_exit(comm, exit_code, lost)
        elif places is not None:
            places.say_farewell()


def _abort_at_exit(comm: Any, exit_code: int, lost: Collection[int]) -> None:
    """Make this process abort the job when it exits, as MPI_Finalize would wait for lost ranks."""
    ranks = ", ".join(map(str, sorted(lost)))

    def abort() -> None:
        flush()
        with suppress(OSError):
            os.write(2, f"tuccl: no answer from rank {ranks}: the MPI job is ended\n".encode())
        comm.Abort(exit_code)

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


def _follow(comm: Any, environment: dict[str, str]) -> int:
    """Run a rank other than 0: find the leader, then do what it asks until it is dismissed."""
    leader: list[Connection] = []
    atexit.register(_await_farewell, leader)
    request = comm.irecv(source=0, tag=_WHERE)
    while not (found := request.test())[0]:
        time.sleep(_RANK_PAUSE_S)
    where, rank = found[1], comm.Get_rank()
    greeting = Greeting("host", rank, to_bytes(rank, _own_report()).decode())
    addresses = [(str(host), int(port)) for host, port in where["addresses"]]
    try:
        connection = connect(addresses, bytes.fromhex(where["key"]), greeting)
    except (ConnectionLostError, MessageError) as error:
        raise MeasurementError(f"MPI rank {rank}: {error}") from error
    leader.append(connection)
    # Workers need not try the addresses at which this host failed.
    hosting = Hosting(environment, (connection.peer,), where["key"])
    return serve(connection, Duties(environment, {"hosting": hosting}))


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
