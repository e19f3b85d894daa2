"""The stages of one run over its keys, and the state that they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tuccl.errors import ProfileLostError
from tuccl.search.strategies.strategy import SearchResult
from tuccl.search.strategies.warm import WarmStart
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.events import AtMost, KeyDecided, Progress, Watch
from tuccl.search.trials.placement import ANYWHERE
from tuccl.search.trials.profile_axes import profile_axes
from tuccl.search.trials.space import SPELLED_OUT, Space
from tuccl.tuning import breakpoints, confirmation, served_keys
from tuccl.tuning.decision import PAIRS, Decision, decide
from tuccl.tuning.guaranteed_minimum import Floor, KeyRatio
from tuccl.tuning.placing import safety
from tuccl.tuning.profile_race import RaceResult, hold, race
from tuccl.tuning.profile_visits import ratio_of_schedule
from tuccl.tuning.race_progress import RaceProgress
from tuccl.tuning.run.comparison_before import ComparisonBefore
from tuccl.tuning.run.placed_keys import PlacedKeys
from tuccl.tuning.run.results import KeyResult, SearchSpaces, Tuned, TuningResult
from tuccl.tuning.run.searches import Searches
from tuccl.tuning.run_keys import key_weights, representative
from tuccl.tuning.settings import RunSettings
from tuccl.tuning.spending import Spending
from tuccl.tuning.stock_times import REPEATS_AGAIN, StockTimes
from tuccl.workspace.measurement_log import MeasurementLog

_SHORT_SHARE = 0.1
"""Share of the budget that the short searches of schedules may take."""
_FIRST_VISIT_SHARE = 0.25
"""Share of the budget for the first profile's calls, beyond the few that every key tries: on a slow
network they would take all of it."""
_FINALISTS = 2
"""Finalists of each search."""
_SEARCH_SAMPLES = 60
"""Samples per key, at stock's speed, whose cost the race leaves to the searches."""
_STARTS_SHARE = 0.3
"""Largest share of the budget that is reserved for samples in further starts, which do with
less."""


class Run:
    """The stages of one run over its keys, and their shared state."""

    def __init__(
        self,
        settings: RunSettings,
        tasks: Sequence[Task],
        spaces: SearchSpaces,
        log: MeasurementLog,
        progress: Progress,
        watch: Watch,
        *,
        seconds_pass: bool,
        warm: WarmStart | None = None,
        earlier: WarmStart | None = None,
    ) -> None:
        budget_s = math.inf if settings.budget_s is None else settings.budget_s
        self.anywhere = tuple(tasks)
        """The keys of all siblings of a shape."""
        self.spending = Spending(log, budget_s, watch)
        self.placed = PlacedKeys(
            tasks, settings, spaces, {} if warm is None else warm.kept, self.spending.fresh
        )
        self.tasks = tasks = (*tasks, *self.placed.tasks)
        self.stock = StockTimes(tasks, self.spending, progress)
        reach = None
        if settings.workload is not None:
            of_key = {key.task: key.reach_bytes for key in settings.workload.keys}
            reach = {task: of_key[replace(task, placement=ANYWHERE)] for task in tasks}
        self._borders = breakpoints.Borders(self.spending.fresh, reach)
        self._weights = key_weights(settings, tasks, dict.fromkeys(tasks, 1.0))
        self._settings = settings
        self._spaces = spaces
        self._progress = progress
        self._watch = watch
        self._searches = Searches(
            settings,
            spaces,
            self.spending,
            self.stock,
            progress,
            watch,
            warm,
            seconds_pass=seconds_pass,
        )
        self._warm = warm
        """Results that the searches begin from; None: they begin from nothing."""
        self._before = ComparisonBefore(
            warm or earlier,
            self.spending,
            self.stock,
            jobs_run_schedules=spaces.jobs_run_schedules,
        )
        self._kept_s = 0.0
        """Seconds reserved for the stages after the searches."""
        self._borders_s = 0.0
        """Seconds that the borders took the last time."""
        self._search_s = 0.0
        """Seconds that the race leaves to the searches."""
        self._short_s: dict[Task, float] = {}
        """Seconds of the short searches before the race, by key."""
        self._looked: dict[Task, list[Config]] = {}
        """Schedules of these searches by key, fastest first."""

    def weigh(self, stock_us: Mapping[Task, float]) -> None:
        """Weigh the keys by stock NCCL's times, where a workload makes their calls."""
        self._weights = key_weights(self._settings, self.tasks, stock_us)

    def plan(self) -> None:
        """Divide the budget: reserve seconds for the searches and for the stages after them."""
        restart_s, sample_s = self.spending.restart_s, sum(self.stock.sample_s.values())
        borders_s = breakpoints.seconds(sample_s)
        searches = 2 if self._spaces.jobs_run_schedules else 1
        finalists = _FINALISTS * searches
        self._kept_s = sample_s * (PAIRS * (1 + finalists) + REPEATS_AGAIN)
        self._kept_s += (1 + searches) * safety.seconds(
            self.stock.sample_s, self._spaces.placements
        )
        self._kept_s += restart_s + borders_s + self._before.seconds
        if self.stock.is_unsteady():
            # A key's entry may have a winner of each search.
            most_s = _STARTS_SHARE * self.spending.left_s
            starts_s = confirmation.seconds(restart_s, self.stock.sample_s, 1 + searches, most_s)
            self._kept_s += starts_s + borders_s
        self._search_s = sample_s * _SEARCH_SAMPLES

    def confirm_over_starts(
        self, decisions: Mapping[Task, Decision], raced: RaceResult
    ) -> tuple[dict[Task, Decision], int | None]:
        """Confirm decisions over further starts where needed; return the number of starts too."""
        confirmed, starts = confirmation.held_against_starts(
            decisions,
            raced.winner.default,
            [STOCK, *(visit.profile.default for visit in raced.visits), SPELLED_OUT.default],
            self.spending,
            self.stock,
            lambda starts: self._progress("starts", starts, AtMost(confirmation.MOST_STARTS)),
            breakpoints.seconds_again(sum(self.stock.sample_s.values()), self._borders_s),
            self._weights.of_budget,
        )
        if starts:
            self._progress("starts", starts, starts)
        for task in self.tasks:
            if confirmed[task].winner != decisions[task].winner:
                self._tell_decided(task, confirmed[task], raced.winner)
        return confirmed, starts

    def _tell_decided(self, task: Task, decision: Decision, profile: ProcessProfile) -> None:
        won, default_us = decision.schedule or decision.builtin, decision.profile_default_us
        time_us = default_us if won is None else won.time_us
        gain = default_us / time_us if profile == STOCK.profile else None
        self._watch(KeyDecided(task, decision.winner, time_us, gain))

    def served_by_schedules(self, stock_us: Mapping[Task, float]) -> dict[Task, KeyRatio]:
        """Find the keys that a schedule serves, among those that decide the profile.

        Without a floor or a choice of profiles, or where jobs do not run the schedules, no key is
        looked at.
        """
        tasks = representative(self.tasks, self._weights)
        profiles = profile_axes([self._spaces.builtins(task) for task in tasks]).size
        if self._settings.floor is None or not self._spaces.jobs_run_schedules or profiles == 1:
            return {}
        weights = self._weights
        each_s = _SHORT_SHARE * self.spending.left_s / weights.of_all(tasks)
        self._short_s = {
            task: min(
                each_s * weights.of_all([task]), served_keys.SAMPLES * self.stock.sample_s[task]
            )
            for task in tasks
        }
        found = self.search("schedules' parameters", self._spaces.schedules, {}, short=True)
        self._looked = {
            task: [ranked.config for ranked in result.ranking] for task, result in found.items()
        }
        spending = self.spending
        return served_keys.served_keys(found, stock_us, spending.measure, spending.is_right)

    def looked_at(self, profile: ProcessProfile) -> dict[Task, list[Config]]:
        """Schedules of the first look under a profile, by key, fastest first."""
        return {
            task: [profile.applied_to(call) for call in calls]
            for task, calls in self._looked.items()
        }

    def race_profiles(
        self, stock_us: Mapping[Task, float], served: Mapping[Task, KeyRatio]
    ) -> RaceResult:
        """Select the profile of the table, where schedules serve some keys."""
        self.plan()
        started_s = self.spending.spent_s
        visit_s = 0.0

        def affords(starts: int) -> bool:
            nonlocal started_s, visit_s
            took_s = self.spending.spent_s - started_s - self.spending.restart_s
            started_s = self.spending.spent_s
            # The first visit times all calls, later ones a few calls of each key.
            visit_s = max(visit_s, took_s if race_progress.is_past_first else took_s / 4.0)
            left_s = self.spending.left_s - self._kept_s - self._search_s
            return left_s >= starts * (self.spending.restart_s + visit_s)

        tasks = representative(self.tasks, self._weights)
        spaces = {task: self._spaces.builtins(task) for task in tasks}
        race_progress = RaceProgress(self._progress, profile_axes(spaces.values()).most)
        raced = race(
            spaces,
            {task: stock_us[task] for task in tasks},
            self.spending.measure,
            weights={task: self._weights.of_profile[task] for task in tasks},
            floor=Floor(floor, self.spending.fresh) if (floor := self._settings.floor) else None,
            affords=affords,
            progress=race_progress.visit,
            comparing=race_progress.compare,
            served=served,
            first_s=self._first_visit_s(tasks),
        )
        race_progress.end()
        return raced

    def _first_visit_s(self, tasks: Sequence[Task]) -> dict[Task, float]:
        """Seconds of the race's first visit for each key: each as many samples as the next."""
        sample_s = self.stock.sample_s
        first_s = _FIRST_VISIT_SHARE * self.spending.left_s
        whole_s = sum(sample_s[task] for task in tasks)
        if math.isinf(first_s) or not whole_s:
            return {}
        return {task: first_s * sample_s[task] / whole_s for task in tasks}

    def hold_profile(
        self,
        stock_us: Mapping[Task, float],
        warm: WarmStart,
        found: Mapping[Task, SearchResult],
    ) -> RaceResult:
        """Hold the earlier table's profile against the floor, by the best calls that were found.

        Raises:
            ProfileLostError: it is under the floor.
        """
        floor = self._settings.floor
        calls = {
            task: [ranked.config for ranked in found[task].ranking[:_FINALISTS]]
            if task in found
            else []
            for task in self.tasks
        }
        served = {}
        if floor is not None and self._spaces.jobs_run_schedules:
            for task in self.tasks:
                space = self._spaces.schedules(task)
                schedules = (c for c in warm.contenders.get(task, ()) if c in space)
                best = next(schedules, None)
                if best is not None and (
                    key := ratio_of_schedule(task, best, stock_us[task], self.spending.measure)
                ):
                    served[task] = key
        raced = hold(
            warm.profile,
            calls,
            stock_us,
            self.spending.measure,
            {task: self._weights.of_profile[task] for task in self.tasks},
            Floor(floor, self.spending.fresh) if floor else None,
            affords=lambda starts: self.spending.left_s >= starts * self.spending.restart_s,
            served=served,
        )
        if raced is None:
            raise ProfileLostError(f"{warm.profile.environment} is under the floor")
        return raced

    def result(self, tuned: Tuned) -> TuningResult:
        """Return the result of all stages, compared with an earlier table if there is one."""
        profile, confirmed = tuned.raced.winner, tuned.confirmed
        stock_us = self.stock.means_us()
        if profile == STOCK.profile:
            # The decision's own reference: samples of other starts may contradict its gain.
            stock_us |= {
                task: decision.profile_default_us
                for task, decision in confirmed.items()
                if decision.has_entry
            }
        keys = {
            task: KeyResult(
                task, tuned.found[task], confirmed[task], stock_us[task], tuned.ranges[task]
            )
            for task in self.tasks
        }
        between_starts = self.stock.between_starts()
        decided = {task: confirmed[task] for task in self.anywhere}
        # Before the seconds are read, which it adds to.
        against = self._before.times(decided, profile)
        return TuningResult(
            profile,
            tuned.raced,
            tuple(keys[task] for task in self.anywhere),
            self.spending.spent_s,
            tuned.starts,
            between_starts,
            against,
            self.placed.results(keys.values()),
        )

    def search(
        self,
        stage: str,
        space_of: Callable[[Task], Space],
        first: Mapping[Task, Sequence[Config]],
        *,
        short: bool = False,
        left_over: float = 0.0,
    ) -> dict[Task, SearchResult]:
        """Search every key that has a space.

        With `short` only the keys that decide the profile are searched, for a few samples. A later
        search begins with the same ones. `left_over` is the share of the seconds for searches that
        this one leaves to the next.
        """
        spaces = {task: space_of(task) for task in (self._short_s if short else self.tasks)}
        kept_s = self._kept_s
        if left_over:
            kept_s += left_over * max(0.0, self.spending.left_s - kept_s)
        short_s = self._short_s if short else None
        return self._searches.search(
            stage, spaces, first, self._weights, kept_s=kept_s, short_s=short_s
        )

    def decide(
        self,
        task: Task,
        found: Sequence[SearchResult],
        before: Sequence[Sequence[Config]],
        profile: ProcessProfile,
    ) -> Decision:
        """Compare the finalists of a key that deliver the right data.

        The best call of the race, and that of the first look at schedules, which stand in `before`,
        are always finalists, in case the budget left nothing for a search.
        """
        done = self.tasks.index(task)
        self._progress(
            "confirmation", done, len(self.tasks), share=self._searches.share(self.tasks, done)
        )
        most = _FINALISTS if self._warm is None else 1
        rankings = [[ranked.config for ranked in result.ranking] for result in found]
        finalists = dict.fromkeys(
            config
            for ranking in (*rankings, *(calls[:1] for calls in before))
            for config in [ranked for ranked in ranking if not ranked.is_default][:most]
        )
        right = [config for config in finalists if self.spending.is_right(task, config)]
        decision = decide(
            builtins=[config for config in right if not config.is_schedule],
            schedules=[config for config in right if config.is_schedule],
            profile_default=profile.default,
            measure=lambda config, repeats: self.spending.measure(task, config, repeats).samples_us,
            taken=partial(self.spending.asked, task),
        )
        self._tell_decided(task, decision, profile)
        return decision

    def left_out_where_slower(
        self, decisions: Mapping[Task, Decision], profile: ProcessProfile
    ) -> dict[Task, Decision]:
        """Leave out the calls that are slower on communicators whose ranks sit elsewhere."""
        held = self.placed.left_out_where_slower(decisions, profile)
        for task, decision in held.items():
            if decision != decisions[task]:
                self._tell_decided(task, decision, profile)
        return held

    def locate(
        self, decisions: Mapping[Task, Decision], profile: ProcessProfile
    ) -> dict[Task, tuple[int, int]]:
        """Locate the range of sizes that each key serves."""
        self._progress("borders", 0, 1)
        before_s = self.spending.spent_s
        winners = {}
        for task, decision in decisions.items():
            winners[task] = decision.winner or profile.default
        ranges = self._borders.ranges(winners)
        self._borders_s = self.spending.spent_s - before_s
        self._progress("borders", 1, 1)
        return ranges

    def end_confirmation(self) -> None:
        """Report that all keys are decided."""
        self._progress("confirmation", len(self.tasks), len(self.tasks))
