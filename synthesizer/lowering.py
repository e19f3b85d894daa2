"""Lowering: from a program of copies and reductions to threadblocks of MSCCL-IR steps.

The passes follow MSCCLang section 4: instruction DAG, fusion, one global order, threadblocks by
(send peer, receive peer, channel), and the fewest cross-threadblock dependences that keep every
hazard ordered: what happens-before already implies (a threadblock's own order, a message, another
dependence) is left out, and a step that must wait for several others is preceded by nops, since a
step has room for one dependence.
"""

from __future__ import annotations

from dataclasses import replace

from synthesizer.algorithm import Algorithm, Protocol
from synthesizer.emission import emit_programs
from synthesizer.errors import ProgramError
from synthesizer.fusion import fusable
from synthesizer.instructions import instruction_dag
from synthesizer.ordering import order_steps
from synthesizer.program import Program
from synthesizer.threadblocks import threadblocks

MAX_STEPS = 256
"""Steps of one threadblock (MSCCL_MAX_NUM_STEPS in microsoft/msccl src/include/msccl.h)."""

MAX_CHANNELS = 32
"""Channels of one communicator (MAXCHANNELS in NCCL)."""


def lower(
    program: Program, name: str, protocol: Protocol = Protocol.SIMPLE, slots: int = 1
) -> Algorithm:
    """Lowers a program to a schedule that runs with `slots` FIFO slots per connection or more.

    A threadblock that would exceed the runtime's step limit has its connections spread over twice
    the channels, chunk by chunk, as often as needed.

    Raises:
        ProgramError: The statements can't be ordered, or don't fit the runtime's limits.
    """
    parts = 1
    base = 1 + max((statement.channel for statement in program.statements), default=0)
    while base * parts <= MAX_CHANNELS:
        algorithm = _lower_once(_spread(program, parts), name, protocol, slots)
        longest = max(len(tb.steps) for gpu in algorithm.programs for tb in gpu.threadblocks)
        if longest <= MAX_STEPS:
            return algorithm
        parts *= 2
    raise ProgramError(
        f"{name}: a threadblock needs more than {MAX_STEPS} steps even on {MAX_CHANNELS} channels;"
        " use fewer chunks"
    )


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


def _spread(program: Program, parts: int) -> Program:
    """The same program with each channel cut into `parts`, a chunk staying on one of them."""
    if parts == 1:
        return program
    statements = [
        replace(statement, channel=statement.channel * parts + statement.dst.offset % parts)
        for statement in program.statements
    ]
    return replace(program, statements=statements)
