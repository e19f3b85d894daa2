"""Instances: a statement in N instances is N statements, each over 1/N of its data.

All chunks of the program are divided by the least common multiple of the instance counts, and a
statement over c chunks in N instances becomes N statements over c/N of them, in order. Every
instance has a channel of its own (MSCCLang section 3.2). Statements with equal instance counts
correspond instance by instance; where counts differ, lowering finds which instance waits for which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import lcm

from synthesizer.ir.program import Chunk, Program, Statement


def in_instances(program: Program, instances: Sequence[int]) -> Program:
    """Return the program with statement i in `instances[i]` instances.

    Channels are renumbered without gaps, in the order of (channel, instance).
    """
    finer = lcm(*instances)
    if finer == 1:
        instanced = [(statement, 0) for statement in program.statements]
    else:
        instanced = [
            (_instance(statement, finer, number, count), number)
            for statement, count in zip(program.statements, instances, strict=True)
            for number in range(count)
        ]
    used = sorted({(statement.channel, number) for statement, number in instanced})
    channel = {key: i for i, key in enumerate(used)}
    return replace(
        program,
        chunks=program.chunks * finer,
        statements=[
            _on_channel(statement, channel[statement.channel, number])
            for statement, number in instanced
        ],
    )


def _on_channel(statement: Statement, channel: int) -> Statement:
    return statement if statement.channel == channel else replace(statement, channel=channel)


def _instance(statement: Statement, finer: int, number: int, count: int) -> Statement:
    def cut(chunk: Chunk) -> Chunk:
        size = chunk.count * finer // count
        return replace(chunk, offset=chunk.offset * finer + number * size, count=size)

    operand = cut(statement.operand) if statement.operand else None
    return replace(statement, src=cut(statement.src), dst=cut(statement.dst), operand=operand)
