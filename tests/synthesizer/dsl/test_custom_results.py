"""Custom operations: their authors state the result, and the verifier proves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from synthesizer.dsl import INPUT, OUTPUT, SCRATCH, Schedule
from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.contents import Sum
from synthesizer.lower.lowering import lower
from synthesizer.prove.defects import DefectKind
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, simulate
from tests.synthesizer.emulator import run
from tests.synthesizer.hand_sketches import switched
from tuccl.errors import FormatError, ProgramError

RANKS = 4


def _scatter() -> Schedule:
    """Chunk r of rank 0 becomes output chunk 0 of rank r."""
    schedule = Schedule(Collective.CUSTOM, RANKS, chunks=RANKS, in_place=False)
    for rank in range(RANKS):
        schedule.chunk(0, INPUT, rank).copy(rank, OUTPUT, 0)
        schedule.expect(rank, 0, chunk=rank, of=[0])
    return schedule


def _gather() -> Schedule:
    """Chunk r of every rank r becomes output chunk r of rank 0, over rank 1 from ranks 2 and 3."""
    schedule = Schedule(Collective.CUSTOM, RANKS, chunks=RANKS, in_place=False)
    for rank in range(RANKS):
        held = schedule.chunk(rank, INPUT, rank)
        if rank > 1:
            held = held.copy(1, SCRATCH, rank)
        held.copy(0, OUTPUT, rank)
        schedule.expect(0, rank, chunk=rank, of=[rank])
    return schedule


def _neighbour_sums() -> Schedule:
    """Every rank gets the sum of both neighbours on a ring, in two instances."""
    schedule = Schedule(Collective.CUSTOM, RANKS, chunks=2, in_place=False)
    with schedule.parallelize(2):
        for rank in range(RANKS):
            left, right = (rank - 1) % RANKS, (rank + 1) % RANKS
            total = schedule.chunk(left, INPUT, 0, 2).copy(rank, OUTPUT, 0)
            total.reduce(schedule.chunk(right, INPUT, 0, 2))
            schedule.expect(rank, 0, chunk=0, of=[left, right], count=2)
    return schedule


def _lowered(schedule: Schedule) -> Algorithm:
    return lower(schedule.program(), "custom")


@pytest.mark.parametrize("write", [_scatter, _gather, _neighbour_sums])
def test_a_stated_result_is_proved_simulated_and_what_the_buffers_hold(
    write: Callable[[], Schedule],
) -> None:
    algorithm = _lowered(write())
    assert verify(algorithm, slots=1).describe() == "proved"
    again = read_msccl_xml(write_msccl_xml(algorithm), "again.xml")
    assert again == algorithm
    assert simulate(again, switched(1, RANKS), 1 << 20, ExecutionModel()).worse_us > 0
    width = 3
    rng = np.random.default_rng(1)
    shape = (algorithm.programs[0].input_chunks, width)
    inputs = [rng.integers(1, 99, size=shape) for _ in range(RANKS)]
    outputs = run(again, [content.reshape(-1) for content in inputs], slots=1)
    for got, stated in zip(outputs, again.results, strict=True):
        for place, total in enumerate(stated):
            if total is not None:
                summands = [
                    inputs[rank][total.chunk] for rank in range(RANKS) if total.ranks >> rank & 1
                ]
                assert np.array_equal(got.reshape(-1, width)[place], sum(summands))


def test_every_chunk_of_every_instance_must_hold_its_own() -> None:
    assert _lowered(_neighbour_sums()).results[0] == tuple(Sum(chunk, 0b1010) for chunk in range(4))


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (Sum(1, 0b1), "result chunk 0 holds chunk 2 of rank 0, must hold chunk 1 of rank 0"),
        (Sum(2, 0b10), "result chunk 0 holds chunk 2 of rank 0, must hold chunk 2 of rank 1"),
        (Sum(2, 0b11), "result chunk 0 holds chunk 2 of rank 0, must hold chunk 2 of rank 0-1"),
    ],
)
def test_another_result_than_the_stated_one_is_named(stated: Sum, said: str) -> None:
    right = _lowered(_scatter())
    wrong = replace(right, results=(*right.results[:2], (stated,), *right.results[3:]))
    (defect,) = verify(wrong).defects
    assert (defect.kind, defect.rank, defect.message) == (DefectKind.WRONG_RESULT, 2, said)


def test_a_chunk_that_nothing_writes_is_a_wrong_result() -> None:
    schedule = _scatter()
    schedule.expect(1, 3, chunk=0, of=[0])
    (defect,) = verify(_lowered(schedule)).defects
    assert defect.message == "result chunk 3 holds nothing, must hold chunk 0 of rank 0"


def test_without_a_stated_result_nothing_is_proved() -> None:
    schedule = Schedule(Collective.CUSTOM, 2, in_place=False)
    schedule.chunk(0, INPUT, 0).copy(1, OUTPUT, 0)
    algorithm = _lowered(schedule)
    for results in ((), ((), (None,))):
        (defect,) = verify(replace(algorithm, results=results)).defects
        assert defect.kind is DefectKind.NO_POSTCONDITION
    assert "<result" not in write_msccl_xml(algorithm)


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (((Sum(0, 1),),), "states results of 1 ranks, has 4"),
        (((), (), (Sum(0, 1),) * 5, ()), "states 5 result chunks, its output has 4"),
        (((), (), (Sum(0, 0),), ()), "states a result of ranks that are none of 4"),
        (((), (), (Sum(0, 1 << 4),), ()), "states a result of ranks that are none of 4"),
    ],
)
def test_a_result_that_no_schedule_can_have_is_a_defect(
    results: tuple[tuple[Sum | None, ...], ...], said: str
) -> None:
    (defect,) = verify(replace(_lowered(_scatter()), results=results)).defects
    assert (defect.kind, defect.message) == (DefectKind.STRUCTURE, said)


def test_the_result_of_a_known_operation_is_not_stated() -> None:
    with pytest.raises(ProgramError, match="broadcast: its result is known"):
        Schedule(Collective.BROADCAST, 2).expect(1, 0, chunk=0, of=[0])
    text = write_msccl_xml(_lowered(_scatter())).replace('coll="custom"', 'coll="allreduce"')
    with pytest.raises(FormatError, match="and the result of allreduce is known"):
        read_msccl_xml(text)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (lambda s: s.expect(4, 0, chunk=0, of=[0]), "no rank 4"),
        (lambda s: s.expect(0, 4, chunk=0, of=[0]), "chunk 4 of output of rank 0, which has 4"),
        (lambda s: s.expect(0, 1, chunk=3, of=[1], count=2), "chunks 3 to 4 of input of rank 1"),
        (lambda s: s.expect(0, 1, chunk=0, of=[]), "ranks []; name one or more, each once"),
        (lambda s: s.expect(0, 1, chunk=0, of=[2, 2]), "ranks [2, 2]; name one or more, each once"),
        (lambda s: s.expect(0, 0, chunk=1, of=[1]), "chunk 0 of output of rank 0 is stated twice"),
    ],
)
def test_what_cannot_be_stated_is_refused(state: Callable[[Schedule], None], said: str) -> None:
    with pytest.raises(ProgramError) as caught:
        state(_scatter())
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ('<result off="4" cnt="1" chunk="0" ranks="1"/>', "is outside the 4 output chunks"),
        ('<result off="1" cnt="0" chunk="0" ranks="1"/>', "is outside the 4 output chunks"),
        ('<result off="1" cnt="1" chunk="-1" ranks="1"/>', "is outside the 4 output chunks"),
        ('<result off="0" cnt="2" chunk="0" ranks="1"/>', "states output chunk 0 again"),
        ('<result off="1" cnt="1" chunk="0" ranks="0-3"/>', "ranks='0-3', must be hexadecimal"),
        ('<result off="1" cnt="1" chunk="0"/>', "has no attribute 'ranks'"),
    ],
)
def test_a_damaged_result_in_a_file_is_named_with_its_line(element: str, said: str) -> None:
    lines = write_msccl_xml(_lowered(_scatter())).splitlines()
    at = next(number for number, line in enumerate(lines) if "<result" in line)
    lines.insert(at + 1, element)
    with pytest.raises(FormatError) as caught:
        read_msccl_xml("\n".join(lines), "file.xml")
    assert str(caught.value).startswith(f"file.xml:{at + 2}: <result> ")
    assert said in str(caught.value)


@given(
    st.lists(
        st.one_of(st.none(), st.builds(Sum, st.integers(0, 3), st.integers(1, 15))), max_size=4
    )
)
def test_any_result_returns_from_a_file(stated: list[Sum | None]) -> None:
    algorithm = _lowered(_scatter())
    while stated and stated[-1] is None:
        stated.pop()
    written = replace(algorithm, results=(tuple(stated), *algorithm.results[1:]))
    assert read_msccl_xml(write_msccl_xml(written)).results == written.results
