"""The ranks of an MPI job as places for workers: rank 0 leads, each hosts its device's workers.

The launcher starts each rank once, so ranks cannot be restarted with another environment; their
workers, which are child processes, can. MPI is used once, to send the ranks the leader's address;
after that all messages take sockets, where a lost rank is seen at once and no process polls.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from probes.cluster.mpi_post import RANK_PAUSE_S, Post
from probes.cluster.mpi_start import join_mpi, own_identity, run_ranks
from probes.host.report import HostIdentity
from tuccl.errors import ConnectionLostError, MeasurementError, MessageError
from tuccl.measuring.workers.connection import Connection, Greeting, Listener, connect
from tuccl.measuring.workers.cores import own_cores
from tuccl.measuring.workers.messages import (
    Bye,
    Done,
    EndWorkers,
    Message,
    StartWorker,
    TellEnd,
    WorkerOrder,
    from_bytes,
    to_bytes,
)
from tuccl.measuring.workers.pending_connections import MOST_WAITING
from tuccl.measuring.workers.places import Place
from tuccl.measuring.workers.worker_process import Staff

_WHERE = 21
"""Tag of the message with the leader's address; tags of `probes.cluster.mpi` are low."""
_REPLY_S = 30.0
"""Time for a rank to answer a simple request, killing a worker included."""


def run_measuring_ranks(
    tasks: int,
    lead: Callable[[MpiPlaces], int],
    code_of_error: Callable[[BaseException], int],
    timeout_s: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Lead on rank 0, host workers on all ranks; every rank returns rank 0's exit code.

    Args:
        tasks: Number of tasks that the launcher started.
        lead: Function that rank 0 runs with the places; returns the exit code.
        code_of_error: The exit code when `lead` raises.
        timeout_s: Time for ranks to report.
        environment: Environment of this rank's workers; None: that of this process.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher.
        MeasurementError: A rank did not report.
    """
    comm = join_mpi(tasks, timeout_s)
    return run_ranks(
        comm,
        lambda own: MpiPlaces(own, environment),
        lead,
        lambda own: _follow(own, environment),
        code_of_error,
        timeout_s,
    )


class MpiPlaces:
    """The leader's side: one place per rank, rank 0 included."""

    def __init__(self, comm: Any, environment: Mapping[str, str] | None = None) -> None:
        self._comm = comm
        self.listener = Listener("", _own_addresses(), MOST_WAITING + 2 * comm.Get_size())
        self.places: tuple[Place, ...] = ()
        self._staff = Staff(environment)
        self._place_of: dict[int, int] = {}
        """Place by worker, for all workers ever started."""
        self._hosts: dict[int, Connection] = {}
        """Connections by rank, without this rank."""
        self._lost: dict[int, str] = {}

    def call_roll(self, timeout_s: float) -> None:
        """Send all ranks the leader's address, and wait for their reports.

        Raises:
            MeasurementError: A rank did not report.
        """
        post = Post(self._comm)
        size = self._comm.Get_size()
        where = {"addresses": self.listener.addresses, "key": self.listener.key.hex()}
        for rank in range(1, size):
            post.send(rank, _WHERE, json.dumps(where).encode())
        reports = {0: _own_report()}
        deadline = time.monotonic() + timeout_s
        while len(reports) < size:
            late = sorted(set(range(size)) - reports.keys())
            if time.monotonic() > deadline:
                self._lost.update(dict.fromkeys(late, "it did not report"))
                raise MeasurementError(
                    f"MPI rank {late[0]} did not report within {timeout_s:g} s: see whether its "
                    f"host reaches this one at {self.listener.addresses[0][0]} over TCP"
                )
            try:
                found = self.listener.accept(0.1)
            except MessageError as error:
                raise MeasurementError(str(error)) from error
            if found is not None:
                self._hosts[found[1].number] = found[0]
                reports[found[1].number] = _report_from_json(found[1].text)
        self.places = places_of([reports[rank] for rank in range(size)])

    def start(self, place: int, engine: str, environment: Mapping[str, str]) -> int:
        """See `Places`."""
        number = len(self._place_of) + 1
        self._place_of[number] = place
        if place == 0:
            here = (("127.0.0.1", self.listener.addresses[0][1]),)
            order = WorkerOrder(number, engine, here, self.listener.key.hex())
            self._staff.start(order, environment)
        else:
            self._send(place, StartWorker(number, engine, dict(environment)))
        return number

    def ended(self, worker: int, patience_s: float) -> str:
        """See `Places`."""
        place = self._place_of[worker]
        if place == 0:
            return self._staff.ended(worker, patience_s)
        self._send(place, TellEnd(worker, patience_s))
        return self._reply(place, patience_s)

    def end(self, workers: Sequence[int], patience_s: float) -> None:
        """See `Places`."""
        at: dict[int, list[int]] = {}
        for worker in workers:
            at.setdefault(self._place_of[worker], []).append(worker)
        own = at.pop(0, [])
        for place, numbers in at.items():
            self._send(place, EndWorkers(tuple(numbers), patience_s))
        self._staff.end(own, patience_s)
        for place in at:
            self._reply(place, patience_s)

    def close(self) -> None:
        """See `Places`; the ranks stay until they are dismissed."""
        if not self._lost:
            self.end(list(self._place_of), 0.0)
        self._staff.end_all()

    def dismiss(self, exit_code: int) -> Collection[int]:
        """Send every rank its exit code; return the lost ranks, silent ones included."""
        self._staff.end_all()
        lost = self._lost.keys() | set(range(1, self._comm.Get_size())) - self._hosts.keys()
        for rank, connection in self._hosts.items():
            try:
                connection.send(to_bytes(Bye(exit_code)))
            except ConnectionLostError:
                lost.add(rank)
        deadline = time.monotonic() + _REPLY_S
        for rank, connection in self._hosts.items():
            if rank not in lost:
                try:
                    connection.receive(max(0.0, deadline - time.monotonic()))
                except (ConnectionLostError, MessageError):
                    lost.add(rank)
            connection.close()
        self.listener.close()
        return lost

    def _send(self, rank: int, message: Message) -> None:
        try:
            self._hosts[rank].send(to_bytes(message))
        except ConnectionLostError as error:
            raise self._loss(rank, error) from error

    def _reply(self, rank: int, patience_s: float) -> str:
        try:
            reply = from_bytes(self._hosts[rank].receive(patience_s + _REPLY_S))
        except (ConnectionLostError, MessageError) as error:
            raise self._loss(rank, error) from error
        return reply.text if isinstance(reply, Done) else f"it answered {type(reply).__name__}"

    def _loss(self, rank: int, error: Exception) -> MeasurementError:
        self._lost[rank] = str(error)
        host = self.places[rank].host if self.places else "its host"
        return MeasurementError(
            f"MPI rank {rank} on {host} is lost ({error}): look after it and start the same "
            "command again, which continues from here"
        )


def _follow(comm: Any, environment: Mapping[str, str] | None) -> int:
    """Run a rank other than 0: find the leader, then host workers until it is dismissed."""
    post = Post(comm)
    while (letter := post.take(_WHERE)) is None:
        time.sleep(RANK_PAUSE_S)
    where = json.loads(letter[1])
    greeting = Greeting("host", comm.Get_rank(), _report_to_json(_own_report()))
    addresses = [(str(host), int(port)) for host, port in where["addresses"]]
    key = bytes.fromhex(where["key"])
    try:
        connection = connect(addresses, key, greeting)
    except (ConnectionLostError, MessageError) as error:
        raise MeasurementError(f"MPI rank {comm.Get_rank()}: {error}") from error
    try:
        return host_workers(connection, key, environment)
    finally:
        connection.close()


def host_workers(connection: Connection, key: bytes, environment: Mapping[str, str] | None) -> int:
    """Start and end workers at the leader's request; return the exit code that it sends at the end.

    Args:
        connection: Connection to the leader.
        key: The run's key, for the workers.
        environment: Environment of the workers; None: that of this process.
    """
    staff = Staff(environment)
    try:
        while True:
            message = from_bytes(connection.receive())
            match message:
                case StartWorker(number, engine, variables):
                    # The worker need not try the addresses at which this host failed.
                    order = WorkerOrder(number, engine, (connection.peer,), key.hex())
                    staff.start(order, variables)
                case EndWorkers(numbers, patience_s):
                    staff.end(numbers, patience_s)
                    connection.send(to_bytes(Done()))
                case TellEnd(number, patience_s):
                    connection.send(to_bytes(Done(staff.ended(number, patience_s))))
                case Bye(exit_code):
                    staff.end_all()
                    connection.send(to_bytes(Done()))
                    return exit_code
                case _:
                    raise MessageError(f"a host cannot do {type(message).__name__}")
    except (ConnectionLostError, MessageError):
        return 1  # The leader reports the cause, if it still can.
    finally:
        staff.end_all()


@dataclass(frozen=True, slots=True)
class RankReport:
    """A rank's host, and the cores on which its workers may run."""

    identity: HostIdentity
    cores: frozenset[int]


def _own_report() -> RankReport:
    return RankReport(own_identity(), own_cores())


def _report_to_json(report: RankReport) -> str:
    return json.dumps({"identity": asdict(report.identity), "cores": sorted(report.cores)})


def _report_from_json(text: str) -> RankReport:
    members = json.loads(text)
    return RankReport(HostIdentity(**members["identity"]), frozenset(members["cores"]))


def places_of(reports: Sequence[RankReport]) -> tuple[Place, ...]:
    """Return the places in the order of the ranks; local ranks count from 0 on each host.

    Hosts of equal names, as containers may have, are numbered from the second on.
    """
    namesakes: dict[str, list[HostIdentity]] = {}
    identities = [report.identity for report in reports]
    places = []
    for rank, identity in enumerate(identities):
        hosts = namesakes.setdefault(identity.hostname, [])
        if identity not in hosts:
            hosts.append(identity)
        number = hosts.index(identity)
        name = f"{identity.hostname}#{number + 1}" if number else identity.hostname
        places.append(Place(name, identities[:rank].count(identity), reports[rank].cores))
    return tuple(places)


def _own_addresses() -> list[str]:
    """Return this host's addresses for other hosts; loopback last, for ranks of this host."""
    found = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family.name == "AF_INET"
    ]
    return sorted(found, key=lambda address: (address.startswith("127."), address)) or ["127.0.0.1"]
