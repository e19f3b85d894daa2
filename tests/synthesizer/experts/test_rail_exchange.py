"""Rail exchanges: proof, real values, shape, and folding for simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s
from synthesizer.experts import expert_algorithms
from synthesizer.experts.hierarchical import Grid, rail_grid
from synthesizer.experts.rail_exchange import COLLECTIVES, chosen_radices, rail_exchange
from synthesizer.formats.msccl_xml import read_msccl_xml, write_msccl_xml
from synthesizer.ir.algorithm import Algorithm, StepType
from synthesizer.ir.contents import input_chunks
from synthesizer.ir.msccl_limits import check_limits
from synthesizer.prove.verifier import verify
from synthesizer.simulate import simulator
from synthesizer.simulate.flattening import folded_graph, schedule_graph
from synthesizer.simulate.simulator import CompiledSchedule, ExecutionModel, compile_schedule
from tests.synthesizer.emulator import expected_outputs, run
from tests.synthesizer.hand_sketches import switched
from tuccl.errors import InfeasibleError, ScheduleError

pytestmark = pytest.mark.long


def grid_of(nodes: int, locals_: int) -> Grid:
    return tuple(tuple(range(n * locals_, (n + 1) * locals_)) for n in range(nodes))


def h100_rails(nodes: int) -> Sketch:
    return switched(nodes, 8, nvlink_gb_per_s=450.0, nic_gb_per_s=50.0, nic_alpha_us=2.1)


@given(
    collective=st.sampled_from(COLLECTIVES),
    locals_=st.integers(1, 3),
    pieces=st.integers(1, 3),
    radices=st.sampled_from([(2,), (3,), (5,), (2, 2), (3, 2), (2, 3), (2, 2, 2), (4, 2)]),
    seed=st.integers(0, 1000),
)
def test_any_shape_is_proved_and_gives_the_right_values(
    collective: Collective, locals_: int, pieces: int, radices: tuple[int, ...], seed: int
) -> None:
    nodes = int(np.prod(radices))
    order = np.random.default_rng(seed).permutation(nodes * locals_).reshape(nodes, locals_)
    grid = tuple(tuple(row) for row in order.tolist())
    a = rail_exchange(collective, grid, pieces, radices)
    assert verify(a, slots=1).describe() == "proved"
    size = input_chunks(collective, a.ranks, a.chunks_per_loop) * 2
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(0, 1 << 40, size=size) for _ in range(a.ranks)]
    wanted = expected_outputs(collective, inputs)
    for in_place in (True, False):
        outputs = run(a, inputs, in_place=in_place, slots=1, seed=seed)
        assert all(np.array_equal(got, want) for got, want in zip(outputs, wanted, strict=True))


def _bytes_sent(a: Algorithm, sketch: Sketch, *, across: bool) -> set[int]:
    """Return the numbers of chunks that ranks send to other nodes, or within their own."""
    node = sketch.node_of_rank
    return {
        sum(
            step.count
            for block in gpu.threadblocks
            if block.send_peer >= 0 and (node[block.send_peer] != node[gpu.rank]) is across
            for step in block.steps
            if step.type.sends
        )
        for gpu in a.programs
    }


def test_every_nic_carries_each_block_of_its_rail_once() -> None:
    """8 nodes, 16 pieces: 7 * 16 to other nodes; inside, 7 peers get the blocks of 8 nodes."""
    sketch = h100_rails(8)
    gather = rail_exchange(Collective.ALL_GATHER, grid_of(8, 8))
    both = rail_exchange(Collective.ALL_REDUCE, grid_of(8, 8))
    assert _bytes_sent(gather, sketch, across=True) == {7 * 16}
    assert _bytes_sent(gather, sketch, across=False) == {7 * 8 * 16}
    assert _bytes_sent(both, sketch, across=True) == {2 * 7 * 16}


@pytest.mark.parametrize(
    "collective",
    [Collective.ALL_GATHER, pytest.param(Collective.ALL_REDUCE, marks=pytest.mark.slow)],
)
def test_sixteen_nodes_reach_the_bound(collective: Collective) -> None:
    sketch = h100_rails(16)
    grid = rail_grid(sketch)
    assert grid is not None
    a = rail_exchange(collective, grid)
    assert verify(a, slots=1).proved
    compiled = compile_schedule(a, sketch)
    bound = algbw_bound_gb_per_s(collective, sketch)
    for size, in_turn, fair in ((10**9, 0.99, 0.9), (64 * 10**6, 0.95, 0.89)):
        times = compiled.times(size, ExecutionModel())
        assert size * 1e-3 / times.in_turn_us > in_turn * bound
        assert size * 1e-3 / times.fair_us > fair * bound


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collective", "fair"), [(Collective.ALL_GATHER, 0.95), (Collective.ALL_REDUCE, 0.97)]
)
def test_a_thousand_gpus_reach_the_bound(collective: Collective, fair: float) -> None:
    sketch = h100_rails(128)
    (a,) = expert_algorithms(collective, sketch)
    assert a.ranks == 1024
    assert verify(a, slots=1).proved
    bound = algbw_bound_gb_per_s(collective, sketch)
    times = compile_schedule(a, sketch).times(10**9, ExecutionModel())
    assert 1e6 / times.in_turn_us > 0.99 * bound
    assert 1e6 / times.fair_us > fair * bound


def test_many_ranks_get_rail_exchanges_alone() -> None:
    sketch = switched(24, 3)
    found = expert_algorithms(Collective.REDUCE_SCATTER, sketch)
    assert [a.name for a in found] == [
        "reduce_scatter_rails_6x4_1c",
        "reduce_scatter_rails_6x4_5c",
    ]
    assert all(verify(a, slots=1).proved for a in found)


@pytest.mark.slow
def test_schedules_for_a_thousand_ranks_would_load() -> None:
    """One rank of 128 x 8: 22 + 7 peers each way, 128 steps each for RS and AG on its widest."""
    a = rail_exchange(Collective.ALL_REDUCE, grid_of(128, 8))
    first = replace(a, programs=a.programs[:1])
    assert a.name == "all_reduce_rails_16x8_1c"
    assert len(first.programs[0].threadblocks) == 2 * (15 + 7 + 7)
    assert check_limits(first) == ()


def test_schedules_survive_xml() -> None:
    a = rail_exchange(Collective.REDUCE_SCATTER, grid_of(4, 2), 2, (2, 2))
    assert verify(read_msccl_xml(write_msccl_xml(a)), slots=1).proved


@pytest.mark.parametrize(("nodes", "radices"), [(2, (2,)), (16, (16,)), (17, (17,)), (24, (6, 4))])
def test_radices(nodes: int, radices: tuple[int, ...]) -> None:
    assert chosen_radices(nodes) == radices


@pytest.mark.parametrize(
    ("collective", "grid", "radices"),
    [
        (Collective.BROADCAST, grid_of(2, 2), None),
        (Collective.ALL_GATHER, grid_of(1, 8), None),
        (Collective.ALL_GATHER, ((0, 1), (2,)), None),
        (Collective.ALL_GATHER, ((0, 1), (1, 2)), None),
        (Collective.ALL_GATHER, grid_of(4, 2), (2, 3)),
        (Collective.ALL_GATHER, grid_of(4, 2), (4, 1)),
    ],
)
def test_what_does_not_fit_is_said(
    collective: Collective, grid: Grid, radices: tuple[int, ...] | None
) -> None:
    with pytest.raises(InfeasibleError):
        rail_exchange(collective, grid, 1, radices)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("nodes", [2, 4, 6])
def test_one_rank_in_place_of_all_takes_the_same_time(collective: Collective, nodes: int) -> None:
    sketch = switched(nodes, 4, nvlink_gb_per_s=450.0, nic_gb_per_s=50.0)
    a = rail_exchange(collective, grid_of(nodes, 4), 4)
    folded, whole = folded_graph(a, sketch), schedule_graph(a, sketch)
    assert folded is not None
    assert len(folded.names) * nodes * 4 == len(whole.names)
    for size in (10**6, 10**9):
        for model in (ExecutionModel(), ExecutionModel(0.5, 40.0, slot_bytes=1 << 20)):
            folded_us, whole_us = (
                CompiledSchedule(graph, a.chunks_per_loop).time_us(size, model)
                for graph in (folded, whole)
            )
            assert folded_us == pytest.approx(whole_us, rel=0.02)


@pytest.mark.parametrize(("nodes", "locals_"), [(2, 2), (2, 4), (4, 2)])
def test_folded_or_not_as_many_tiles_are_simulated(
    monkeypatch: pytest.MonkeyPatch, nodes: int, locals_: int
) -> None:
    """With long latencies and small slots, FIFOs fill only after a dozen tiles."""
    sketch = switched(nodes, locals_, nvlink_gb_per_s=450.0, nic_gb_per_s=50.0, nic_alpha_us=50.0)
    a = rail_exchange(Collective.ALL_GATHER, grid_of(nodes, locals_), 4)
    model = ExecutionModel(0.5, 40.0, slot_bytes=1 << 16)
    whole_us = compile_schedule(a, sketch).time_us(10**9, model)
    monkeypatch.setattr(simulator, "_FOLDED_STEPS", 1)
    assert compile_schedule(a, sketch).time_us(10**9, model) == pytest.approx(whole_us, rel=1e-6)


def test_ranks_are_folded_only_when_schedule_and_figures_are_alike() -> None:
    sketch = switched(4, 2)
    a = rail_exchange(Collective.ALL_GATHER, grid_of(4, 2), 1)
    assert folded_graph(a, sketch) is not None
    assert folded_graph(a, replace(sketch, symmetries=())) is None
    slower = replace(sketch.ports[0], bandwidth_gb_per_s=sketch.ports[0].bandwidth_gb_per_s * 0.97)
    assert folded_graph(a, replace(sketch, ports=(slower, *sketch.ports[1:]))) is None
    block = a.programs[0].threadblocks[0]
    steps = (replace(block.steps[0], type=StepType.NOP, depends=None), *block.steps)
    uneven = replace(
        a.programs[0], threadblocks=(replace(block, steps=steps), *a.programs[0].threadblocks[1:])
    )
    assert folded_graph(replace(a, programs=(uneven, *a.programs[1:])), sketch) is None


def test_a_port_of_two_ranks_that_are_alike_keeps_both_apart() -> None:
    """Two GPUs share a NIC; folded onto one, each would have it alone."""
    sketch = switched(2, 2)
    owner = {"nic1/out": "nic0/out", "nic1/in": "nic0/in", "nic3/out": "nic2/out"}
    owner["nic3/in"] = "nic2/in"
    edges = tuple(
        replace(edge, ports=tuple(owner.get(port, port) for port in edge.ports))
        for edge in sketch.edges
    )
    shared = replace(sketch, edges=edges)
    a = rail_exchange(Collective.ALL_GATHER, grid_of(2, 2), 1)
    assert folded_graph(a, shared) is None


def test_large_schedules_are_folded_and_broken_ones_still_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulator, "_FOLDED_STEPS", 1)
    sketch = switched(4, 2)
    a = rail_exchange(Collective.ALL_GATHER, grid_of(4, 2), 1)
    assert compile_schedule(a, sketch).time_us(10**6, ExecutionModel()) > 0
    block = a.programs[0].threadblocks[0]
    short = replace(a.programs[0], threadblocks=(replace(block, steps=()),))
    with pytest.raises(ScheduleError):
        compile_schedule(replace(a, programs=(short, *a.programs[1:])), sketch)


def test_numbers_beyond_64_bits_are_refused() -> None:
    sketch = switched(4, 2)
    a = rail_exchange(Collective.ALL_GATHER, grid_of(4, 2), 1)
    block = a.programs[0].threadblocks[0]
    far = replace(block.steps[0], src=replace(block.steps[0].src, offset=1 << 70))
    blocks = (replace(block, steps=(far, *block.steps[1:])), *a.programs[0].threadblocks[1:])
    changed = replace(a, programs=(replace(a.programs[0], threadblocks=blocks), *a.programs[1:]))
    assert folded_graph(changed, sketch) is None
    with pytest.raises(ScheduleError):
        compile_schedule(changed, sketch)
