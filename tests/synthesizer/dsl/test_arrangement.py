"""Order, aggregation and channels of statements, on programs small enough to read."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Schedule
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.program import Chunk, Statement
from synthesizer.lower.lowering import lower
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.proofs import gives_right_buffers, proved


def _sent(schedule: Schedule) -> list[tuple[int, int, int, int, int]]:
    """Return sender, receiver, first chunk at the receiver, chunks and channel of all messages."""
    return [
        (s.src.rank, s.dst.rank, s.dst.offset, s.dst.count, s.channel)
        for s in schedule.program().statements
        if s.remote
    ]


def _sends(algorithm: Algorithm) -> int:
    blocks = (block for gpu in algorithm.programs for block in gpu.threadblocks)
    return sum(step.type.sends for block in blocks for step in block.steps)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_copies_of_adjacent_chunks_become_one_send(order: tuple[int, ...]) -> None:
    schedule = Schedule(Collective.BROADCAST, 2, chunks=3)
    for chunk in order:
        schedule.chunk(0, INPUT, chunk).copy(1, OUTPUT, chunk)
    schedule.chunk(0, INPUT, 0, 3).copy(0, OUTPUT, 0)
    assert _sent(schedule) == [(0, 1, 0, 3, 0)]
    assert _sends(proved(schedule.program())) == 1


def test_sums_of_adjacent_chunks_become_one_message_in_place_and_out_of_place() -> None:
    schedule = Schedule(Collective.REDUCE, 2, chunks=2)
    for chunk in range(2):
        schedule.chunk(0, INPUT, chunk).reduce(schedule.chunk(1, INPUT, chunk), OUTPUT, chunk)
    assert schedule.program().statements == [
        Statement(Chunk(1, INPUT, 0, 2), Chunk(0, OUTPUT, 0, 2), Chunk(0, INPUT, 0, 2), 0)
    ]
    algorithm = proved(schedule.program())
    for in_place in (False, True):
        gives_right_buffers(algorithm, np.int64, seed=1, in_place=in_place)


def test_chunks_that_lie_apart_at_either_end_stay_two_messages() -> None:
    schedule = Schedule(Collective.ALLTOALL, 2, chunks=2, in_place=False)
    for chunk, place in ((0, 2), (1, 1)):
        schedule.chunk(0, INPUT, 2 + chunk).copy(1, SCRATCH, place)
    assert len(_sent(schedule)) == 2


def test_chunks_on_channels_or_in_instances_of_their_own_stay_apart() -> None:
    schedule = Schedule(Collective.BROADCAST, 2, chunks=3)
    schedule.chunk(0, INPUT, 0).copy(1, OUTPUT, 0)
    schedule.chunk(0, INPUT, 1).copy(1, OUTPUT, 1, channel=3)
    with schedule.parallelize(2):
        schedule.chunk(0, INPUT, 2).copy(1, OUTPUT, 2)
    assert [count for *_, count, _ in _sent(schedule)] == [2, 2, 1, 1]


def test_a_pipeline_stays_a_pipeline() -> None:
    """The second hop of a chunk does not wait for the first hop of the next one."""
    schedule = Schedule(Collective.BROADCAST, 3, chunks=2)
    for chunk in range(2):
        schedule.chunk(0, INPUT, chunk).copy(1, OUTPUT, chunk).copy(2, OUTPUT, chunk)
    schedule.chunk(0, INPUT, 0, 2).copy(0, OUTPUT, 0)
    assert [count for *_, count, _ in _sent(schedule)] == [1, 1, 1, 1]
    proved(schedule.program())


def test_chunks_that_wait_for_different_messages_do_not_wait_for_each_other() -> None:
    schedule = Schedule(Collective.CUSTOM, 4, chunks=2, in_place=False)
    for sender in (0, 1):
        schedule.chunk(sender, INPUT, 0).copy(2, SCRATCH, sender).copy(3, OUTPUT, sender)
        schedule.expect(3, sender, chunk=0, of=[sender])
    assert [count for *_, count, _ in _sent(schedule)] == [1, 1, 1, 1]
    assert verify(lower(schedule.program(), "relays"), slots=1).describe() == "proved"


@pytest.mark.parametrize("in_place", [True, False])
def test_a_copy_over_a_neighbour_that_is_still_to_be_read_stays_behind(in_place: bool) -> None:
    """In place, output chunk 1 of rank 1 is the input that rank 0 adds before."""
    schedule = Schedule(Collective.ALL_REDUCE, 2, chunks=2, in_place=in_place)
    for chunk in range(2):
        own, other = (schedule.chunk(rank, INPUT, chunk) for rank in (0, 1))
        own.reduce(other, OUTPUT, chunk).copy(1, OUTPUT, chunk)
    assert [count for *_, count, _ in _sent(schedule)] == [1, 1, 1, 1]
    gives_right_buffers(proved(schedule.program()), np.int64, seed=1, in_place=in_place)


def test_aggregation_does_not_leave_slots_empty() -> None:
    """One message of two chunks would make tiles half as large for the pipeline beside it."""
    schedule = Schedule(Collective.BROADCAST, 4, chunks=2)
    for chunk in range(2):
        schedule.chunk(0, INPUT, chunk).copy(1, OUTPUT, chunk).copy(2, OUTPUT, chunk)
        schedule.chunk(0, INPUT, chunk).copy(3, OUTPUT, chunk)
    assert [count for *_, count, _ in _sent(schedule)] == [1] * 6


def test_messages_go_by_depth_and_then_by_what_is_left() -> None:
    schedule = Schedule(Collective.CUSTOM, 4, chunks=4, in_place=False)
    relayed = schedule.chunk(2, INPUT, 0).copy(0, SCRATCH, 0)
    relayed.copy(1, SCRATCH, 0)  # depth 2
    schedule.chunk(0, INPUT, 1).copy(1, OUTPUT, 1)  # depth 1, then the end
    schedule.chunk(0, INPUT, 3).copy(1, SCRATCH, 3).copy(3, OUTPUT, 3)  # depth 1, one more to go
    places = [
        place for sender, receiver, place, *_ in _sent(schedule) if (sender, receiver) == (0, 1)
    ]
    assert places == [3, 1, 0]


def test_a_phase_that_waits_has_a_channel_of_its_own() -> None:
    """Rank 0 sends rank 1 its input at depth 1, and at depth 3 the sum that came back."""
    schedule = Schedule(Collective.CUSTOM, 3, chunks=1, in_place=False)
    there = schedule.chunk(0, INPUT, 0).copy(1, SCRATCH, 0)
    back = there.copy(2, SCRATCH, 0).copy(0, SCRATCH, 0)
    back.copy(1, OUTPUT, 0)
    assert _sent(schedule) == [(0, 1, 0, 1, 0), (1, 2, 0, 1, 0), (2, 0, 0, 1, 0), (0, 1, 0, 1, 1)]


def test_messages_one_after_the_other_share_a_channel() -> None:
    """Connections of a ring carry a message at every depth: nothing waits."""
    ranks = 4
    schedule = Schedule(Collective.ALL_GATHER, ranks)
    for owner in range(ranks):
        held = schedule.chunk(owner, INPUT, 0).copy(owner, OUTPUT, owner)
        for hop in range(1, ranks):
            held = held.copy((owner + hop) % ranks, OUTPUT, owner)
    assert {channel for *_, channel in _sent(schedule)} == {0}
    algorithm = proved(schedule.program())
    assert all(len(gpu.threadblocks) <= 3 for gpu in algorithm.programs)


def test_data_that_is_passed_on_stays_on_its_channel_and_fuses() -> None:
    schedule = Schedule(Collective.CUSTOM, 4, chunks=2, in_place=False)
    held = schedule.chunk(0, INPUT, 0).copy(1, SCRATCH, 0)
    held = held.copy(2, SCRATCH, 0).copy(0, SCRATCH, 0)  # back at rank 0
    held.copy(1, SCRATCH, 1).copy(3, OUTPUT, 0)
    *_, second, onward = _sent(schedule)
    assert (second[:2], second[-1], onward[-1]) == ((0, 1), 1, 1)
    algorithm = lower(schedule.program(), "fused")
    kinds = {str(s.type) for block in algorithm.programs[1].threadblocks for s in block.steps}
    assert kinds == {"rcs"}


def test_given_channels_are_kept_and_not_shared_with_chosen_ones() -> None:
    schedule = Schedule(Collective.CUSTOM, 2, chunks=3, in_place=False)
    schedule.chunk(0, INPUT, 0).copy(1, OUTPUT, 0, channel=0)
    schedule.chunk(0, INPUT, 2).copy(1, OUTPUT, 2)
    assert [channel for *_, channel in _sent(schedule)] == [0, 1]


def _part_by_part(nodes: int, gpus: int, order: list[int]) -> Schedule:
    """All_reduce along rails, all phases of a part before the next part, in a given order."""
    schedule = Schedule(Collective.ALL_REDUCE, nodes * gpus, chunks=gpus)
    for part in order:
        rail = range(part, nodes * gpus, gpus)
        totals = []
        for rank in rail:
            total = schedule.chunk(rank, INPUT, part)
            for step in range(1, gpus):
                mate = rank - rank % gpus + (rank + step) % gpus
                total = total.reduce(schedule.chunk(mate, INPUT, part), SCRATCH, 0)
            totals.append(total)
        total = totals[0]
        for own in totals[1:]:
            total = own.reduce(total, OUTPUT, part)
        for rank in rail[:-1]:
            total = total.copy(rank, OUTPUT, part)
        for rank in rail:
            for step in range(1, gpus):
                mate = rank - rank % gpus + (rank + step) % gpus
                schedule.chunk(rank, OUTPUT, part).copy(mate, OUTPUT, part)
    return schedule


@given(st.permutations(range(4)))
def test_the_order_of_independent_parts_costs_nothing(order: list[int]) -> None:
    sketch, model = switched(2, 4), ExecutionModel(slot_bytes=512 << 10)
    times = [
        compile_schedule(proved(_part_by_part(2, 4, parts).program()), sketch).time_us(10**9, model)
        for parts in (sorted(order), order)
    ]
    assert times[1] == pytest.approx(times[0], rel=0.02)
