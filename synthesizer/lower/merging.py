"""Aggregation: statements over adjacent chunks become one, so that one message carries them.

Only statements that wait for the same others, and for which the same others wait, become one: no
chunk waits for its neighbour then, and a pipeline stays one (MSCCLang section 4.4).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from synthesizer.ir.program import Chunk, Program, Statement
from synthesizer.lower.instructions import instruction_dag


@dataclass(frozen=True, slots=True)
class Waits:
    """Which statements a program's statements wait for, by number."""

    before: tuple[frozenset[int], ...]
    """For each statement, those that it must follow."""
    after: tuple[frozenset[int], ...]
    """For each statement, those that must follow it."""


def waits_of(program: Program) -> Waits:
    """Return the waits of a program in every buffer layout that it allows."""
    before: list[set[int]] = [set() for _ in program.statements]
    after: list[set[int]] = [set() for _ in program.statements]
    for index, instruction in instruction_dag(program).instructions.items():
        before[index // 2].update(pred // 2 for pred in instruction.preds)
    for number, found in enumerate(before):
        found.discard(number)
        for earlier in found:
            after[earlier].add(number)
    return Waits(tuple(map(frozenset, before)), tuple(map(frozenset, after)))


def merged(statements: Sequence[Statement], buffers: Program) -> tuple[Statement, ...]:
    """Return statements with the same effect, where those over adjacent chunks are one.

    The statements stand in an order that is right; `buffers` has the buffers, and whether calls may
    be in place.
    """
    runs = adjacent_runs(statements, waits_of(replace(buffers, statements=list(statements))))
    return tuple(joined([statements[number] for number in run]) for run in runs)


def adjacent_runs(
    statements: Sequence[Statement],
    waits: Waits,
    kind: Callable[[int], Hashable] = lambda _: None,
) -> list[list[int]]:
    """Return the numbers of all statements, in runs that one statement each can replace.

    A run is in the order of its chunks and takes the place of its least number, by which runs are
    in order.

    Args:
        statements: The statements.
        waits: What they wait for.
        kind: The value that a statement shares with all of its run.
    """
    runs: list[list[int]] = []
    ending: dict[Hashable, list[int]] = {}
    for number in sorted(range(len(statements)), key=lambda n: (statements[n].dst.offset, n)):
        statement = statements[number]
        shared = kind(number), waits.before[number], waits.after[number]
        run = ending.pop((shared, _edges(statement, 0)), [])
        if not run:
            runs.append(run)
        run.append(number)
        ending[shared, _edges(statement, statement.dst.count)] = run
    return sorted(runs, key=min)


def _edges(statement: Statement, offset: int) -> Hashable:
    """Return the places of all operands, this many chunks from their first ones."""
    operands = (statement.src, statement.dst, statement.operand)
    return tuple(each and (each.rank, each.buffer, each.offset + offset) for each in operands)


def joined(run: Sequence[Statement]) -> Statement:
    """Return the statement that replaces a run."""
    first, count = run[0], sum(statement.dst.count for statement in run)

    def all_of(chunk: Chunk) -> Chunk:
        return replace(chunk, count=count)

    operand = first.operand and all_of(first.operand)
    return replace(first, src=all_of(first.src), dst=all_of(first.dst), operand=operand)
