"""The data flow of a schedule: every value that a rank holds, and what it is made of.

A value is never overwritten, so a data flow has no buffers and no order but that of its operands:
copies inside a rank vanish, and a message is a value of its own at the receiver. Values are
numbered so that operands come before what is made of them. Equal values of a rank are one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from synthesizer.ir.algorithm import Algorithm, Buffer
from synthesizer.prove.step_table import Memory, StepTable, step_table
from synthesizer.prove.symbolic_run import Run, run
from synthesizer.prove.verifier import SLOTS, verify
from synthesizer.prove.waves import Waves, in_waves
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
    table = step_table(algorithm)
    memory = Memory(algorithm, table, in_place=not algorithm.out_of_place)
    waves = in_waves(table, SLOTS)
    if isinstance(waves, list):
        raise NoProgramError(f"it is not proved: {waves[0].describe()}")
    done = run(algorithm, table, waves, memory, arrivals=True)
    flow, number = _values(table, done, _order(table, waves))
    for base, layout in zip(memory.base.tolist(), memory.layouts, strict=True):
        first = base + layout.first[Buffer.OUTPUT]
        results = done.cells[first : first + layout.chunks[Buffer.OUTPUT]]
        flow.results.append(tuple(number[content] for content in results.tolist()))
    return flow


def _order(table: StepTable, waves: Waves) -> list[int]:
    """Return the steps in an order in which each threadblock goes on as long as it can.

    Then values of adjacent chunks follow one another, and statements that make them are merged.
    """
    at, ends = table.first[:-1].tolist(), table.first[1:].tolist()
    needs = list(zip(waves.waits_for.tolist(), waves.source.tolist(), strict=True))
    waiting: dict[int, list[int]] = {}
    order: dict[int, None] = {}
    ready = deque(range(len(at)))
    while ready:
        block = ready.popleft()
        while at[block] < ends[block]:
            step = at[block]
            missing = [need for need in needs[step] if need >= 0 and need not in order]
            if missing:
                waiting.setdefault(missing[0], []).append(block)
                break
            order[step] = None
            at[block] += 1
            ready.extend(waiting.pop(step, ()))
    return list(order)


def _values(table: StepTable, done: Run, order: Sequence[int]) -> tuple[DataFlow, dict[int, int]]:
    """Return the data flow without its results, and the value of each content.

    Contents that one step makes are values one after the other.
    """
    flow, contents = DataFlow(), done.values
    known: dict[Value, int] = {}
    number: dict[int, int] = {}
    when = np.argsort(order)
    made = np.arange(contents.undefined + 1, contents.count)
    made = made[np.argsort(when[contents.step[made]], kind="stable")]
    ranks = table.rank[contents.step[made]].tolist()
    operands = contents.operands[made - contents.inputs].tolist()
    values = chain(
        (
            (content, Value(rank, (), chunk))
            for content, (rank, chunk) in enumerate(contents.input_chunks())
        ),
        (
            (content, Value(rank, tuple(sorted(number[each] for each in pair if each >= 0))))
            for content, rank, pair in zip(made.tolist(), ranks, operands, strict=True)
        ),
    )
    for content, value in values:
        number[content] = known.setdefault(value, len(flow.values))
        if number[content] == len(flow.values):
            flow.values.append(value)
    return flow, number


def chunks_moved(algorithm: Algorithm) -> int:
    """Return the chunks that all steps move together."""
    blocks = (block for gpu in algorithm.programs for block in gpu.threadblocks)
    return sum(step.count for block in blocks for step in block.steps)
