"""Where workers can run: `Places`, and `LocalPlaces`, the devices of this host."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tuccl.errors import MeasurementError
from tuccl.measuring.connection import Listener
from tuccl.measuring.messages import WorkerOrder
from tuccl.measuring.worker_process import WorkerProcess


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one worker: one device of one host."""

    host: str
    local_rank: int
    """Number of the device on its host."""


class Places(Protocol):
    """Starts and ends the workers of a run, one per place."""

    @property
    def listener(self) -> Listener:
        """Where the workers report."""

    @property
    def places(self) -> Sequence[Place]:
        """Host by host."""

    def start(self, place: int, order: WorkerOrder, environment: Mapping[str, str]) -> None:
        """Begin to start a worker; none may run at this place.

        Args:
            place: Its number.
            order: What the worker is told.
            environment: Beyond that of the process which hosts the place.

        Raises:
            MeasurementError: A place is lost.
        """

    def ended(self, place: int, patience_s: float) -> str:
        """How the worker at a place ended; empty when it still runs after `patience_s`."""

    def end_all(self, patience_s: float) -> None:
        """End all workers, by force after `patience_s`.

        Raises:
            MeasurementError: A place is lost.
        """

    def close(self) -> None:
        """End all workers and leave."""


class LocalPlaces:
    """The devices of this host, one worker process each."""

    def __init__(self, devices: int) -> None:
        self.listener = Listener("127.0.0.1", ("127.0.0.1",))
        self.places = tuple(Place("this host", number) for number in range(devices))
        self._workers: dict[int, WorkerProcess] = {}

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the workers that were started."""
        return tuple(worker.pid for worker in self._workers.values())

    def start(self, place: int, order: WorkerOrder, environment: Mapping[str, str]) -> None:
        """See `Places`."""
        try:
            self._workers[place] = WorkerProcess(order, {**os.environ, **environment})
        except OSError as error:
            raise MeasurementError(
                f"cannot start a worker process: {error.strerror}; free memory or processes"
            ) from error

    def ended(self, place: int, patience_s: float) -> str:
        """See `Places`."""
        return self._workers[place].ended(patience_s)

    def end_all(self, patience_s: float) -> None:
        """See `Places`."""
        deadline = time.monotonic() + patience_s
        while self._workers:
            _, worker = self._workers.popitem()
            worker.end(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """See `Places`."""
        self.end_all(0.0)
        self.listener.close()
