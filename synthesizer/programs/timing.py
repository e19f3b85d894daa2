"""The stage or round in which each value of a data flow is made, and those in which it is used.

A value's depth is the number of crossings between nodes on the longest path to it. A crossing of
depth d is part of round d, all else of depth d is part of stage d: no schedule with this data flow
has fewer rounds. Times count both: round d is time 2d - 1, stage d is time 2d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synthesizer.programs.data_flow import DataFlow

BEFORE = -1
"""Time of the caller's input."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When values are made and used; values that no result needs have no time and no consumers."""

    flow: DataFlow
    needed: tuple[bool, ...]
    made: tuple[int, ...]
    """Time at which each value is made."""
    consumers: tuple[tuple[int, ...], ...]
    """Needed values that are made of each value."""

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return (max(self.made) + 1) // 2

    def last_use(self, value: int) -> int:
        """Return the last time at which another value is made of a value."""
        return max((self.made[user] for user in self.consumers[value]), default=BEFORE)

    def crosses(self, value: int) -> bool:
        """Return whether a value arrives in a round."""
        return self.made[value] % 2 == 1 and self.made[value] != BEFORE


def timing_of(flow: DataFlow, node_of_rank: Sequence[int]) -> Timing:
    """Return the times of the values that results need."""
    needed = [False] * len(flow.values)
    for results in flow.results:
        for result in results:
            needed[result] = True
    made = [BEFORE] * len(flow.values)
    consumers: list[list[int]] = [[] for _ in flow.values]
    for number in range(len(flow.values) - 1, -1, -1):
        if needed[number]:
            for operand in flow.values[number].operands:
                needed[operand] = True
                consumers[operand].append(number)
    for number, value in enumerate(flow.values):
        if not needed[number] or value.is_input:
            continue
        depth = max((made[operand] + 1) // 2 for operand in value.operands)
        (source, *_) = value.operands
        crosses = node_of_rank[flow.values[source].rank] != node_of_rank[value.rank]
        made[number] = 2 * depth + 1 if crosses else 2 * depth
    return Timing(flow, tuple(needed), tuple(made), tuple(tuple(users) for users in consumers))
