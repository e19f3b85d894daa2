"""What a floor makes of the profiles that a race has visited.

One that is clearly under the floor by what its visit showed does not win. The best of the others,
and the safest of those that gain nearly as much, are finalists: they are started in turn with stock
NCCL (`tuccl.tuning.guaranteed_minimum`). Of those that hold the best one wins that is clear of the
floor; where none is, the one whose worst key gets most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuccl.trials.config import STOCK, ProcessProfile, Task
from tuccl.tuning.guaranteed_minimum import (
    Finalist,
    Floor,
    KeyRatio,
    Verdict,
    compare_in_turn,
    suspects,
)
from tuccl.tuning.profile_visits import Visit

FINALISTS = 3
"""That are started in turn together."""
_NEAR_GAIN = 0.01
"""What a finalist may gain less than the best: a safer one is worth that."""


@dataclass
class Verdicts:
    """On every visited profile."""

    floor: Floor | None
    visited: Mapping[ProcessProfile, Visit]
    """Grows as the race goes on."""
    compared: dict[ProcessProfile, Verdict] = field(default_factory=dict)
    """On profiles that were started in turn with stock NCCL."""

    def on(self, visit: Visit) -> Verdict:
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

    def needs_no_starts(self, visit: Visit) -> bool:
        """Whether it is known that a profile holds: there is no floor, or one start showed it."""
        if self.floor is None or visit.profile == STOCK.profile:
            return True
        return all(key.low >= self.floor.least for key in visit.keys)

    def finalists(self, incumbent: Visit) -> list[Visit]:
        """The incumbent, and the safest of those that gain nearly as much.

        What gains no more than a profile that is known to hold is none.
        """
        known = [visit.gain for visit in self.visited.values() if self.needs_no_starts(visit)]
        least = max([incumbent.gain - _NEAR_GAIN, *known])
        near = [
            visit
            for visit in self.visited.values()
            if visit is not incumbent
            and visit.gain > least
            and visit.profile not in self.compared
            and self.on(visit).holds
        ]
        safest = sorted(near, key=self.safety, reverse=True)
        return [incumbent, *safest[: FINALISTS - 1]]

    def compare(self, visits: Sequence[Visit], affords: Callable[[int], bool]) -> bool:
        """Start profiles in turn with stock NCCL; whether all of that was paid for.

        The first of them does not hold if its starts were not.
        """
        if self.floor is None:
            return True
        ratios = [{key.task: key.ratio for key in visit.keys} for visit in visits]
        worst = list(dict.fromkeys(task for one in ratios for task in suspects(one)))
        finalists = [_finalist(visit, worst) for visit in visits]
        found = compare_in_turn(finalists, self.floor.least, self.floor.fresh, affords)
        first = visits[0]
        if first.profile not in found:
            key = min(first.keys, key=lambda key: (key.ratio, key.task))
            self.compared[first.profile] = Verdict(first.profile, key, holds=False, starts=1)
        self.compared.update(found)
        return len(found) == len(visits)

    def best(self, incumbent: Visit) -> Visit | None:
        """Of what was started in turn with stock NCCL and holds; None if nothing does.

        The incumbent, if it is clear of the floor: what gains more does so within the noise.
        """
        holding = [
            self.visited[profile] for profile, verdict in self.compared.items() if verdict.holds
        ]
        if incumbent in holding and self.compared[incumbent.profile].proved:
            return incumbent
        return max(holding, key=self._merit, default=None)

    def safety(self, visit: Visit) -> tuple[float, float]:
        """What the worst key gets; then the gain."""
        worst = self.on(visit).worst
        return (1.0 if worst is None else worst.ratio), visit.gain

    def _merit(self, visit: Visit) -> tuple[bool, float]:
        proved = self.compared[visit.profile].proved
        return proved, visit.gain if proved else self.safety(visit)[0]

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


def _finalist(visit: Visit, worst: Sequence[Task]) -> Finalist:
    """What of the worst keys runs under a profile when it is started again."""
    default = visit.profile.default
    calls = {task: list(dict.fromkeys((default, visit.best[task][0]))) for task in worst}
    return Finalist(visit.profile, calls)
