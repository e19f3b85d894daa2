"""Lowering: a program of copies and reductions becomes threadblocks of MSCCL-IR steps.

The passes follow MSCCLang section 4: instruction DAG, fusion, one global order, threadblocks by
(send peer, receive peer, channel), and the fewest dependences between threadblocks that order every
hazard. Dependences that happens-before already implies (a threadblock's own order, a message,
another dependence) are left out. A step has at most one dependence, so nops precede a step that
waits for several steps.
"""

from __future__ import annotations

from dataclasses import replace

from synthesizer.errors import ProgramError
from synthesizer.ir.algorithm import Algorithm, Protocol
from synthesizer.ir.msccl_limits import MAX_CHANNELS, MAX_COUNT, MAX_STEPS
from synthesizer.ir.program import Chunk, Program, Statement
from synthesizer.lower.emission import emit_programs
from synthesizer.lower.fusion import fusable
from synthesizer.lower.instructions import instruction_dag
from synthesizer.lower.ordering import order_steps
from synthesizer.lower.threadblocks import threadblocks


def lower(
    program: Program, name: str, protocol: Protocol = Protocol.SIMPLE, slots: int = 1
) -> Algorithm:
    """Lower a program to a schedule that runs with `slots` or more FIFO slots per connection.

    If a threadblock exceeds the runtime's step limit, the number of channels is doubled until none
    does, and chunks are spread over them. A step with more chunks than the runtime allows is split.

    Raises:
        ProgramError: The statements cannot be ordered, or exceed the runtime's limits.
    """
    program = replace(program, statements=_short_statements(program.statements))
    factor = 1
    base = 1 + max((statement.channel for statement in program.statements), default=0)
    while base * factor <= MAX_CHANNELS:
        algorithm = _lower_once(_spread(program, factor), name, protocol, slots)
        longest = max(len(tb.steps) for gpu in algorithm.programs for tb in gpu.threadblocks)
        if longest <= MAX_STEPS:
            return algorithm
        factor *= 2
    raise ProgramError(
        f"{name}: a threadblock needs more than {MAX_STEPS} steps even on {MAX_CHANNELS} channels;"
        " use fewer chunks"
    )


def _short_statements(statements: list[Statement]) -> list[Statement]:
    """Split statements over more chunks than a step may have."""
    return [
        Statement(
            _slice(statement.src, first),
            _slice(statement.dst, first),
            _slice(statement.operand, first) if statement.operand else None,
            statement.channel,
        )
        for statement in statements
        for first in range(0, statement.src.count, MAX_COUNT)
    ]


def _slice(chunk: Chunk, first: int) -> Chunk:
    count = min(MAX_COUNT, chunk.count - first)
    return replace(chunk, offset=chunk.offset + first, count=count)


def _lower_once(program: Program, name: str, protocol: Protocol, slots: int) -> Algorithm:
    dag = instruction_dag(program)
    order = order_steps(dag, fusable(dag), slots)
    programs = emit_programs(program, dag, order, threadblocks(dag, order))
    return Algorithm(
        name=name,
        collective=program.collective,
        protocol=protocol,
        channels=1 + max(tb.channel for gpu in programs for tb in gpu.threadblocks),
        chunks_per_loop=program.chunks_per_loop,
        in_place=program.in_place,
        out_of_place=program.out_of_place,
        programs=programs,
        root=program.root,
    )


def _spread(program: Program, factor: int) -> Program:
    """Return the program with each channel split into `factor` channels by chunk."""
    if factor == 1:
        return program
    statements = [
        replace(statement, channel=statement.channel * factor + statement.dst.offset % factor)
        for statement in program.statements
    ]
    return replace(program, statements=statements)
