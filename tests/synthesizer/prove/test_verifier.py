"""Every kind of defect, on small schedules."""

from dataclasses import replace
from typing import TypedDict

import pytest

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import (
    Algorithm,
    GpuProgram,
    Protocol,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.prove.defects import DefectKind
from synthesizer.prove.structure import MAX_CHUNKS, MAX_CONTENTS, MAX_MOVES
from synthesizer.prove.verifier import Verdict, deadlock_in_parts, verify
from tests.synthesizer.hand_schedules import (
    algorithm,
    all_pairs_all_gather,
    all_pairs_all_reduce,
    all_schedules,
    block,
    direct_alltoall,
    i,
    o,
    ring_all_gather,
    ring_all_reduce,
    s,
    step,
)
from tests.synthesizer.mutations import step_at, with_step, with_steps


def only(verdict: Verdict, kind: DefectKind) -> str:
    """Return the first message, after a check that all defects are of this kind."""
    assert not verdict.proved
    assert {defect.kind for defect in verdict.defects} == {kind}, verdict.describe()
    return verdict.defects[0].describe()


def custom(*ranks: list[Threadblock], scratch: int = 4) -> Algorithm:
    return algorithm(Collective.CUSTOM, 4, list(ranks), scratch=scratch)


@pytest.mark.parametrize("a", all_schedules(), ids=lambda a: f"{a.collective}-{a.ranks}")
def test_right_schedules_are_proved(a: Algorithm) -> None:
    assert verify(a) == Verdict(True, ())
    assert verify(a).describe() == "proved"


def test_a_missing_message_is_a_connection_defect() -> None:
    a = ring_all_gather(3)
    steps = a.programs[1].threadblocks[1].steps
    text = only(verify(with_steps(a, 1, 1, steps[:-1])), DefectKind.CONNECTION)
    assert text == (
        "connection: rank 0 threadblock 0 step 1: "
        "connection 0->1 channel 0 has 2 sends and 1 receives"
    )


def test_messages_must_have_the_size_that_the_receiver_expects() -> None:
    a = all_pairs_all_gather(2, k=2)
    small = replace(step_at(a, (1, 0, 1)), count=1)
    text = only(verify(with_step(a, (1, 0, 1), small)), DefectKind.CONNECTION)
    assert text == (
        "connection: rank 1 threadblock 0 step 1: "
        "r takes 1 chunks where rank 0 threadblock 0 step 0 gives 2"
    )


def test_a_connection_belongs_to_one_threadblock() -> None:
    a = custom(
        [block(0, 1, -1, step("s", i(0))), block(1, 1, -1, step("s", i(1)))],
        [block(0, -1, 0, step("r", o(0)), step("r", o(1)))],
    )
    text = only(verify(a), DefectKind.CONNECTION)
    assert "rank 0 threadblock 1: shares connection 0->1 channel 0 with threadblock 0" in text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (step("s", i(-1)), "s of i[-1] outside the 1 chunks"),
        (step("s", i(0), count=2), "s of i[0..1] outside the 1 chunks"),
        (step("s", i(10**15)), "s of i[1000000000000000] outside the 1 chunks"),
        (step("s", i(0), count=0), "count 0 must be at least 1"),
        (step("s", i(0), count=-5), "count -5 must be at least 1"),
        (step("s", i(0), dep=(-1, 0)), "waits for threadblock -1 step 0, which does not exist"),
        (step("s", i(0), dep=(7, 0)), "waits for threadblock 7 step 0, which does not exist"),
        (step("s", i(0), dep=(1, 9)), "waits for threadblock 1 step 9, which does not exist"),
    ],
)
def test_a_step_must_make_sense(changed: Step, message: str) -> None:
    a = with_step(all_pairs_all_gather(2), (0, 0, 0), changed)
    assert f"structure: rank 0 threadblock 0 step 0: {message}" in verify(a).describe()


def test_a_number_may_have_64_bits() -> None:
    a = with_step(all_pairs_all_gather(2), (0, 0, 0), step("s", i(0), count=1 << 70))
    assert "more than 64 bits" in only(verify(a), DefectKind.STRUCTURE)


class Header(TypedDict, total=False):
    channels: int
    chunks_per_loop: int
    in_place: bool
    out_of_place: bool
    programs: tuple[GpuProgram, ...]
    min_bytes: int
    max_bytes: int


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"programs": ()}, "no ranks"),
        ({"chunks_per_loop": 0}, "0 chunks per loop"),
        ({"chunks_per_loop": 10**12}, f"must be 1 to {MAX_CHUNKS}"),
        ({"chunks_per_loop": 3}, "3 chunks per loop cannot be divided among the 2 ranks"),
        ({"channels": 0}, "0 channels, must be 1 to 32"),
        ({"channels": 33}, "33 channels, must be 1 to 32"),
        ({"min_bytes": -1}, "for -1 to 0 bytes"),
        ({"min_bytes": 8, "max_bytes": 7}, "for 8 to 7 bytes"),
        ({"max_bytes": -1}, "for 0 to -1 bytes"),
        ({"in_place": False, "out_of_place": False}, "neither in place nor out of place"),
    ],
)
def test_the_header_must_make_sense(damage: Header, message: str) -> None:
    assert message in only(verify(replace(all_pairs_all_gather(2), **damage)), DefectKind.STRUCTURE)


def test_a_small_file_cannot_ask_for_endless_work() -> None:
    wide = algorithm(Collective.ALL_REDUCE, MAX_CHUNKS, [[] for _ in range(5)])
    assert f"{5 * MAX_CHUNKS} chunks in the buffers of 5 ranks, at most {MAX_CONTENTS} are" in only(
        verify(wide), DefectKind.STRUCTURE
    )
    copies = [step("cpy", i(0), o(0), count=MAX_CHUNKS)] * (MAX_MOVES // MAX_CHUNKS + 1)
    long = algorithm(Collective.ALL_REDUCE, MAX_CHUNKS, [[block(0, -1, -1, *copies)]])
    assert f"{MAX_MOVES + MAX_CHUNKS} chunks moved in all, at most {MAX_MOVES} are" in only(
        verify(long), DefectKind.STRUCTURE
    )


def test_peers_and_ids_must_make_sense() -> None:
    me = custom([block(0, 0, -1)], [])
    assert "send peer 0 is not another rank" in only(verify(me), DefectKind.STRUCTURE)
    far = custom([block(0, -1, 9)], [])
    assert "receive peer 9 is not another rank" in only(verify(far), DefectKind.STRUCTURE)
    gap = custom([block(1, -1, -1)], [])
    assert "threadblock ids must run from 0" in only(verify(gap), DefectKind.STRUCTURE)
    alone = custom([block(0, -1, -1, step("s", i(0)))], [])
    assert "s in a threadblock without send peer" in only(verify(alone), DefectKind.STRUCTURE)


def test_two_ranks_that_both_receive_first_wait_for_ever() -> None:
    a = all_pairs_all_gather(2)
    for rank in (0, 1):
        a = with_steps(a, rank, 0, a.programs[rank].threadblocks[0].steps[::-1])
    assert only(verify(a), DefectKind.DEADLOCK) == (
        "deadlock: rank 0 threadblock 0 step 0: cycle of 2 with 2 FIFO slots: "
        "rank 0 threadblock 0 step 0 (r) waits for a message from rank 1 threadblock 0; "
        "rank 1 threadblock 0 step 0 (r) waits for a message from rank 0 threadblock 0"
    )


def test_dependences_in_a_circle_wait_for_ever() -> None:
    a = custom([block(0, -1, -1, step("cpy", i(0), o(0), dep=(1, 0))), block(1, -1, -1)], [])
    a = with_steps(a, 0, 1, (step("cpy", i(1), o(1), dep=(0, 0)),))
    assert "waits for threadblock 1 step 0" in only(verify(a), DefectKind.DEADLOCK)


def test_a_nop_never_reports_that_it_is_done() -> None:
    blocks = [block(0, -1, -1, step("nop", i(0), count=0)), block(1, -1, -1)]
    a = with_steps(custom(blocks, []), 0, 1, (step("cpy", i(0), o(0), dep=(0, 0)),))
    assert only(verify(a), DefectKind.STRUCTURE) == (
        "structure: rank 0 threadblock 1 step 0: waits for threadblock 0 step 0, a nop, "
        "which never reports that it is done"
    )


def test_a_ring_of_fused_steps_needs_two_slots() -> None:
    """With one slot, every rank holds a full slot and none can forward its chunk."""
    assert "waits for a free slot" in only(verify(ring_all_reduce(4), slots=1), DefectKind.DEADLOCK)
    assert verify(ring_all_reduce(4), slots=2).proved


@pytest.mark.parametrize(
    ("protocol", "count", "max_bytes", "hangs"),
    [
        (Protocol.SIMPLE, 2, 0, False),
        (Protocol.SIMPLE, 3, 0, True),
        (Protocol.SIMPLE, 9, 3 << 20, False),  # parts of 5 and 4 chunks of 349,526 bytes
        (Protocol.SIMPLE, 9, 9 << 20, True),  # 5 parts of 2 chunks of 1 MiB
        (Protocol.LL, 8, 0, False),
        (Protocol.LL, 9, 0, True),
        (Protocol.LL, 9, 9 << 14, False),  # 5 parts of 2 chunks of 16 KiB
        (Protocol.LL128, 9, 0, True),
    ],
)
def test_msccl_sends_in_parts_and_may_wait_for_ever(
    protocol: Protocol, count: int, max_bytes: int, hangs: bool
) -> None:
    """Both ranks send before they receive; the last step waits for the last part of a copy."""
    sides = [
        [
            block(
                0, 1 - rank, 1 - rank, step("s", i(0), count=count), step("r", s(0), count=count)
            ),
            block(1, -1, -1, step("cpy", i(0), s(0), count=count, dep=(0, 1))),
        ]
        for rank in range(2)
    ]
    made = algorithm(Collective.CUSTOM, count, sides, scratch=count)
    a = replace(made, protocol=protocol, max_bytes=max_bytes)
    assert {defect.kind for defect in verify(a).defects} == {DefectKind.NO_POSTCONDITION}
    found = deadlock_in_parts(a)
    assert (found is not None) == hangs
    if found is not None:
        assert "rank 0 threadblock 0 step 0 (s) waits for a free slot to rank 1" in found.describe()


def test_a_missing_dependence_is_a_race() -> None:
    a = ring_all_gather(3)
    free = replace(step_at(a, (0, 0, 1)), depends=None)
    text = only(verify(with_step(a, (0, 0, 1), free)), DefectKind.RACE)
    assert "threadblock 1 step 0 (r) writes o[2]" in text
    assert "threadblock 0 step 1 (s) reads o[2]" in text


def test_messages_through_another_rank_order_two_threadblocks() -> None:
    """Rank 0 sends a chunk and overwrites it with the answer to that message."""
    asking = [block(0, 1, -1, step("s", s(0))), block(1, -1, 1, step("r", s(0)))]
    start = step("cpy", i(0), s(0))
    asking[0] = block(0, 1, -1, start, *asking[0].steps)
    back = [block(0, 0, 0, step("r", s(0)), step("s", s(0)))]
    assert {d.kind for d in verify(custom(asking, back)).defects} == {DefectKind.NO_POSTCONDITION}
    unasked = [block(0, 0, 0, step("s", i(0)), step("r", s(0)))]
    assert "race" in verify(custom(asking, unasked)).describe()


def test_a_fused_step_passes_on_data_before_the_message_has_ended() -> None:
    """Chunk 0 may come back as chunk 1 before chunk 1 is sent."""
    first = block(0, 1, -1, step("s", i(0), count=2))
    sending = [first, block(1, -1, 1, step("r", i(1), count=2))]
    back = [block(0, 0, 0, step("rcs", s(0), count=2))]
    assert "race: rank 0 threadblock 1 step 0" in verify(custom(sending, back)).describe()


def test_a_fused_step_may_send_before_it_stores() -> None:
    """The answer to the message of a fused step may come before that step has written."""
    source = [block(0, -1, 1, step("r", o(0))), block(1, 1, -1, step("s", i(0)))]
    middle = [
        block(0, 2, 0, step("rcs", o(0)), step("s", i(1))),
        block(1, 0, 2, step("r", o(0)), step("s", o(0))),
    ]
    answer = [block(0, 1, 1, step("r", s(0)), step("s", i(0)), step("r", s(1)))]
    assert "race: rank 1 threadblock 1 step 0" in verify(custom(source, middle, answer)).describe()
    # With the answer to a message that follows in the threadblock, the write is done.
    answer = [block(0, 1, 1, step("r", s(0)), step("r", s(1)), step("s", i(0)))]
    verdict = verify(custom(source, middle, answer))
    assert {defect.kind for defect in verdict.defects} == {DefectKind.NO_POSTCONDITION}


def test_a_copy_onto_itself_may_undo_what_another_threadblock_writes() -> None:
    """The copy reads the rank's own data, the sum is written, and the copy writes the data back."""
    blocks = [
        [
            block(0, -1, -1, step("cpy", i(0), o(0))),
            block(1, peer, peer, step("s", i(0)), step("rrc", o(0))),
        ]
        for peer in (1, 0)
    ]
    a = algorithm(Collective.ALL_REDUCE, 1, blocks, out_of_place=False)
    text = only(verify(a), DefectKind.RACE)
    assert "threadblock 0 step 0 (cpy) writes o[0]" in text
    assert "threadblock 1 step 1 (rrc) writes o[0]" in text
    ordered = a
    for rank in (0, 1):
        tied = replace(step_at(a, (rank, 1, 1)), depends=StepRef(0, 0))
        ordered = with_step(ordered, (rank, 1, 1), tied)
    assert verify(ordered).proved


def test_operands_of_one_step_must_not_half_overlap() -> None:
    a = custom([block(0, -1, -1, step("cpy", i(0), i(1), count=2))], [])
    assert "source i[0..1] and destination i[1..2] of one cpy overlap" in verify(a).describe()


def test_in_place_input_and_output_are_one_buffer() -> None:
    """The exchange is right out of place; in place a chunk is overwritten before it is sent."""
    a = direct_alltoall(2)
    assert verify(a).proved
    swapped = with_steps(
        with_steps(a, 0, 0, a.programs[0].threadblocks[0].steps[::-1]),
        0,
        1,
        a.programs[0].threadblocks[1].steps,
    )
    assert verify(swapped).proved
    in_place = replace(swapped, in_place=True, out_of_place=False)
    only(verify(in_place), DefectKind.WRONG_RESULT)


def test_out_of_place_the_send_buffer_stays_as_it_is() -> None:
    a = all_pairs_all_reduce(2)
    last = replace(step_at(a, (0, 0, 3)), dst=i(1))
    inside = with_step(a, (0, 0, 3), last)
    assert verify(replace(inside, out_of_place=False)).proved
    verdict = verify(inside)
    assert verdict.defects[0].kind is DefectKind.INPUT_OVERWRITTEN
    assert "r writes i[1] of the caller's send buffer" in verdict.describe()


def test_in_place_only_the_root_of_a_broadcast_has_an_input() -> None:
    """Other ranks may pass a null pointer for it."""
    blocks = [[block(0, 1, -1, step("s", i(0)))], [block(0, -1, 0, step("r", i(0)))]]
    a = algorithm(Collective.BROADCAST, 1, blocks, out_of_place=False)
    assert "rank 1 threadblock 0 step 0: r of i[0] outside the 0 chunks" in verify(a).describe()
    assert verify(with_step(a, (1, 0, 0), step("r", o(0)))).proved


def test_in_place_only_the_root_of_a_reduce_has_an_output() -> None:
    blocks = [
        [block(0, -1, 1, step("rrc", i(0), o(0)))],
        [block(0, 0, 2, step("rrc", i(0), o(0)), step("s", o(0)))],
        [block(0, 1, -1, step("s", i(0)))],
    ]
    a = algorithm(Collective.REDUCE, 1, blocks, out_of_place=False)
    assert "rank 1 threadblock 0 step 0: rrc of o[0] outside the 0 chunks" in verify(a).describe()
    kept = with_steps(a, 1, 0, (step("rrc", i(0), i(0)), step("s", i(0))))
    assert "rrc writes i[0] of the caller's send buffer" in verify(kept).describe()
    assert verify(with_steps(a, 1, 0, (step("rrs", i(0)),))).proved


def test_reading_what_nothing_wrote() -> None:
    a = custom([block(0, 1, -1, step("s", s(2)))], [block(0, -1, 0, step("r", o(0)))])
    assert "uninitialised: rank 0 threadblock 0 step 0: s reads s[2]" in verify(a).describe()


def test_a_contribution_counted_twice() -> None:
    a = all_pairs_all_reduce(3)
    twice = replace(step_at(a, (0, 2, 2)), src=s(0), depends=StepRef(0, 1))
    text = only(verify(with_step(a, (0, 2, 2), twice)), DefectKind.WRONG_RESULT)
    assert text == (
        "wrong_result: rank 0: result chunk 0 holds chunk 0 of rank 1 more than once: "
        "chunk 0 of rank 0-1 plus chunk 0 of rank 1, must hold chunk 0 of rank 0-2"
    )


def test_a_contribution_left_out() -> None:
    a = all_pairs_all_reduce(3)
    left_out = replace(step_at(a, (0, 2, 2)), type=StepType.COPY, dst=s(1))
    text = only(verify(with_step(a, (0, 2, 2), left_out)), DefectKind.WRONG_RESULT)
    assert "result chunk 0 holds chunk 0 of rank 0-1, must hold chunk 0 of rank 0-2" in text


def test_chunks_that_do_not_belong_together() -> None:
    a = all_pairs_all_reduce(2)
    a = with_step(a, (1, 0, 0), replace(step_at(a, (1, 0, 0)), src=i(1)))
    text = only(verify(a), DefectKind.WRONG_RESULT)
    assert "a sum of input chunks 0 and 1" in text


def test_custom_operations_are_never_proved() -> None:
    a = custom([block(0, 1, -1, step("s", i(0)))], [block(0, -1, 0, step("r", o(0)))])
    only(verify(a), DefectKind.NO_POSTCONDITION)
