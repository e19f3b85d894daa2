"""The statements of a staged schedule that complete a sum, where an average is divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Sum, initial_contents
from synthesizer.ir.program import Chunk
from synthesizer.programs.staged.staged_schedule import StagedSchedule
from tuccl.errors import NoProgramError


class Completion(NamedTuple):
    """The statements whose sums hold every rank's contribution, by stage or round and number."""

    statements: frozenset[tuple[int, int]]
    is_whole: bool
    """Whether none of them also makes incomplete sums, so that averages can be divided there."""


def completion_of(staged: StagedSchedule) -> Completion:
    """Return the completing statements of a proved schedule.

    Messages of a round move one after the other here: none reads what another one writes.

    Raises:
        NoProgramError: A chunk lies in the place of another one in the output. The last chunk of
            a part may be shorter than the others.
    """
    everyone = (1 << staged.ranks) - 1
    larger = staged.program(()).chunks_per_loop
    memory: dict[tuple[int, Buffer, int], Sum] = {}
    for rank in range(staged.ranks):
        contents = initial_contents(staged.collective, staged.ranks, larger, rank, staged.root)
        memory |= {(rank, Buffer.INPUT, chunk): value for chunk, value in enumerate(contents)}
    found: set[tuple[int, int]] = set()
    is_whole = True
    for number, (_, statements) in enumerate(staged.in_order()):
        for at, statement in enumerate(statements):
            values = [memory[place] for place in _places(statement.src)]
            if statement.operand is not None:
                added = [memory[place] for place in _places(statement.operand)]
                values = [
                    Sum(a.chunk, a.ranks | b.ranks) for a, b in zip(values, added, strict=True)
                ]
                complete = {value.ranks == everyone for value in values}
                if True in complete:
                    found.add((number, at))
                    is_whole &= False not in complete
            _check_places(staged, statement.dst, values)
            memory |= zip(_places(statement.dst), values, strict=True)
    return Completion(frozenset(found), is_whole)


def _check_places(staged: StagedSchedule, target: Chunk, values: Sequence[Sum]) -> None:
    if target.buffer is not Buffer.OUTPUT:
        return
    for place, value in enumerate(values, start=target.offset):
        if place % staged.chunks != value.chunk % staged.chunks:
            raise NoProgramError(
                f"rank {target.rank} keeps chunk {value.chunk} in the place of chunk {place}"
            )


def _places(chunk: Chunk) -> list[tuple[int, Buffer, int]]:
    return [(chunk.rank, chunk.buffer, chunk.offset + i) for i in range(chunk.count)]
