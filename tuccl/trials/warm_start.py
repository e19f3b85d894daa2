"""`WarmStart`: the results of an earlier run from which some keys are tuned again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuccl.trials.config import Config, ProcessProfile, Task


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
