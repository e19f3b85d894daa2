"""Runs of schedules in rounds on numbers: in order, and in every order that ranks could take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.contents import Sum, initial_contents, postcondition
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs.layout import PhaseKind
from synthesizer.programs.phases import PhasedSchedule, StatementPhase, Statements

Cells = list[Sum | None]
State = tuple[tuple[int, ...], frozenset[tuple[int, int]], tuple[tuple[Sum | None, ...], ...]]
"""Stages and rounds that each rank has ended, messages of rounds that are done, memories."""


class WrongError(Exception):
    """A schedule reads nothing, adds what does not belong together, or ends with a wrong result."""


class Memory:
    """The buffers of all ranks; in place, input and output share cells as NCCL has it."""

    def __init__(self, phased: PhasedSchedule, *, in_place: bool) -> None:
        self.phased = phased
        collective, ranks, root = phased.collective, phased.ranks, phased.root
        self.larger = phased.chunks * (ranks if collective.divides else 1)
        self.inputs = phased.chunks if collective is Collective.ALL_GATHER else self.larger
        self.outputs = phased.chunks if collective is Collective.REDUCE_SCATTER else self.larger
        self.bases: list[dict[Buffer, int]] = []
        self.cells: list[Cells] = []
        for rank in range(ranks):
            apart = not in_place or (collective.has_root and rank != root)
            bases = {Buffer.INPUT: 0, Buffer.OUTPUT: self.inputs}
            if not apart:
                shifts = (
                    rank * self.inputs if collective is Collective.ALL_GATHER else 0,
                    rank * self.outputs if collective is Collective.REDUCE_SCATTER else 0,
                )
                bases = dict(zip((Buffer.INPUT, Buffer.OUTPUT), shifts, strict=True))
            bases[Buffer.SCRATCH] = 2 * self.larger
            cells: Cells = [None] * (2 * self.larger + phased.scratch_chunks[rank])
            contents = initial_contents(collective, ranks, self.larger, rank, root)
            first = bases[Buffer.INPUT]
            cells[first : first + len(contents)] = contents
            self.bases.append(bases)
            self.cells.append(cells)

    def read(self, chunk: Chunk) -> list[Sum]:
        first = self.bases[chunk.rank][chunk.buffer] + chunk.offset
        found = [value for value in self.cells[chunk.rank][first : first + chunk.count] if value]
        if len(found) != chunk.count:
            raise WrongError(f"reads nothing at {chunk}")
        return found

    def write(self, chunk: Chunk, values: Sequence[Sum]) -> None:
        if chunk.buffer is Buffer.INPUT:
            raise WrongError("writes to the input")
        first = self.bases[chunk.rank][chunk.buffer] + chunk.offset
        self.cells[chunk.rank][first : first + chunk.count] = values

    def run(self, statement: Statement) -> None:
        values = self.read(statement.src)
        if statement.operand is not None:
            pairs = zip(values, self.read(statement.operand), strict=True)
            values = [_added(*pair) for pair in pairs]
        self.write(statement.dst, values)

    def check(self) -> None:
        phased = self.phased
        for rank in range(phased.ranks):
            wanted = postcondition(phased.collective, phased.ranks, self.larger, rank, phased.root)
            first = self.bases[rank][Buffer.OUTPUT]
            if self.cells[rank][first : first + len(wanted)] != list(wanted):
                raise WrongError(f"rank {rank} has a wrong result")


def _added(left: Sum, right: Sum) -> Sum:
    if left.chunk != right.chunk or left.ranks & right.ranks:
        raise WrongError("adds what does not belong together")
    return Sum(left.chunk, left.ranks | right.ranks)


def items_of(phased: PhasedSchedule) -> list[tuple[bool, Statements]]:
    """Return stages and rounds in their order, and whether it is a round."""
    return [
        (phase.kind is PhaseKind.ROUND, phase.statements)
        for phase in phased.phases
        if isinstance(phase, StatementPhase)
    ]


def run_in_order(phased: PhasedSchedule, *, in_place: bool) -> None:
    """Run a schedule, the messages of a round at once, and check its result."""
    memory = Memory(phased, in_place=in_place)
    node = phased.node_of_rank()
    for _, statements in items_of(phased):
        crossing = [each for each in statements if node[each.src.rank] != node[each.dst.rank]]
        messages = [memory.read(statement.src) for statement in crossing]
        for statement in statements:
            if statement not in crossing:
                memory.run(statement)
        for statement, message in zip(crossing, messages, strict=True):
            memory.write(statement.dst, message)
    memory.check()


def run_in_every_order(phased: PhasedSchedule, *, in_place: bool) -> int:
    """Run a schedule in every order of nodes' stages and of messages; return the states seen.

    A message moves when both ranks are in its round, a rank leaves a round when its messages have
    moved, and a node's stage runs when all its ranks have come to it. A statement beside a round
    runs when both ranks are in the round and those before it have run; a rank leaves the round when
    its own have.
    """
    memory = Memory(phased, in_place=in_place)
    items = items_of(phased)
    start: State = ((0,) * phased.ranks, frozenset(), _frozen(memory))
    seen, left, ends = {start}, [start], set[State]()
    while left:
        state = left.pop()
        following = list(_following(phased, memory, items, state))
        if not following:
            ends.add(state)
        for each in following:
            if each not in seen:
                seen.add(each)
                left.append(each)
    for positions, _, cells in ends:
        if set(positions) != {len(items)}:
            raise WrongError("ranks wait for each other for ever")
        memory.cells = [list(each) for each in cells]
        memory.check()
    return len(seen)


def _frozen(memory: Memory) -> tuple[tuple[Sum | None, ...], ...]:
    return tuple(map(tuple, memory.cells))


def _following(
    phased: PhasedSchedule,
    memory: Memory,
    items: Sequence[tuple[bool, tuple[Statement, ...]]],
    state: State,
) -> Iterator[State]:
    positions, done, cells = state
    node_of = phased.node_of_rank()

    def is_message(statement: Statement) -> bool:
        return node_of[statement.src.rank] != node_of[statement.dst.rank]

    firsts = accumulate(phased.node_sizes[:-1], initial=0)
    for first, size in zip(firsts, phased.node_sizes, strict=True):
        node = range(first, first + size)
        at = {positions[rank] for rank in node}
        if len(at) == 1 and (number := at.pop()) < len(items) and not items[number][0]:
            memory.cells = [list(each) for each in cells]
            for statement in items[number][1]:
                if statement.dst.rank in node:
                    memory.run(statement)
            moved = tuple(at + (rank in node) for rank, at in enumerate(positions))
            yield moved, done, _frozen(memory)
    for rank, number in enumerate(positions):
        if number == len(items) or not items[number][0]:
            continue
        own = [
            (index, statement)
            for index, statement in enumerate(items[number][1])
            if rank in {statement.src.rank, statement.dst.rank}
        ]
        if all((number, index) in done for index, _ in own):
            yield (*positions[:rank], number + 1, *positions[rank + 1 :]), done, cells
        for index, statement in own:
            both = positions[statement.src.rank] == positions[statement.dst.rank] == number
            is_next = is_message(statement) or all(
                (number, before) in done
                for before, each in enumerate(items[number][1][:index])
                if not is_message(each) and node_of[each.src.rank] == node_of[rank]
            )
            first = both and statement.src.rank == rank and (number, index) not in done
            if first and is_next:
                memory.cells = [list(each) for each in cells]
                memory.run(statement)
                yield positions, done | {(number, index)}, _frozen(memory)
