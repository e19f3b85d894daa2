"""The ranks of a job as places: rank 0 leads, each rank hosts the workers of its device.

A rank that is alone on its host, as the process of a pod is, hosts those of all devices there.

Ranks get the leader's address and the key of the run over MPI (`tuccl.crew.mpi`), or from a file or
variables if their launcher has no MPI (`tuccl.crew.meeting`). After that all messages go over
sockets, on which a lost rank is noticed at once and no process polls.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NoReturn, TypeAlias

from probes.host.report import HostIdentity
from tuccl.crew.asking import Member
from tuccl.crew.connection import Connection, Greeting, Listener, connect
from tuccl.crew.cores import own_cores
from tuccl.crew.hosting import serve_as_host
from tuccl.crew.interrupts import failures_by_signals, leave_the_word, tell_stopped
from tuccl.crew.meeting import (
    JOB_KEY,
    Leader,
    Meeting,
    agreed_leader,
    require_same_options,
    told_options,
)
from tuccl.crew.messages import from_bytes, to_bytes
from tuccl.crew.mpi import MpiLaunch, join_mpi
from tuccl.crew.places import Place, Places, dismiss, own_addresses
from tuccl.crew.started_rank import is_first_on_host, started_rank
from tuccl.crew.worker_process import kill_children
from tuccl.errors import (
    ConnectionLostError,
    ExitCode,
    HostError,
    MeasurementError,
    MessageError,
    OtherReleaseError,
    Terminated,
    TucclError,
    UsageError,
    exit_code_of,
)

START_S = 60.0
"""Time for MPI to start, and for ranks to report."""
END_S = 30.0
"""Time for MPI, and for ranks, to end."""
_REFUSED_S = 3.0
"""Time for all others to report if the job fails because of one."""


def run_ranks(
    lead: Callable[[RankPlaces | None], int],
    timeout_s: float = START_S,
    environment: Mapping[str, str] | None = None,
    *,
    all_report: bool = True,
    meeting: Path | None = None,
    output: Path | None = None,
    count_gpus: Callable[[], int] = lambda: 1,
) -> int:
    """Lead on rank 0, host workers on all ranks; every rank returns rank 0's exit code.

    If ranks are lost, the job ends when rank 0 exits. Without a launcher this process leads alone.
    What keeps all ranks from meeting is told once: rank 1 raises it, for rank 0 may not be there,
    and what is wrong with MPI the first rank of each host.

    Args:
        lead: Runs on rank 0 with the places, if there are several ranks, and returns the exit code.
        timeout_s: Time for MPI to start, and for ranks to report.
        environment: Environment of this rank's workers; that of this process if left out.
        all_report: Whether a rank that does not report is an error; otherwise its place is lost.
        meeting: Directory in which ranks find each other without MPI. None: ranks can only meet
            over MPI, and a process that another launcher started runs on its own.
        output: File that such processes would all write, if there is one.
        count_gpus: Returns the number of GPUs that this process sees, at least one.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher; rank 0 left no address
            in the directory, or cannot listen.
        UsageError: See `agreed_leader`; the ranks' options differ, or all would write `output`.
        MeasurementError: A rank did not report, or rank 0 is gone.
    """
    own = dict(os.environ if environment is None else environment)
    own.pop(JOB_KEY, None)
    try:
        launch = _launch(timeout_s, meeting, output)
    except TucclError as error:
        if is_first_on_host(os.environ):
            raise
        return leave_the_word(exit_code_of(error))
    if launch is None:
        return lead(None)
    _end_on_sigterm(leads=launch.rank == 0)
    if launch.rank:
        try:
            return _follow(launch, own, timeout_s, _own_report(count_gpus()))
        except TucclError as error:
            if launch.rank == 1:
                raise
            return leave_the_word(exit_code_of(error))
    places: RankPlaces | None = None
    code, is_named = 1, False
    try:
        with failures_by_signals():
            places = RankPlaces(launch, own)
            places.call_roll(timeout_s, _own_report(count_gpus()), all_report=all_report)
            code = lead(places)
    except Terminated:
        _end_terminated()
    except BaseException as error:
        code, is_named = exit_code_of(error), isinstance(error, MeasurementError)
        raise
    finally:
        silent = _dismiss(launch, places, code, is_named=is_named)
    if silent and isinstance(launch, Meeting):
        ranks = ", ".join(map(str, sorted(silent)))
        done = f"the command itself has ended with exit code {code}"
        sys.stderr.write(f"tuccl: no answer from rank {ranks} that {launch.name} started; {done}\n")
        # If a rank fails, torchrun and `srun --kill-on-bad-exit` end the others.
        return code or ExitCode.ENVIRONMENT
    return code


def _launch(timeout_s: float, meeting: Path | None, output: Path | None) -> Launch | None:
    """Return how this process was launched; None: it is the only one."""
    started = started_rank(os.environ)
    if started is None:
        return None
    met = None
    if meeting is not None:
        met = Meeting(meeting, started, agreed_leader(os.environ, started))
    if not started.has_mpi:
        if met is None and output is not None:
            raise UsageError(
                f"{started.launcher} started {started.size} ranks, and each would write {output}: "
                "only MPI and --hosts let them do it as one; start it once, or leave the file out"
            )
        if met is None and started.rank == 0:
            sys.stderr.write(
                f"note: {started.launcher} started {started.size} ranks, and each does this for "
                "itself alone: only MPI and --hosts let them do it as one\n"
            )
        return met
    try:
        return MpiLaunch(join_mpi(started.size, timeout_s))
    except HostError:
        if met is None:
            raise
        return met


Launch: TypeAlias = MpiLaunch | Meeting


class RankPlaces(Places):
    """The leader's side: one place per rank, rank 0 included."""

    def __init__(self, launch: Launch, environment: dict[str, str]) -> None:
        super().__init__([Place("", 0)] * launch.size, environment)
        self._launch = launch

    @cached_property
    def listener(self) -> Listener:
        """See `Places`.

        Raises:
            HostError: The port that was agreed on cannot be had.
        """
        if (agreed := self._launch.agreed) is None:
            return super().listener
        port = agreed.addresses[0][1]
        try:
            return Listener(
                "", own_addresses(), self._most_waiting, port, bytes.fromhex(agreed.key)
            )
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise HostError(
                f"rank 0 of {self._launch.size} that {self._launch.name} started cannot listen at "
                f"port {port}: {why}; set another MASTER_PORT on all hosts"
            ) from error

    def call_roll(self, timeout_s: float, own: RankReport, *, all_report: bool = True) -> None:
        """Tell all ranks the leader's address, and wait for their reports beside its own.

        Raises:
            MeasurementError: A rank did not report, and all must.
            UsageError: A rank was given other options than this one.
        """
        size, name = self._launch.size, self._launch.name
        self._launch.tell(Leader(self.listener.addresses, self.listener.key.hex()))
        reports = {0: own}
        lost: dict[int, str] = {}
        deadline = time.monotonic() + timeout_s
        while len(reports) + len(lost) < size and time.monotonic() < deadline:
            self._launch.go_on()
            try:
                if (found := self.listener.accept(0.1)) is not None:
                    connection, greeting = found
                    report = from_bytes(greeting.text.encode()).content(RankReport)
                    if reports.setdefault(greeting.number, report) != report:
                        raise MeasurementError(
                            f"{name} rank {greeting.number} reported twice: two jobs of one name "
                            "have met; give each a workspace of its own"
                        )
                    self._hosts[greeting.number] = Member(f"rank {greeting.number}", connection)
            except OtherReleaseError as error:
                lost[error.number] = str(error)
                if all_report:  # That rank soon ends, and then a launcher ends all.
                    deadline = min(deadline, time.monotonic() + _REFUSED_S)
        self._launch.close()
        where = self.listener.addresses[0][0]
        for rank in set(range(size)) - reports.keys():
            why = f"it did not report within {timeout_s:g} s over TCP to {where}{self._launch.hint}"
            self._hosts[rank] = Member(f"rank {rank}", None, lost=lost.get(rank, why))
        if all_report and len(reports) < size:
            late = next(host for _, host in sorted(self._hosts.items()) if host.lost)
            raise MeasurementError(f"{name} {late.name}: {late.lost}")
        options = {rank: report.options for rank, report in reports.items()}
        require_same_options(name, options[0], options)
        of_ranks = places_of([reports.get(rank) for rank in range(size)])
        for rank, host in self._hosts.items():
            if not host.lost:
                host.name = f"{name} rank {rank} on {of_ranks[rank].host}"
        gpus = [reports[rank].gpus if rank in reports else 1 for rank in range(size)]
        self.places, self._served_by = with_all_gpus(of_ranks, gpus)

    @property
    def lost(self) -> frozenset[int]:
        """The ranks that are lost."""
        return frozenset(rank for rank, host in self._hosts.items() if host.lost)

    def dismiss(self, exit_code: int) -> Collection[int]:
        """Send every rank its exit code; return the lost ranks, silent ones included."""
        self._leave()
        others = {rank: host for rank, host in self._hosts.items() if rank}
        return set(range(1, self._launch.size)) - others.keys() | dismiss(others, exit_code)

    def await_ends(self, timeout_s: float) -> set[int]:
        """Wait for the end of dismissed ranks, at which their connections close; return the late.

        A rank that was stopped after its answer would keep the launcher.
        """
        deadline = time.monotonic() + timeout_s
        late = set()
        for rank, host in self._hosts.items():
            if rank and host.connection is not None and not host.lost:
                poll = select.poll()
                poll.register(host.connection.fileno(), select.POLLIN)
                if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1e3):
                    late.add(rank)
        return late

    def say_farewell(self) -> None:
        """Let the ranks finalize MPI."""
        for host in self._hosts.values():
            if host.connection is not None:
                with suppress(ConnectionLostError):
                    host.connection.send(b"farewell")


def _dismiss(
    launch: Launch, places: RankPlaces | None, exit_code: int, *, is_named: bool
) -> Collection[int]:
    """Dismiss all ranks; return those that are lost since the leader ended."""
    # Any rank may be lost if there is no leader or this is interrupted.
    lost: Collection[int] = range(1, launch.size)
    known = frozenset(lost) if places is None else places.lost
    try:
        if places is not None:
            lost = places.dismiss(exit_code)
            if exit_code == 0 and isinstance(launch, Meeting):
                lost = {*lost, *places.await_ends(END_S)}
    except BaseException:
        exit_code = exit_code or 1
        raise
    finally:
        launch.close()
        if isinstance(launch, MpiLaunch) and lost:
            _abort_at_exit(launch, exit_code, () if is_named else lost)
        elif isinstance(launch, MpiLaunch) and places is not None:
            launch.end_within(END_S, exit_code)
            # The last word: if ranks then fail, mpirun soon ends this process.
            places.say_farewell()
    return set(lost) - known


def _abort_at_exit(launch: MpiLaunch, exit_code: int, lost: Collection[int]) -> None:
    """Make this process abort the job when it exits, as MPI_Finalize would wait for lost ranks.

    Args:
        launch: The job.
        exit_code: Its exit code.
        lost: The ranks to name; empty: an error has named one.
    """
    ranks = ", ".join(map(str, sorted(lost)))

    def abort() -> None:
        _flush()
        if ranks:
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
    _flush()
    os._exit(ExitCode.TERMINATED)


def _follow(
    launch: Launch, environment: dict[str, str], timeout_s: float, report: RankReport
) -> int:
    """Run a rank other than 0: find the leader, then do what it asks until it is dismissed."""
    found: list[Connection] = []
    if isinstance(launch, MpiLaunch):
        atexit.register(_await_farewell, found)
    greeting = Greeting("host", launch.rank, to_bytes(launch.rank, report).decode())
    why: Exception | None = None
    for leader in launch.hear(timeout_s):
        try:
            connection = connect(leader.addresses, bytes.fromhex(leader.key), greeting)
        except OtherReleaseError:
            return leave_the_word(ExitCode.ENVIRONMENT)  # Rank 0 names this host.
        except (ConnectionLostError, MessageError) as error:
            why = error
            continue
        found.append(connection)
        where = connection.peer[0]
        gone: list[Exception] = []
        code = serve_as_host(connection, environment, leader.key, gone.append)
        if gone and isinstance(launch, Meeting):
            raise MeasurementError(
                f"{launch.name} rank {launch.rank}: rank 0 on {where} is gone, or has "
                "given this rank up: start the same command again, which continues"
            )
        if isinstance(launch, Meeting):
            if code:
                return leave_the_word(code, connection.receive)
            os.dup(connection.fileno())  # Its end is that of this process, which rank 0 awaits.
        return code
    raise MeasurementError(f"{launch.name} rank {launch.rank}: {why}") from why


def _await_farewell(leader: Sequence[Connection]) -> None:
    """Delay MPI_Finalize of this process until the leader's farewell, its last message.

    If ranks are lost the leader aborts instead. A rank inside MPI_Finalize can then hang mpirun
    forever: Open MPI 4.1.4 with PMIx 4.2.2 did in 13 of 197 jobs, and in none of 800 without such
    a rank.
    """
    _flush()
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
    """A rank's host, the cores on which its workers may run, and what it was started with."""

    identity: HostIdentity
    cores: frozenset[int]
    pid: int = 0
    options: tuple[str, ...] = ()
    gpus: int = 1
    """GPUs that it sees."""


def _own_report(gpus: int) -> RankReport:
    return RankReport(own_identity(), own_cores(), os.getpid(), told_options(sys.argv[1:]), gpus)


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


def with_all_gpus(
    of_ranks: Sequence[Place], gpus: Sequence[int]
) -> tuple[tuple[Place, ...], tuple[int, ...]]:
    """Return the places of ranks that see so many GPUs, and the rank of each.

    A rank that is alone on its host has a place for each GPU, any other has one.
    """
    on_host = Counter(place.host for place in of_ranks)
    found = [
        (replace(place, local_rank=place.local_rank + number), rank)
        for rank, place in enumerate(of_ranks)
        for number in range(gpus[rank] if on_host[place.host] == 1 else 1)
    ]
    return tuple(place for place, _ in found), tuple(rank for _, rank in found)


def _end_on_sigterm(*, leads: bool) -> None:
    """Let SIGTERM end this process and its children; rank 0 keeps its own handler if it has one."""
    if not leads or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: _end(report=leads))


def _end(*, report: bool) -> NoReturn:
    """End this process: launchers send SIGTERM when a rank dies, and SIGKILL a moment later."""
    if report:
        text = "tuccl: stopped by the launcher, which says why: a rank died, or time is up\n"
        os.write(2, text.encode())
    kill_children()
    os._exit(143)


def own_identity() -> HostIdentity:
    """Identity that two ranks share exactly if they run on one host."""
    namespace = boot_id = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/net")  # noqa: PTH115 - not a path but a name
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return HostIdentity(socket.gethostname(), boot_id, namespace)


def _flush() -> None:
    """Write what is left of both streams."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # The reader is gone, which does not end the job.
            stream.flush()
