"""Places for workers: `Places`, and `LocalPlaces`, the devices of this host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tuccl.measuring.workers.connection import Listener
from tuccl.measuring.workers.cores import own_cores
from tuccl.measuring.workers.messages import WorkerOrder
from tuccl.measuring.workers.worker_process import Staff


@dataclass(frozen=True, slots=True)
class Place:
    """One device of one host, for one worker at a time."""

    host: str
    local_rank: int
    """Number of the device on its host."""
    cores: frozenset[int] = frozenset()
    """Cores of the host on which the worker may run."""


class Places(Protocol):
    """Starts and ends the workers of a run, several at a place if needed."""

    @property
    def listener(self) -> Listener:
        """The listener to which workers report."""

    @property
    def places(self) -> Sequence[Place]:
        """All places, host by host."""

    def start(self, place: int, engine: str, environment: Mapping[str, str]) -> int:
        """Begin to start a worker; return the number under which it will report.

        Args:
            place: Index of its place.
            engine: Name of its engine.
            environment: Variables in addition to those of all workers of the place's host.

        Raises:
            MeasurementError: The place is lost.
        """

    def ended(self, worker: int, patience_s: float) -> str:
        """Return how a worker ended; empty when it still runs after `patience_s`.

        Raises:
            MeasurementError: Its place is lost.
        """

    def end(self, workers: Sequence[int], patience_s: float) -> None:
        """End workers, by force after `patience_s`.

        Raises:
            MeasurementError: A place is lost.
        """

    def close(self) -> None:
        """End all workers and leave."""


class LocalPlaces:
    """The devices of this host: a worker process for each, or for each and every faked node."""

    def __init__(
        self,
        workers: int,
        devices: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start without workers.

        Args:
            workers: Number of workers at a time.
            devices: Number of devices that the workers take in turn; None: one for each.
            environment: Environment of every worker; None: that of this process.
        """
        self.listener = Listener("127.0.0.1", ("127.0.0.1",))
        devices = workers if devices is None else devices
        cores = own_cores()
        self.places = tuple(
            Place("this host", number % devices, cores) for number in range(workers)
        )
        self._staff = Staff(environment)
        self._started = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers, in the order of their start."""
        return self._staff.pids

    def start(self, place: int, engine: str, environment: Mapping[str, str]) -> int:  # noqa: ARG002 - all places are here
        """See `Places`."""
        self._started += 1
        key = self.listener.key.hex()
        order = WorkerOrder(self._started, engine, self.listener.addresses, key)
        self._staff.start(order, environment)
        return order.number

    def ended(self, worker: int, patience_s: float) -> str:
        """See `Places`."""
        return self._staff.ended(worker, patience_s)

    def end(self, workers: Sequence[int], patience_s: float) -> None:
        """See `Places`."""
        self._staff.end(workers, patience_s)

    def close(self) -> None:
        """See `Places`."""
        self._staff.end_all()
        self.listener.close()
