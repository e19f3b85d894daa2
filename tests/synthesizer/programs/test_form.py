"""The rules of the form: each that is broken is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs import form
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.form import check_form
from synthesizer.programs.layout import Pattern, PhaseKind
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phases import CallPhase, PhasedSchedule, Place, StatementPhase
from synthesizer.programs.proof import Proof
from synthesizer.programs.records import records_of
from tests.synthesizer.programs.phased_schedules import over_gateways, with_statements
from tuccl.errors import NoProgramError

EXCHANGE = plan_by_name(Collective.ALL_REDUCE, "exchange", 3, 2)
SCATTER, GATHER, SUM, SPREAD = EXCHANGE.calls
RAILS_FIRST = plan_by_name(Collective.ALL_GATHER, "rails_first", 2, 2)
IN_ROUNDS = over_gateways(Collective.ALL_REDUCE)


def of(*phases: CallPhase) -> PhasedSchedule:
    return replace(EXCHANGE, phases=phases)


def inside(rank: int, target: Chunk, operand: Chunk | None = None) -> Statement:
    return Statement(Chunk(rank, Buffer.INPUT, 0), target, operand, 0)


def stage_0(*statements: Statement) -> PhasedSchedule:
    return with_statements(IN_ROUNDS, stages=(statements, ()))


UNIFORM = {
    "broadcast has no uniform schedules": replace(EXCHANGE, collective=Collective.BROADCAST),
    "1 nodes, allowed are 2": replace(EXCHANGE, node_sizes=(2,)),
    "a node has 33 ranks": replace(EXCHANGE, node_sizes=(33,) * 3),
    "its nodes differ in size": replace(EXCHANGE, node_sizes=(2, 2, 1)),
    "2 chunks of a rank's part": replace(RAILS_FIRST, chunks=2),
    "more than 65536 scratch chunks, or less": replace(EXCHANGE, scratch_chunks=(-1,)),
    "a rank has more than 65536 scratch": replace(EXCHANGE, scratch_chunks=(65537,)),
    "0 phases": replace(EXCHANGE, scratch_chunks=(4,) * 6, phases=()),
    "130 phases": of(*[SCATTER] * 130),
    "9 lanes, allowed are 1 to 8": replace(EXCHANGE, lanes=9),
    "or it has stages or rounds": replace(
        EXCHANGE, phases=(*EXCHANGE.phases, StatementPhase(PhaseKind.STAGE, ()))
    ),
    "phase 0 is a node's, and nodes have one rank": replace(EXCHANGE, node_sizes=(1,) * 3),
    "phase 0 is run by kernels for 16 ranks": replace(
        plan_by_name(Collective.ALL_REDUCE, "exchange", 3, 16), node_sizes=(17,) * 3
    ),
    "phase 0 cannot be reduce_scatter with pattern ONE_PHASE": of(
        replace(SCATTER, pattern=Pattern.ONE_PHASE)
    ),
    "phase 0 cannot be reduce with pattern NONE": of(replace(GATHER, collective=Collective.REDUCE)),
    "phase 2 adds, but all_gather does not": replace(
        RAILS_FIRST, phases=(*RAILS_FIRST.phases, replace(SUM, repeats=2))
    ),
    "phase 0 has a negative number, or nothing to do": of(replace(SCATTER, chunks=0)),
    "phase 0 has a number above 65536": of(replace(SCATTER, repeats=65537)),
    "phase 0 has strides, and is one call": of(replace(SCATTER, source_stride=1)),
    "phase 0 has one summand": of(replace(SUM, repeats=1)),
    "phase 0 reads 3 chunks of buffer i": of(replace(SCATTER, source=Place(Buffer.INPUT, 1))),
    "phase 0 writes 5 chunks of buffer s": of(replace(SCATTER, target=Place(Buffer.SCRATCH, 4))),
    "phase 0 writes to the input": of(replace(SCATTER, target=Place(Buffer.INPUT, 0))),
    "phase 0 has calls that write the same chunks": of(replace(SCATTER, repeats=2)),
    "phase 0 reads what it writes": of(replace(GATHER, target=Place(Buffer.SCRATCH, 0))),
}
STATEMENTS = {
    "1 nodes, allowed are 2": replace(IN_ROUNDS, node_sizes=(4,)),
    "a node has 33 ranks": replace(IN_ROUNDS, node_sizes=(33, 1), scratch_chunks=(0,) * 34),
    "0 chunks, allowed are 1 to 65536": replace(IN_ROUNDS, chunks=0),
    "65537 chunks": replace(IN_ROUNDS, chunks=65537),
    "more than 65536 scratch chunks": replace(IN_ROUNDS, scratch_chunks=(65537, 0, 0, 0)),
    "root 1 of all_reduce": replace(IN_ROUNDS, root=1),
    "9 lanes": replace(IN_ROUNDS, lanes=9),
    "0 rounds and 1 stages": with_statements(IN_ROUNDS, rounds=(), stages=((),)),
    "that do not take turns": replace(IN_ROUNDS, phases=IN_ROUNDS.phases[::-1][:2]),
    "131 phases": with_statements(IN_ROUNDS, rounds=((),) * 65, stages=((),) * 66),
    "a custom operation": replace(IN_ROUNDS, collective=Collective.CUSTOM),
    "stage 1 has a message from rank 0 to rank 4": with_statements(
        IN_ROUNDS, stages=((), (inside(0, Chunk(4, Buffer.OUTPUT, 0)),))
    ),
    "stage 0 has a message to another node": stage_0(IN_ROUNDS.rounds[0][0]),
    "round 1 adds to a chunk of another node": with_statements(
        IN_ROUNDS, rounds=((inside(0, Chunk(3, Buffer.OUTPUT, 0), Chunk(3, Buffer.OUTPUT, 0)),),)
    ),
    "round 1 uses a chunk of rank 3 that it receives or sends": with_statements(
        IN_ROUNDS, rounds=((*IN_ROUNDS.rounds[0], inside(3, IN_ROUNDS.messages[0][0].dst)),)
    ),
    "stage 0 writes to the input": stage_0(inside(0, Chunk(1, Buffer.INPUT, 0))),
    "stage 0 adds to a chunk that is not its target": stage_0(
        inside(0, Chunk(0, Buffer.OUTPUT, 0), Chunk(0, Buffer.OUTPUT, 1))
    ),
    "stage 0 has operands of 1 and 2 chunks": stage_0(inside(0, Chunk(1, Buffer.OUTPUT, 0, 2))),
    "stage 0 uses chunks behind the 2 of buffer o of rank 1": stage_0(
        inside(0, Chunk(1, Buffer.OUTPUT, 2))
    ),
}


@pytest.mark.parametrize(
    ("fault", "phased"), [*UNIFORM.items(), *STATEMENTS.items()], ids=lambda each: str(each)[:40]
)
def test_each_broken_rule_is_named(fault: str, phased: PhasedSchedule) -> None:
    with pytest.raises(NoProgramError) as error:
        check_form(phased)
    assert fault in str(error.value)


def test_nccl_does_not_ask_about_alltoall_and_takes_64_channels_at_most() -> None:
    wrong = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE, 65)
    with pytest.raises(NoProgramError, match="phase 1 has a configuration of a rail"):
        check_form(EXCHANGE.with_rails(wrong))
    spread = plan_by_name(Collective.ALLTOALL, "rails_last", 2, 2)
    right = replace(wrong, nchannels=2)
    assert spread.with_rails(right).phases == spread.phases
    local, rail = spread.calls
    with pytest.raises(NoProgramError, match="phase 1 has a configuration of a rail"):
        check_form(replace(spread, phases=(local, replace(rail, rail=right))))


def test_a_gather_adds_nothing_and_large_programs_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gather = over_gateways(Collective.ALL_GATHER)
    target = Chunk(0, Buffer.OUTPUT, 1)
    adding = (Statement(Chunk(1, Buffer.OUTPUT, 1), target, target, 0), *gather.stages[1])
    with pytest.raises(NoProgramError, match="stage 1 adds, but all_gather does not"):
        check_form(with_statements(gather, stages=(gather.stages[0], adding)))
    monkeypatch.setattr(form, "MOST_CHUNKS_MOVED", 3)
    with pytest.raises(NoProgramError, match=r"\d+ chunks are moved, at most 3"):
        check_form(gather)
    large = with_statements(gather, stages=(gather.rounds[0] * 20_000, gather.stages[1]))
    with pytest.raises(NoProgramError, match="bytes, at most 1048576 are allowed"):
        records_of(large, Proof(True, False)).packed()


def test_a_chunk_that_is_received_is_not_sent_in_the_same_round() -> None:
    gather = over_gateways(Collective.ALL_GATHER)
    back = Statement(gather.rounds[0][0].dst, Chunk(0, Buffer.SCRATCH, 0), None, 0)
    wrong = with_statements(gather, rounds=((*gather.rounds[0], back),))
    with pytest.raises(NoProgramError, match="round 1 uses a chunk of rank 3 that it receives"):
        compile_program(replace(wrong, scratch_chunks=(1, 0, 0, 0)))
