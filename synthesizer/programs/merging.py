"""Statements over adjacent chunks made one."""

from __future__ import annotations

from collections.abc import Sequence

from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Program, Statement

_WINDOW = 16
"""Statements before another that it may become part of."""


def merged(statements: Sequence[Statement], buffers: Program) -> tuple[Statement, ...]:
    """Return statements with the same effect, where those over adjacent chunks are one.

    Args:
        statements: Statements in an order that is right.
        buffers: The buffers, and whether calls may be in place.
    """
    found: list[Statement] = []
    for statement in statements:
        back = _place_of_part(found[-_WINDOW:], statement, buffers)
        if back:
            found[-back] = _joined(found[-back], statement)
        else:
            found.append(statement)
    return tuple(found)


def _place_of_part(before: Sequence[Statement], statement: Statement, buffers: Program) -> int:
    """Return how far back the statement is that another continues; 0: there is none."""
    for back, earlier in enumerate(reversed(before), start=1):
        if _conflict(earlier, statement, buffers):
            return 0
        if _continues(earlier, statement):
            return back
    return 0


def _continues(earlier: Statement, later: Statement) -> bool:
    """Return whether all operands of a statement begin where those of another end."""
    pairs = [(earlier.src, later.src), (earlier.dst, later.dst)]
    if (earlier.operand is None) != (later.operand is None):
        return False
    if earlier.operand is not None and later.operand is not None:
        pairs.append((earlier.operand, later.operand))
    return all(
        (a.rank, a.buffer, a.offset + a.count) == (b.rank, b.buffer, b.offset) for a, b in pairs
    )


def _joined(earlier: Statement, later: Statement) -> Statement:
    def both(chunk: Chunk) -> Chunk:
        return Chunk(chunk.rank, chunk.buffer, chunk.offset, chunk.count + later.dst.count)

    operand = None if earlier.operand is None else both(earlier.operand)
    return Statement(both(earlier.src), both(earlier.dst), operand, earlier.channel)


def _conflict(earlier: Statement, later: Statement, buffers: Program) -> bool:
    """Return whether the order of two statements matters."""
    return any(
        overlap(written, read, buffers)
        for written, others in (
            (earlier.dst, [later.dst, *reads(later)]),
            (later.dst, reads(earlier)),
        )
        for read in others
    )


def reads(statement: Statement) -> list[Chunk]:
    """Return the chunks that a statement reads."""
    return [statement.src, *([] if statement.operand is None else [statement.operand])]


def overlap(a: Chunk, b: Chunk, buffers: Program) -> bool:
    """Return whether two runs of chunks share memory, in place or out of place."""
    if a.rank != b.rank:
        return False
    if a.buffer is b.buffer:
        return a.offset < b.offset + b.count and b.offset < a.offset + a.count
    if not buffers.in_place or Buffer.SCRATCH in {a.buffer, b.buffer}:
        return False
    (first, end), (other_first, other_end) = _in_output(a, buffers), _in_output(b, buffers)
    return max(first, other_first) < min(end, other_end)


def _in_output(chunk: Chunk, buffers: Program) -> tuple[int, int]:
    """Return the output chunks that a run of chunks lies on in place: the first, and the end."""
    first, end = chunk.offset, chunk.offset + chunk.count
    block = chunk.rank * buffers.chunks
    if chunk.buffer is Buffer.INPUT and buffers.collective is Collective.ALL_GATHER:
        return first + block, end + block
    if chunk.buffer is Buffer.INPUT and buffers.collective is Collective.REDUCE_SCATTER:
        return max(first, block) - block, min(end, block + buffers.chunks) - block
    return first, end
