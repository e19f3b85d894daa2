"""Jobs of stock NCCL and of a table, in new processes that start at the same time.

A start takes seconds, in which its processes mostly wait: for CUDA, and for each other. So both
jobs start at once, and are timed in turn when both are ready. GPUs that take one process at a time
have one job after the other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tuccl.crew.places import LocalPlaces
from tuccl.measuring.engines.job_processes import STOCK, Contender, JobProcesses
from tuccl.measuring.workers.seating import whole_shape


@dataclass
class Turn:
    """Jobs that run at the same time; to be closed."""

    places: LocalPlaces
    jobs: tuple[JobProcesses, ...]
    begun: bool = False

    def begin(self) -> None:
        """Have the jobs start, once, and return before they are ready.

        Raises:
            MeasurementError: One cannot.
        """
        if self.begun:
            return
        self.begun = True
        for job in self.jobs:
            job.launch()
        for job in self.jobs:
            job.prepare()
        for job in self.jobs:
            job.join()

    def close(self) -> None:
        """Kill all processes: they have nothing to keep, and an orderly end takes seconds."""
        self.places.close()
        for job in self.jobs:
            job.leader.end(0.0)


@dataclass(frozen=True)
class Conditions:
    """What all pairs of a watch have in common."""

    gpus: int
    environment: Mapping[str, str]
    """Environment of every process, without a table's variables."""
    table: Contender
    one_at_a_time: bool
    """Whether GPUs take one process at a time."""


class Pair:
    """The two jobs; to be closed."""

    def __init__(self, conditions: Conditions) -> None:
        """Prepare the jobs; no process runs yet."""
        self.began = time.monotonic()
        both = (STOCK, conditions.table)
        self.turns = tuple(
            _turn(conditions, together)
            for together in ([(each,) for each in both] if conditions.one_at_a_time else [both])
        )

    def close(self) -> None:
        """Kill all processes that still run."""
        for turn in self.turns:
            turn.close()


def _turn(conditions: Conditions, together: tuple[Contender, ...]) -> Turn:
    places = LocalPlaces(conditions.gpus, conditions.gpus, dict(conditions.environment))
    shape = whole_shape(places.places)
    return Turn(places, tuple(JobProcesses(each, places, shape) for each in together))
