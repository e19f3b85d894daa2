"""Where messages land when a sender writes directly into its peer's memory.

MSCCL's connections are FIFOs: a receiver takes a message when it is ready for it. MSCCL++ has
one-sided puts instead, so each message needs memory at the receiver that no step uses during the
put. That is its final destination where the schedule's order proves it free; else a scratch slot of
its own, which nothing else touches.

A destination is free if every other step of the receiver that touches it ends before the sending
step begins, or begins after the receiving step. The order comes from vector clocks over
threadblocks, with program order, dependences and messages; a message counts from the end of its
send, because a signal follows a put.
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
"""Value of `Placement.slot` for a message that is put at the receiving step's destination."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The landing place of each receiving step's message."""

    slot: dict[int, int]
    """By receiving step: `AT_DESTINATION`, or the slot's first chunk among its rank's slots."""
    slot_chunks: dict[int, int]
    """Chunks of all slots, by rank."""


def place_messages(
    wiring: Wiring, order: Sequence[int], layouts: Sequence[Layout], *, in_slots: bool
) -> Placement:
    """Find a landing place for every message.

    Args:
        wiring: A schedule that the verifier proved.
        order: Its steps in an order that respects every wait.
        layouts: The layout of each rank.
        in_slots: Put every message into a slot, as packets require.
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
    """Return the receiving steps whose destination is free when their message is sent."""
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for node in range(len(wiring.steps)):
        for place in _touched(wiring, node, layouts):
            users[place].append(node)
    receives: dict[int, list[int]] = defaultdict(list)
    for node, step in enumerate(wiring.steps):
        if step.type in _COPIES:
            receives[wiring.blocks[wiring.block_of[node]][0]].append(node)
    free: set[int] = set()
    for rank, nodes in sorted(receives.items()):
        clocks = _Clocks(wiring, order, rank)
        for node in nodes:
            others = {user for place in _written(wiring, node, layouts) for user in users[place]}
            others.discard(node)
            send = wiring.source[node]
            if all(clocks.over(o, send) or clocks.over(node, o) for o in others):
                free.add(node)
    return free


class _Clocks:
    """Vector clocks: steps of each threadblock of one rank that end before a step moves data.

    Only a rank's own steps use its memory, so one rank's threadblocks at a time are enough.
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
        """Merge the clock of an earlier step, and that step itself, into this one's."""
        begun, block = self._begun[node], self._wiring.block_of[earlier]
        np.maximum(begun, self._begun[earlier], out=begun)
        column = self._column.get(block)
        if column is not None:
            begun[column] = max(begun[column], earlier - self._wiring.first[block] + 1)

    def over(self, node: int, later: int) -> bool:
        """Return whether a step of the rank ends before a step of any rank moves data."""
        block = self._wiring.block_of[node]
        return bool(self._begun[later, self._column[block]] > node - self._wiring.first[block])


def _touched(wiring: Wiring, node: int, layouts: Sequence[Layout]) -> Iterator[tuple[int, int]]:
    """Yield rank and address of every chunk that a step reads or writes."""
    step = wiring.steps[node]
    rank = wiring.blocks[wiring.block_of[node]][0]
    if step.type in READS_SRC:
        first = layouts[rank].address(step.src)
        yield from ((rank, first + i) for i in range(step.count))
    yield from _written(wiring, node, layouts)


def _written(wiring: Wiring, node: int, layouts: Sequence[Layout]) -> Iterator[tuple[int, int]]:
    """Yield rank and address of every chunk that a step writes."""
    step = wiring.steps[node]
    if step.type in WRITES_DST:
        rank = wiring.blocks[wiring.block_of[node]][0]
        first = layouts[rank].address(step.dst)
        yield from ((rank, first + i) for i in range(step.count))
