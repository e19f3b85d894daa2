"""Classes that NCCL's own estimates tell apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.topology.graph import Topology
from tests.sketches.machines import cluster, hybrid_mesh, two_sockets
from tuccl.measuring.backends.simulated import SimulatedBackend
from tuccl.models.placements import PlacementClass, placements
from tuccl.search.trials.config import Task
from tuccl.tuning.placing.seen import SeenClass, placed_tasks, seen_classes

PAIRS, RAILS = Shape(2, 1, 2), Shape(2, 2, 1)
OPERATIONS = (Collective.ALL_REDUCE, Collective.ALL_GATHER)


def seen(machine: Topology, shape: Shape) -> tuple[SeenClass, ...]:
    backend = SimulatedBackend(machine, {}, seed=0, spread=0.0)
    classes = placements(machine, shape)
    return seen_classes(shape, classes, OPERATIONS, lambda task: ring_us(backend, task))


def ring_us(backend: SimulatedBackend, task: Task) -> float | None:
    table = backend.cost_table(task)
    return None if table is None else table.ring_us


@pytest.mark.parametrize("machine", [hybrid_mesh(), two_sockets(8)])
def test_classes_of_other_bandwidths_are_told_apart_by_their_slopes(machine: Topology) -> None:
    slow, fast = sorted(seen(machine, PAIRS), key=lambda own: -own.lines[0][1].us_per_byte)
    assert [operation for operation, _ in slow.lines] == [
        Collective.ALL_GATHER,
        Collective.ALL_REDUCE,
    ]
    for (_, a), (_, b) in zip(slow.lines, fast.lines, strict=True):
        assert a.us_per_byte > 1.5 * b.us_per_byte
    assert {own.classes[0] for own in (slow, fast)} == set(placements(machine, PAIRS))


def test_a_line_gives_the_estimates_of_other_sizes() -> None:
    machine = hybrid_mesh()
    backend = SimulatedBackend(machine, {}, seed=0, spread=0.0)
    for own in seen(machine, PAIRS):
        for operation, line in own.lines:
            for size in (1 << 10, 1 << 16, 1 << 30):
                task = Task(operation, size, PAIRS, own.placement)
                assert line.at(size) == pytest.approx(ring_us(backend, task), rel=1e-3)


def test_what_siblings_share_is_not_seen() -> None:
    assert seen(cluster(2, 4, 3), RAILS) == ()


def test_an_even_machine_has_nothing_to_tell_apart() -> None:
    assert seen(cluster(1, 8, 8), PAIRS) == ()


def test_classes_of_close_slopes_are_one() -> None:
    classes = placements(two_sockets(8), PAIRS)

    def estimate(factor: float) -> Callable[[Task], float]:
        def of_task(task: Task) -> float:
            slower = factor if task.placement == classes[1].placement else 1.0
            return 10.0 + slower * 1e-4 * task.size_bytes

        return of_task

    assert seen_classes(PAIRS, classes, OPERATIONS, estimate(1.04)) == ()
    assert len(seen_classes(PAIRS, classes, OPERATIONS, estimate(1.2))) == 2


@pytest.mark.parametrize("told", [None, 0.0])
def test_without_estimates_nothing_is_told_apart(told: float | None) -> None:
    classes: tuple[PlacementClass, ...] = placements(two_sockets(8), PAIRS)
    assert seen_classes(PAIRS, classes, OPERATIONS, lambda _: told) == ()
    assert seen_classes(PAIRS, classes, (Collective.ALLTOALL,), lambda _: 1.0) == ()


def test_keys_are_tuned_for_each_class_but_those_that_nccl_asks_no_tuner_about() -> None:
    own = seen(two_sockets(8), PAIRS)
    tasks = [Task(each, 1024, PAIRS) for each in (Collective.ALL_REDUCE, Collective.ALLTOALL)]
    tasks.append(Task(Collective.ALL_REDUCE, 1024, Shape(8, 1, 8)))
    assert placed_tasks(tasks, {PAIRS: own}) == tuple(
        Task(Collective.ALL_REDUCE, 1024, PAIRS, each.placement) for each in own
    )
