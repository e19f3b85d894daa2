from pathlib import Path

import pytest

from probes.files.read import read_topology
from probes.files.shipped import shipped_machines
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from synthesizer.ir.collectives import Collective
from synthesizer.plan.synthesize import SynthesisOptions
from synthesizer.prove.verifier import verify
from tests.sketches.machines import cluster
from tuccl.errors import WorkspaceError
from tuccl.processes.workers import worker_processes
from tuccl.schedules.candidates import (
    MADE_SHARE,
    Candidate,
    load_candidates,
    make_candidates,
    save_candidates,
)

SIZES = (1 << 10, 1 << 20, 1 << 28)


@pytest.fixture(scope="module")
def topology() -> Topology:
    return read_topology(shipped_machines()["h200-4gpu"])


@pytest.fixture(scope="module")
def sketches(topology: Topology) -> tuple[Sketch, ...]:
    return sketch_candidates(topology)


@pytest.fixture(scope="module")
def candidates(topology: Topology, sketches: tuple[Sketch, ...]) -> tuple[Candidate, ...]:
    machine = whole_machine(topology)
    return make_candidates(Collective.ALL_REDUCE, sketches, machine, SIZES, SynthesisOptions())


def test_every_candidate_is_proved_and_promises_something(
    candidates: tuple[Candidate, ...],
) -> None:
    assert candidates
    for candidate in candidates:
        assert verify(candidate.algorithm).proved
        assert candidate.promises
        assert {promise.size_bytes for promise in candidate.promises} <= set(SIZES)


def test_no_schedule_beats_the_bound_and_large_sizes_come_near_it(
    candidates: tuple[Candidate, ...],
) -> None:
    promises = [promise for candidate in candidates for promise in candidate.promises]
    assert all(0.0 < promise.ratio <= 1.0 + 1e-9 for promise in promises)
    assert max(promise.ratio for promise in promises if promise.size_bytes == SIZES[-1]) > 0.95


def test_every_size_has_a_candidate_and_few_of_them(candidates: tuple[Candidate, ...]) -> None:
    for size_bytes in SIZES:
        promising = [c for c in candidates if c.promises_for(size_bytes)]
        assert 1 <= len(promising) <= 3


def test_no_schedule_stands_twice(candidates: tuple[Candidate, ...]) -> None:
    hashes = [candidate.content_hash for candidate in candidates]
    assert len(hashes) == len(set(hashes))


def test_saved_candidates_are_read_back_equal(
    candidates: tuple[Candidate, ...], sketches: tuple[Sketch, ...], tmp_path: Path
) -> None:
    save_candidates(tmp_path, candidates)
    assert load_candidates(tmp_path, sketches) == candidates


def test_without_an_index_there_are_none_yet(
    candidates: tuple[Candidate, ...], sketches: tuple[Sketch, ...], tmp_path: Path
) -> None:
    save_candidates(tmp_path, candidates)
    (tmp_path / "index.json").unlink()
    assert load_candidates(tmp_path, sketches) is None


def test_a_changed_schedule_file_is_refused(
    candidates: tuple[Candidate, ...], sketches: tuple[Sketch, ...], tmp_path: Path
) -> None:
    save_candidates(tmp_path, candidates)
    path = tmp_path / f"{candidates[0].content_hash}.xml"
    path.write_text(path.read_text().replace('srcoff="0"', 'srcoff="1"', 1))
    with pytest.raises(WorkspaceError, match="was changed"):
        load_candidates(tmp_path, sketches)


@pytest.mark.parametrize("index", ["", "[]", '{"version": 9}', '{"version": 1}', "[" * 100_000])
def test_a_damaged_index_is_refused(
    sketches: tuple[Sketch, ...], tmp_path: Path, index: str
) -> None:
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(WorkspaceError, match=r"index\.json"):
        load_candidates(tmp_path, sketches)


def test_large_machines_get_rail_exchanges_without_a_search() -> None:
    large = cluster(17, 8, 8, rails_only=True)
    found = make_candidates(
        Collective.ALL_GATHER,
        sketch_candidates(large),
        whole_machine(large),
        (1 << 20,),
        SynthesisOptions(),
    )
    assert found
    assert {candidate.origin for candidate in found} == {"expert on pruned"}


def test_candidates_do_not_depend_on_the_number_of_workers(
    topology: Topology, sketches: tuple[Sketch, ...], candidates: tuple[Candidate, ...]
) -> None:
    machine = whole_machine(topology)
    told: list[tuple[int, float]] = []
    with worker_processes(2) as workers:
        together = make_candidates(
            Collective.ALL_REDUCE,
            sketches,
            machine,
            SIZES,
            SynthesisOptions(),
            lambda sketches, share: told.append((sketches, share)),
            workers,
        )
    assert together == candidates
    assert (told[0], told[-1]) == ((0, 0.0), (len(sketches), MADE_SHARE))
    assert told == sorted(told)
