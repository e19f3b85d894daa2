"""`Strategy`: a way to search, and `run_search`, which runs one on a budget.

All strategies answer one protocol and are counted by one `Meter`. None of them knows the budget:
they go on until the meter stops them, so a search with more seconds begins like one with fewer. A
share of the budget is kept back for the final choice, which is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tuccl.errors import BudgetSpentError
from tuccl.search.strategies.final_choice import RESERVE, confirm_rivals, ranked_by_bound
from tuccl.search.strategies.meter import Meter
from tuccl.search.trials.config import Config
from tuccl.search.trials.space import Space


class Stop(StrEnum):
    """Why a search ended."""

    CONVERGED = "converged"
    """By equation 5."""
    EXHAUSTED = "exhausted"
    """Nothing that the strategy would propose is left."""
    CYCLES = "cycles"
    """The passes that it was allowed are done."""
    BUDGET = "budget"


class Strategy(Protocol):
    """A way to search."""

    def explore(self, space: Space, meter: Meter, first: Sequence[Config], seed: int) -> Stop:
        """Measure what seems worth it.

        What is asked for depends on the arguments and the samples alone, never on the budget.

        Args:
            space: What may be proposed.
            meter: Measures; holds everything that was measured.
            first: Configurations to try first, the most promising first: winners of neighbouring
                sizes, of an old table, of a model's ranking. Those outside the space are ignored.
            seed: Seed of every random choice.

        Raises:
            BudgetSpentError: From the meter, always let through.
        """


@dataclass(frozen=True, slots=True)
class Ranked:
    """A configuration with its measured time."""

    config: Config
    time_us: float
    """Median of its samples."""
    samples: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Outcome of a search."""

    ranking: tuple[Ranked, ...]
    """The choice first; empty if every configuration failed."""
    configs_tried: int
    repeats_measured: int
    seconds: float
    """Machine time."""
    stop: Stop
    failures: tuple[tuple[Config, str], ...] = ()
    """Configurations that could not run, and why."""

    @property
    def converged(self) -> bool:
        """Whether the search ended because there was nothing more to gain."""
        return self.stop in {Stop.CONVERGED, Stop.EXHAUSTED}


def run_search(
    strategy: Strategy,
    space: Space,
    meter: Meter,
    *,
    first: Sequence[Config] = (),
    seed: int = 0,
) -> SearchResult:
    """Search, then measure the elites at full budget and choose.

    Raises:
        MeasurementError: The backend cannot go on.
    """
    budget_s = meter.limit_s
    if math.isfinite(budget_s):
        meter.limit_s = budget_s - RESERVE * (budget_s - meter.spent_s)
    try:
        stop = strategy.explore(space, meter, [config for config in first if config in space], seed)
    except BudgetSpentError:
        stop = Stop.BUDGET
    meter.limit_s = budget_s
    confirm_rivals(meter)
    return SearchResult(
        ranking=tuple(
            Ranked(config, meter.time_us(config), meter.count(config))
            for config in ranked_by_bound(meter)
        ),
        configs_tried=meter.tried,
        repeats_measured=meter.repeats,
        seconds=meter.spent_s,
        stop=stop,
        failures=tuple(sorted(meter.failures.items())),
    )
