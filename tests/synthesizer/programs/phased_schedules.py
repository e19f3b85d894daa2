"""Schedules across hosts for tests: all plans, and stages and rounds."""

from __future__ import annotations

from dataclasses import replace

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import header_of
from synthesizer.experts.gateways import Gateways, programs_over
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Statement
from synthesizer.lower.lowering import lower
from synthesizer.programs.compiler import read_program
from synthesizer.programs.cutting import cut
from synthesizer.programs.layout import IS_UNIFORM
from synthesizer.programs.phase_plans import phased_plans
from synthesizer.programs.phases import PhasedSchedule, Statements, in_turn

IN_PLACE = [collective for collective in COLLECTIVES if collective.has_place]


def all_plans(nodes: int, local_ranks: int) -> list[PhasedSchedule]:
    return [
        plan for collective in COLLECTIVES for plan in phased_plans(collective, nodes, local_ranks)
    ]


def over_gateways(collective: Collective) -> PhasedSchedule:
    """Return a schedule of nodes of 3 and 1 ranks in one round."""
    gateways = Gateways(((0, 1, 2), (3,)), ((0, 3), (2, 3)))
    (_, program), *_ = programs_over(gateways, collective, 1 if collective.has_root else 0)
    return cut(lower(program, "over gateways"), (3, 1))


def with_statements(
    phased: PhasedSchedule,
    *,
    stages: tuple[Statements, ...] | None = None,
    rounds: tuple[Statements, ...] | None = None,
) -> PhasedSchedule:
    """Return a schedule with other stages or rounds."""
    stages = phased.stages if stages is None else stages
    return replace(phased, phases=in_turn(stages, phased.rounds if rounds is None else rounds))


def by_hand() -> PhasedSchedule:
    """Return an all_reduce of 2 + 1 ranks: rank 0 adds up its node and exchanges with rank 2."""
    first, alone = Chunk(0, Buffer.OUTPUT, 0), Chunk(2, Buffer.OUTPUT, 0)
    kept, received = Chunk(0, Buffer.SCRATCH, 0), Chunk(0, Buffer.SCRATCH, 1)
    own, sent = Chunk(2, Buffer.INPUT, 0), Chunk(2, Buffer.SCRATCH, 0)
    stages = (
        (Statement(Chunk(1, Buffer.INPUT, 0), kept, Chunk(0, Buffer.INPUT, 0), 0),),
        (
            Statement(kept, first, None, 0),
            Statement(received, first, first, 0),
            Statement(first, Chunk(1, Buffer.OUTPUT, 0), None, 0),
            Statement(own, alone, None, 0),
            Statement(sent, alone, alone, 0),
        ),
    )
    rounds = ((Statement(kept, sent, None, 0), Statement(own, received, None, 0)),)
    return PhasedSchedule("", Collective.ALL_REDUCE, (2, 1), 1, (2, 0, 1), in_turn(stages, rounds))


def read_phases(program: bytes) -> PhasedSchedule:
    """Return the schedule of a program across hosts."""
    schedule = read_program(program, "p")
    assert isinstance(schedule, PhasedSchedule)
    return schedule


def is_uniform(program: bytes) -> bool:
    """Whether all ranks of a program do the same."""
    return bool(header_of(program).flags & IS_UNIFORM)


def has_rounds(program: bytes) -> bool:
    """Whether a program has stages and rounds."""
    return header_of(program).nodes > 1 and not is_uniform(program)
