"""Lowering: fusion, ordering, dependences and limits, on programs small enough to read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from synthesizer.experts.ring import ring_all_gather, ring_all_reduce, ring_broadcast
from synthesizer.ir.algorithm import Algorithm, StepRef, StepType
from synthesizer.ir.msccl_limits import MAX_COUNT, MAX_STEPS, check_limits
from synthesizer.ir.program import Program
from synthesizer.lower.lowering import lower
from synthesizer.prove.verifier import verify
from tuccl.errors import ProgramError


def _types(algorithm: Algorithm, rank: int) -> list[list[str]]:
    return [[str(step.type) for step in tb.steps] for tb in algorithm.programs[rank].threadblocks]


def test_a_chain_fuses_into_receive_copy_send() -> None:
    algorithm = lower(ring_broadcast([(0, 1, 2)], 0, 1), "chain")
    assert [_types(algorithm, rank) for rank in range(3)] == [[["s"], ["cpy"]], [["rcs"]], [["r"]]]
    assert (algorithm.programs[1].threadblocks[0].recv_peer,) == (0,)
    assert (algorithm.programs[1].threadblocks[0].send_peer,) == (2,)


def test_a_receive_that_two_sends_pass_on_is_fused_with_one_or_none() -> None:
    program = Program(Collective.BROADCAST, 4, 1)
    program.copy(program.input(0, 0), program.output(0, 0))
    received = program.copy(program.input(0, 0), program.output(1, 0))
    for peer in (2, 3):
        program.copy(received, program.output(peer, 0))
    assert sorted(_types(lower(program, "fork"), 1)) == [["rcs"], ["s"]]
    apart = lower(program, "fork", fuse_forks=False)
    assert sorted(_types(apart, 1)) == [["r"], ["s"], ["s"]]


def test_one_rank_of_a_ring_stays_unfused_and_no_more() -> None:
    algorithm = lower(ring_all_reduce([(0, 1, 2, 3)]), "ring")
    types = [_types(algorithm, rank) for rank in range(4)]
    assert types.count([["s", "rrs", "rrs", "rrcs", "rcs", "rcs", "r"]]) == 3
    assert verify(algorithm, slots=1).proved


def test_several_dependences_become_nops_and_implied_ones_disappear() -> None:
    program = Program(Collective.ALL_REDUCE, 3, 1)
    received = [program.copy(program.input(peer, 0), program.scratch(0)) for peer in (1, 2)]
    total = program.copy(program.input(0, 0), program.output(0, 0))
    for chunk in received:
        program.reduce(chunk, total)
    for peer in (1, 2):
        program.copy(total, program.output(peer, 0))
    algorithm = lower(program, "star")
    by_type = {
        str(step.type): step for tb in algorithm.programs[0].threadblocks for step in tb.steps
    }
    assert "nop" not in by_type
    assert by_type["cpy"].depends is None
    assert isinstance(by_type["re"].depends, StepRef)
    assert verify(algorithm, slots=1).proved


def test_a_threadblock_beyond_the_step_limit_is_spread_over_channels() -> None:
    chunks = MAX_STEPS + 1
    program = Program(Collective.BROADCAST, 2, chunks)
    for chunk in range(chunks):
        program.copy(program.input(0, chunk), program.output(1, chunk))
    program.copy(program.input(0, 0, chunks), program.output(0, 0, chunks))
    algorithm = lower(program, "long")
    assert algorithm.channels == 2
    assert max(len(t.steps) for g in algorithm.programs for t in g.threadblocks) <= MAX_STEPS
    assert verify(algorithm).proved


def test_a_copy_of_many_chunks_becomes_several_steps() -> None:
    program = Program(Collective.BROADCAST, 2, 2 * MAX_COUNT + 1)
    whole = program.input(0, 0, program.chunks)
    program.copy(whole, program.output(1, 0, program.chunks))
    program.copy(whole, program.output(0, 0, program.chunks))
    algorithm = lower(program, "wide")
    counts = [step.count for step in algorithm.programs[1].threadblocks[0].steps]
    assert counts == [MAX_COUNT, MAX_COUNT, 1]
    assert check_limits(algorithm) == ()
    assert verify(algorithm).proved


def test_what_fits_no_channel_count_is_refused() -> None:
    program = Program(Collective.BROADCAST, 2, 1)
    for _ in range(MAX_STEPS + 1):
        program.copy(program.input(0, 0), program.output(1, 0))
    with pytest.raises(ProgramError, match="use fewer chunks"):
        lower(program, "endless")


def test_same_program_same_schedule() -> None:
    once, again = (lower(ring_all_gather([(0, 2, 1), (0, 1, 2)]), "twice") for _ in range(2))
    assert repr(once) == repr(again)


@st.composite
def _gather_programs(draw: st.DrawFn) -> Program:
    """Draw an all_gather over random trees, with statements of different chunks interleaved."""
    ranks = draw(st.integers(2, 5))
    program = Program(Collective.ALL_GATHER, ranks, draw(st.integers(1, 2)))
    pending = []
    for place in range(ranks * program.chunks):
        owner = place // program.chunks
        reached = [owner]
        for rank in draw(st.permutations([r for r in range(ranks) if r != owner])):
            pending.append((place, draw(st.sampled_from(reached)), rank))
            reached.append(rank)
    at = [draw(st.integers(0, 9)) for _ in pending]
    clock: dict[int, int] = {}
    timed = []
    for i, (place, src, dst) in enumerate(pending):
        clock[place] = max(clock.get(place, 0), at[i])
        timed.append((clock[place], i, place, src, dst))
    for _, _, place, src, dst in sorted(timed):
        owner = place // program.chunks
        own = program.input(owner, place % program.chunks)
        source = own if src == owner else program.output(src, place)
        program.copy(source, program.output(dst, place), draw(st.integers(0, 1)))
    for rank in range(ranks):
        whole = program.output(rank, rank * program.chunks, program.chunks)
        program.copy(program.input(rank, 0, program.chunks), whole)
    return program


@pytest.mark.long
@given(_gather_programs())
def test_any_right_program_lowers_to_a_proved_schedule_with_one_slot(program: Program) -> None:
    algorithm = lower(program, "random")
    assert verify(algorithm, slots=1).describe() == "proved"
    sends = sum(
        step.type.sends for g in algorithm.programs for t in g.threadblocks for step in t.steps
    )
    assert sends == sum(statement.remote for statement in program.statements)
    assert StepType.RECV_REDUCE_COPY not in {
        step.type for g in algorithm.programs for t in g.threadblocks for step in t.steps
    }


def test_a_message_of_a_fused_step_does_not_tell_that_its_result_is_stored() -> None:
    # Rank 1 forwards a chunk as it arrives, and receives the result at the same location.
    program = Program(Collective.CUSTOM, 3, 1, in_place=False)
    place = program.copy(program.input(0, 0), program.scratch(1), channel=1)
    passed_on = program.copy(place, program.scratch(2), channel=1)
    total = program.reduce(program.input(0, 0), program.scratch(2), passed_on)
    back = program.copy(total, place, channel=2)
    program.copy(back, program.output(1, 0))
    algorithm = lower(program, "there_and_back")
    assert "rcs" in {kind for kinds in _types(algorithm, 1) for kind in kinds}
    assert {str(defect.kind) for defect in verify(algorithm, slots=1).defects} == {
        "no_postcondition"
    }
