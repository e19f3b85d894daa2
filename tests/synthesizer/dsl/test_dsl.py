"""The language: its semantics, its refusals, and the correctness of accepted schedules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Schedule
from synthesizer.ir.program import Chunk, Statement
from synthesizer.lower.lowering import lower
from synthesizer.prove.verifier import verify
from tests.synthesizer.emulator import expected_outputs, run
from tests.synthesizer.proofs import gives_right_buffers, proved
from tuccl.errors import ProgramError


def test_copies_and_reductions_become_statements() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2, chunks=2)
    partial = schedule.chunk(0, INPUT, 1).reduce(schedule.chunk(1, INPUT, 1), SCRATCH)
    partial.copy(1, OUTPUT, 1, channel=3)
    scratch = Chunk(0, SCRATCH, 0)
    assert schedule.program().statements == [
        Statement(Chunk(1, INPUT, 1), scratch, Chunk(0, INPUT, 1), 0),
        Statement(scratch, Chunk(1, OUTPUT, 1), None, 1),
    ]


def test_a_local_sum_elsewhere_is_begun_by_a_copy() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2)
    arrived = schedule.chunk(1, INPUT, 0).copy(0, SCRATCH)
    schedule.chunk(0, INPUT, 0).reduce(arrived, OUTPUT, 0)
    output = Chunk(0, OUTPUT, 0)
    assert schedule.program().statements[1:] == [
        Statement(Chunk(0, INPUT, 0), output, None, 0),
        Statement(Chunk(0, SCRATCH, 0), output, output, 0),
    ]


def test_scratch_left_open_is_beyond_what_was_named() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2, chunks=4)
    schedule.chunk(0, INPUT, 0, 3).copy(1, SCRATCH, 2)
    fresh = schedule.chunk(0, INPUT, 0, 2).copy(1, SCRATCH)
    assert (fresh.rank, fresh.index, fresh.count) == (1, 5, 2)
    assert schedule.chunk(0, INPUT, 0).copy(1, SCRATCH).index == 7


def test_instances_cut_chunks_finer_and_have_channels_of_their_own() -> None:
    schedule = Schedule(Collective.BROADCAST, 3, chunks=1)
    with schedule.parallelize(2):
        held = schedule.chunk(0, INPUT, 0).copy(1, OUTPUT, 0)
        with schedule.parallelize(2):
            held.copy(2, OUTPUT, 0)
    schedule.chunk(0, INPUT, 0).copy(0, OUTPUT, 0, channel=5)
    program = schedule.program()
    assert program.chunks == 4
    got = [
        (s.src.rank, s.dst.rank, s.dst.offset, s.dst.count, s.channel) for s in program.statements
    ]
    assert got == [
        (0, 1, 0, 2, 0),
        (0, 1, 2, 2, 1),
        (0, 0, 0, 4, 4),
        (1, 2, 0, 1, 0),
        (1, 2, 1, 1, 1),
        (1, 2, 2, 1, 2),
        (1, 2, 3, 1, 3),
    ]
    assert verify(lower(program, "broadcast"), slots=1).proved


def _two_writers() -> None:
    schedule = Schedule(Collective.BROADCAST, 3)
    schedule.chunk(0, INPUT, 0).copy(1, OUTPUT, 0)
    schedule.chunk(0, INPUT, 0).copy(2, OUTPUT, 0)
    schedule.chunk(2, OUTPUT, 0).copy(1, OUTPUT, 0)


def _stale() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2)
    first = schedule.chunk(0, INPUT, 0).copy(1, SCRATCH)
    first.reduce(schedule.chunk(1, INPUT, 0))
    first.copy(0, OUTPUT, 0)


def _stale_in_place() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2)
    schedule.chunk(0, INPUT, 0).reduce(schedule.chunk(1, INPUT, 0), OUTPUT, 0)
    schedule.chunk(1, INPUT, 0).reduce(schedule.chunk(0, INPUT, 0), OUTPUT, 0)


UNORDERED = {
    _two_writers: (
        "broadcast: the copy of chunk 0 of input of rank 0 to chunk 0 of output of rank 1 and the"
        " copy of chunk 0 of output of rank 2 to chunk 0 of output of rank 1 both write chunk 0 of"
        " output of rank 1, and nothing orders them; give the second a place of its own, or make"
        " it from what the first wrote"
    ),
    _stale: (
        "all_reduce: chunk 0 of scratch of rank 1 is read after the reduction of chunk 0 of input"
        " of rank 1 into chunk 0 of scratch of rank 1 overwrote it; read it earlier, or keep a copy"
        " in scratch"
    ),
    _stale_in_place: (
        "all_reduce: chunk 0 of input of rank 0 is read after the reduction of chunk 0 of input of"
        " rank 1 into chunk 0 of output of rank 0 overwrote it; read it earlier, or keep a copy in"
        " scratch; or pass in_place=False: in place both are one buffer"
    ),
}


@pytest.mark.parametrize("write", UNORDERED)
def test_writers_without_order_and_stale_reads_are_named(write: Callable[[], None]) -> None:
    with pytest.raises(ProgramError) as caught:
        write()
    assert str(caught.value) == UNORDERED[write]


def test_a_second_write_that_follows_from_the_first_is_ordered() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2)
    remote = schedule.chunk(0, INPUT, 0).copy(1, SCRATCH)
    total = remote.reduce(schedule.chunk(1, INPUT, 0))
    back = total.copy(0, SCRATCH)
    back.copy(1, SCRATCH, remote.index).copy(0, OUTPUT, 0)
    total = schedule.chunk(1, SCRATCH, remote.index)
    total.copy(1, OUTPUT, 0)
    assert verify(lower(schedule.program(), "to and fro"), slots=1).proved


def test_out_of_place_alone_input_outlives_the_output() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2, in_place=False)
    for rank in range(2):
        own, peer = (schedule.chunk(r, INPUT, 0) for r in (rank, 1 - rank))
        own.reduce(peer, OUTPUT, 0)
    assert verify(lower(schedule.program(), "exchange"), slots=1).proved


def test_in_place_alone_the_output_is_the_input() -> None:
    schedule = Schedule(Collective.ALL_GATHER, 2, out_of_place=False)
    for rank in range(2):
        schedule.chunk(rank, OUTPUT, rank).copy(1 - rank, OUTPUT, rank)
    assert verify(lower(schedule.program(), "exchange"), slots=1).proved
    with pytest.raises(ProgramError, match="chunk 1 of output of rank 0 holds nothing yet"):
        Schedule(Collective.ALL_GATHER, 2, out_of_place=False).chunk(0, OUTPUT, 1)
    with pytest.raises(ProgramError, match="chunk 0 of output of rank 1 holds nothing yet"):
        Schedule(Collective.BROADCAST, 2, out_of_place=False).chunk(1, OUTPUT, 0)


REFUSED: dict[str, Callable[[Schedule], object]] = {
    "no rank 3; ranks are 0 to 2": lambda s: s.chunk(3, INPUT, 0),
    "out of range: chunks 1 to 2 of input of rank 0, which has 2": lambda s: s.chunk(
        0, INPUT, 1, 2
    ),
    "out of range: chunk 0 of input of rank 1, which has 0": lambda s: s.chunk(1, INPUT, 0),
    "chunk 1 of output of rank 1 holds nothing yet": lambda s: s.chunk(1, OUTPUT, 1),
    "chunk 0 of scratch of rank 1 holds nothing yet": lambda s: s.chunk(1, SCRATCH, 0),
    "rank 0 would overwrite its input": lambda s: s.chunk(0, INPUT, 0).copy(0, INPUT, 1),
    "say which chunk of output of rank 1": lambda s: s.chunk(0, INPUT, 0).copy(1, OUTPUT),
    "is the caller's and is never written": lambda s: s.chunk(0, INPUT, 0).reduce(
        s.chunk(0, INPUT, 1)
    ),
    "index 1 without a buffer": lambda s: s.chunk(0, INPUT, 0).reduce(
        s.chunk(0, INPUT, 1), index=1
    ),
    "differ in length": lambda s: s.chunk(0, INPUT, 0).reduce(s.chunk(0, INPUT, 0, 2), SCRATCH),
    "channel -1; count them from 0": lambda s: s.chunk(0, INPUT, 0).copy(1, OUTPUT, 0, channel=-1),
    "0 instances; give at least one": lambda s: s.parallelize(0).__enter__(),
    "the schedule is empty": lambda s: s.program(),
    "belongs to another schedule": lambda s: (
        Schedule(Collective.BROADCAST, 3)
        .chunk(0, INPUT, 0)
        .schedule._copy(s.chunk(0, INPUT, 0), 1, OUTPUT, 0, 0)
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(said: str) -> None:
    with pytest.raises(ProgramError) as caught:
        REFUSED[said](Schedule(Collective.BROADCAST, 3, chunks=2))
    assert said.lower() in str(caught.value).lower()
    assert str(caught.value).startswith("broadcast: ")
    assert "\n" not in str(caught.value)


def test_a_schedule_must_have_a_way_to_be_called() -> None:
    with pytest.raises(ProgramError, match="in place or out of place"):
        Schedule(Collective.BROADCAST, 2, in_place=False, out_of_place=False)


@st.composite
def _random_writing(draw: st.DrawFn) -> Schedule:
    """Draw random statements; those that the language refuses are left out."""
    ranks = draw(st.integers(2, 4))
    collective = draw(st.sampled_from([Collective.CUSTOM, Collective.ALL_REDUCE]))
    in_place = collective is Collective.ALL_REDUCE
    schedule = Schedule(collective, ranks, chunks=2, in_place=in_place)
    held = [schedule.chunk(rank, INPUT, chunk) for rank in range(ranks) for chunk in range(2)]
    held.append(schedule.chunk(0, INPUT, 0, 2))
    for _ in range(draw(st.integers(1, 14))):
        source, addend = draw(st.sampled_from(held)), draw(st.sampled_from(held))
        place = draw(st.sampled_from([(SCRATCH, None), (SCRATCH, 0), (OUTPUT, 0), (OUTPUT, 1)]))
        channel = draw(st.integers(0, 1))
        with schedule.parallelize(draw(st.sampled_from([1, 1, 2, 3]))):
            target = draw(st.one_of(st.none(), st.integers(0, ranks - 1)))
            with suppress(ProgramError):
                held.append(
                    source.reduce(addend, *place, channel)
                    if target is None
                    else source.copy(target, *place, channel)
                )
    return schedule


def _in_turn(schedule: Schedule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return the output of every rank when the statements run as written."""
    program = schedule._traced
    width = inputs[0].size // program.chunks
    memory = {
        (rank, buffer): np.zeros((64 * program.chunks, width), np.int64)
        for rank in range(program.ranks)
        for buffer in (INPUT, OUTPUT, SCRATCH)
    }
    for rank, content in enumerate(inputs):
        memory[rank, INPUT][: program.chunks] = content.reshape(program.chunks, width)

    def at(chunk: Chunk) -> np.ndarray:
        return memory[chunk.rank, chunk.buffer][chunk.offset : chunk.offset + chunk.count]

    for statement in program.statements:
        value = at(statement.src).copy()
        at(statement.dst)[...] = value + at(statement.operand) if statement.operand else value
    return [memory[rank, OUTPUT][: program.chunks].reshape(-1) for rank in range(program.ranks)]


@pytest.mark.long
@given(_random_writing(), st.integers(0, 99))
def test_whatever_is_accepted_runs_without_race_as_if_in_turn(
    schedule: Schedule, seed: int
) -> None:
    try:
        program = schedule.program()
    except ProgramError:
        return
    algorithm = lower(program, "random")
    kinds = {str(defect.kind) for defect in verify(algorithm, slots=1).defects}
    assert kinds <= {"no_postcondition", "wrong_result"}, "as far as it goes"
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(1, 1000, size=2 * program.chunks) for _ in range(program.ranks)]
    right = _in_turn(schedule, inputs)
    written = {unit for s in program.statements for unit in s.dst.units() if unit.buffer is OUTPUT}
    for in_place in {False, algorithm.in_place}:
        outputs = run(algorithm, inputs, in_place=in_place, slots=1, seed=seed)
        for unit in written:
            part = slice(2 * unit.offset, 2 * unit.offset + 2)
            assert np.array_equal(outputs[unit.rank][part], right[unit.rank][part])


def test_a_local_sum_onto_the_place_of_either_summand() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2)
    arrived = [schedule.chunk(rank, INPUT, 0).copy(1 - rank, SCRATCH, 0) for rank in (1, 0)]
    arrived[0].reduce(schedule.chunk(0, INPUT, 0), OUTPUT, 0)
    arrived[1].reduce(schedule.chunk(1, INPUT, 0).copy(1, SCRATCH, 1), SCRATCH, 1).copy(
        1, OUTPUT, 0
    )
    proved(schedule.program())
    for in_place in (False, True):
        gives_right_buffers(lower(schedule.program(), "sum"), np.int64, seed=1, in_place=in_place)


def test_a_sum_that_overlaps_both_summands_is_refused() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2, chunks=3)
    schedule.chunk(0, INPUT, 0, 3).copy(1, SCRATCH, 0)
    low, high = schedule.chunk(1, SCRATCH, 0, 2), schedule.chunk(1, SCRATCH, 1, 2)
    with pytest.raises(ProgramError, match="both overlap chunks 1 to 2 of output of rank 1"):
        schedule.chunk(1, INPUT, 0, 2).reduce(schedule.chunk(1, INPUT, 1, 2), OUTPUT, 1)
    with pytest.raises(ProgramError, match="overlap; move them"):
        low.reduce(high)
    with pytest.raises(ProgramError, match="overlap; move them"):
        schedule.chunk(0, INPUT, 0, 2).reduce(low, OUTPUT, 1)
    assert len(schedule.program().statements) == 1, "what was refused left nothing behind"


def test_chunks_are_not_moved_onto_each_other() -> None:
    schedule = Schedule(Collective.ALL_REDUCE, 2, chunks=3)
    schedule.chunk(0, INPUT, 0, 3).copy(1, SCRATCH, 0)
    with pytest.raises(ProgramError, match="chunks 1 to 2 of scratch of rank 1 and chunks 0 to 1"):
        schedule.chunk(1, SCRATCH, 1, 2).copy(1, SCRATCH, 0)
    with pytest.raises(ProgramError, match="overlap; move them by way of other scratch chunks"):
        schedule.chunk(0, INPUT, 0, 2).copy(0, OUTPUT, 1)


@pytest.mark.long
@given(
    ranks=st.integers(2, 5),
    chunks=st.integers(1, 3),
    instances=st.lists(st.integers(1, 3), min_size=2, max_size=2),
)
def test_a_ring_in_any_instances_sums_exactly(
    ranks: int, chunks: int, instances: list[int]
) -> None:
    schedule = Schedule(Collective.ALL_REDUCE, ranks, chunks=ranks * chunks)
    for owner in range(ranks):
        total = schedule.chunk(owner, INPUT, owner * chunks, chunks)
        with schedule.parallelize(instances[0]):
            for hop in range(1, ranks):
                rank = (owner + hop) % ranks
                place = (SCRATCH, None) if hop < ranks - 1 else (OUTPUT, owner * chunks)
                own = schedule.chunk(rank, INPUT, owner * chunks, chunks)
                total = own.reduce(total, *place)
        with schedule.parallelize(instances[1]):
            for hop in range(ranks - 1):
                total = total.copy((owner + hop) % ranks, OUTPUT, owner * chunks, channel=1)
    algorithm = lower(schedule.program(), "ring")
    assert verify(algorithm, slots=1).describe() == "proved"
    rng = np.random.default_rng(ranks)
    inputs = [rng.integers(1, 99, size=algorithm.chunks_per_loop) for _ in range(ranks)]
    for got, want in zip(
        run(algorithm, inputs, slots=1),
        expected_outputs(Collective.ALL_REDUCE, inputs),
        strict=True,
    ):
        assert np.array_equal(got, want)
