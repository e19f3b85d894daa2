"""The race that selects the table's process profile, over all keys at once.

NCCL reads threads, buffer sizes and the least number of channels once per process, so all keys of a
table share them, and trying other values costs a restart of every worker: seconds, where a sample
costs a millisecond. So few profiles are tried, and all keys are timed under each. A profile is
visited once: under the first, every key tries its calls; under the others, the calls that were
best before and their neighbours. From the incumbent one variable moves at a time, up and down its
axis, as long as it helps: the gain has a single maximum along it (AutoCCL, NSDI 2025, section 4,
builds on the same). The gain of a visit is the geometric mean over all keys against stock NCCL;
keys that lose against stock weigh more, because no job is only an average. Further variables are
turned one at a time, each at its ends first, then those that gain together. Those that a user asked
for come before all others, then those that the catalogue puts first. Last, channel counts between
those of the axis are tried near the best.

A profile takes the lead only if NCCL's own choice delivers the right data of every key under it,
and one with more channels only if calls beside computation do not end later with it
(`tuccl.tuning.beside_computation`): what follows it has as many, and is not visited then. A further
variable stays only if it gains in fresh starts, too (`tuccl.tuning.knob_proof`).

With a floor, a profile must leave every key that share of stock's speed. A profile whose visit
shows it clearly under the floor cannot win. The best of the rest, and the safest of those that gain
nearly as much, are started in turn with stock NCCL until one is clear of the floor
(`tuccl.tuning.profile_verdicts`). Under a budget visits leave the seconds of these starts. Where
all are under it the race goes on from the next best; also where calls beside computation end later
under the winner. Keys that a schedule of the executor serves are held to the floor by the schedule.
The gain remains that of NCCL's calls, so a profile that costs jobs without the executor much still
gains less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuccl.reports.ratios import MeasuredGain
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Settings, Task
from tuccl.search.trials.events import AtMost, Progress
from tuccl.search.trials.profile_axes import VARIABLES, ProfileAxes, profile_axes
from tuccl.search.trials.space import Knob
from tuccl.tuning.guaranteed_minimum import Floor, Rounds, Verdict
from tuccl.tuning.knob_proof import FEWEST_ROUNDS, Proof, worth_setting
from tuccl.tuning.profile_verdicts import FINALISTS, Verdicts
from tuccl.tuning.profile_visits import Visit, Visitor
from tuccl.tuning.untuned_shapes import UntunedShapes

_MIN_GAIN = 0.001
"""Least relative gain over all keys by which a profile replaces the incumbent."""
_LEAST_OF_VARIABLE = 0.005
"""Least relative gain by which a profile with a further variable replaces one without it."""
_MOST_COMPARED = 5
"""Number of profiles started in turn with stock NCCL after which no more are."""
MOST_IN_TURN = _MOST_COMPARED - 1 + FINALISTS
"""Most profiles that a race can start in turn with stock NCCL."""


@dataclass(frozen=True, slots=True)
class Turned:
    """What a value of a further variable gained over all keys."""

    value: Settings
    gain: float
    """Weighted geometric mean of the time without it over the time with it; 0: a key cannot run."""
    low: float | None
    """Lower bound by fresh starts; None: of a visit alone."""
    starts: int
    """Starts of each; 1: only the visits."""
    taken: bool
    """Whether the winner has it."""


@dataclass(frozen=True, slots=True)
class RaceResult:
    """The outcome of a race."""

    winner: ProcessProfile
    visits: tuple[Visit, ...]
    """Visits in their order."""
    calls: Mapping[Task, tuple[Config, ...]]
    """Best calls of all visits by key, under the winner."""
    out_of_budget: bool
    """Whether the budget cut off what would have followed: a visit, a comparison, or the times of
    the best profile beside computation."""
    verdict: Verdict | None = None
    """Verdict on the winner; None: there was no floor."""
    forgone: tuple[Verdict, ...] = ()
    """Verdicts on profiles that were faster on average but are under the floor, or less clear of it
    than the winner; the fastest first."""
    by_schedule: frozenset[Task] = frozenset()
    """Keys that the winner leaves above the floor by their schedules alone."""

    turned: tuple[Turned, ...] = ()
    """What the values of further variables gained, in the order of their visits."""
    untried: tuple[Settings, ...] = ()
    """Values that a user asked for and that the budget did not pay for."""
    lacking_s: float = 0.0
    """Seconds of a longer budget that would pay for visits of these."""

    def speedup(self, profile: ProcessProfile) -> float:
        """Weighted geometric mean over the raced keys of stock's time over the profile's best."""
        return next(visit.speedup for visit in self.visits if visit.profile == profile)


def race(
    visitor: Visitor,
    floor: Floor | None = None,
    affords: Callable[[int, bool], bool] = lambda _starts, _is_asked: True,
    proves: Callable[[int], bool] = lambda _: True,
    lacking_s: Callable[[int], float] = lambda _: 0.0,
    progress: Callable[[ProcessProfile], None] = lambda _: None,
    comparing: Callable[[int], None] = lambda _: None,
    lateness: Callable[[ProcessProfile], MeasuredGain | None] = lambda _: None,
    can_be_timed: Callable[[], bool] = lambda: True,
    untuned: UntunedShapes | None = None,
) -> RaceResult:
    """Find the profile with the best gain over all keys, by coordinate moves.

    Args:
        visitor: Times the keys under a profile.
        floor: Guaranteed minimum of every key; None: no floor.
        affords: Whether the budget pays for a visit and a number of starts after it, and whether a
            user asked for the visit. Called before each visit but the first.
        proves: Whether the budget pays for a number of starts of a proof, or in turn with stock
            NCCL.
        lacking_s: Returns the seconds of a longer budget that would pay for a number of visits that
            this did not pay for.
        progress: Receives the profile that is visited next.
        comparing: Receives the number of profiles that were started in turn with stock NCCL,
            before and after each comparison.
        lateness: Returns what jobs lose by a profile beside computation, if they do.
        can_be_timed: Whether the budget pays for that.
        untuned: Times profiles on communicators that are not tuned; None: there are none.
    """
    visited: dict[ProcessProfile, Visit] = {}
    verdicts = Verdicts(floor, visited, visitor.wrong_data, lateness, can_be_timed, untuned)
    axes = profile_axes(visitor.spaces.values())
    climb = _Climb(visitor, axes, visited, verdicts, affords, proves, progress, comparing)
    winner = climb.settled(climb.climb(climb.first()))
    visits = tuple(visited.values())
    forgone = [
        verdicts.on(visit)
        for visit in sorted(visits, key=lambda visit: -visit.speedup)
        if visit.speedup > winner.speedup
    ]
    untried = tuple(climb.untried()) if climb.out_of_budget else ()
    return RaceResult(
        winner=winner.profile,
        visits=visits,
        calls=visitor.calls_under(winner.profile),
        out_of_budget=climb.out_of_budget or bool(verdicts.untimed),
        verdict=None if floor is None else verdicts.on(winner),
        forgone=tuple(v for v in forgone if v.profile in verdicts.compared or verdicts.tells(v)),
        by_schedule=frozenset() if floor is None else _by_schedule(winner, verdicts, floor.least),
        turned=tuple(climb.turned(winner)),
        untried=untried,
        lacking_s=lacking_s(len(untried)) if untried else 0.0,
    )


def hold(
    profile: ProcessProfile,
    visitor: Visitor,
    floor: Floor,
    affords: Callable[[int], bool] = lambda _: True,
) -> RaceResult | None:
    """Hold one profile against the floor, without a race.

    None where it is under it, or NCCL's data are wrong with it.

    Args:
        profile: The profile of an earlier table.
        visitor: As for `race`, like the arguments below; its spaces are what was best before.
        floor: As above.
        affords: Whether the budget pays for a number of starts in turn with stock NCCL.
    """
    visit = visitor.visit(profile)
    verdicts = Verdicts(floor, {profile: visit}, visitor.wrong_data)
    if not verdicts.is_right(visit):
        return None
    if not verdicts.needs_no_starts(visit):
        verdicts.compare([visit], affords)
    verdict = verdicts.on(visit)
    if not verdict.holds:
        return None
    return RaceResult(
        winner=profile,
        visits=(visit,),
        calls=visitor.calls_under(profile),
        out_of_budget=False,
        verdict=verdict,
        by_schedule=_by_schedule(visit, verdicts, floor.least),
    )


def _by_schedule(winner: Visit, verdicts: Verdicts, least: float) -> frozenset[Task]:
    """Keys that a profile leaves above the floor by their schedules alone.

    Starts in turn tell better than the visit what NCCL's calls take.
    """
    if winner.profile == STOCK.profile:
        return frozenset()
    by_nccl = {key.task: key for key in winner.without_executor}
    by_nccl |= {key.task: key for key in verdicts.on(winner).without_executor}
    return frozenset(task for task, key in by_nccl.items() if key.is_under(least, expected=True))


@dataclass
class _Climb:
    """Moves from profile to profile, and the verdicts on them."""

    visitor: Visitor
    axes: ProfileAxes
    visited: dict[ProcessProfile, Visit]
    verdicts: Verdicts
    """Verdicts on the visited profiles."""
    affords: Callable[[int, bool], bool]
    proves: Callable[[int], bool]
    progress: Callable[[ProcessProfile], None]
    comparing: Callable[[int], None]
    out_of_budget: bool = False
    unproved: set[Settings] = field(default_factory=set)
    """Values of further variables that did not gain in fresh starts."""
    proved: set[ProcessProfile] = field(default_factory=set)
    """Profiles all of whose further variables did."""
    proofs: dict[Settings, Proof] = field(default_factory=dict)
    """What values of further variables gain in fresh starts."""
    proofs_begun: int = 0
    """Number of proofs, which share one error."""
    begun: dict[ProcessProfile, Rounds] = field(default_factory=dict)
    """By profile, the rounds for the floor that its proof began."""

    def first(self) -> Visit:
        """Visit the first profile, whatever the budget."""
        self.progress(self.axes.start)
        return self.visited.setdefault(self.axes.start, self.visitor.visit(self.axes.start))

    def visit(self, profile: ProcessProfile, is_asked: bool = False) -> Visit | None:
        """Visit a profile, or return its earlier visit; None if it can't win or isn't paid for."""
        if profile not in self.visited:
            if self.verdicts.is_late(profile):
                return None
            if not self.out_of_budget:
                # A gain that cannot be proved any more, after the visit, is not worth a visit.
                proof = 2 * FEWEST_ROUNDS if profile.settings else 0
                left = max(proof, self.verdicts.starts_of_verdict())
                self.out_of_budget = not self.affords(left, is_asked)
            if self.out_of_budget:
                return None
            self.progress(profile)
            self.visited[profile] = self.visitor.visit(profile)
        return self.visited[profile]

    def climb(self, incumbent: Visit) -> Visit:
        """The best visit by single moves; further variables one at a time first, then together."""
        asked = [knob for knob in self.axes.knobs if knob.is_asked]
        others = [knob for knob in self.axes.knobs if not knob.is_asked]
        incumbent = self._turned(incumbent, asked)
        incumbent = self._turned(incumbent, [knob for knob in others if knob.comes_first])
        incumbent = self._moved(incumbent, VARIABLES)
        incumbent = self._turned(incumbent, [knob for knob in others if not knob.comes_first])
        incumbent = self._moved(incumbent, self.axes.directions())
        return self._between(incumbent)

    def _moved(self, incumbent: Visit, directions: Sequence[str | Knob]) -> Visit:
        """The best visit by moves along single axes, as long as they help."""
        improved = True
        while improved:
            improved = False
            for direction in directions:
                for way in self.axes.ways(incumbent.profile, direction):
                    for profile in way:
                        visit = self.visit(profile)
                        if visit is None or not self._is_better(visit, incumbent):
                            break
                        incumbent, improved = visit, True
        return incumbent

    def _turned(self, incumbent: Visit, knobs: Sequence[Knob]) -> Visit:
        """The best visit with further variables: the coarse values of all of them first."""
        orders = {knob: knob.coarse_to_fine for knob in knobs}
        best: dict[Knob, Visit] = {}
        for level in range(max(map(len, orders.values()), default=0)):
            for knob, order in orders.items():
                if level < len(order):
                    profile = knob.turned(incumbent.profile, order[level])
                    visit = self.visit(profile, knob.is_asked)
                    if visit is not None and self._is_better(visit, best.get(knob, incumbent)):
                        best[knob] = visit
        start = incumbent
        for knob, single in sorted(best.items(), key=lambda item: -item[1].gain):
            joint = single
            if incumbent is not start:
                value = knob.value_in(single.profile)
                profile = knob.turned(incumbent.profile, value)
                joint = self.visit(profile, knob.is_asked) or incumbent
            if self._is_better(joint, incumbent):
                incumbent = joint
        return incumbent

    def settled(self, incumbent: Visit) -> Visit:
        """The best visit that is not under the floor; else that of stock, or the safest."""
        while True:
            incumbent = self._proved(incumbent)
            if self.verdicts.on(incumbent).holds and self.verdicts.is_right(incumbent):
                if not self.verdicts.needs_no_starts(incumbent):
                    self._compare_in_turn(incumbent)
                    while (best := self.verdicts.best(incumbent)) is not None:
                        if self._may_be_shipped(best):
                            return best
                elif self._may_be_shipped(incumbent):
                    return incumbent
            holding = [visit for visit in self.visited.values() if self._may_win(visit)]
            if not holding or len(self.verdicts.compared) >= _MOST_COMPARED:
                break
            incumbent = self.climb(max(holding, key=lambda visit: visit.gain))
        stock = self.visited.get(STOCK.profile)
        return stock or max(self.visited.values(), key=self.verdicts.safety)

    def _may_be_shipped(self, visit: Visit) -> bool:
        """Whether a profile that holds is right, and costs jobs nothing beside the keys."""
        verdicts = self.verdicts
        return (
            verdicts.is_right(visit) and verdicts.keeps_up(visit) and verdicts.spares_others(visit)
        )

    def _compare_in_turn(self, incumbent: Visit) -> None:
        """Start the incumbent and the safest of those that gain as much in turn with stock NCCL.

        An incumbent whose proof began such starts continues them by itself.
        """
        begun = self.begun.get(incumbent.profile)
        finalists = self.verdicts.finalists(incumbent) if begun is None else [incumbent]
        self.comparing(len(self.verdicts.compared))
        if not self.verdicts.compare(finalists, self.proves, begun):
            self.out_of_budget = True
        self.proves(0)  # No visit began meanwhile.
        self.comparing(len(self.verdicts.compared))

    def _proved(self, incumbent: Visit) -> Visit:
        """The visit without the further variables that do not gain in fresh starts."""
        fresh = self.visitor.fresh
        while fresh is not None and incumbent.profile not in self.proved:
            without: dict[Knob, Visit] = {}
            for knob in self.axes.knobs:
                if knob.value_in(incumbent.profile):
                    without[knob] = self._without(knob, incumbent)
            proofs: dict[Knob, Proof] = {}
            if without and self.proves(FEWEST_ROUNDS * (1 + len(without))):
                before, self.proofs_begun = self.proofs_begun, self.proofs_begun + 1
                weights, rounds = self.visitor.weights, self._floor_rounds(incumbent, without)
                proofs = worth_setting(
                    incumbent, without, fresh, weights, self.proves, before, rounds
                )
                self.proves(0)  # No visit began meanwhile.
            elif without:
                self.out_of_budget = True
            for knob, proof in proofs.items():
                self.proofs[knob.value_in(incumbent.profile)] = proof
            lost = [knob for knob in without if knob not in proofs or not proofs[knob].holds]
            if not lost:
                self.proved.add(incumbent.profile)
                break
            # The one whose loss costs least goes first: others may gain by themselves then.
            least = max(lost, key=lambda knob: without[knob].gain)
            self.unproved.add(least.value_in(incumbent.profile))
            incumbent = self._with_another(least, without[least])
        return incumbent

    def _floor_rounds(self, incumbent: Visit, without: Mapping[Knob, Visit]) -> Rounds | None:
        """Rounds that compare a profile with the floor in the starts of its proof.

        None if the proof does not start stock NCCL, or if the visit showed the profile above it.
        """
        starts_stock = any(visit.profile == STOCK.profile for visit in without.values())
        if not starts_stock or self.verdicts.needs_no_starts(incumbent):
            return None
        rounds = self.verdicts.rounds_of([incumbent])
        if rounds is not None:
            self.begun[incumbent.profile] = rounds
        return rounds

    def _with_another(self, knob: Knob, without: Visit) -> Visit:
        """The best visit that has another value of a variable, if it gains; else that without."""
        others = [v for p, v in self.visited.items() if knob.turned(p, ()) == without.profile]
        best = max((v for v in others if self._may_win(v)), key=lambda v: v.gain, default=without)
        return best if self._is_better(best, without) else without

    def _without(self, knob: Knob, incumbent: Visit) -> Visit:
        """The visit without a variable; where it is not paid for, the best that was."""
        visit = self.visit(knob.turned(incumbent.profile, ()))
        if visit is not None:
            return visit
        left = set(incumbent.profile.settings) - set(knob.value_in(incumbent.profile))
        others = [own for own in self.visited.values() if left.issuperset(own.profile.settings)]
        return max(others, key=lambda own: (self._may_win(own), own.gain))

    def turned(self, winner: Visit) -> Iterator[Turned]:
        """Yield what each value of a further variable gained where it was visited first."""
        known: set[Settings] = set()
        for profile, visit in self.visited.items():
            for knob in self.axes.knobs:
                value = knob.value_in(profile)
                without = self.visited.get(knob.turned(profile, ()))
                if not value or value in known or without is None or not without.speedup:
                    continue
                if self.verdicts.on(visit).wrong:
                    continue  # Its gain is none.
                known.add(value)
                taken = value == knob.value_in(winner.profile)
                proof = self.proofs.get(value)
                if proof is None or not proof.starts:
                    yield Turned(value, visit.speedup / without.speedup, None, 1, taken)
                else:
                    yield Turned(value, proof.gain, proof.low, proof.starts, taken)

    def untried(self) -> Iterator[Settings]:
        """Yield the values that a user asked for and that no visit had."""
        asked = (knob for knob in self.axes.knobs if knob.is_asked)
        for knob in asked:
            visited = {knob.value_in(profile) for profile in self.visited}
            yield from (value for value in knob.values if value and value not in visited)

    def _may_win(self, visit: Visit) -> bool:
        """Whether a profile holds, and has no value that was found to gain nothing."""
        own = set(visit.profile.settings)
        return self.verdicts.on(visit).holds and not any(map(own.issuperset, self.unproved))

    def _between(self, incumbent: Visit) -> Visit:
        """Halve the gaps between the incumbent's channel count and its neighbours'."""
        for way in self.axes.gaps(incumbent.profile):
            gap = way
            while gap:
                middle = len(gap) // 2
                visit = self.visit(gap[middle])
                if visit is not None and self._is_better(visit, incumbent):
                    incumbent, gap = visit, gap[middle + 1 :]
                else:
                    gap = gap[:middle]
        return incumbent

    def _is_better(self, visit: Visit, incumbent: Visit) -> bool:
        """Whether a profile replaces the incumbent: it holds, gains beyond the noise, is right."""
        holds, held = self._may_win(visit), self._may_win(incumbent)
        if holds != held:
            return holds and self.verdicts.is_right(visit)
        noise = 2.0 * math.hypot(visit.error, incumbent.error)
        further = dict(visit.profile.settings).keys() - dict(incumbent.profile.settings).keys()
        least = max(_LEAST_OF_VARIABLE if further else _MIN_GAIN, noise)
        if visit.gain <= incumbent.gain + least or not self.verdicts.is_right(visit):
            return False
        has_more = visit.profile.min_nchannels > incumbent.profile.min_nchannels
        return not has_more or self.verdicts.keeps_up(visit)


_VISITS = "process profiles"
_IN_TURN = "profiles against stock"


@dataclass
class RaceProgress:
    """Reports visits, and profiles that were started in turn with stock NCCL."""

    progress: Progress
    most: int
    """Number of profiles in the space."""
    _visits: int = 0
    """Visits begun so far."""
    _in_turn: int | None = None
    """Profiles started in turn so far; None: the latest step was a visit."""

    @property
    def is_past_first(self) -> bool:
        """Whether the first visit is over."""
        return self._visits > 1 or self._in_turn is not None

    def visit(self, _profile: ProcessProfile) -> None:
        """Report that the visit of a profile begins."""
        self.progress(_VISITS, self._visits, AtMost(self.most))
        self._visits += 1
        self._in_turn = None

    def compare(self, compared: int) -> None:
        """Report that `compared` profiles were started in turn so far."""
        if self._in_turn is None:
            self.progress(_VISITS, self._visits, self._visits)
        self._in_turn = compared
        self.progress(_IN_TURN, compared, AtMost(MOST_IN_TURN))

    def end(self) -> None:
        """Report that the race is over."""
        if self._in_turn is None:
            self.progress(_VISITS, self._visits, self._visits)
        else:
            self.progress(_IN_TURN, self._in_turn, self._in_turn)
