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
(`tuccl.profile_floor`). Where all are under it the race goes on from the next best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuccl.profile_axes import ProfileAxes, profile_axes
from tuccl.profile_floor import (
    Finalist,
    Floor,
    KeyRatio,
    Verdict,
    compare_in_turn,
    suspects,
)
from tuccl.profile_visits import Measure, Visit, Visitor
from tuccl.search.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.space import Space

_MIN_GAIN = 0.001
"""Relative gain over all keys that makes another profile the incumbent."""
_MOST_COMPARED = 5
"""Profiles that are started in turn with stock NCCL before the safest is taken."""
_FINALISTS = 3
"""That are started in turn together."""
_NEAR_GAIN = 0.01
"""What a finalist may gain less than the best: a safer one is worth that."""


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
    ruled_out: tuple[Verdict, ...] = ()
    """On the profiles that the floor kept from winning, the fastest on average first."""

    def speedup(self, profile: ProcessProfile) -> float:
        """Geometric mean over the raced keys of stock's time over the best under a profile."""
        return next(visit.speedup for visit in self.visits if visit.profile == profile)


def race(
    spaces: Mapping[Task, Space],
    stock_us: Mapping[Task, float],
    measure: Measure,
    weights: Mapping[Task, float] | None = None,
    floor: Floor | None = None,
    affords: Callable[[], bool] = lambda: True,
    progress: Callable[[ProcessProfile], None] = lambda _: None,
) -> RaceResult:
    """The profile with the best gain over all keys, by coordinate moves from the start.

    Args:
        spaces: By key the joint space of what is chosen per call and per process.
        stock_us: Stock NCCL's time by key.
        measure: Gives samples; changes the profile of the workers as needed.
        weights: How much a key counts; 1 where nothing is said.
        floor: What a profile has to leave every key; None: anything.
        affords: Whether another visit, or pair of starts, is paid for; asked before each but the
            first.
        progress: Told the profile that is looked at next.
    """
    visitor = Visitor(spaces, measure, stock_us, weights or {})
    climb = _Climb(visitor, profile_axes(spaces.values()), floor, affords, progress)
    winner = climb.settled(climb.climb(climb.first()))
    visits = tuple(climb.visited.values())
    faster = [visit for visit in visits if visit.speedup > winner.speedup]
    verdicts = map(climb.verdict, sorted(faster, key=lambda visit: -visit.speedup))
    return RaceResult(
        winner=winner.profile,
        visits=visits,
        calls={
            task: tuple(map(winner.profile.applied_to, visitor.best_calls(task))) for task in spaces
        },
        out_of_budget=climb.out_of_budget,
        verdict=None if floor is None else climb.verdict(winner),
        ruled_out=tuple(verdict for verdict in verdicts if not verdict.holds),
    )


@dataclass
class _Climb:
    """Moves from profile to profile, and what the floor makes of them."""

    visitor: Visitor
    axes: ProfileAxes
    floor: Floor | None
    affords: Callable[[], bool]
    progress: Callable[[ProcessProfile], None]
    visited: dict[ProcessProfile, Visit] = field(default_factory=dict)
    compared: dict[ProcessProfile, Verdict] = field(default_factory=dict)
    """On profiles that were started in turn with stock NCCL."""
    out_of_budget: bool = False

    def first(self) -> Visit:
        """Where it begins, whatever that costs."""
        self.progress(self.axes.start)
        return self.visited.setdefault(self.axes.start, self.visitor.visit(self.axes.start))

    def visit(self, profile: ProcessProfile) -> Visit | None:
        """What a profile shows, looked at once; None where that is not paid for."""
        if profile not in self.visited:
            self.out_of_budget = self.out_of_budget or not self.affords()
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
        """The best profile that is not under the floor; the safest where all are."""
        while self.verdict(incumbent).holds:
            if self._needs_no_starts(incumbent):
                return incumbent
            self._compare(self._finalists(incumbent))
            holding = [visit for visit in self.visited.values() if self._outlasted(visit)]
            if holding:
                return max(holding, key=self._merit)
            others = [visit for visit in self.visited.values() if self.verdict(visit).holds]
            if not others or len(self.compared) >= _MOST_COMPARED:
                break
            incumbent = self.climb(max(others, key=lambda visit: visit.gain))
        return max(self.visited.values(), key=self._safety)

    def verdict(self, visit: Visit) -> Verdict:
        """What is known of a profile: by starts in turn with stock NCCL, else by its visit.

        Of what was only visited, whether it may still turn out to hold.
        """
        if self.floor is None or visit.profile == STOCK.profile:
            return Verdict(visit.profile, None, holds=True, starts=0)
        if visit.profile in self.compared:
            return self.compared[visit.profile]
        worst = min(visit.keys, key=lambda key: (key.high, key.task))
        if worst.high < self.floor.least:
            return Verdict(visit.profile, worst, holds=False, starts=1)
        alike = min(self._after_others(visit), key=lambda key: (key.ratio, key.task), default=worst)
        return Verdict(visit.profile, alike, alike.ratio >= self.floor.least or alike is worst, 1)

    def _after_others(self, visit: Visit) -> Iterator[KeyRatio]:
        """Keys that ruled other profiles out in many starts, as one start shows them here.

        Without it each profile with the same cost would have to be started as often.
        """
        for other in self.compared.values():
            if other.holds or other.worst is None or not other.worst.ratio:
                continue
            task = other.worst.task
            shown = {key.task: key for key in self.visited[other.profile].keys}[task]
            here = {key.task: key for key in visit.keys}[task]
            learnt = other.worst.ratio / shown.ratio
            yield KeyRatio(task, *(learnt * one for one in (here.ratio, here.low, here.high)))

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
        holds, held = self.verdict(visit).holds, self.verdict(incumbent).holds
        if holds != held:
            return holds
        noise = 2.0 * math.hypot(visit.error, incumbent.error)
        return visit.gain > incumbent.gain + max(_MIN_GAIN, noise)

    def _needs_no_starts(self, visit: Visit) -> bool:
        """Whether it is known that a profile holds: there is no floor, or one start showed it."""
        if self.floor is None or visit.profile == STOCK.profile:
            return True
        return all(key.low >= self.floor.least for key in visit.keys)

    def _outlasted(self, visit: Visit) -> bool:
        """Whether a profile was started in turn with stock NCCL, and holds."""
        verdict = self.compared.get(visit.profile)
        return verdict is not None and verdict.holds

    def _merit(self, visit: Visit) -> tuple[bool, float]:
        """Of what was compared and holds: the best of those that are clear of the floor.

        Where none is, the one that is most likely to be.
        """
        verdict = self.compared[visit.profile]
        worst = 1.0 if verdict.worst is None else verdict.worst.ratio
        return verdict.proved, visit.gain if verdict.proved else worst

    def _finalists(self, incumbent: Visit) -> list[Visit]:
        """The incumbent and the safest of those that gain nearly as much."""
        near = [
            visit
            for visit in self.visited.values()
            if visit is not incumbent
            and visit.profile not in self.compared
            and visit.profile != STOCK.profile
            and visit.gain >= incumbent.gain - _NEAR_GAIN
            and self.verdict(visit).holds
        ]
        safest = sorted(near, key=self._safety, reverse=True)
        return [incumbent, *safest[: _FINALISTS - 1]]

    def _compare(self, visits: Sequence[Visit]) -> None:
        """The verdicts on profiles by starts in turn with stock NCCL.

        What a visit leaves open does not hold where the starts are not paid for.
        """
        if self.floor is None:
            return
        lowest: dict[Task, float] = {}
        for visit in visits:
            for key in visit.keys:
                lowest[key.task] = min(key.ratio, lowest.get(key.task, math.inf))
        finalists = [_finalist(visit, suspects(lowest)) for visit in visits]
        self.progress(visits[0].profile)
        found = compare_in_turn(finalists, self.floor.least, self.floor.fresh, self.affords)
        for visit in visits:
            if visit.profile not in found:
                self.out_of_budget = True
                worst = min(visit.keys, key=lambda key: (key.ratio, key.task))
                found[visit.profile] = Verdict(visit.profile, worst, holds=False, starts=1)
        self.compared.update(found)

    def _safety(self, visit: Visit) -> tuple[float, float]:
        worst = self.verdict(visit).worst
        return (1.0 if worst is None else worst.ratio), visit.gain


def _finalist(visit: Visit, worst: Sequence[Task]) -> Finalist:
    """What of the worst keys runs under a profile when it is started again."""
    default = visit.profile.default
    best = {task: config for task, (config, _) in visit.best.items()}
    calls = {task: list(dict.fromkeys((default, best.get(task, default)))) for task in worst}
    return Finalist(visit.profile, calls)
