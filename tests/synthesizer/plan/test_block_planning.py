"""Shares of trees: taken where packed trees stay below the bound, with what a rehearsal tells."""

from __future__ import annotations

import pytest

from lookup_tables.collective import Collective
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import time_bound
from synthesizer.plan.synthesize import SynthesisOptions, synthesize
from synthesizer.plan.timetabling import PlanRequest
from synthesizer.plan.tree_planning import CHUNKS, plan_blocks
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from synthesizer.solve.routes import rank_orbits
from tests.synthesizer.hand_sketches import borrowing, narrowed, switched
from tests.synthesizer.plan.test_uneven_machines import Shape

pytestmark = pytest.mark.long

SIZE_BYTES = 10**9
GATHERING = [Collective.ALL_GATHER, Collective.REDUCE_SCATTER]


def less_a_nic(topology: Topology) -> Sketch:
    """Return the full mesh of a machine without its first NIC."""
    nic = topology.nics[0].name
    left = Topology(
        name=topology.name,
        devices=tuple(device for device in topology.devices if device.name != nic),
        links=tuple(link for link in topology.links if nic not in {link.src, link.dst}),
    )
    return next(sketch for sketch in sketch_candidates(left) if sketch.name == "full_mesh")


UNEVEN = less_a_nic(Shape((4, 4), 4, "switch").topology())


@pytest.mark.parametrize("collective", GATHERING)
def test_a_machine_less_a_nic_comes_near_its_bound(collective: Collective) -> None:
    result = synthesize(collective, UNEVEN, SIZE_BYTES)
    simulated = compile_schedule(result.algorithm, UNEVEN)
    time_us = simulated.time_us(SIZE_BYTES, ExecutionModel())
    assert time_us == pytest.approx(result.timetable_us, rel=0.01)
    assert time_bound(collective, UNEVEN).time_us(SIZE_BYTES) >= 0.95 * time_us


@pytest.mark.parametrize(
    ("collective", "sketch", "share"),
    [
        # Trees of each rank alone reach 72 and 77 % at most.
        pytest.param(
            Collective.ALL_GATHER,
            narrowed(switched(2, 9, nic_gb_per_s=100.0), 0.8),
            0.78,
            id="a narrower rank",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Collective.REDUCE_SCATTER,
            borrowing(switched(2, 9, nic_gb_per_s=50.0)),
            0.88,
            id="a rank without a NIC",
        ),
    ],
)
def test_many_ranks_are_planned_as_if_one_did_not_differ(
    collective: Collective, sketch: Sketch, share: float
) -> None:
    """18 kinds of ranks."""
    options = SynthesisOptions(trees_per_rank=4, pieces_per_tree=1)
    result = synthesize(collective, sketch, 10**6, options)
    time_us = compile_schedule(result.algorithm, sketch).time_us(10**6, ExecutionModel())
    assert time_us == pytest.approx(result.timetable_us, rel=0.01)
    assert time_bound(collective, sketch).time_us(10**6) >= share * time_us


def test_more_trees_are_solved_for_where_a_plan_stays_far_from_its_bound() -> None:
    """One tree a rank takes 5.9 us, and two and three look no better before they are solved for."""
    sketch = borrowing(switched(2, 6, nic_gb_per_s=50.0))
    result = synthesize(Collective.REDUCE_SCATTER, sketch, 10**6)
    time_us = compile_schedule(result.algorithm, sketch).time_us(10**6, ExecutionModel())
    assert time_us == pytest.approx(result.timetable_us, rel=0.01)
    assert time_us < 5.4
    assert result.algorithm.chunks_per_loop == 6 * sketch.ranks


def test_where_ranks_differ_and_bytes_matter_nothing_else_is_searched() -> None:
    sketch = switched(1, 8, rotations=False)
    many, few = (synthesize(Collective.ALL_GATHER, sketch, size) for size in (SIZE_BYTES, 10_000))
    assert many.seconds["greedy"] == 0.0
    assert time_bound(Collective.ALL_GATHER, sketch).time_us(SIZE_BYTES) >= (
        0.98 * many.timetable_us
    )
    assert few.seconds["greedy"] > 0.0


def request(
    load_bound_us: float, *, pieces: int = 0, trees: tuple[int, ...] = (1, 2)
) -> PlanRequest:
    return PlanRequest(
        sketch=UNEVEN,
        backwards=False,
        orbits=rank_orbits(UNEVEN),
        block_bytes=SIZE_BYTES / UNEVEN.ranks,
        time_limit_s=1.0,
        gap=0.01,
        trees=trees,
        load_bound_us=load_bound_us,
        latency_bound_us=1.0,
        pieces=pieces,
    )


def test_nothing_is_tried_near_the_bound_or_where_bytes_do_not_matter() -> None:
    assert plan_blocks(request(1000.0), 1005.0) is None
    assert plan_blocks(request(1000.0), 2100.0) is None


def test_numbers_of_trees_and_pieces_that_are_asked_for_hold() -> None:
    least_us = time_bound(Collective.ALL_GATHER, UNEVEN).time_us(SIZE_BYTES)
    asked = plan_blocks(request(least_us, pieces=2, trees=(3,)), 1.9 * least_us)
    assert asked
    assert (asked.rehearsed.timed.per_source, asked.rehearsed.timed.pieces) == (3, 2)
    free = plan_blocks(request(least_us))
    assert free
    assert free.rehearsed.timed.per_source in CHUNKS
    assert free.rehearsed.end_us < asked.rehearsed.end_us
