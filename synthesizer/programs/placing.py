"""Where each value of a data flow lies: in the caller's buffers, or in scratch memory.

A sum takes the place of an operand that nothing else needs. What arrives from a rank of the same
node for one sum alone has no place: receiving and adding are one. A value of the result lies in the
output from the start, unless its place holds an input chunk that is still needed in place; it is
copied there later then. A scratch chunk serves several values, one after the other.

A value's depth is the number of crossings between nodes on the longest path to it. A crossing of
depth d is part of round d, all else of depth d is part of stage d: no schedule with this data flow
has fewer rounds. What round d + 1 does not send runs beside that round instead of before it. Times
count both: round d and what runs beside it is time 2d - 1, stage d is time 2d.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from typing import NamedTuple

from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Location, Program
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
    crosses: tuple[bool, ...]
    """Whether each value arrives from another node."""
    consumers: tuple[tuple[int, ...], ...]
    """Needed values that are made of each value."""
    rounds: int
    """Number of rounds."""

    def last_use(self, value: int) -> int:
        """Return the last time at which another value is made of a value."""
        return max((self.made[user] for user in self.consumers[value]), default=BEFORE)

    def beside(self, time: int) -> int:
        """Return the time of the round that what could run in a stage may run beside."""
        return min(time + 1 - time % 2, 2 * self.rounds)


def timing_of(flow: DataFlow, node_of_rank: Sequence[int]) -> Timing:
    """Return the times of the values that results need."""
    needed = [False] * len(flow.values)
    for results in flow.results:
        for result in results:
            needed[result] = True
    made = [BEFORE] * len(flow.values)
    crosses = [False] * len(flow.values)
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
        crosses[number] = node_of_rank[flow.values[source].rank] != node_of_rank[value.rank]
        made[number] = 2 * depth + crosses[number]
    rounds = (max(made) + 1) // 2
    for number in range(len(flow.values) - 1, -1, -1):
        if made[number] != BEFORE and not crosses[number]:
            ends = (made[user] - crosses[user] for user in consumers[number])
            made[number] = min(made[number] + 1, 2 * rounds, *ends)
    users = tuple(map(tuple, consumers))
    return Timing(flow, tuple(needed), tuple(made), tuple(crosses), users, rounds)


@dataclass(slots=True)
class Places:
    """The place of each value that has one, and the copies to the output that are left."""

    place: dict[int, Chunk] = field(default_factory=dict)
    fused: dict[int, int] = field(default_factory=dict)
    """The arrival that each sum receives and adds."""
    head: dict[int, int] = field(default_factory=dict)
    """The operand whose place each sum takes."""
    late: list[tuple[int, int, Chunk]] = field(default_factory=list)
    """Time, value and output chunk of each copy to the output."""
    scratch_chunks: list[int] = field(default_factory=list)
    """Scratch chunks of each rank."""


def places_of(timing: Timing, program: Program) -> Places:
    """Return the places of all values."""
    return _Placing(timing, program).run()


class _Interval(NamedTuple):
    """The time in which the values of a chain lie in scratch memory."""

    start: int
    end: int
    chain: list[int]


class _Placing:
    def __init__(self, timing: Timing, program: Program) -> None:
        self.timing = timing
        self.values = timing.flow.values
        self.program = program
        self.places = Places()
        self.targets: dict[int, list[Chunk]] = {}
        """Output chunks of each value of the result."""
        self.input_at: dict[Location, int] = {}
        """The needed input value that lies at a location in place."""

    def run(self) -> Places:
        for rank, results in enumerate(self.timing.flow.results):
            for chunk, result in enumerate(results):
                self.targets.setdefault(result, []).append(Chunk(rank, Buffer.OUTPUT, chunk))
        for number, value in enumerate(self.values):
            if value.is_input and self.timing.needed[number]:
                place = Chunk(value.rank, Buffer.INPUT, value.chunk)
                self.places.place[number] = place
                self.input_at[self.program.location(place, in_place=True)] = number
        self._join()
        self._place_all()
        return self.places

    def _needed(self) -> list[int]:
        return [
            number
            for number, value in enumerate(self.values)
            if self.timing.needed[number] and not value.is_input
        ]

    def _join(self) -> None:
        """Find the operands that sums receive, and those whose places they take."""
        made = self.timing.made
        for number in self._needed():
            if self.values[number].is_arrival:
                continue
            private = [
                operand
                for operand in self.values[number].operands
                if not self.values[operand].is_input
                and operand not in self.targets
                and len(self.timing.consumers[operand]) == 1
            ]
            for operand in private:
                is_received_now = self.values[operand].is_arrival and made[operand] == made[number]
                if is_received_now and number not in self.places.fused:
                    self.places.fused[number] = operand
                elif number not in self.places.head:
                    self.places.head[number] = operand

    def _chain(self, number: int) -> list[int]:
        """Return the values that share a place with a value, the first of them first."""
        chain = [number]
        while chain[-1] in self.places.head:
            chain.append(self.places.head[chain[-1]])
        return chain[::-1]

    def _place_all(self) -> None:
        absorbed = {*self.places.fused.values(), *self.places.head.values()}
        chains = [self._chain(number) for number in self._needed() if number not in absorbed]
        scratch: list[_Interval] = []
        for chain in chains:
            last = chain[-1]
            direct = self._direct_target(chain)
            late = [chunk for chunk in self.targets.get(last, []) if chunk != direct]
            end = self.timing.last_use(last)
            for chunk in late:
                time = self._late_time(last, chunk)
                self.places.late.append((time, last, chunk))
                end = max(end, time)
            if direct is None:
                scratch.append(_Interval(self.timing.made[chain[0]], end, chain))
            else:
                self.places.place.update(dict.fromkeys(chain, direct))
        gateways = self._gateways()
        for number, chunks in self.targets.items():
            if self.values[number].is_input:
                is_sent_from_there = self.values[number].rank in gateways
                time = 0 if is_sent_from_there else self.timing.beside(0)
                self.places.late += [(time, number, chunk) for chunk in chunks]
        self._place_in_scratch(scratch)

    def _gateways(self) -> set[int]:
        """Return the ranks that send in the first round what others of their node gave them.

        They send from the output, where their own block lies beside it.
        """
        sent = (
            self.values[value.operands[0]]
            for number, value in enumerate(self.values)
            if self.timing.crosses[number] and self.timing.made[number] == 1
        )
        return {value.rank for value in sent if not value.is_input}

    def _direct_target(self, chain: list[int]) -> Chunk | None:
        """Return the output chunk in which the values of a chain may lie from the start."""
        first = chain[0]
        for chunk in self.targets.get(chain[-1], []):
            overwritten = self._overwritten_input(chunk)
            if overwritten is None:
                return chunk
            users = {
                user
                for user in self.timing.consumers[overwritten]
                if self.timing.made[user] >= self.timing.made[first]
            }
            # A sum reads its own operand before it writes.
            if users <= {first} and self.values[first].rank == chunk.rank:
                return chunk
        return None

    def _overwritten_input(self, chunk: Chunk) -> int | None:
        if not self.program.in_place:
            return None
        return self.input_at.get(self.program.location(chunk, in_place=True))

    def _late_time(self, value: int, chunk: Chunk) -> int:
        overwritten = self._overwritten_input(chunk)
        until = BEFORE if overwritten is None else self.timing.last_use(overwritten)
        made = self.timing.made[value] + self.timing.crosses[value]
        return self.timing.beside(max(made, until + until % 2))

    def _message(self, chain: list[int]) -> tuple[int, bool, int]:
        """Return the peer of the message that a chain comes from or goes to, and its order there.

        In this order chunks lie alike at both ends, and messages of adjacent chunks are one.
        """
        arrival, far = chain[0], -1
        if self.timing.crosses[arrival]:
            (far,) = self.values[arrival].operands
        else:
            sent = [user for user in self.timing.consumers[chain[-1]] if self.timing.crosses[user]]
            if not sent:
                return -1, True, arrival
            arrival = far = sent[0]
        placed = self.places.place.get(far)
        order = arrival if placed is None else placed.offset
        return self.values[far].rank, placed is None, order

    def _place_in_scratch(self, intervals: list[_Interval]) -> None:
        slots = [_Slots() for _ in range(self.program.ranks)]

        def group(interval: _Interval) -> tuple[int, int, int, bool]:
            chain = interval.chain
            return (interval.start, self.values[chain[0]].rank, *self._message(chain)[:2])

        intervals.sort(key=lambda each: (group(each), self._message(each.chain)[2], each.end))
        for (start, rank, peer, _), found in groupby(intervals, key=group):
            together = list(found)
            parts = [together] if peer >= 0 else [[each] for each in together]
            for part in parts:
                first = slots[rank].take(len(part), start)
                for slot, interval in enumerate(part, start=first):
                    slots[rank].keep(slot, interval.end)
                    place = Chunk(rank, Buffer.SCRATCH, slot)
                    self.places.place.update(dict.fromkeys(interval.chain, place))
        self.places.scratch_chunks = [each.size for each in slots]


class _Slots:
    def __init__(self) -> None:
        self.size = 0
        self.free: list[int] = []
        """In ascending order."""
        self.busy: list[tuple[int, int]] = []
        """Time of the last use, and slot."""

    def take(self, count: int, start: int) -> int:
        """Return the first of adjacent slots that no value uses any more at a time."""
        while self.busy and self.busy[0][0] < start:
            insort(self.free, heappop(self.busy)[1])
        for at in range(len(self.free) - count + 1):
            first = self.free[at]
            if self.free[at + count - 1] == first + count - 1:
                del self.free[at : at + count]
                return first
        self.size += count
        return self.size - count

    def keep(self, slot: int, end: int) -> None:
        """Note that a slot is in use until a time."""
        heappush(self.busy, (end, slot))
