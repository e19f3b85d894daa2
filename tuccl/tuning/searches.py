"""The searches of a run's keys, one after another, each within its part of the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.mraco import Mraco
from tuccl.search.strategies.strategies import make_strategy
from tuccl.search.strategies.strategy import SearchResult, Strategy, run_search
from tuccl.search.strategies.warm import Warm, WarmStart
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.events import Progress, Watch, unwatched
from tuccl.search.trials.space import Space
from tuccl.tuning.results import SearchSpaces
from tuccl.tuning.run_keys import (
    KeyWeights,
    nearest_neighbour,
    seed_of,
    smaller_neighbour,
)
from tuccl.tuning.settings import MAX_REPEATS, RunSettings
from tuccl.tuning.spending import Spending
from tuccl.tuning.stock_times import StockTimes
from tuccl.workspace.measurement_log import MeasurementLog

BUILTINS, SCHEDULES = "one profile", "schedules' parameters"
"""Stages of the search, from whose names seeds are derived."""
_SEARCHES = {BUILTINS: "search of NCCL's settings", SCHEDULES: "search of schedules"}
"""Their names for people."""
_SHORT = "first look at schedules"
_WARM = 6
"""Most configurations that a search takes over from the race, and from a neighbour."""
_WARM_REPEATS = 3
"""Samples at full budget of keys that were tuned before: fresh ones decide in any case."""
_PROMISING = 2
"""Configurations that a search of a key that was tuned before takes from a model."""


@dataclass(frozen=True)
class TuningMeans:
    """What a run tunes with."""

    settings: RunSettings
    spaces: SearchSpaces
    """Spaces of the backend."""
    log: MeasurementLog
    """Measures, and stores the samples."""
    progress: Progress
    """Receives the progress after each key."""
    watch: Watch = unwatched
    """Receives the events of the run."""
    seconds_pass: bool = False
    """Whether measurements take the seconds that they report; a model's do not."""


@dataclass(frozen=True)
class Searches:
    """Searches keys, from what is known of them and of the sizes beside them."""

    means: TuningMeans
    spending: Spending
    stock: StockTimes
    warm: WarmStart | None
    """Results that the searches begin from; None: there are none."""

    def search(
        self,
        stage: str,
        spaces: Mapping[Task, Space],
        first: Mapping[Task, Sequence[Config]],
        weights: KeyWeights,
        *,
        kept_s: float = 0.0,
        short_s: Mapping[Task, float] | None = None,
    ) -> dict[Task, SearchResult]:
        """Search every key that has a space, from `first` and the best of a size beside it.

        Args:
            stage: `BUILTINS` or `SCHEDULES`.
            spaces: Space of each key.
            first: Configurations of each key to begin with.
            weights: Weights of the keys, by which the seconds are divided.
            kept_s: Seconds of the budget that are left to what follows.
            short_s: Seconds of each key in a first look; None: its part of what is left.
        """
        results: dict[Task, SearchResult] = {}
        shown = _SEARCHES[stage] if short_s is None else _SHORT
        searched = weights.in_order([t for t, space in spaces.items() if space.families])
        for done, task in enumerate(searched):
            self.means.progress(shown, done, len(searched), share=self.share(searched, done))
            part = weights.of_all([task]) / weights.of_all(searched[done:])
            share_s = (self.spending.left_s - kept_s) * part
            if short_s is not None:
                share_s = short_s[task]
            measure = partial(self.spending.measure_running, task)
            repeats = MAX_REPEATS if self.warm is None else _WARM_REPEATS
            meter = Meter(measure, repeats, max(0.0, share_s), watch=self.means.watch)
            results[task] = run_search(
                self._strategy(),
                spaces[task],
                meter,
                first=self._first(task, spaces[task], first.get(task, ()), results, weights),
                seed=seed_of(self.means.settings, stage, task),
            )
        if searched:
            self.means.progress(shown, len(searched), len(searched))
        return results

    def share(self, tasks: Sequence[Task], done: int) -> float:
        """Return the share of the time that the first `done` keys take; a model's take the same."""
        costs = [self.stock.sample_s[task] if self.means.seconds_pass else 1.0 for task in tasks]
        return sum(costs[:done]) / whole if (whole := sum(costs)) else 0.0

    def _winners_beside(
        self, task: Task, results: Mapping[Task, SearchResult], weights: KeyWeights
    ) -> list[Config]:
        """Best configurations of the next smaller size, or the nearest, that was searched."""
        neighbour = nearest_neighbour if weights.by_time else smaller_neighbour
        nearest = neighbour(task, results)
        if nearest is None:
            return []
        return [ranked.config for ranked in results[nearest].ranking[:_WARM]]

    def _first(
        self,
        task: Task,
        space: Space,
        raced: Sequence[Config],
        results: Mapping[Task, SearchResult],
        weights: KeyWeights,
    ) -> list[Config]:
        """Configurations that a search tries first."""
        spaces = self.means.spaces
        chosen, promising = spaces.chosen(task, space), spaces.promising(task, space)
        beside = self._winners_beside(task, results, weights)
        if self.warm is None:
            return [*chosen, *raced[:_WARM], *beside, *promising]
        known = [config for config in self.warm.contenders_of(task) if config in space]
        return [*chosen, *known[:_WARM], *promising[:_PROMISING], *beside[:1]]

    def _strategy(self) -> Strategy:
        if self.warm is not None:
            return Warm()
        strategy = make_strategy(self.means.settings.options.strategy)
        if isinstance(strategy, Mraco):
            return Mraco(self.means.settings.options.cycles)
        return strategy
