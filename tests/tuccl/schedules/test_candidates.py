from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.prove.verifier import verify
from tests.sketches.machines import cluster
from tuccl.crew.pool import worker_processes
from tuccl.errors import ScheduleError
from tuccl.schedules import making
from tuccl.schedules.candidates import MADE_SHARE, Candidate, make_candidates

pytestmark = pytest.mark.long

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
    return make_candidates(Collective.ALL_REDUCE, sketches, machine, SIZES, 5.0)


def test_every_candidate_is_proved_and_promises_something(
    candidates: tuple[Candidate, ...],
) -> None:
    assert candidates
    for candidate in candidates:
        assert verify(candidate.steps).proved
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


def test_large_machines_get_rail_exchanges_without_a_search() -> None:
    large = cluster(17, 8, 8, rails_only=True)
    found = make_candidates(
        Collective.ALL_GATHER,
        sketch_candidates(large),
        whole_machine(large),
        (1 << 20,),
        5.0,
    )
    assert found
    assert {candidate.origin for candidate in found} == {"expert on pruned"}


def test_a_sketch_without_a_way_between_two_ranks_is_passed_over() -> None:
    pruned, relay, *_ = sketch_candidates(cluster(2, 2, 1))
    one_way = replace(
        relay, edges=tuple(edge for edge in relay.edges if edge.src != 1), symmetries=()
    )
    found = make_candidates(Collective.ALL_GATHER, [pruned, one_way], pruned, SIZES, 5.0)
    assert {candidate.sketch.name for candidate in found} == {"pruned"}


def test_an_expert_algorithm_that_is_wrong_stops_the_run(
    topology: Topology, sketches: tuple[Sketch, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def for_another_root(*_: object) -> tuple[Algorithm, ...]:
        algorithm, *_others = expert_algorithms(Collective.BROADCAST, sketches[0], root=1)
        return (replace(algorithm, root=0),)

    monkeypatch.setattr(making, "expert_algorithms", for_another_root)
    machine = whole_machine(topology)
    with pytest.raises(ScheduleError, match=r"broadcast_.* is wrong, "):
        make_candidates(Collective.BROADCAST, sketches[:1], machine, SIZES[:1], 5.0)


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
            5.0,
            lambda sketches, share: told.append((sketches, share)),
            workers,
        )
    assert together == candidates
    assert (told[0], told[-1]) == ((0, 0.0), (len(sketches), MADE_SHARE))
    assert told == sorted(told)
