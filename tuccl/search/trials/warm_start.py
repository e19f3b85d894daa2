"""`WarmStart`: the results of an earlier run from which some keys are tuned again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lookup_tables.table import Entry, Shape
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.placement import ANYWHERE, Placement


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Keys to tune again, and the configurations to begin with."""

    profile: ProcessProfile
    """Process profile of the earlier table, which stays."""
    tasks: tuple[Task, ...]
    """Keys to tune again, in the order of a run."""
    contenders: Mapping[Task, tuple[Config, ...]]
    """Configurations of the earlier run to try first, under its profile, the best first."""
    before: Mapping[Task, tuple[Config, ...]]
    """Choices of jobs under the earlier table: the winner, then those where it cannot run."""
    kept: Mapping[tuple[Shape, Placement], tuple[Entry, ...]] = field(default_factory=dict)
    """Entries of communicators that are not measured again, by their shape and where they sit."""

    def contenders_of(self, task: Task) -> tuple[Config, ...]:
        """Return the configurations to try first for a key, wherever its ranks sit."""
        return self.contenders.get(replace(task, placement=ANYWHERE), ())
