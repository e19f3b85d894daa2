"""Sizes near a switch: keys that a run adds where NCCL's own choice changes between two sizes.

Sizes are tuned in steps. Between two of them NCCL may change its algorithm or protocol, and its
time with it, so what was found at either size need not hold there. NCCL's cost table says where:
its least estimate is NCCL's choice. The number of channels is not looked at, since NCCL changes it
step by step with the size, and its cost table has none.

Bisection in sixteenths of an octave finds the last size of the choice before and the first size of
the choice after. Both become keys, unless a size of the ladder is as near. One switch is looked for
between two sizes; where NCCL changes back before the larger one, none is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, pairwise

from tuccl.quantities import format_size
from tuccl.search.trials.config import Task
from tuccl.search.trials.cost_table import CostTable, Pair
from tuccl.tuning.run_keys import ladder_of

Tell = Callable[[Task], CostTable | None]
"""NCCL's cost table for a task; None if it does not tell."""

_PARTS = 16
"""Parts of an octave in which a switch is looked for."""
_NEAR = 1.125
"""A size of the ladder that is as near as two such parts stands for that side of the switch."""
_SHARE = 4
"""Sizes of a ladder for each size that is added to it."""
_LEAST = 2
"""Sizes that are added to a short ladder: both sides of one switch."""
LEAST_S_A_KEY = 5.0
"""Least budget, in seconds a key of all of them, with which keys that nobody named are tuned. With
as much the keys of further shapes lost no gain in the model, with 2 to 3 seconds they did
(docs/lab/search.md)."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of NCCL's own choice between two neighbouring sizes of a ladder."""

    small: Task
    large: Task
    below: Task
    """The largest size that was looked at with the choice before; may be `small`."""
    above: Task
    """The smallest one with the choice after; may be `large`."""
    before: Pair
    after: Pair

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Keys to add."""
        found = []
        if self.below.size_bytes > _NEAR * self.small.size_bytes:
            found.append(self.below)
        if _NEAR * self.above.size_bytes < self.large.size_bytes:
            found.append(self.above)
        return tuple(found)

    @property
    def distance(self) -> float:
        """Logarithm of the ratio to the nearer size of the ladder."""
        middle = math.log(self.below.size_bytes * self.above.size_bytes) / 2.0
        return min(
            middle - math.log(self.small.size_bytes), math.log(self.large.size_bytes) - middle
        )

    @property
    def change(self) -> str:
        """The change for people: `from ring LL to ring Simple between 672K and 704K`."""
        before, after = (" ".join(pair) for pair in (self.before, self.after))
        sizes = " and ".join(format_size(each.size_bytes) for each in (self.below, self.above))
        return f"from {before} to {after} between {sizes}"


def keys_near_switches(
    tasks: Sequence[Task], tell: Tell, budget_s: float | None
) -> Mapping[Task, str]:
    """Return keys to add to those of a run, each with the change of NCCL's choice beside it.

    At most one for four sizes of a ladder, or two where it is short, and no more than leave each
    key of the run five seconds of the budget. Switches farthest from the sizes of the ladder come
    first.

    Args:
        tasks: Keys of the run.
        tell: Tells NCCL's cost table.
        budget_s: Seconds of machine time for the run; None: no limit.
    """
    left = most_keys_added(tasks, budget_s)
    if left < 1:
        return {}
    choice = cache(lambda task: _choice(tell(task)))
    room = {key: most_added(len(ladder)) for key, ladder in _ladders(tasks)}
    found = [
        switch
        for _, ladder in _ladders(tasks)
        for small, large in pairwise(ladder)
        if (switch := _switch(small, large, choice)) is not None
    ]
    added: dict[Task, str] = {}
    for switch in sorted(found, key=lambda switch: -switch.distance):
        own, ladder = switch.tasks, ladder_of(switch.small)
        if len(own) <= min(room[ladder], left):
            room[ladder] -= len(own)
            left -= len(own)
            added |= dict.fromkeys(own, switch.change)
    return added


def most_keys_added(tasks: Sequence[Task], budget_s: float | None) -> int:
    """Return the most keys that are added to those of a run within its budget."""
    asked = [task for task in tasks if task.operation.asks_tuner]
    most = sum(most_added(len(ladder)) for _, ladder in _ladders(asked))
    paid = math.inf if budget_s is None else budget_s // LEAST_S_A_KEY - len(tasks)
    return max(0, int(min(most, paid)))


def most_added(sizes: int) -> int:
    """Return the most sizes that are added to a ladder of so many."""
    return max(_LEAST, sizes // _SHARE) if sizes > 1 else 0


def added_line(added: Iterable[tuple[Task, str]]) -> str:
    """Describe the added keys for people, in a line."""
    changes = dict.fromkeys(f"{task.operation} {change}" for task, change in added)
    return f"sizes added where NCCL's own choice changes: {'; '.join(sorted(changes))}"


def _ladders(tasks: Sequence[Task]) -> Iterator[tuple[object, list[Task]]]:
    for key, own in groupby(tasks, key=ladder_of):
        yield key, list(own)


def _switch(small: Task, large: Task, choice: Callable[[Task], Pair | None]) -> Switch | None:
    """Locate where the choice of the smaller size ends; None if both have the same."""
    before = choice(small)
    if before is None or choice(large) in (before, None):
        return None
    tasks = [small, *_between(small, large), large]
    low, high = 0, len(tasks) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if choice(tasks[middle]) == before else (low, middle)
    after = choice(tasks[high])
    if after is None:
        return None
    return Switch(small, large, tasks[low], tasks[high], before, after)


def _between(small: Task, large: Task) -> list[Task]:
    """Return a task for each sixteenth of an octave between two sizes."""
    octaves = range(small.size_bytes.bit_length() - 1, large.size_bytes.bit_length())
    sizes = {((_PARTS + part) << octave) // _PARTS for octave in octaves for part in range(_PARTS)}
    return [
        replace(small, size_bytes=size)
        for size in sorted(sizes)
        if small.size_bytes < size < large.size_bytes
    ]


def _choice(table: CostTable | None) -> Pair | None:
    """Return what NCCL chooses by its cost table; None if that is not known."""
    if table is None or not table.costs:
        return None
    estimates = [(us, (algorithm, protocol)) for algorithm, protocol, us in table.costs]
    known = [(us, pair) for us, pair in estimates if us is not None]
    if len(known) < len(estimates):
        return None
    return min(known, key=lambda each: each[0])[1]
