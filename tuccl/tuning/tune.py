"""Tuning: selects the process profile, and decides for every key whether a call gets an entry.

1. Stock NCCL is timed on every key: the reference of the run, and the basis for its budget. For a
   workload the times also weigh the keys (`tuccl.tuning.run_keys`).
2. Process profiles race over all keys at once (`tuccl.tuning.profile_race`): one table has one
   profile. Where there is a floor and jobs can run schedules, the searches of schedules begin
   before, since the floor counts what a job gets (`tuccl.tuning.served_keys`).
3. Under the winner each key is searched separately, from the best calls of the race and of a size
   beside it. Built-ins and schedules are searched apart, because a job without the executor
   needs the best built-in even where a schedule is faster. Schedules across hosts call NCCL, so
   they are timed under the profile, too.
4. The finalists of each key are compared with NCCL's own choice under the profile, in turn, and
   their data is checked. Where communicators of its shape differ by where their ranks sit, winners
   are timed there, too, and left out if they are slower (`tuccl.placing.safety`).
5. Where neighbouring sizes have different winners, the border between them is located.
6. Stock NCCL is timed once more. The difference from its first times shows how much starts differ,
   and its times for the table come from both. Entries that are not clear of the difference have to
   be confirmed over several starts of the workers. Where the difference is large all entries have
   to be, and keys may borrow the winner of a neighbouring size (`tuccl.tuning.confirmation`). If
   winners change by that, borders are located once more.
7. If the profile keeps a key above the floor only by a schedule that won no entry after all, that
   key is left to NCCL and everything from the race on is done again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from tuccl.errors import ConfigurationFailedError, ProfileLostError
from tuccl.lookup_tables.table import Shape
from tuccl.models.placements import PlacementClass
from tuccl.placing import safety
from tuccl.placing.safety import SlowerAt, slower_at, worst
from tuccl.placing.seen import Estimate, SeenClass, placed_tasks, seen_classes
from tuccl.search.meter import Meter
from tuccl.search.mraco import Mraco, MracoOptions
from tuccl.search.strategies import make_strategy
from tuccl.search.strategy import SearchResult, Strategy, run_search
from tuccl.search.warm import Warm
from tuccl.statistics.pooling import MeanError
from tuccl.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.trials.events import KeyDecided, Watch, unwatched
from tuccl.trials.placement import ANYWHERE
from tuccl.trials.profile_axes import profile_axes
from tuccl.trials.space import SPELLED_OUT, Space, with_profile
from tuccl.trials.warm_start import WarmStart
from tuccl.tuning import breakpoints, confirmation, served_keys
from tuccl.tuning.decision import PAIRS, Decision, decide
from tuccl.tuning.guaranteed_minimum import Floor, KeyRatio
from tuccl.tuning.profile_race import RaceResult, hold, race
from tuccl.tuning.profile_visits import ratio_of_schedule
from tuccl.tuning.race_progress import RaceProgress
from tuccl.tuning.run_keys import (
    key_weights,
    keys_of,
    nearest_neighbour,
    representative,
    seed_of,
    smaller_neighbour,
)
from tuccl.tuning.settings import MAX_REPEATS, RunSettings
from tuccl.tuning.spending import Spending
from tuccl.tuning.stock_times import REPEATS_AGAIN, StockTimes
from tuccl.words.progress import AtMost, Progress
from tuccl.workspace.measurement_log import MeasurementLog

_SEARCHES = {
    "one profile": "search of NCCL's settings",
    "schedules' parameters": "search of schedules",
}
"""Names for people, by the names from which seeds are derived."""
_SHORT = "first look at schedules"
_SHORT_SHARE = 0.1
"""Share of the budget that the short searches of schedules may take."""
_FIRST_VISIT_SHARE = 0.25
"""Share of the budget for the first profile's calls, beyond the few that every key tries: on a slow
network they would take all of it."""
_FINALISTS = 2
"""Finalists of each search."""
_WARM = 6
"""Most configurations that a search takes over from the race, and from a neighbour."""
_WARM_REPEATS = 3
"""Samples at full budget of keys that were tuned before: fresh ones decide in any case."""
_PROMISING = 2
"""Configurations that a search of a key that was tuned before takes from a model."""
BEFORE_SAMPLES = 9
"""Samples of a choice of an earlier table that the new one is compared with."""
_SEARCH_SAMPLES = 60
"""Samples per key, at stock's speed, whose cost the race leaves to the searches."""
_STARTS_SHARE = 0.3
"""Largest share of the budget that is reserved for samples in further starts, which do with
less."""
_SCHEDULES_SHARE = 0.6
"""Share of the seconds for searches that the search of NCCL's settings leaves to that of schedules,
which has the larger space and wins most keys."""


@dataclass(frozen=True, slots=True)
class SearchSpaces:
    """The spaces that a backend offers to the search."""

    builtins: Callable[[Task], Space]
    """Joint space of the parameters per call and per process; the same variables for all keys."""
    schedules: Callable[[Task], Space]
    """Schedules with the executor's parameters; empty where there is no executor."""
    promising: Callable[[Task, Space], Sequence[Config]] = lambda _task, _space: ()
    """Configurations of a space to try first, by a model."""
    jobs_run_schedules: bool = False
    """Whether the schedules run as in a job, on the executor; a model's do not."""
    placements: Callable[[Shape], Sequence[PlacementClass]] = lambda _: ()
    """Classes of a shape's communicators by where their ranks sit; fewer than two where it makes no
    difference, or nothing can be timed elsewhere."""
    estimate: Estimate = lambda _: None
    """NCCL's own estimates, by which the plugin tells classes apart."""


@dataclass(frozen=True)
class KeyResult:
    """The results for one key."""

    task: Task
    searches: tuple[SearchResult, ...]
    """Searches of built-ins under the profile, and of schedules if there are any."""
    decision: Decision
    stock_us: float
    """Stock NCCL's time. For an entry of a table without a profile, the reference of its decision;
    else the interquartile mean of the samples from the beginning and the end."""
    range_bytes: tuple[int, int]
    """Smallest and largest size that an entry of this key serves."""


@dataclass(frozen=True, slots=True)
class AgainstBefore:
    """A key under the new table and under an earlier one, on the machine as it is now."""

    task: Task
    before: Config
    """Choice of a job under the earlier table."""
    before_us: float
    """Median of its samples in this run, as for `now_us`."""
    now: Config
    now_us: float

    @property
    def ratio(self) -> float:
        """Time under the earlier table over that under the new one: above 1 is a gain."""
        return self.before_us / self.now_us


@dataclass(frozen=True)
class PlacedResult:
    """The entries of communicators that the plugin tells apart by where their ranks sit."""

    shape: Shape
    seen: SeenClass
    keys: tuple[KeyResult, ...]
    """Keys with an entry of their own, by a setting of NCCL."""


@dataclass(frozen=True)
class TuningResult:
    """The outcome of a run."""

    profile: ProcessProfile
    race: RaceResult
    keys: tuple[KeyResult, ...]
    spent_s: float
    """Machine time spent."""
    starts: int | None
    """Starts of the workers that confirmed entries; 0: none were possible; None: none were
    needed."""
    between_starts: MeanError
    """Error of a ratio of two times of different starts, on logarithms."""
    against: tuple[AgainstBefore, ...] = ()
    """Keys against an earlier table; empty where there is none, or the budget is spent."""
    placed: tuple[PlacedResult, ...] = ()
    """All classes of each shape whose classes can be told apart."""


def tune(
    settings: RunSettings,
    shape: Shape,
    spaces: SearchSpaces,
    log: MeasurementLog,
    progress: Progress,
    *,
    seconds_pass: bool = False,
    watch: Watch = unwatched,
    earlier: WarmStart | None = None,
) -> TuningResult:
    """Tune all keys of a run.

    Args:
        settings: Operations, sizes, strategy, seed, budget.
        shape: Shape of the communicator of all GPUs.
        spaces: Spaces of the backend.
        log: Measures, and stores the samples.
        progress: Receives the progress after each key.
        seconds_pass: Whether measurements take the seconds that they report; a model's do not.
        watch: Receives the events of the run.
        earlier: An earlier table that the result is compared with.

    Raises:
        MeasurementError: when the backend cannot go on, or stock NCCL cannot run a key.
    """
    run = _Run(
        settings,
        keys_of(settings, shape),
        spaces,
        log,
        progress,
        watch,
        seconds_pass=seconds_pass,
        earlier=earlier,
    )
    stock_us = run.stock.begin()
    run.weigh(stock_us)
    served = run.served_by_schedules(stock_us)
    while True:
        tuned = _from_the_race_on(run, spaces, stock_us, served)
        lost = [task for task in tuned.raced.by_schedule if not tuned.confirmed[task].schedule]
        if not lost:
            break
        served = {task: key for task, key in served.items() if task not in lost}
    return run.result(tuned)


def tune_again(
    settings: RunSettings,
    warm: WarmStart,
    spaces: SearchSpaces,
    log: MeasurementLog,
    progress: Progress,
    *,
    seconds_pass: bool = False,
    watch: Watch = unwatched,
) -> TuningResult:
    """Tune some keys of an earlier table again, under its process profile.

    Each search begins with what was best before. Arguments are those of `tune`.

    Raises:
        ProfileLostError: the profile is under the floor on this machine now, or keeps a key above
            it only by a schedule that won no entry.
        MeasurementError: as for `tune`.
    """
    run = _Run(
        settings, warm.tasks, spaces, log, progress, watch, seconds_pass=seconds_pass, warm=warm
    )
    stock_us = run.stock.begin()
    run.weigh(stock_us)
    run.plan()
    builtins = _search_builtins(run, spaces, warm.profile, {})
    raced = run.hold_profile(stock_us, warm, builtins)
    tuned = _under_the_winner(run, spaces, raced, builtins)
    lost = [task for task in raced.by_schedule if not tuned.confirmed[task].schedule]
    if lost:
        raise ProfileLostError(f"{lost[0].full_name} is under the floor without its schedule")
    return run.result(tuned)


@dataclass(frozen=True)
class _Tuned:
    """Results of the stages from the race on, by key."""

    raced: RaceResult
    found: Mapping[Task, tuple[SearchResult, ...]]
    confirmed: Mapping[Task, Decision]
    ranges: Mapping[Task, tuple[int, int]]
    starts: int | None


def _from_the_race_on(
    run: _Run,
    spaces: SearchSpaces,
    stock_us: Mapping[Task, float],
    served: Mapping[Task, KeyRatio],
) -> _Tuned:
    """Race profiles, search under the winner, decide and confirm.

    Args:
        run: The run.
        spaces: Spaces of the backend.
        stock_us: Stock NCCL's time by key.
        served: Ratios of the schedules that serve keys.
    """
    raced = run.race_profiles(stock_us, served)
    builtins = _search_builtins(run, spaces, raced.winner, raced.calls)
    return _under_the_winner(run, spaces, raced, builtins)


def _search_builtins(
    run: _Run,
    spaces: SearchSpaces,
    profile: ProcessProfile,
    calls: Mapping[Task, Sequence[Config]],
) -> dict[Task, SearchResult]:
    """Search NCCL's settings under a profile, from these calls."""
    return run.search(
        "one profile",
        lambda task: with_profile(spaces.builtins(task), profile),
        calls,
        left_over=_SCHEDULES_SHARE if spaces.jobs_run_schedules else 0.0,
    )


def _under_the_winner(
    run: _Run,
    spaces: SearchSpaces,
    raced: RaceResult,
    builtins: Mapping[Task, SearchResult],
) -> _Tuned:
    """Search schedules under the profile that was selected, decide and confirm."""
    profile = raced.winner
    looked = run.looked_at(profile)
    schedules = run.search(
        "schedules' parameters", lambda task: with_profile(spaces.schedules(task), profile), looked
    )
    found = {
        task: tuple(results[task] for results in (builtins, schedules) if task in results)
        for task in run.tasks
    }
    decisions = {
        task: run.decide(
            task, found[task], [raced.calls.get(task, ()), looked.get(task, ())], profile
        )
        for task in run.tasks
    }
    decisions = run.left_out_where_slower(decisions, profile)
    run.end_confirmation()
    ranges = run.locate(decisions, profile)
    run.stock.again()
    confirmed, starts = run.confirm_over_starts(decisions, raced)
    confirmed = run.left_out_where_slower(confirmed, profile)
    if any(confirmed[task].winner != decisions[task].winner for task in run.tasks):
        ranges = run.locate(confirmed, profile)
    return _Tuned(raced, found, confirmed, ranges, starts)


def _of_class(keys: Iterable[KeyResult], shape: Shape, seen: SeenClass) -> Iterator[KeyResult]:
    """Yield the keys of a class that have an entry."""
    for key in keys:
        task, builtin = key.task, key.decision.builtin
        if (task.shape, task.placement) == (shape, seen.placement) and builtin is not None:
            yield key


class _Run:
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
        self.seen = {
            shape: seen_classes(
                shape, spaces.placements(shape), settings.operations_of(shape), spaces.estimate
            )
            for shape in dict.fromkeys(task.shape for task in tasks)
        }
        """Classes with keys of their own, by shape."""
        self.tasks = tasks = (*tasks, *placed_tasks(tasks, self.seen))
        self.spending = Spending(log, budget_s, watch)
        self.stock = StockTimes(tasks, self.spending, progress)
        reach = None
        if settings.workload is not None:
            of_key = {key.task: key.reach_bytes for key in settings.workload.keys}
            reach = {task: of_key[replace(task, placement=ANYWHERE)] for task in tasks}
        self._borders = breakpoints.Borders(self.spending.fresh, reach)
        self._weights = key_weights(settings, tasks, dict.fromkeys(tasks, 1.0))
        self._settings = settings
        self._seconds_pass = seconds_pass
        self._spaces = spaces
        self._progress = progress
        self._watch = watch
        self._warm = warm
        """Results that the searches begin from; None: they begin from nothing."""
        self._earlier = warm or earlier
        """Table that the result is compared with; None: there is none."""
        self._kept_s = 0.0
        """Seconds reserved for the stages after the searches."""
        self._search_s = 0.0
        """Seconds that the race leaves to the searches."""
        self._short_s: dict[Task, float] = {}
        """Seconds of the short searches before the race, by key."""
        self._looked: dict[Task, list[Config]] = {}
        """Schedules of these searches by key, fastest first."""
        self._slower: dict[tuple[Task, Config], tuple[SlowerAt, ...]] = {}
        """Calls that were timed where ranks sit elsewhere, and the classes where they lose."""

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
        self._kept_s += restart_s + borders_s + self._against_s
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
            breakpoints.seconds(sum(self.stock.sample_s.values())),
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

    def result(self, tuned: _Tuned) -> TuningResult:
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
        earlier, between_starts = self._earlier, self.stock.between_starts()
        decided = {task: confirmed[task] for task in self.anywhere}
        against = () if earlier is None else self._against(decided, profile, earlier)
        return TuningResult(
            profile,
            tuned.raced,
            tuple(keys[task] for task in self.anywhere),
            self.spending.spent_s,
            tuned.starts,
            between_starts,
            against,
            tuple(
                PlacedResult(shape, own, tuple(_of_class(keys.values(), shape, own)))
                for shape, of_shape in self.seen.items()
                for own in of_shape
            ),
        )

    def _against(
        self, confirmed: Mapping[Task, Decision], profile: ProcessProfile, earlier: WarmStart
    ) -> tuple[AgainstBefore, ...]:
        """Time the earlier table's choices where the budget allows it."""
        if self.spending.left_s < self._against_s:
            return ()
        found = []
        for task, decision in confirmed.items():
            now = decision.winner if self._spaces.jobs_run_schedules else None
            if now is None and decision.builtin is not None:
                now = decision.builtin.config
            for before in (*earlier.before.get(task, ()), earlier.profile.default):
                with suppress(ConfigurationFailedError):
                    times_us = [
                        self._median_us(task, config) for config in (before, now or profile.default)
                    ]
                    found.append(
                        AgainstBefore(
                            task, before, times_us[0], now or profile.default, times_us[1]
                        )
                    )
                    break
        return tuple(found)

    @property
    def _against_s(self) -> float:
        """Seconds of the comparison with an earlier table; 0 where there is none."""
        if self._earlier is None:
            return 0.0
        return self.spending.restart_s + BEFORE_SAMPLES * sum(self.stock.sample_s.values())

    def _median_us(self, task: Task, config: Config) -> float:
        repeats = max(BEFORE_SAMPLES, self.spending.asked(task, config))
        return median(self.spending.measure(task, config, repeats).samples_us)

    def search(
        self,
        stage: str,
        space_of: Callable[[Task], Space],
        warm: Mapping[Task, Sequence[Config]],
        *,
        short: bool = False,
        left_over: float = 0.0,
    ) -> dict[Task, SearchResult]:
        """Search every key that has a space, from `warm` and the best of a size beside it.

        With `short` only the keys that decide the profile are searched, for a few samples. A later
        search begins with the same ones. `left_over` is the share of the seconds for searches that
        this one leaves to the next.
        """
        results: dict[Task, SearchResult] = {}
        shown = _SHORT if short else _SEARCHES[stage]
        spaces = {task: space_of(task) for task in (self._short_s if short else self.tasks)}
        searched = self._weights.in_order([t for t, space in spaces.items() if space.families])
        kept_s = self._kept_s
        if left_over:
            kept_s += left_over * max(0.0, self.spending.left_s - kept_s)
        for done, task in enumerate(searched):
            self._progress(shown, done, len(searched), share=self._share(searched, done))
            part = self._weights.of_all([task]) / self._weights.of_all(searched[done:])
            share_s = (self.spending.left_s - kept_s) * part
            if short:
                share_s = self._short_s[task]
            measure = partial(self.spending.measure_running, task)
            repeats = MAX_REPEATS if self._warm is None else _WARM_REPEATS
            meter = Meter(measure, repeats, max(0.0, share_s), watch=self._watch)
            results[task] = run_search(
                self._strategy(),
                spaces[task],
                meter,
                first=self._first(task, spaces[task], warm.get(task, ()), results),
                seed=seed_of(self._settings, stage, task),
            )
        if searched:
            self._progress(shown, len(searched), len(searched))
        return results

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
        self._progress("confirmation", done, len(self.tasks), share=self._share(self.tasks, done))
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
        held = {}
        for task, decision in decisions.items():
            calls = [won.config for won in (decision.builtin, decision.schedule) if won]
            if new := [config for config in calls if (task, config) not in self._slower]:
                fresh, default = self.spending.fresh, profile.default
                slower = slower_at(task, new, default, self._classes_of(task), fresh)
                self._slower |= {(task, config): found for config, found in slower.items()}
            held[task] = self._without_slower(task, decision, self._classes_of(task))
            if held[task] != decision:
                self._tell_decided(task, held[task], profile)
        return held

    def _classes_of(self, task: Task) -> Sequence[PlacementClass]:
        """Return the classes that an entry of a key serves."""
        for own in self.seen[task.shape]:
            if own.placement == task.placement:
                return own.classes
        return self._spaces.placements(task.shape)

    def _without_slower(
        self, task: Task, decision: Decision, classes: Sequence[PlacementClass]
    ) -> Decision:
        """Return a decision without the calls that are slower on some of these classes."""
        found = {
            won.config: at
            for won in (decision.builtin, decision.schedule)
            if won is not None
            and (at := worst(at for at in self._slower[task, won.config] if at.own in classes))
        }
        return decision.without(found) if found else decision

    def locate(
        self, decisions: Mapping[Task, Decision], profile: ProcessProfile
    ) -> dict[Task, tuple[int, int]]:
        """Locate the range of sizes that each key serves."""
        self._progress("borders", 0, 1)
        winners = {}
        for task, decision in decisions.items():
            winners[task] = decision.winner or profile.default
        ranges = self._borders.ranges(winners)
        self._progress("borders", 1, 1)
        return ranges

    def end_confirmation(self) -> None:
        """Report that all keys are decided."""
        self._progress("confirmation", len(self.tasks), len(self.tasks))

    def _share(self, tasks: Sequence[Task], done: int) -> float:
        """Share of the time that the first `done` keys take; in a model all take the same."""
        costs = [self.stock.sample_s[task] if self._seconds_pass else 1.0 for task in tasks]
        return sum(costs[:done]) / whole if (whole := sum(costs)) else 0.0

    def _winners_beside(self, task: Task, results: Mapping[Task, SearchResult]) -> list[Config]:
        """Best configurations of the next smaller size, or the nearest, that was searched."""
        neighbour = nearest_neighbour if self._weights.by_time else smaller_neighbour
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
    ) -> list[Config]:
        """Configurations that a search tries first."""
        beside, promising = self._winners_beside(task, results), self._spaces.promising(task, space)
        if self._warm is None:
            return [*raced[:_WARM], *beside, *promising]
        known = [config for config in self._warm.contenders.get(task, ()) if config in space]
        return [*known[:_WARM], *promising[:_PROMISING], *beside[:1]]

    def _strategy(self) -> Strategy:
        if self._warm is not None:
            return Warm()
        strategy = make_strategy(self._settings.options.strategy)
        if isinstance(strategy, Mraco):
            return Mraco(MracoOptions(max_cycles=self._settings.options.cycles))
        return strategy
