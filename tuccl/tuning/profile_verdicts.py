"""Verdicts on the profiles that a race has visited, and the finalists that follow from them.

A profile whose visit shows it clearly under the floor cannot win. The best of the rest, and the
safest of those that gain nearly as much, are finalists: they are started in turn with stock NCCL
(`tuccl.tuning.guaranteed_minimum`). Among those that hold, the best profile that is clear of the
floor wins; where none is clear of it, the profile whose worst key has the highest ratio. None wins
by which calls beside computation end later (`tuccl.tuning.beside_computation`).

Keys that a schedule serves are judged by the schedule. Those that would be suspects by NCCL's calls
are timed in these starts as well, since a job without the executor gets NCCL's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuccl.reports.ratios import MeasuredGain
from tuccl.search.trials.config import STOCK, ProcessProfile, Task
from tuccl.tuning.guaranteed_minimum import (
    FEWEST_STARTS,
    MOST_STARTS,
    Finalist,
    Floor,
    KeyRatio,
    Rounds,
    Verdict,
    compare_in_turn,
    suspects,
)
from tuccl.tuning.profile_visits import Visit
from tuccl.tuning.untuned_shapes import UntunedShapes

FINALISTS = 3
"""Most profiles that are started in turn together."""
_NEAR_GAIN = 0.01
"""Gain that a finalist may fall short of the best by: a safer profile is worth it."""


@dataclass
class Verdicts:
    """The verdicts on all visited profiles."""

    floor: Floor | None
    visited: Mapping[ProcessProfile, Visit]
    """Visits so far; the race adds to them."""
    wrong_data: Callable[[ProcessProfile], str] = lambda _: ""
    """Checks the data of all keys under a profile, and returns what is wrong."""
    lateness: Callable[[ProcessProfile], MeasuredGain | None] = lambda _: None
    """Times calls beside computation, and returns their mean gain if a profile makes jobs lose."""
    can_be_timed: Callable[[], bool] = lambda: True
    """Whether the budget pays for timing a profile beside computation."""
    untuned: UntunedShapes | None = None
    """Times profiles on communicators that are not tuned."""
    compared: dict[ProcessProfile, Verdict] = field(default_factory=dict)
    """Verdicts on profiles that were started in turn with stock NCCL."""
    _wrong: dict[ProcessProfile, str] = field(default_factory=dict)
    """Findings on the data of the profiles that were checked."""
    _late: dict[ProcessProfile, MeasuredGain | None] = field(default_factory=dict)
    """Losses beside computation of the profiles that were timed there."""
    untimed: set[ProcessProfile] = field(default_factory=set)
    """Profiles that the budget did not pay for timing there, or where nothing is tuned."""
    _spared: dict[ProcessProfile, Verdict] = field(default_factory=dict)
    """Verdicts on profiles where nothing is tuned."""

    def on(self, visit: Visit) -> Verdict:
        """Verdict on a profile, by starts in turn with stock NCCL, else by its visit.

        A profile that was only visited holds if starts in turn may still show that it does.
        """
        known = self._spared.get(visit.profile)
        if known is None or not known.holds:
            return known or self._of_keys(visit)
        return replace(self._of_keys(visit), untuned=known.own_choice)

    def _of_keys(self, visit: Visit) -> Verdict:
        """Verdict on a profile by the keys that are tuned."""
        if self.is_late(visit.profile):
            late = self._late.get(visit.profile)
            return Verdict(visit.profile, self._worst(visit), holds=False, starts=1, beside=late)
        if self.floor is None or visit.profile == STOCK.profile:
            return Verdict(visit.profile, None, holds=True, starts=0)
        others = visit.without_executor
        worst = self._worst(visit)
        if wrong := self._wrong.get(visit.profile, ""):
            return Verdict(visit.profile, worst, holds=False, starts=1, wrong=wrong)
        if visit.profile in self.compared:
            return self.compared[visit.profile]
        if worst.high < self.floor.least:
            return Verdict(visit.profile, worst, holds=False, starts=1, without_executor=others)
        likely = min(self._corrected(visit), key=lambda key: (key.ratio, key.task), default=worst)
        holds = likely is worst or likely.ratio >= self.floor.least
        return Verdict(visit.profile, likely, holds, starts=1, without_executor=others)

    def is_right(self, visit: Visit) -> bool:
        """Whether NCCL delivers the right data of every key under a profile; stock's is taken."""
        profile = visit.profile
        if profile not in self._wrong:
            stock = profile == STOCK.profile
            self._wrong[profile] = "" if stock else self.wrong_data(profile)
        return not self._wrong[profile]

    def keeps_up(self, visit: Visit) -> bool:
        """Whether jobs are known to lose nothing beside computation by a profile."""
        profile = visit.profile
        if profile == STOCK.profile:
            return True
        if profile not in self._late:
            if not self.can_be_timed():
                self.untimed.add(profile)
                return False
            self._late[profile] = self.lateness(profile)
        return self._late[profile] is None

    def spares_others(self, visit: Visit) -> bool:
        """Whether communicators that are not tuned are known to keep the floor by a profile."""
        profile = visit.profile
        if self.untuned is None or not self.untuned.needs_starts(profile):
            return True
        found = self.untuned.verdict(profile)
        if found is None:
            self.untimed.add(profile)
            return False
        self._spared[profile] = replace(found, profile=profile, untuned=found.own_choice)
        return found.holds

    def tells(self, verdict: Verdict) -> bool:
        """Whether a verdict on a profile that does not hold rests on times of its own."""
        timed = verdict.beside is not None or not self.is_late(verdict.profile)
        return not verdict.holds and timed

    def is_late(self, profile: ProcessProfile) -> bool:
        """Whether jobs lose by a profile, or by one with no more channels, or may lose by it.

        A channel is a thread block, which takes a multiprocessor from the computation.
        """
        return profile in self.untimed or any(
            late is not None
            and (other == profile or 0 < other.min_nchannels <= profile.min_nchannels)
            for other, late in self._late.items()
        )

    def needs_no_starts(self, visit: Visit) -> bool:
        """Whether a profile is known to hold: there is no floor, or its visit showed it."""
        return visit.profile == STOCK.profile or self._is_clear(visit)

    def starts_of_verdict(self) -> int:
        """Return how many starts in turn with stock NCCL the next visit must leave in the budget.

        Without a verdict no profile wins. The second visit leaves the fewest starts that may
        decide, later ones those that always decide. Once a visit showed every key above the floor,
        no starts are needed.
        """
        if any(map(self._is_clear, self.visited.values())):
            return 0
        return 2 * (FEWEST_STARTS if len(self.visited) == 1 else MOST_STARTS)

    def _is_clear(self, visit: Visit) -> bool:
        """Whether the visit shows every key above the floor; true if the race has none."""
        return self.floor is None or all(key.low >= self.floor.least for key in visit.keys)

    def finalists(self, incumbent: Visit) -> list[Visit]:
        """The incumbent, and the safest profiles that gain nearly as much.

        A profile that gains no more than one known to hold is no finalist.
        """
        known = [
            visit.gain
            for visit in self.visited.values()
            if self.needs_no_starts(visit) and self._is_alike(visit, incumbent)
        ]
        least = max([incumbent.gain - _NEAR_GAIN, *known])
        near = [
            visit
            for visit in self.visited.values()
            if visit is not incumbent
            and visit.gain > least
            and visit.profile not in self.compared
            and self._is_alike(visit, incumbent)
        ]
        safest = sorted(near, key=self.safety, reverse=True)
        return [incumbent, *safest[: FINALISTS - 1]]

    def compare(
        self, visits: Sequence[Visit], affords: Callable[[int], bool], begun: Rounds | None = None
    ) -> bool:
        """Start profiles in turn with stock NCCL; return whether the budget paid for all of them.

        If it did not pay for the first profile, that counts as not holding.

        Args:
            visits: Those of the profiles.
            affords: Whether the budget pays for a number of further starts.
            begun: Rounds of these profiles that a proof began.
        """
        rounds = begun or self.rounds_of(visits)
        if self.floor is None or rounds is None:
            return True
        judged = compare_in_turn(rounds, self.floor.least, affords)
        first = visits[0]
        if first.profile not in judged:
            key = min(first.keys, key=lambda key: (key.ratio, key.task))
            self.compared[first.profile] = Verdict(first.profile, key, holds=False, starts=1)
        self.compared.update(judged)
        return len(judged) == len(visits)

    def rounds_of(self, visits: Sequence[Visit]) -> Rounds | None:
        """Return rounds that time the worst keys of these profiles, or None without a floor."""
        if self.floor is None:
            return None
        by_job = [{key.task: key.ratio for key in visit.keys} for visit in visits]
        by_nccl = [
            by_task | {key.task: key.ratio for key in visit.without_executor}
            for by_task, visit in zip(by_job, visits, strict=True)
        ]
        ratios = [*by_job, *by_nccl]
        worst = list(dict.fromkeys(task for by_task in ratios for task in suspects(by_task)))
        return Rounds([_finalist(visit, worst) for visit in visits], self.floor.fresh)

    def best(self, incumbent: Visit) -> Visit | None:
        """The best profile that was started in turn with stock NCCL and holds; None if none holds.

        An incumbent that is clear of the floor is best: larger gains are within the noise.
        """
        visits = [self.visited[profile] for profile in self.compared]
        holding = [visit for visit in visits if self.on(visit).holds]
        if incumbent in holding and self.compared[incumbent.profile].proved:
            return incumbent
        return max(holding, key=self._merit, default=None)

    def safety(self, visit: Visit) -> tuple[float, float]:
        """Ratio of the worst key, then the gain."""
        worst = self.on(visit).worst
        return (1.0 if worst is None else worst.ratio), visit.gain

    def _is_alike(self, visit: Visit, incumbent: Visit) -> bool:
        """Whether a profile holds, and has no further variable that the incumbent lacks."""
        known = set(incumbent.profile.settings)
        return self.on(visit).holds and known.issuperset(visit.profile.settings)

    @staticmethod
    def _worst(visit: Visit) -> KeyRatio:
        return min(visit.keys, key=lambda key: (key.high, key.task))

    def _merit(self, visit: Visit) -> tuple[bool, float]:
        proved = self.compared[visit.profile].proved
        return proved, visit.gain if proved else self.safety(visit)[0]

    def _corrected(self, visit: Visit) -> Iterator[KeyRatio]:
        """The visit's ratios of keys that ruled out other profiles, corrected by their starts.

        Without it every profile with the same loss would have to be started in turn.
        """
        for verdict in self.compared.values():
            worst = verdict.worst
            if verdict.holds or worst is None or not worst.ratio or worst.schedule is not None:
                continue
            task = worst.task
            visited = _by_nccl(self.visited[verdict.profile])[task]
            own = _by_nccl(visit)[task]
            correction = worst.ratio / visited.ratio
            ratio, low, high = (correction * bound for bound in (own.ratio, own.low, own.high))
            yield KeyRatio(task, ratio, low, high)


def _by_nccl(visit: Visit) -> dict[Task, KeyRatio]:
    """Ratios of NCCL's best call by key."""
    return {key.task: key for key in (*visit.keys, *visit.without_executor)}


def _finalist(visit: Visit, worst: Sequence[Task]) -> Finalist:
    """A profile with NCCL's own choice and the best call for each of the worst keys."""
    default = visit.profile.default
    calls = {task: list(dict.fromkeys((default, visit.best[task][0]))) for task in worst}
    served = {key.task: key.schedule for key in visit.keys if key.schedule is not None}
    schedules = {task: served[task] for task in worst if task in served}
    return Finalist(visit.profile, calls, schedules)
