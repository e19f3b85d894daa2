"""Where messages land when a sender writes straight into its peer's memory.

MSCCL's connections are FIFOs: a receiver takes a message when it is ready for it. MSCCL++ has
one-sided puts instead, so each message needs a place at the receiver that nobody uses when the put
happens. That is its final destination where an order of the schedule proves it free; else a scratch
slot of its own, which nothing else ever touches.

Free means: every other step of the receiver that touches the destination is over before the sending
step begins, or begins after the receiving step. Orders are vector clocks over threadblocks, from
program order, dependences and messages; a message counts from the end of its send, because a signal
follows a put.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synthesizer.ir.algorithm import StepType
from synthesizer.ir.layout import Layout
from synthesizer.ir.wiring import READS_SRC, RECEIVING, WRITES_DST, Wiring

_COPIES = frozenset({StepType.RECV, StepType.RECV_COPY_SEND})

AT_DESTINATION = -1
"""Of `Placement.slot`: the message is put where the receiving step wants it."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the message of each receiving step lands."""

    slot: dict[int, int]
    """By receiving step: `AT_DESTINATION`, or the first chunk of its slot, counted within the
    slots of its rank."""
    slot_chunks: dict[int, int]
    """Chunks of all slots, by rank."""


def place_messages(
    wiring: Wiring, order: Sequence[int], layouts: Sequence[Layout], *, in_slots: bool
) -> Placement:
    """Find a place for every message.

    Args:
        wiring: A schedule that the verifier proved.
        order: Its steps in an order that respects every wait.
        layouts: The layout of each rank.
        in_slots: Put every message into a slot, as packets demand.
    """
    free = set() if in_slots else _free_destinations(wiring, order, layouts)
    slot: dict[int, int] = {}
    used: dict[int, int] = defaultdict(int)
    for node, step in enumerate(wiring.steps):
        if step.type not in RECEIVING:
            continue
        rank = wiring.blocks[wiring.block_of[node]][0]
        if node in free:
            slot[node] = AT_DESTINATION
        else:
            slot[node] = used[rank]
            used[rank] += step.count
    return Placement(slot, dict(used))


def _free_destinations(wiring: Wiring, order: Sequence[int], layouts: Sequence[Layout]) -> set[int]:
    """Receiving steps whose destination is free when their message is sent."""
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for node in range(len(wiring.steps)):
        for place in _touched(wiring, node, layouts):
            users[place].append(node)
    takers: dict[int, list[int]] = defaultdict(list)
    for node, step in enumerate(wiring.steps):
        if step.type in _COPIES:
            takers[wiring.blocks[wiring.block_of[node]][0]].append(node)
    free: set[int] = set()
    for rank, nodes in sorted(takers.items()):
        clocks = _Clocks(wiring, order, rank)
        for node in nodes:
            others = {user for place in _written(wiring, node, layouts) for user in users[place]}
            others.discard(node)
            send = wiring.source[node]
            if all(clocks.over(o, send) or clocks.over(node, o) for o in others):
                free.add(node)
    return free


class _Clocks:
    """For each step, how many steps of each threadblock of one rank are over before it moves data.

    What lies on a rank is used by its own steps alone, so the clocks of one rank at a time do.
    """

    def __init__(self, wiring: Wiring, order: Sequence[int], rank: int) -> None:
        own = [number for number, (home, _) in enumerate(wiring.blocks) if home == rank]
        self._wiring = wiring
        self._column = {block: column for column, block in enumerate(own)}
        self._begun: NDArray[np.int32] = np.zeros((len(wiring.steps), len(own)), np.int32)
        for node in order:
            if node > wiring.first[wiring.block_of[node]]:
                self._follow(node, node - 1)
            for earlier in (wiring.waits_for[node], wiring.source[node]):
                if earlier >= 0:
                    self._follow(node, earlier)

    def _follow(self, node: int, earlier: int) -> None:
        """What was over before an earlier step, and that step, is over before this one."""
        begun, block = self._begun[node], self._wiring.block_of[earlier]
        np.maximum(begun, self._begun[earlier], out=begun)
        column = self._column.get(block)
        if column is not None:
            begun[column] = max(begun[column], earlier - self._wiring.first[block] + 1)

    def over(self, node: int, later: int) -> bool:
        """Whether a step of the rank is over before another step, of any rank, moves data."""
        block = self._wiring.block_of[node]
        return bool(self._begun[later, self._column[block]] > node - self._wiring.first[block])


def _touched(wiring: Wiring, node: int, layouts: Sequence[Layout]) -> Iterator[tuple[int, int]]:
    """Rank and address of every chunk that a step reads or writes."""
    step = wiring.steps[node]
    rank = wiring.blocks[wiring.block_of[node]][0]
    if step.type in READS_SRC:
        first = layouts[rank].address(step.src)
        yield from ((rank, first + i) for i in range(step.count))
    yield from _written(wiring, node, layouts)


def _written(wiring: Wiring, node: int, layouts: Sequence[Layout]) -> Iterator[tuple[int, int]]:
    """Rank and address of every chunk that a step writes."""
    step = wiring.steps[node]
    if step.type in WRITES_DST:
        rank = wiring.blocks[wiring.block_of[node]][0]
        first = layouts[rank].address(step.dst)
        yield from ((rank, first + i) for i in range(step.count))
