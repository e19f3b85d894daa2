"""The data flow of a schedule: every value that a rank holds, and what it is made of.

A value is never overwritten, so a data flow has no buffers and no order but that of its operands:
copies inside a rank vanish, and a message is a value of its own at the receiver. Values are
numbered so that operands come before what is made of them. Equal values of a rank are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Step, StepType
from synthesizer.ir.wiring import (
    READS_SRC,
    RECEIVING,
    SENDING,
    WRITES_DST,
    Layout,
    Wiring,
    layout,
    wire,
)
from synthesizer.prove.defects import Defect
from synthesizer.prove.execution_order import execution_order
from synthesizer.prove.verifier import verify
from tuccl.errors import NoProgramError

MOST_MOVES = 1 << 16
"""Most chunks that all steps move together: seconds of work."""


class Value(NamedTuple):
    """A chunk's content on one rank: an input chunk, a sum, or what arrived from another rank."""

    rank: int
    operands: tuple[int, ...]
    """Values: none of an input, two of a sum, one of an arrival."""
    chunk: int = -1
    """Chunk of the input buffer; -1: made by the schedule."""

    @property
    def is_input(self) -> bool:
        """Whether the caller provides the value."""
        return not self.operands

    @property
    def is_arrival(self) -> bool:
        """Whether the value comes from another rank."""
        return len(self.operands) == 1


@dataclass(slots=True)
class DataFlow:
    """The values of a schedule in order, and those of its result."""

    values: list[Value] = field(default_factory=list)
    results: list[tuple[int, ...]] = field(default_factory=list)
    """The values of each rank's output buffer, chunk by chunk."""


def data_flow_of(algorithm: Algorithm) -> DataFlow:
    """Return the data flow of a schedule.

    Raises:
        NoProgramError: The verifier does not prove the schedule, or it has too many steps.
    """
    moved = chunks_moved(algorithm)
    if moved > MOST_MOVES:
        raise NoProgramError(f"its steps move {moved} chunks, at most {MOST_MOVES} are followed")
    verdict = verify(algorithm)
    if not verdict.proved:
        raise NoProgramError(f"it is not proved: {verdict.defects[0].describe()}")
    wiring = wire(algorithm)
    order = execution_order(wiring, 2, None)
    if isinstance(order, Defect):
        raise NoProgramError(f"it is not proved: {order.describe()}")
    return _Run(algorithm, wiring).run(order)


def chunks_moved(algorithm: Algorithm) -> int:
    """Return the chunks that all steps move together."""
    blocks = (block for gpu in algorithm.programs for block in gpu.threadblocks)
    return sum(step.count for block in blocks for step in block.steps)


class _Run:
    """One execution, with values instead of data."""

    def __init__(self, algorithm: Algorithm, wiring: Wiring) -> None:
        self.wiring = wiring
        self.flow = DataFlow()
        self.number: dict[Value, int] = {}
        ranks = range(algorithm.ranks)
        in_place = not algorithm.out_of_place
        self.layouts = [layout(algorithm, rank, in_place=in_place) for rank in ranks]
        self.memory: list[dict[int, int]] = [{} for _ in ranks]
        self.messages: dict[int, list[int]] = {}
        for rank, lay in enumerate(self.layouts):
            for chunk in range(lay.input_chunks):
                place = lay.address(ChunkRef(Buffer.INPUT, chunk))
                self.memory[rank][place] = self._value(Value(rank, (), chunk))

    def run(self, order: Sequence[int]) -> DataFlow:
        """Run all steps and return the data flow."""
        for node in order:
            step = self.wiring.steps[node]
            if step.type is not StepType.NOP:
                self._step(node, step)
        for rank, lay in enumerate(self.layouts):
            places = self._addresses(lay, ChunkRef(Buffer.OUTPUT, 0), lay.output_chunks)
            self.flow.results.append(tuple(self.memory[rank][place] for place in places))
        return self.flow

    def _step(self, node: int, step: Step) -> None:
        rank = self.wiring.blocks[self.wiring.block_of[node]][0]
        lay, memory = self.layouts[rank], self.memory[rank]
        operands = []
        if step.type in RECEIVING:
            sent = self.messages.pop(self.wiring.source[node])
            operands.append([self._value(Value(rank, (value,))) for value in sent])
        if step.type in READS_SRC:
            operands.append([memory[at] for at in self._addresses(lay, step.src, step.count)])
        if step.type is StepType.REDUCE:
            operands.append([memory[at] for at in self._addresses(lay, step.dst, step.count)])
        made = operands[0]
        if len(operands) > 1:
            pairs = zip(*operands, strict=True)
            made = [self._value(Value(rank, (min(pair), max(pair)))) for pair in pairs]
        if step.type in WRITES_DST:
            memory.update(zip(self._addresses(lay, step.dst, step.count), made, strict=True))
        if step.type in SENDING:
            self.messages[node] = made

    def _addresses(self, lay: Layout, place: ChunkRef, count: int) -> range:
        first = lay.address(place)
        return range(first, first + count)

    def _value(self, value: Value) -> int:
        if value not in self.number:
            self.number[value] = len(self.flow.values)
            self.flow.values.append(value)
        return self.number[value]
