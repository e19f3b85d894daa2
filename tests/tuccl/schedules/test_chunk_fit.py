"""Chunks that fit the size come first unless others are clearly faster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from probes.files.bench_topologies import read_bench_topology
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from synthesizer.plan.synthesize import SynthesisOptions
from synthesizer.prove.verifier import verify
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.sketches.machines import cluster
from tuccl.schedules.chunk_fit import synthesize_fitting
from tuccl.schedules.schedule_choice import Request, choose_schedule
from tuccl.schedules.schedule_files import runtime_notes

pytestmark = pytest.mark.long

MIB = 1 << 20


@pytest.fixture(scope="module")
def dgx1() -> Sketch:
    file: Path = SHARED_DATA / "bench_topologies.json"
    return sketch_candidates(read_bench_topology(file, "dgx1_8xV100").topology)[0]


@requires_shared_data
def test_a_megabyte_on_dgx1_is_cut_into_chunks_that_divide_it(dgx1: Sketch) -> None:
    choice = choose_schedule(Request(Collective.ALL_GATHER, MIB), [dgx1])
    fastest = min(choice.tried, key=lambda schedule: schedule.time_us)
    assert fastest.algorithm.chunks_per_loop == 48
    (misfit,) = fastest.misfits
    assert misfit.text.startswith("MSCCL runtimes leave 1048576 bytes to NCCL: for 48 chunks")
    assert choice.best.algorithm.chunks_per_loop == 64
    assert choice.best.misfits == ()
    assert choice.best.time_us < 1.03 * fastest.time_us
    assert verify(choice.best.algorithm).proved
    assert list(runtime_notes(choice.best.algorithm, MIB, "msccl")) == []
    (note,) = runtime_notes(fastest.algorithm, MIB, "msccl")
    assert note.startswith("an MSCCL runtime takes a schedule of 48 chunks for multiples of ")


def test_without_rules_no_chunks_are_wrong() -> None:
    sketch = replace(sketch_candidates(cluster(2, 3, 1))[0], chunking=())
    tried = choose_schedule(Request(Collective.ALL_GATHER, 1 << 17), [sketch]).tried
    assert {schedule.misfits for schedule in tried} == {()}
    assert all(schedule.weighed_us == schedule.time_us for schedule in tried)


@requires_shared_data
def test_chunks_that_win_clearly_are_taken_with_what_is_wrong_with_them(dgx1: Sketch) -> None:
    only_one = tuple(replace(chunking, counts=(1,)) for chunking in dgx1.chunking)
    choice = choose_schedule(
        Request(Collective.ALL_GATHER, MIB), [replace(dgx1, chunking=only_one)]
    )
    assert choice.best.algorithm.chunks_per_loop == 48
    assert len(choice.best.misfits) == 1
    fitting = [
        schedule
        for schedule in choice.tried
        if schedule.synthesis is not None and not schedule.misfits
    ]
    assert [schedule.algorithm.chunks_per_loop for schedule in fitting] == [8]


def test_one_synthesis_is_enough_where_chunks_fit_or_are_given() -> None:
    sketch = sketch_candidates(cluster(2, 2, 1))[0]
    for options in (SynthesisOptions(), SynthesisOptions(trees_per_rank=3)):
        found = list(synthesize_fitting(Collective.ALL_GATHER, sketch, 1 << 17, options))
        assert len(found) == 1
