"""Which process profile the table gets: profiles raced against each other over all keys at once.

NCCL reads threads, buffer sizes and the least number of channels once per process, so all keys of a
table share them, and trying other values costs a restart of every worker: seconds, where a sample
costs a millisecond. So profiles are few and keys are measured together. A profile is visited once:
under the first every key tries all its calls, under the others those that were best before and
their neighbours. From the incumbent one variable moves at a time, up and down its axis, and goes on
while it helps: these variables have one hill (AutoCCL, NSDI 2025, section 4, builds on the same).
What a visit gains is the geometric mean over all keys against stock NCCL; a key that would lose
against stock counts heavily, because no job is only an average. At last channel counts between
those of the axis are tried near the best.

With a floor, a profile must leave every key that share of stock's speed. One that is clearly under
it by what its visit showed does not win; the one that does, and the safest of those that gain
nearly as much, are started in turn with stock NCCL until one is clear of the floor
(`tuccl.tuning.profile_verdicts`). Where all are under it the race goes on from the next best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuccl.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.trials.profile_axes import ProfileAxes, profile_axes
from tuccl.trials.space import Space
from tuccl.tuning.guaranteed_minimum import Floor, Verdict
from tuccl.tuning.profile_verdicts import FINALISTS, Verdicts
from tuccl.tuning.profile_visits import Measure, Visit, Visitor

_MIN_GAIN = 0.001
"""Relative gain over all keys that makes another profile the incumbent."""
_MOST_COMPARED = 5
"""Profiles that were started in turn with stock NCCL after which no more are."""
MOST_IN_TURN = _MOST_COMPARED - 1 + FINALISTS
"""That can be started in turn with it in a race."""


@dataclass(frozen=True, slots=True)
class RaceResult:
    """How the race ended."""

    winner: ProcessProfile
    visits: tuple[Visit, ...]
    """In their order; the first is the start."""
    calls: Mapping[Task, tuple[Config, ...]]
    """By key the best calls of all visits, under the winner."""
    out_of_budget: bool
    """Whether a visit or a comparison that would have followed was not paid for."""
    verdict: Verdict | None = None
    """On the winner's keys; None: there was no floor."""
    forgone: tuple[Verdict, ...] = ()
    """On profiles that were faster on average and are under the floor, or less clear of it than the
    winner; the fastest first."""

    def speedup(self, profile: ProcessProfile) -> float:
        """Geometric mean by weight over the raced keys of stock's time over the profile's best."""
        return next(visit.speedup for visit in self.visits if visit.profile == profile)


def race(
    spaces: Mapping[Task, Space],
    stock_us: Mapping[Task, float],
    measure: Measure,
    weights: Mapping[Task, float] | None = None,
    floor: Floor | None = None,
    affords: Callable[[int], bool] = lambda _: True,
    progress: Callable[[ProcessProfile], None] = lambda _: None,
    comparing: Callable[[int], None] = lambda _: None,
) -> RaceResult:
    """The profile with the best gain over all keys, by coordinate moves from the start.

    Args:
        spaces: By key the joint space of what is chosen per call and per process.
        stock_us: Stock NCCL's time by key.
        measure: Gives samples; changes the profile of the workers as needed.
        weights: How much a key counts; 1 where nothing is said.
        floor: What a profile has to leave every key; None: anything.
        affords: Whether so many further starts are paid for; a visit is one. Asked before each
            but the first.
        progress: Told the profile that is looked at next.
        comparing: Told how many profiles were started in turn with stock NCCL, before and after
            others are.
    """
    visitor = Visitor(spaces, measure, stock_us, weights or {})
    visited: dict[ProcessProfile, Visit] = {}
    verdicts = Verdicts(floor, visited)
    axes = profile_axes(spaces.values())
    climb = _Climb(visitor, axes, visited, verdicts, affords, progress, comparing)
    winner = climb.settled(climb.climb(climb.first()))
    visits = tuple(visited.values())
    forgone = [
        verdicts.on(visit)
        for visit in sorted(visits, key=lambda visit: -visit.speedup)
        if visit.speedup > winner.speedup
    ]
    return RaceResult(
        winner=winner.profile,
        visits=visits,
        calls={
            task: tuple(map(winner.profile.applied_to, visitor.best_calls(task))) for task in spaces
        },
        out_of_budget=climb.out_of_budget,
        verdict=None if floor is None else verdicts.on(winner),
        forgone=tuple(one for one in forgone if not one.holds or one.profile in verdicts.compared),
    )


@dataclass
class _Climb:
    """Moves from profile to profile, and what the floor makes of them."""

    visitor: Visitor
    axes: ProfileAxes
    visited: dict[ProcessProfile, Visit]
    verdicts: Verdicts
    """On the visited."""
    affords: Callable[[int], bool]
    progress: Callable[[ProcessProfile], None]
    comparing: Callable[[int], None]
    out_of_budget: bool = False

    def first(self) -> Visit:
        """Where it begins, whatever that costs."""
        self.progress(self.axes.start)
        return self.visited.setdefault(self.axes.start, self.visitor.visit(self.axes.start))

    def visit(self, profile: ProcessProfile) -> Visit | None:
        """What a profile shows, looked at once; None where that is not paid for."""
        if profile not in self.visited:
            self.out_of_budget = self.out_of_budget or not self.affords(1)
            if self.out_of_budget:
                return None
            self.progress(profile)
            self.visited[profile] = self.visitor.visit(profile)
        return self.visited[profile]

    def climb(self, incumbent: Visit) -> Visit:
        """The best that moves along single axes lead to; then values between those of the axis."""
        improved = True
        while improved:
            improved = False
            for direction in self.axes.directions():
                for way in self.axes.ways(incumbent.profile, direction):
                    for profile in way:
                        visit = self.visit(profile)
                        if visit is None or not self._is_better(visit, incumbent):
                            break
                        incumbent, improved = visit, True
        return self._between(incumbent)

    def settled(self, incumbent: Visit) -> Visit:
        """The best profile that is not under the floor; else stock's, or the safest without it."""
        while self.verdicts.on(incumbent).holds:
            if self.verdicts.needs_no_starts(incumbent):
                return incumbent
            finalists = self.verdicts.finalists(incumbent)
            self.comparing(len(self.verdicts.compared))
            if not self.verdicts.compare(finalists, self.affords):
                self.out_of_budget = True
            self.comparing(len(self.verdicts.compared))
            best = self.verdicts.best(incumbent)
            if best is not None:
                return best
            others = [visit for visit in self.visited.values() if self.verdicts.on(visit).holds]
            if not others or len(self.verdicts.compared) >= _MOST_COMPARED:
                break
            incumbent = self.climb(max(others, key=lambda visit: visit.gain))
        stock = self.visited.get(STOCK.profile)
        return stock or max(self.visited.values(), key=self.verdicts.safety)

    def _between(self, incumbent: Visit) -> Visit:
        """Halve the gaps between the incumbent's channel count and its neighbours'."""
        for way in self.axes.gaps(incumbent.profile):
            left = way
            while left:
                middle = len(left) // 2
                visit = self.visit(left[middle])
                if visit is not None and self._is_better(visit, incumbent):
                    incumbent, left = visit, left[middle + 1 :]
                else:
                    left = left[:middle]
        return incumbent

    def _is_better(self, visit: Visit, incumbent: Visit) -> bool:
        """Whether a profile takes the incumbent's place: it may, and gains beyond the noise."""
        holds, held = self.verdicts.on(visit).holds, self.verdicts.on(incumbent).holds
        if holds != held:
            return holds
        noise = 2.0 * math.hypot(visit.error, incumbent.error)
        return visit.gain > incumbent.gain + max(_MIN_GAIN, noise)
