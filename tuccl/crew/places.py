"""Places for workers: `Places`, and those of this host, `LocalPlaces`.

A place belongs to a host process, which starts the workers there as its children: this process (in
a thread, asked as the others are), a rank of a job (`tuccl.crew.ranks`), a process that a launcher
such as ssh has started (`tuccl.crew.launched`), or an actor of Ray (`tuccl.crew.ray_places`). They
cannot be started again with another environment; their workers can. Host processes can be asked,
too (`Places.ask`).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psutil

from tuccl.crew.asking import Member, ask
from tuccl.crew.connection import Connection, Listener
from tuccl.crew.cores import own_cores
from tuccl.crew.duties import Duties
from tuccl.crew.hosting import EndWorkers, Hosting, HowEnded, StartWorker
from tuccl.crew.messages import Bye, Done, Request
from tuccl.crew.pending_connections import MOST_WAITING
from tuccl.crew.serving import serve
from tuccl.errors import MeasurementError

REPLY_S = 30.0
"""Time for a host to answer a simple request, killing a worker included."""


@dataclass(frozen=True, slots=True)
class Place:
    """One device of one host, for one worker at a time."""

    host: str
    local_rank: int
    """Number of the device on its host."""
    cores: frozenset[int] = frozenset()
    """Cores of the host on which the worker may run."""


def places_of_hosts(slots: Sequence[tuple[str, int]]) -> tuple[list[Place], list[int]]:
    """Return the places of hosts with so many slots each, and for each place its host's number."""
    return (
        [Place(name, number) for name, count in slots for number in range(count)],
        [host for host, (_, count) in enumerate(slots) for _ in range(count)],
    )


def first_places(places: Sequence[Place]) -> list[int]:
    """Return the first place of each host."""
    hosts = [place.host for place in places]
    return [hosts.index(host) for host in dict.fromkeys(hosts)]


class Places:
    """Starts and ends the workers of a run, several at a place if needed."""

    def __init__(
        self,
        places: Sequence[Place],
        environment: MutableMapping[str, str] | None = None,
        served_by: Sequence[int] = (),
    ) -> None:
        """Start without workers.

        Args:
            places: The places.
            environment: Environment of the workers of the first place, if this process hosts them.
            served_by: For each place the number of its host process; its own if left out.
        """
        self.places = tuple(places)
        """All places, host by host."""
        self._served_by = tuple(served_by) or tuple(range(len(self.places)))
        self._hosts: dict[int, Member] = {}
        """Host processes by number."""
        self._place_of: dict[int, int] = {}
        """Place by worker, for all workers ever started."""
        self._own: Hosting | None = None
        """What hosts the first place, if this process does."""
        if environment is not None:
            self._own = Hosting(environment)
            here, there = map(Connection, socket.socketpair())
            duties = Duties(environment, {"hosting": self._own})
            threading.Thread(target=_serve_in_thread, args=(there, duties), daemon=True).start()
            self._hosts[0] = Member(self.places[0].host, here)

    @cached_property
    def listener(self) -> Listener:
        """The listener to which workers report."""
        return Listener("", own_addresses(), self._most_waiting)

    @property
    def _most_waiting(self) -> int:
        return MOST_WAITING + 2 * len(self.places)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that this process started, in this order."""
        return () if self._own is None else self._own.pids

    def ask(self, requests: Mapping[int, Request], timeout_s: float) -> dict[int, Any]:
        """Ask the host processes of places, all at once, and return an answer for each, or `Lost`.

        A host process that failed to answer once is not asked again.
        """
        answers: dict[int, Any] = {}
        while left := {place: each for place, each in requests.items() if place not in answers}:
            # A process answers one request at a time, and once what several places ask of it.
            now = {self._served_by[place]: each for place, each in reversed(left.items())}
            found = ask(self._hosts, now, timeout_s)
            for place, each in left.items():
                if each == now[self._served_by[place]]:
                    answers[place] = found[self._served_by[place]]
        return {place: answers[place] for place in requests}

    def leave_out_lost(self, patience_s: float) -> dict[str, str]:
        """Ask all hosts whether they are there, and leave out those that are lost.

        To be called before workers start, with places whose host processes are others.

        Returns:
            Why hosts are lost, by name.
        """
        ask(self._hosts, dict.fromkeys(self._hosts, HowEnded(0, 0.0)), patience_s)
        lost = {host.name: host.lost for host in self._hosts.values() if host.lost}
        self._hosts = {at: host for at, host in self._hosts.items() if not host.lost}
        kept = [n for n, process in enumerate(self._served_by) if process in self._hosts]
        self.places = tuple(self.places[place] for place in kept)
        self._served_by = tuple(self._served_by[place] for place in kept)
        return lost

    def start(self, place: int, environment: Mapping[str, str]) -> int:
        """Begin to start a worker; return the number under which it will report.

        Args:
            place: Index of its place.
            environment: Variables in addition to those of all workers of the place's host.

        Raises:
            MeasurementError: The place is lost.
        """
        number = len(self._place_of) + 1
        self._place_of[number] = place
        process = self._served_by[place]
        host = self._require(process)
        # No TCP connection carries the key: who has one knows the leader.
        knows = host.connection is not None and host.connection.is_tcp
        leader = () if knows else (self.listener.addresses, self.listener.key.hex())
        # Nobody waits for the answer: all hosts start their workers at once.
        host.send(0, StartWorker(number, dict(environment), *leader))
        self._require(process)
        return number

    def ended(self, worker: int, patience_s: float) -> str:
        """Return how a worker ended; empty if it still runs after `patience_s`.

        Raises:
            MeasurementError: Its place is lost.
        """
        process = self._served_by[self._place_of[worker]]
        asked = self._host_answers({process: HowEnded(worker, patience_s)}, patience_s)
        return asked[process].text

    def end(self, workers: Sequence[int], patience_s: float) -> None:
        """End workers, by force after `patience_s`; after `close` all have ended.

        Raises:
            MeasurementError: A place is lost.
        """
        at: dict[int, list[int]] = {}
        for worker in sorted(self._place_of.keys() & workers):
            at.setdefault(self._served_by[self._place_of[worker]], []).append(worker)
        self._host_answers(
            {process: EndWorkers(tuple(numbers), patience_s) for process, numbers in at.items()},
            patience_s,
        )

    def close(self) -> None:
        """End all workers and leave."""
        if not any(host.lost for host in self._hosts.values()):
            self.end(list(self._place_of), 0.0)
            self._place_of.clear()
        self._leave()

    def _leave(self) -> None:
        """End what this process does itself."""
        if self._own is not None:
            dismiss({0: self._hosts[0]}, 0)
            self._hosts[0].lose("it was dismissed")
        if "listener" in self.__dict__:
            self.listener.close()

    def _host_answers(self, requests: Mapping[int, Request], patience_s: float) -> dict[int, Done]:
        """Ask hosts, all of which must answer.

        Raises:
            MeasurementError: One is lost.
        """
        answers = ask(self._hosts, requests, patience_s + REPLY_S)
        for place in requests:
            self._require(place)
        return answers

    def _require(self, place: int) -> Member:
        host = self._hosts[place]
        if host.lost:
            raise MeasurementError(
                f"{host.name} is lost ({host.lost}): look after it and start the same command "
                "again, which continues from here"
            )
        return host


def _serve_in_thread(connection: Connection, duties: Duties) -> None:
    try:
        serve(connection, duties)
    finally:
        connection.close()


def dismiss(members: Mapping[int, Member], exit_code: int, patience_s: float = REPLY_S) -> set[int]:
    """Dismiss processes, and return those that are lost."""
    ask(members, dict.fromkeys(members, Bye(exit_code)), patience_s)
    return {key for key, member in members.items() if member.lost}


class LocalPlaces(Places):
    """The devices of this host: a worker process for each, or for each and every faked node."""

    def __init__(
        self,
        workers: int,
        devices: int | None = None,
        environment: MutableMapping[str, str] | None = None,
    ) -> None:
        """Start without workers.

        Args:
            workers: Number of workers at a time.
            devices: Number of devices that the workers take in turn; one for each if left out.
            environment: Environment of every worker; that of this process if left out.
        """
        devices = workers if devices is None else devices
        cores = own_cores()
        places = [Place("this host", number % devices, cores) for number in range(workers)]
        own = os.environ if environment is None else environment
        super().__init__(places, own, [0] * workers)

    @cached_property
    def listener(self) -> Listener:
        """See `Places`."""
        return Listener("127.0.0.1", ("127.0.0.1",))


def own_addresses() -> list[str]:
    """Return this host's addresses for other hosts; loopback last, for ranks of this host."""
    found = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family.name == "AF_INET"
    ]
    return sorted(found, key=lambda address: (address.startswith("127."), address)) or ["127.0.0.1"]
