"""The duty of a process that hosts places: it starts and ends workers at its leader's request."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tuccl.crew.connection import Address, Connection
from tuccl.crew.duties import Duties
from tuccl.crew.messages import Done, Request
from tuccl.crew.serving import serve
from tuccl.crew.worker_process import Staff, WorkerOrder


@dataclass(frozen=True, slots=True)
class StartWorker(Request):
    """Start a worker."""

    duty: ClassVar[str] = "hosting"
    number: int
    """The worker's number, as in `WorkerOrder`."""
    environment: dict[str, str]
    """Variables in addition to the host's own."""
    addresses: tuple[tuple[str, int], ...] = ()
    """Addresses of the leader; empty if the host knows them."""
    key: str = ""
    """The run's key; empty if the host knows it: no TCP connection carries it."""


@dataclass(frozen=True, slots=True)
class EndWorkers(Request):
    """End some workers."""

    duty: ClassVar[str] = "hosting"
    numbers: tuple[int, ...]
    patience_s: float
    """Time for them to leave by themselves."""


@dataclass(frozen=True, slots=True)
class HowEnded(Request):
    """Report how a worker ended; the text is empty while it runs."""

    duty: ClassVar[str] = "hosting"
    number: int
    patience_s: float
    """Time to wait for the end."""


def nearest_first(
    addresses: Sequence[Address], environment: Mapping[str, str]
) -> tuple[Address, ...]:
    """Return a leader's addresses, that from which its ssh reached this host first."""
    client = environment.get("SSH_CONNECTION", "").partition(" ")[0]
    return tuple(sorted(addresses, key=lambda address: address[0] != client))


def serve_as_host(
    connection: Connection,
    environment: MutableMapping[str, str],
    key: str,
    when_lost: Callable[[Exception], None] = lambda _: None,
) -> int:
    """Answer a leader over TCP as `serve` does; workers know it by this connection's address.

    They need not try the addresses at which this host failed.
    """
    hosting = Hosting(environment, (connection.peer,), key)
    return serve(connection, Duties(environment, {"hosting": hosting}), when_lost)


class Hosting:
    """See `Duty`."""

    def __init__(
        self, environment: Mapping[str, str], addresses: Sequence[Address] = (), key: str = ""
    ) -> None:
        """Begin without workers.

        Args:
            environment: Environment of every worker.
            addresses: Addresses of the leader, if requests do not have them.
            key: The run's key, likewise.
        """
        self._staff = Staff(environment)
        self._addresses = tuple(addresses)
        self._key = key

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers, in the order of their starts."""
        return self._staff.pids

    def perform(self, request: Any) -> Done:
        """See `Duty`."""
        match request:
            case StartWorker(number, environment, addresses, key):
                known = nearest_first(addresses, os.environ) or self._addresses
                order = WorkerOrder(number, known, key or self._key)
                self._staff.start(order, environment)
                return Done()
            case EndWorkers(numbers, patience_s):
                self._staff.end(numbers, patience_s)
                return Done()
            case HowEnded(number, patience_s):
                return Done(self._staff.ended(number, patience_s))
        raise TypeError(f"{type(request).__name__} is not a request to a host")

    def close(self) -> None:
        """See `Duty`."""
        self._staff.end_all()
