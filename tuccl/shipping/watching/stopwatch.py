"""Times of the phases of a watch, which follow one another."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """A part of a watch's time."""

    LAUNCHING = "launching"
    """Until the processes of the first jobs have been asked to open their GPUs."""
    CHECKING = "checking"
    """Checks of the host and of the directory, while the jobs start."""
    STARTING = "starting"
    """Further time until the jobs are ready."""
    PREPARING = "preparing"
    """The first pass over the keys, in which calls connect ranks, warm up and become graphs."""
    TIMING = "timing"
    """Further passes."""
    ENDING = "ending"
    """Until the processes are gone."""


@dataclass
class Stopwatch:
    """Times since it was made, by phase."""

    began: float = field(default_factory=time.monotonic)
    seconds: dict[Phase, float] = field(default_factory=dict)

    def end(self, phase: Phase) -> None:
        """Count the time since the phase before to this one."""
        so_far = time.monotonic() - self.began
        passed = so_far - sum(self.seconds.values())
        self.seconds[phase] = self.seconds.get(phase, 0.0) + passed
