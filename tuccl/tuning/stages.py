"""The stages of one run over its keys, each a method; `tuccl.tuning.tune` has their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError, ProfileLostError
from tuccl.search.strategies.opening import opening
from tuccl.search.strategies.strategy import SearchResult
from tuccl.search.strategies.warm import WarmStart
from tuccl.search.trials.config import DEFAULT_ALGORITHM, STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.events import AtMost, KeyDecided
from tuccl.search.trials.placement import ANYWHERE
from tuccl.search.trials.profile_axes import profile_axes
from tuccl.search.trials.shapes import memberships
from tuccl.search.trials.space import space_of, with_profile
from tuccl.tuning import breakpoints, confirmation
from tuccl.tuning.beside_computation import COMPUTATION, ProfileCost, may_overlap
from tuccl.tuning.comparison_before import ComparisonBefore
from tuccl.tuning.decision import (
    FEW_PAIRS,
    PAIRS,
    Comparison,
    Decision,
    compare_alone,
    decide,
)
from tuccl.tuning.guaranteed_minimum import Floor, KeyRatio
from tuccl.tuning.kept_sums import no_call, with_winner
from tuccl.tuning.knob_proof import PROOF_SAMPLES
from tuccl.tuning.neighbours import faster_beside, joined
from tuccl.tuning.placed_keys import PlacedKeys
from tuccl.tuning.placing import safety
from tuccl.tuning.profile_race import RaceProgress, RaceResult, hold, race
from tuccl.tuning.profile_visits import Visitor, ratio_of_schedule, served_keys
from tuccl.tuning.race_budget import RaceBudget
from tuccl.tuning.restart_decision import stall_costs, with_likely
from tuccl.tuning.results import KeyResult, Tuned, TunedKeys, TunersChoice
from tuccl.tuning.run_keys import key_weights, representative
from tuccl.tuning.searches import BUILTINS, SCHEDULES, Searches, TuningMeans
from tuccl.tuning.spending import Spending
from tuccl.tuning.stock_times import REPEATS_AGAIN, StockTimes
from tuccl.tuning.untuned_shapes import UntunedShapes, tasks_beside
from tuccl.tuning.whole_table import reserved_seconds

_SHORT_SHARE = 0.1
"""Share of the budget that the short searches of schedules may take."""
_FIRST_VISIT_SHARE = 0.25
"""Share of the budget for the first profile's calls, beyond the few that every key tries: on a slow
network they would take all of it."""
_FIRST_LOOK_SAMPLES = 60
"""Samples per key, at stock's speed, whose cost the first look at schedules may take."""
_FINALISTS = 2
"""Finalists of each search."""
_HALVINGS = 2
"""How often the channels of the best schedule of a hidden call are halved."""
_SCHEDULES_SHARE = 0.6
"""Share of the seconds for searches that the search of NCCL's settings leaves to that of schedules,
which has the larger space and wins most keys."""
_RACE_SHARE = 0.35
"""Share of the budget beyond which the race begins no visit and no comparison, on a machine whose
samples say that starts differ."""
_RACE_SHARE_OF_STEADY = 0.6
"""The same on other machines, where fewer seconds are needed after it."""
_SEARCH_SAMPLES = 60
"""Samples per key, at stock's speed, whose cost the race leaves to the searches."""
_STARTS_SHARE = 0.3
"""Share of the budget up to which the fewest starts that decide are reserved. On a machine whose
samples say that starts differ they are reserved in any case, and only their samples keep to it."""
_STARTS_OF_SUMS = 2
"""Further starts of the workers in which the order of kept sums is checked."""
_LEAST_OF_STARTS = 0.6
"""Part of the seconds for what follows the decisions with which further starts still decide: they
time fewer keys, with fewer samples."""


@dataclass(frozen=True)
class Reserve:
    """Seconds of the budget that are left to what follows."""

    searches_s: float
    """For the searches, which the race leaves."""
    after_s: float
    """For the stages after the searches, which both leave."""
    starts_s: float
    """The part of these for what follows the decisions."""
    pairs: int
    """Samples of each call in a decision."""


@dataclass(frozen=True)
class FirstLook:
    """The schedules of each key before a profile is chosen."""

    served: Mapping[Task, KeyRatio]
    """Keys that a schedule serves, with its ratio to stock NCCL."""
    found: Mapping[Task, SearchResult]
    """What was tried of each key."""

    def under(self, profile: ProcessProfile) -> dict[Task, SearchResult]:
        """Return what was tried, as its schedules are under a profile; times are of before."""
        return {
            task: replace(
                own,
                ranking=tuple(
                    replace(ranked, config=profile.applied_to(ranked.config))
                    for ranked in own.ranking
                ),
            )
            for task, own in self.found.items()
        }

    def without(self, lost: Collection[Task]) -> FirstLook:
        """Return the look without these keys among those that are served."""
        return replace(self, served={t: key for t, key in self.served.items() if t not in lost})


@dataclass(frozen=True)
class Located:
    """The ranges of sizes that the keys serve."""

    ranges: Mapping[Task, tuple[int, int]]
    seconds: float
    """Machine time that locating them took."""


class KeyTuning:
    """The stages of one run over its keys; what one stage finds is handed to the next."""

    def __init__(
        self,
        means: TuningMeans,
        tasks: Sequence[Task],
        warm: WarmStart | None = None,
        earlier: WarmStart | None = None,
    ) -> None:
        """Time stock NCCL, by which the budget is divided and a workload's keys are weighed.

        Args:
            means: Settings, spaces and log.
            tasks: Keys of all siblings of a shape.
            warm: Results that the searches begin from; None: they begin from nothing.
            earlier: An earlier table that the result is compared with.

        Raises:
            MeasurementError: Stock NCCL cannot run a key.
        """
        settings, spaces = means.settings, means.spaces
        budget_s = math.inf if settings.budget_s is None else settings.budget_s
        self._anywhere = tuple(tasks)
        self._spending = spending = Spending(means.log, budget_s, means.watch)
        self._placed = PlacedKeys(
            [task for task in tasks if not settings.keeps_sums(task)],
            settings,
            spaces,
            {} if warm is None else warm.kept,
            spending.fresh,
        )
        self.tasks = tasks = (*tasks, *self._placed.tasks)
        """All keys, those of communicators by where their ranks sit among them."""
        near = {task for task, _ in settings.added}
        self._added = {task for task in tasks if replace(task, placement=ANYWHERE) in near}
        self._free = [task for task in tasks if not settings.keeps_sums(task)]
        """Keys whose sums may move. The process profile is chosen for them: what runs the others
        does not change with it, or little."""
        self._means = means
        self._warm = warm
        self._stock = StockTimes(tasks, spending, means.progress)
        for task in tasks:  # NCCL tells what it allows under the stock profile, which is up now.
            space = spaces.builtins(task)
            own = (*space.families, *spaces.schedules(task).families)
            has_calls = any(family.algorithm != DEFAULT_ALGORITHM for family in own)
            if settings.keeps_sums(task) and not has_calls:
                raise no_call(task)
        reach = None
        if settings.workload is not None:
            of_key = {key.task: key.reach_bytes for key in settings.workload.keys}
            reach = {task: of_key[replace(task, placement=ANYWHERE)] for task in self._free}
        self._floor = Floor(settings.floor, spending.fresh) if settings.floor else None
        self._borders = breakpoints.Borders(spending.fresh, reach)
        self._searches = Searches(means, spending, self._stock, warm)
        self._before = ComparisonBefore(
            warm or earlier, spending, self._stock, spaces.jobs_run_schedules
        )
        self.stock_us = self._stock.begin()
        """Stock NCCL's time by key, as of the beginning."""
        self._weights = key_weights(settings, tasks, self.stock_us)

    def reserve(self) -> Reserve:
        """Divide the budget: reserve seconds for the searches and for the stages after them."""
        restart_s, sample_s = self._spending.restart_s, sum(self._stock.sample_s.values())
        borders_s = breakpoints.seconds(sample_s)
        searches = 2 if self._means.spaces.jobs_run_schedules else 1
        finalists = _FINALISTS * searches
        turn_s = sample_s * (2 + finalists)  # One call of a neighbour, and the reference.
        hidden = filter(self._is_hidden, self.tasks) if searches > 1 else ()
        turn_s += _HALVINGS * sum(self._stock.sample_s[task] for task in hidden)
        after_s = sample_s * REPEATS_AGAIN
        after_s += (1 + searches) * safety.seconds(
            self._stock.sample_s, self._means.spaces.placements
        )
        most_s, is_unsteady = _STARTS_SHARE * self._spending.left_s, self._stock.is_unsteady()
        pairs = FEW_PAIRS if is_unsteady else PAIRS
        # A key's entry may have a winner of each search.
        starts_s = confirmation.seconds(restart_s, self._stock.sample_s, 1 + searches, most_s)
        if starts_s <= most_s or is_unsteady:
            after_s += starts_s + borders_s
        # Of winners that starts change, and jobs with the whole table.
        again_s = breakpoints.seconds_again(sample_s, 0.0) + self._whole_s()
        after_s += restart_s + again_s + self._before.seconds
        searches_s = sample_s * _SEARCH_SAMPLES
        return Reserve(searches_s, pairs * turn_s + after_s, after_s, pairs)

    def settled(self, reserve: Reserve) -> Reserve:
        """Return the reserve with as many samples in a decision as the seconds left call for.

        Where a race or a search took what further starts were to have, one start tells what it can.
        """
        turn_s = (reserve.after_s - reserve.starts_s) / reserve.pairs
        least_s = FEW_PAIRS * turn_s + _LEAST_OF_STARTS * reserve.starts_s
        if self._spending.left_s < least_s:
            return replace(reserve, pairs=PAIRS)
        return reserve

    def _whole_s(self) -> float:
        """Seconds that are reserved for jobs with the whole table; none where none are run."""
        if not self._means.log.runs_jobs:
            return 0.0
        sample_s, settings = self._stock.sample_s, self._means.settings
        samples = [sample_s[task] for task in self._anywhere]
        samples += [
            COMPUTATION * sample_s[task] for task in self._anywhere if may_overlap(task, settings)
        ]
        return reserved_seconds(self._spending.restart_s, samples, self._spending.limit_s)

    def confirm_over_starts(
        self,
        decisions: Mapping[Task, Decision],
        raced: RaceResult,
        reserve: Reserve,
        borders_s: float,
    ) -> tuple[dict[Task, Decision], int | None]:
        """Confirm decisions over further starts if needed; return the number of starts, too.

        Args:
            decisions: The decision of each key.
            raced: The profiles.
            reserve: Has the number of samples of the decisions.
            borders_s: Seconds that locating the borders took.
        """
        confirmed, starts = confirmation.held_against_starts(
            decisions,
            raced.winner.default,
            self._spending,
            self._stock,
            lambda starts: self._means.progress("starts", starts, AtMost(confirmation.MOST_STARTS)),
            breakpoints.seconds_again(sum(self._stock.sample_s.values()), borders_s)
            + self._whole_s(),
            self._weights.of_budget,
            in_any_case=reserve.pairs < PAIRS,
        )
        if starts:
            self._means.progress("starts", starts, starts)
        for task in self.tasks:
            if confirmed[task].winner != decisions[task].winner:
                self._tell_decided(task, confirmed[task], raced.winner)
        return confirmed, starts

    def _tell_decided(self, task: Task, decision: Decision, profile: ProcessProfile) -> None:
        won, default_us = decision.schedule or decision.builtin, decision.profile_default_us
        time_us = default_us if won is None else won.time_us
        gain = default_us / time_us if profile == STOCK.profile else None
        self._means.watch(KeyDecided(task, decision.winner, time_us, gain))

    def first_look(self) -> FirstLook:
        """Try the likeliest schedules of each key before a profile is chosen.

        A budget may leave the searches nothing, so every key is tried. Without one, only keys that
        decide the profile are, and only if there is a floor and a choice of profiles: a schedule
        may serve them. If jobs do not run the schedules, no key is tried.
        """
        spending, weights, spaces = self._spending, self._weights, self._means.spaces
        deciding = representative(self._free, weights, self._added)
        profiles = profile_axes([spaces.builtins(task) for task in deciding]).size
        has_choice = self._floor is not None and profiles > 1
        tried = deciding if has_choice else []
        if math.isfinite(spending.limit_s):
            tried = self._free
        # A record has schedules under other profiles, too.
        under = {task: with_profile(spaces.schedules(task), STOCK.profile) for task in tried}
        own = {task: space for task, space in under.items() if space.families}
        if not own or not spaces.jobs_run_schedules:
            return FirstLook({}, {})
        each_s = _SHORT_SHARE * spending.left_s / weights.of_all(list(own))
        short_s = {
            task: min(
                each_s * weights.of_all([task]), _FIRST_LOOK_SAMPLES * self._stock.sample_s[task]
            )
            for task in own
        }
        found = self._searches.search(SCHEDULES, own, {}, weights, short_s=short_s)
        of_deciding = {t: found[t] for t in deciding if has_choice and t in found}
        served = served_keys(of_deciding, self.stock_us, spending.measure, spending.is_right)
        return FirstLook(served, found)

    def race_profiles(self, look: FirstLook, reserve: Reserve, shape: Shape) -> RaceResult:
        """Select the profile of the table; jobs have the shape of all GPUs."""
        tasks = representative(self._free, self._weights, self._added)
        if not tasks:
            return RaceResult(STOCK.profile, (), {}, out_of_budget=False)
        spaces = {task: self._means.spaces.builtins(task) for task in tasks}
        race_progress = RaceProgress(self._means.progress, profile_axes(spaces.values()).most)
        share = _RACE_SHARE if self._stock.is_unsteady() else _RACE_SHARE_OF_STEADY
        kept_s = reserve.after_s + reserve.searches_s
        cost = self._profile_cost(shape, kept_s)
        budget = RaceBudget(
            self._spending,
            ends_s=self._spending.spent_s + share * self._spending.left_s,
            kept_s=kept_s,
            beside_s=cost.seconds,
            proof_s=PROOF_SAMPLES * sum(self._stock.sample_s[task] for task in tasks),
            is_past_first=lambda: race_progress.is_past_first,
            shared=_FIRST_VISIT_SHARE + _STARTS_SHARE,
        )
        visitor = Visitor(
            spaces,
            self._spending.measure,
            self.stock_us,
            self._weights.of_profile,
            served=look.served,
            first_s=self._first_visit_s(tasks),
            fresh=self._spending.fresh,
            fault=self._spending.fault,
            stock_faults=self._stock.faults,
        )
        raced = race(
            visitor,
            self._floor,
            budget.affords,
            budget.proves,
            budget.lacking_s,
            race_progress.visit,
            race_progress.compare,
            cost.lateness,
            cost.can_be_timed,
            UntunedShapes(
                tasks_beside(self._free_anywhere(), shape) if self._means.log.runs_jobs else (),
                self._floor,
                self._means.spaces.jobs_run_schedules,
                budget.proves,
            ),
        )
        race_progress.end()
        return raced

    def _free_anywhere(self) -> list[Task]:
        """Return the keys whose sums may move, wherever ranks sit."""
        return [task for task in self._anywhere if task in self._free]

    def _is_hidden(self, task: Task) -> bool:
        """Whether trainings hide a call, so that jobs time it beside a computation, too."""
        return self._means.log.runs_jobs and may_overlap(task, self._means.settings)

    def _profile_cost(self, shape: Shape, kept_s: float) -> ProfileCost:
        """Return what times calls beside computation under a profile; none if no jobs are run.

        Args:
            shape: As jobs have it.
            kept_s: Seconds of the budget that are left to what follows.
        """
        overlapping = {
            task: self.stock_us[task]
            for task in self._anywhere
            if self._is_hidden(task) and memberships(task.shape, shape) is not None
        }
        return ProfileCost.of(
            overlapping,
            self._stock.sample_s,
            self._spending.restart_s,
            self._spending.time_job,
            lambda seconds: self._spending.left_s - kept_s >= seconds,
        )

    def _first_visit_s(self, tasks: Sequence[Task]) -> dict[Task, float]:
        """Seconds of the race's first visit for each key: each as many samples as the next."""
        sample_s = self._stock.sample_s
        first_s = _FIRST_VISIT_SHARE * self._spending.left_s
        whole_s = sum(sample_s[task] for task in tasks)
        if math.isinf(first_s) or not whole_s:
            return {}
        return {task: first_s * sample_s[task] / whole_s for task in tasks}

    def hold_profile(self, warm: WarmStart, found: Mapping[Task, SearchResult]) -> RaceResult:
        """Compare the earlier table's profile with the floor, by the best calls that were found.

        Raises:
            ProfileLostError: It is under the floor.
        """
        calls = {
            task: [ranked.config for ranked in found[task].ranking[:_FINALISTS]]
            if task in found
            else []
            for task in self._free
        }
        if not calls or self._floor is None or warm.profile == STOCK.profile:
            best = {task: tuple(own) for task, own in calls.items()}
            return RaceResult(warm.profile, (), best, out_of_budget=False)
        visitor = Visitor(
            {
                task: space_of("earlier calls", [warm.profile.default, *own])
                for task, own in calls.items()
            },
            self._spending.measure,
            self.stock_us,
            self._weights.of_profile,
            served=self._served_before(warm),
            fault=self._spending.fault,
            stock_faults=self._stock.faults,
        )
        raced = hold(
            warm.profile,
            visitor,
            self._floor,
            lambda starts: self._spending.left_s >= starts * self._spending.restart_s,
        )
        if raced is None:
            raise ProfileLostError(f"{warm.profile.environment} is under the floor")
        return raced

    def _served_before(self, warm: WarmStart) -> dict[Task, KeyRatio]:
        """Return the ratios of the earlier table's schedules that still serve keys."""
        served = {}
        for task in self._free if self._means.spaces.jobs_run_schedules else ():
            space = self._means.spaces.schedules(task)
            best = next((c for c in warm.contenders.get(task, ()) if c in space), None)
            if best is not None and (
                key := ratio_of_schedule(task, best, self.stock_us[task], self._spending.measure)
            ):
                served[task] = key
        return served

    def result(self, tuned: Tuned) -> TunedKeys:
        """Return the result of all stages, compared with an earlier table if there is one."""
        profile, confirmed = tuned.raced.winner, tuned.confirmed
        stock_us = self._stock.means_us()
        if profile == STOCK.profile:
            # The decision's own reference: samples of other starts may contradict its gain.
            stock_us |= {
                task: decision.profile_default_us
                for task, decision in confirmed.items()
                if decision.has_entry
            }
        keys = {
            task: KeyResult(
                task,
                tuned.found[task],
                confirmed[task],
                stock_us[task],
                tuned.ranges[task],
                self._stock.sample_s[task],
                self._tuners_choice(task, profile),
            )
            for task in self.tasks
        }
        between_starts = self._stock.between_starts()
        decided = {task: confirmed[task] for task in self._anywhere}
        # Before the seconds are read, which it adds to.
        against = self._before.times(decided, profile)
        return TunedKeys(
            profile,
            tuned.raced,
            tuple(keys[task] for task in self._anywhere),
            self._spending.spent_s,
            tuned.starts,
            between_starts,
            self._spending.restart_s,
            against,
            self._placed.results(keys.values()),
            stock_faults=self._stock.faults,
        )

    def _tuners_choice(self, task: Task, profile: ProcessProfile) -> TunersChoice | None:
        """Return what a tuner's file chooses for a key under a profile; None: it has no row."""
        baseline = self._means.settings.baseline
        if baseline is None or not (rows := baseline.rows_of(task)):
            return None
        space = with_profile(self._means.spaces.builtins(task), profile)
        return TunersChoice(baseline.name, baseline.choices(task, space), rows)

    def search_builtins(
        self, profile: ProcessProfile, first: Mapping[Task, Sequence[Config]], reserve: Reserve
    ) -> dict[Task, SearchResult]:
        """Search NCCL's settings under a profile, from these calls."""
        spaces, kept_s = self._means.spaces, reserve.after_s
        if spaces.jobs_run_schedules:
            kept_s += _SCHEDULES_SHARE * max(0.0, self._spending.left_s - kept_s)
        own = {task: with_profile(spaces.builtins(task), profile) for task in self.tasks}
        return self._searches.search(BUILTINS, own, first, self._weights, kept_s=kept_s)

    def search_schedules(
        self, profile: ProcessProfile, first: Mapping[Task, Sequence[Config]], reserve: Reserve
    ) -> dict[Task, SearchResult]:
        """Search schedules under a profile, from these calls."""
        spaces = self._means.spaces
        own = {task: with_profile(spaces.schedules(task), profile) for task in self.tasks}
        return self._searches.search(SCHEDULES, own, first, self._weights, kept_s=reserve.after_s)

    def decide(
        self,
        task: Task,
        found: Sequence[SearchResult],
        before: Sequence[Sequence[Config]],
        profile: ProcessProfile,
        pairs: int,
    ) -> Decision:
        """Compare the finalists of a key that deliver the right data.

        The best call of the race, and that of the first look at schedules, which stand in `before`,
        are always finalists, in case the budget left nothing for a search. So are the choices of a
        tuner's file that no search has tried.
        """
        done = self.tasks.index(task)
        self._means.progress(
            "confirmation", done, len(self.tasks), share=self._searches.share(self.tasks, done)
        )
        most = _FINALISTS if self._warm is None else 1
        rankings = [[ranked.config for ranked in result.ranking] for result in found]
        tried = {config for ranking in rankings for config in ranking}
        tried |= {config for result in found for config, _ in result.failures}
        chosen = [config for config in self._chosen(task, profile) if config not in tried]
        finalists = dict.fromkeys(
            config
            for ranking in (*rankings, *(calls[:1] for calls in before), chosen)
            for config in [ranked for ranked in ranking if not ranked.is_default][:most]
        )
        if pairs < PAIRS:
            finalists |= dict.fromkeys(
                another for own in (*rankings, *before) for another in _another(own)
            )
        if self._is_hidden(task):
            finalists |= dict.fromkeys(self._with_fewer_channels(task, list(finalists), profile))
        if not finalists and self._means.settings.keeps_sums(task):
            finalists = dict.fromkeys(self._first_of(task, profile))
        decision = self._compare(task, list(finalists), profile, pairs)
        self._tell_decided(task, decision, profile)
        return decision

    def _with_fewer_channels(
        self, task: Task, finalists: Sequence[Config], profile: ProcessProfile
    ) -> list[Config]:
        """Return the first schedule with fewer channels, which a search for speed may pass over."""
        space = with_profile(self._means.spaces.schedules(task), profile)
        first = next((config for config in finalists if config in space), None)
        if first is None:
            return []
        halves = (first.nchannels >> bits for bits in range(1, 1 + _HALVINGS))
        fewer = (replace(first, nchannels=count) for count in halves)
        return [config for config in fewer if config in space]

    def _first_of(self, task: Task, profile: ProcessProfile) -> Sequence[Config]:
        """Return a call of a key whose sums must not move, if the budget left nothing to search."""
        own = (self._means.spaces.schedules(task), self._means.spaces.builtins(task))
        calls = [call for space in own for call in opening(with_profile(space, profile))]
        return [call for call in calls if not call.is_default][:1]

    def _chosen(self, task: Task, profile: ProcessProfile) -> Sequence[Config]:
        """Return the choices of a tuner's file for a key under a profile."""
        if self._means.settings.baseline is None:
            return ()
        spaces = self._means.spaces
        return spaces.chosen(task, with_profile(spaces.builtins(task), profile))

    def _compare(
        self, task: Task, calls: Sequence[Config], profile: ProcessProfile, pairs: int
    ) -> Decision:
        """Compare those calls of a key that deliver the right data with NCCL's own choice."""
        spending = self._spending
        right = [config for config in calls if spending.is_right(task, config)]
        return decide(
            builtins=[config for config in right if not config.is_schedule],
            schedules=[config for config in right if config.is_schedule],
            profile_default=profile.default,
            measure=lambda config, repeats: spending.measure(task, config, repeats).samples_us,
            taken=partial(spending.asked, task),
            pairs=pairs,
            is_hidden=self._is_hidden(task),
        )

    def try_neighbours(
        self, decisions: Mapping[Task, Decision], profile: ProcessProfile, reserve: Reserve
    ) -> dict[Task, Decision]:
        """Compare each key's winners with those of the sizes beside it that gain more there.

        From below and from above, so that a winner reaches as many sizes as it wins. Where samples
        are too few for a proof, winners are the calls that look fastest, and further starts decide;
        these may shrink to their least. Otherwise the seconds of what follows the decisions are
        left.
        """
        costs = stall_costs(decisions.values())
        shown = partial(with_likely, borrowed=None, default=profile.default, costs=costs)
        few = reserve.pairs < PAIRS
        least_s = (_LEAST_OF_STARTS if few else 1.0) * reserve.starts_s
        found = {task: shown(own) if few else own for task, own in decisions.items()}
        for task in (*self.tasks, *reversed(self.tasks)):
            further = faster_beside(task, found)
            own = [comparison.config for comparison in found[task].proved]
            turns_s = self._stock.sample_s[task] * reserve.pairs * (1 + len(own) + len(further))
            if not further or turns_s > self._spending.left_s - least_s:
                continue
            again = self._compare(task, [*own, *further], profile, reserve.pairs)
            found[task] = joined(found[task], shown(again) if few else again, further)
            if not few and found[task].winner != decisions[task].winner:
                self._tell_decided(task, found[task], profile)
        return {task: own.unproved() for task, own in found.items()} if few else found

    def left_out_where_slower(
        self, decisions: Mapping[Task, Decision], profile: ProcessProfile
    ) -> dict[Task, Decision]:
        """Leave out the calls that are slower on communicators whose ranks sit elsewhere."""
        free = {task: decisions[task] for task in self._free}
        held = dict(decisions) | self._placed.left_out_where_slower(free, profile)
        for task, decision in held.items():
            if decision != decisions[task]:
                self._tell_decided(task, decision, profile)
        return held

    def with_kept_sums(
        self,
        decisions: Mapping[Task, Decision],
        profile: ProcessProfile,
        is_right: Callable[[Task, Config], bool] = lambda _task, _config: True,
    ) -> dict[Task, Decision]:
        """Give every key whose sums must not move a winner.

        Args:
            decisions: The decisions, of calls that were checked.
            profile: The table's profile.
            is_right: Whether a call is right in this start, too.

        Raises:
            MeasurementError: A key has no call that keeps them.
        """
        spending = self._spending

        def compare(task: Task, config: Config) -> Comparison:
            return compare_alone(
                config,
                profile.default,
                lambda call, repeats: spending.measure(task, call, repeats).samples_us,
                partial(spending.asked, task),
            )

        return {
            task: with_winner(task, own, is_right, compare)
            if self._means.settings.keeps_sums(task)
            else own
            for task, own in decisions.items()
        }

    def checked_over_starts(
        self, decisions: Mapping[Task, Decision], profile: ProcessProfile
    ) -> dict[Task, Decision]:
        """Check the order of kept sums in further starts of the workers, as a job is another start.

        Raises:
            MeasurementError: A key has no call that keeps its sums in each of them.
        """
        kept = [task for task in decisions if self._means.settings.keeps_sums(task)]
        found = dict(decisions)
        # A model has no starts, and no data.
        for _ in range(_STARTS_OF_SUMS if kept and self._means.seconds_pass else 0):
            self._spending.restart()
            with suppress(ConfigurationFailedError):
                self._spending.fresh(kept[0], profile.default, 1)
            found = self.with_kept_sums(found, profile, self._spending.is_right)
        return found

    def locate(self, decisions: Mapping[Task, Decision], profile: ProcessProfile) -> Located:
        """Locate the range of sizes that each key serves."""
        self._means.progress("borders", 0, 1)
        before_s = self._spending.spent_s
        ranges = self._borders.ranges(
            {task: decision.winner or profile.default for task, decision in decisions.items()},
            profile.default,
            self._means.settings.keeps_sums,
        )
        self._means.progress("borders", 1, 1)
        return Located(ranges, self._spending.spent_s - before_s)

    def time_stock_again(self) -> None:
        """Time stock NCCL in another start, which shows how much starts and the machine differ."""
        self._spending.restart()
        self._stock.again()

    def lost(self, tuned: Tuned) -> list[Task]:
        """Return the keys that the profile leaves under the floor after all."""
        if self._floor is None:
            return []
        return tuned.under_floor(self._stock.means_us(), self._floor.least)

    def end_confirmation(self) -> None:
        """Report that all keys are decided."""
        self._means.progress("confirmation", len(self.tasks), len(self.tasks))


def _another(ranking: Sequence[Config]) -> list[Config]:
    """Return the best call of another schedule than the first one's, if there is one.

    All calls of a schedule stall alike, which few samples of a key seldom show (`stall_costs`).
    """
    schedules = [config for config in ranking if config.is_schedule]
    return [c for c in schedules if c.schedule != schedules[0].schedule][:1]
