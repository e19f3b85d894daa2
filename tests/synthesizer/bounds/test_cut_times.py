"""Bounds of cuts, by hand, against all timetables of tiny machines, and against schedules."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import COLLECTIVES, Collective
from sketches.sketch import Edge, EdgeKind, Port, Sketch
from sketches.symmetry import find_symmetries
from synthesizer.bounds.cut_times import cut_times, time_between_nodes
from synthesizer.bounds.time_bounds import (
    algbw_bound_gb_per_s,
    latency_bound_us,
    time_bound,
)
from synthesizer.plan.synthesize import SynthesisOptions, synthesize
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.synthesizer.hand_sketches import owned_links, switched

pytestmark = pytest.mark.long

ALPHAS_US = st.sampled_from([0.25, 0.75, 2.0])
SPEEDS_GB_PER_S = st.sampled_from([10.0, 25.0, 50.0])
WIRES_ALONE = ExecutionModel(fifo_slots=1 << 20)


def _sketch(edges: list[Edge], nodes: tuple[int, ...], ports: tuple[Port, ...] = ()) -> Sketch:
    by_pair = tuple(sorted(edges, key=lambda edge: (edge.src, edge.dst)))
    return Sketch("random", "made up", node_of_rank=nodes, edges=by_pair, ports=ports)


def _bridge() -> Sketch:
    """Return two nodes of two GPUs with one link each way between them: 0 to 2 and 3 to 1."""
    inside = [Edge(a, b, EdgeKind.NVLINK, 0.5, 50.0) for a, b in ((0, 1), (1, 0), (2, 3), (3, 2))]
    between = [Edge(a, b, EdgeKind.NETWORK, 2.0, 10.0) for a, b in ((0, 2), (3, 1))]
    return _sketch([*inside, *between], (0, 0, 1, 1))


def test_hops_before_and_after_a_bridge_count() -> None:
    # Each rank has one byte of a buffer of 4, which takes 0.1 ns on a link.
    found = cut_times(Collective.ALL_GATHER, _bridge(), [frozenset({0, 1})])
    expected = [
        (2.0, 4e-4),  # twice each, because rank 2 has no time to pass them on
        (2.5, 2e-4),  # the byte of rank 1, twice
        (2.5, 2e-4),
        (3.0, 1e-4),  # the byte of rank 1, to rank 3
    ]
    times = sorted((cut.alphas_us, cut.time_us(4) - cut.alphas_us) for cut in found)
    assert [alphas_us for alphas_us, _ in times] == [alphas_us for alphas_us, _ in expected]
    assert [bytes_us for _, bytes_us in times] == pytest.approx(
        [bytes_us for _, bytes_us in expected]
    )


@pytest.mark.parametrize(
    ("collective", "alphas_us", "shares"),
    [
        # Both shares that cross must also reach the rank without a link into the node.
        (Collective.ALL_GATHER, 2.5, 2),
        # Both shares include the contribution of the rank without a link out of the node.
        (Collective.REDUCE_SCATTER, 2.5, 2),
        (Collective.ALLTOALL, 2.0, 4),
        (Collective.ALL_REDUCE, 3.0, 4),
        # The root 0 owns the link out of its node, and none leads to it.
        (Collective.BROADCAST, 2.5, 4),
        (Collective.REDUCE, 3.0, 4),
    ],
)
def test_the_time_of_a_large_size_over_a_bridge(
    collective: Collective, alphas_us: float, shares: int
) -> None:
    expected = alphas_us + 10**9 / 4 * shares * 1e-4
    found = max(
        bound.time_us(10**9)
        for bound in cut_times(collective, _bridge(), [frozenset({0, 1}), frozenset({2, 3})])
    )
    assert found == pytest.approx(expected, rel=1e-9)


def test_where_te_ccl_publishes_alltoall_on_ndv2_the_bound_is_the_network_link() -> None:
    """One GPU of eight owns the link out: 64 blocks of 4 kB at 12.5 GB/s, then its alpha."""
    inside = [
        Edge(8 * node + a, 8 * node + b, EdgeKind.NVLINK, 0.7, 50.0)
        for node in range(2)
        for a, b in permutations(range(8), 2)
    ]
    between = [Edge(a, b, EdgeKind.NETWORK, 1.3, 12.5) for a, b in ((0, 9), (8, 1))]
    sketch = _sketch([*inside, *between], (0,) * 8 + (1,) * 8)
    bound = time_bound(Collective.ALLTOALL, sketch)
    assert bound.time_us(64_000) == pytest.approx(20.48 + 1.3)
    # For small blocks, those between the seven other GPUs of each node arrive last.
    assert bound.time_us(1_000) == pytest.approx(0.7 + 49 * 62.5e-3 / 12.5 + 1.3 + 0.7)


@pytest.mark.parametrize(
    ("size_bytes", "expected_us"),
    [
        # Eight even GPUs have no link out, odd ones none in: two NVLink hops, one over 8 links.
        (1_000, 0.7 + 2.6 + 0.7 + 8 * 31.25e-3 / 100),
        (64_000, 4.0 + 8 * 2.0 / 100),
        # 31 blocks through the port of one GPU.
        (64_000_000, 0.7 + 31 * 2000 / 125),
    ],
)
def test_all_gather_over_links_that_few_gpus_own(size_bytes: int, expected_us: float) -> None:
    bound_us = time_bound(Collective.ALL_GATHER, owned_links(16)).time_us(size_bytes)
    assert bound_us == pytest.approx(expected_us)
    without = replace(owned_links(16), symmetries=())
    assert time_bound(Collective.ALL_GATHER, without).time_us(size_bytes) == pytest.approx(
        expected_us
    )


@pytest.mark.parametrize(
    ("collective", "size_bytes", "expected_us"),
    [
        # The last 0.7 us before the last arrivals bring a byte to one of seven ranks at a time.
        (Collective.BROADCAST, 10**6, 10**6 / 300e3 + 0.7 + 0.7 * 6 / 7),
        (Collective.REDUCE, 10**6, 10**6 / 300e3 + 0.7 + 0.7 * 6 / 7),
        # All bytes go in that time: seven times through the port of the root.
        (Collective.BROADCAST, 10**4, 7 * 10**4 / 300e3 + 0.7),
        (Collective.REDUCE, 10**4, 7 * 10**4 / 300e3 + 0.7),
    ],
)
def test_late_bytes_are_not_passed_on_by_a_switched_rank(
    collective: Collective, size_bytes: int, expected_us: float
) -> None:
    bound = time_bound(collective, switched(1, 8))
    assert bound.time_us(size_bytes) == pytest.approx(expected_us)


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE])
def test_a_root_has_its_own_nic_alone_until_others_have_its_bytes(collective: Collective) -> None:
    """Eight NICs of 25 GB/s, of which the root has one, and eight receivers behind them."""
    cuts = cut_times(collective, switched(2, 8), [frozenset(range(8)), frozenset(range(8, 16))])
    found_us = max(cut.time_us(10**6) for cut in cuts)
    assert found_us == pytest.approx(5 + 1.7 + 0.7 * 7 / 8 + 0.7 * 7 / 8)


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE])
def test_late_bytes_reach_few_of_the_other_nodes(collective: Collective) -> None:
    """One rank of three nodes, in 0.7 us its node, then two more of its rail, in the end all."""
    cuts = cut_times(collective, switched(4, 8), [frozenset(range(8)), frozenset(range(8, 32))])
    found_us = max(cut.time_us(10**6) for cut in cuts)
    lost_us = 0.7 * 23 / 24 + 1.0 * 16 / 24 + 0.7 * 14 / 24
    assert found_us == pytest.approx(5 + 1.7 + 0.7 * 7 / 8 + lost_us)


def test_all_messages_between_nodes_take_their_time() -> None:
    """Six of the buffer's size over 32 NICs of 25 GB/s, of two ninths of use for 0.7 us at a time.

    A sum of one of eight ranks and a result for all of them count 2 / (8 + 1).
    """
    bound = time_between_nodes(switched(4, 8))
    assert bound is not None
    assert bound.time_us(10**6) == pytest.approx(7.5 + 1.7 + 2 * 0.7 * 7 / 9)
    assert bound.time_us(10**4) == pytest.approx(0.075 * 9 / 2 + 1.7)
    assert time_bound(Collective.ALL_REDUCE, switched(4, 8)).time_us(10**6) == bound.time_us(10**6)


def test_messages_between_nodes_count_alike_where_some_take_longer() -> None:
    """What is sent first may arrive last, so that a result may be sent before the sum is whole."""
    sketch = switched(4, 8)
    later = tuple(
        replace(edge, alpha_us=2.0) if (edge.src, edge.dst) == (0, 8) else edge
        for edge in sketch.edges
    )
    bound = time_between_nodes(replace(sketch, edges=later, symmetries=()))
    assert bound is not None
    assert bound.time_us(10**6) == pytest.approx(7.5 + 1.7)
    assert time_between_nodes(switched(1, 8)) is None


@pytest.mark.parametrize(("nodes", "trees"), [(3, 0), (4, 2)])
def test_no_all_reduce_over_several_nodes_beats_the_bound(nodes: int, trees: int) -> None:
    sketch = switched(nodes, 2)
    options = SynthesisOptions(time_limit_s=0.1, gap=0.1, trees_per_rank=trees)
    algorithm = synthesize(Collective.ALL_REDUCE, sketch, 1 << 17, options).algorithm
    compiled = compile_schedule(algorithm, sketch)
    bound = time_bound(Collective.ALL_REDUCE, sketch)
    for size in (1 << 10, 1 << 14, 1 << 17, 1 << 24):
        assert compiled.time_us(size, WIRES_ALONE) >= bound.time_us(size) * (1 - 1e-9)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("size_bytes", [1 << 10, 1 << 20, 1 << 30])
def test_the_bound_is_no_less_than_latency_and_bandwidth_alone(
    collective: Collective, size_bytes: int
) -> None:
    for sketch in (owned_links(4), switched(2, 4), _bridge()):
        alone_us = max(
            latency_bound_us(collective, sketch),
            size_bytes * 1e-3 / algbw_bound_gb_per_s(collective, sketch),
        )
        assert time_bound(collective, sketch).time_us(size_bytes) >= alone_us


def _least_us(sketch: Sketch, wanted: dict[tuple[int, int], set[int]], chunk_bytes: int) -> float:
    """Return the shortest timetable that moves whole chunks, by exhaustive search.

    Args:
        sketch: A sketch of very few ranks.
        wanted: Ranks that need each chunk, by the rank that has it and a number.
        chunk_bytes: Size of every chunk.
    """
    best_us = math.inf
    queues = [
        {f"{e.src}>{e.dst}": chunk_bytes * 1e-3 / e.bandwidth_gb_per_s}
        | {port: chunk_bytes * 1e-3 / sketch.port[port].bandwidth_gb_per_s for port in e.ports}
        for e in sketch.edges
    ]
    takes_us = [max(q.values()) + e.alpha_us for q, e in zip(queues, sketch.edges, strict=True)]

    def go_on(
        held_us: dict[tuple[tuple[int, int], int], float],
        free_us: dict[str, float],
        last: tuple[float, int, tuple[int, int]],
        end_us: float,
    ) -> None:
        """Add a transfer; transfers are in order of start, then of number."""
        nonlocal best_us
        missing = {c for c, ranks in wanted.items() if any((c, r) not in held_us for r in ranks)}
        if not missing:
            best_us = min(best_us, end_us)
        options = []
        for chunk, (number, edge) in product(missing, enumerate(sketch.edges)):
            if (chunk, edge.src) in held_us and (chunk, edge.dst) not in held_us:
                starts = (free_us.get(queue, 0.0) for queue in queues[number])
                start_us = max(held_us[chunk, edge.src], *starts)
                if (start_us, number, chunk) > last:
                    options.append((start_us + takes_us[number], start_us, number, chunk))
        for arrival_us, start_us, number, chunk in sorted(options):
            later_us = start_us + (min(takes_us) if len(missing) > 1 else 0.0)
            if max(end_us, arrival_us, later_us) < best_us:
                go_on(
                    {**held_us, (chunk, sketch.edges[number].dst): arrival_us},
                    {**free_us, **{q: start_us + busy for q, busy in queues[number].items()}},
                    (start_us, number, chunk),
                    max(end_us, arrival_us),
                )

    go_on({(chunk, chunk[0]): 0.0 for chunk in wanted}, {}, (-1.0, 0, (0, 0)), 0.0)
    return best_us


def _wanted(collective: Collective, ranks: int) -> dict[tuple[int, int], set[int]]:
    all_ranks = set(range(ranks))
    match collective:
        case Collective.ALL_GATHER:
            return {(rank, 0): all_ranks - {rank} for rank in all_ranks}
        case Collective.ALLTOALL:
            return {pair: {pair[1]} for pair in permutations(all_ranks, 2)}
        case _:
            return {(0, 0): all_ranks - {0}}


@st.composite
def _sketches(draw: st.DrawFn, fewest: int, most: int) -> Sketch:
    """Draw a ring with chords in one or two nodes; some links share a port of a rank, or a NIC."""
    ranks = draw(st.integers(fewest, most))
    pairs = st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1))
    ring = {(rank, (rank + 1) % ranks) for rank in range(ranks)}
    chords = draw(st.sets(pairs.filter(lambda pair: pair[0] != pair[1])))
    shared = draw(st.dictionaries(st.sampled_from(["out", "in", "nic"]), SPEEDS_GB_PER_S))
    edges = []
    for a, b in sorted(ring | chords):
        names = {"out": f"out{a}", "in": f"in{b}", "nic": "nic0"}
        speed, alpha_us = draw(SPEEDS_GB_PER_S), draw(ALPHAS_US)
        through = tuple(names[way] for way in shared if draw(st.booleans()))
        edges.append(Edge(a, b, EdgeKind.NVLINK, alpha_us, speed, through))
    ports = tuple(Port(f"{way}{r}", speed) for way, speed in shared.items() for r in range(ranks))
    first = draw(st.integers(1, ranks))
    return _sketch(edges, (0,) * first + (1,) * (ranks - first), ports)


@given(
    sketch=_sketches(2, 3),
    collective=st.sampled_from([Collective.ALL_GATHER, Collective.ALLTOALL, Collective.BROADCAST]),
    chunk_bytes=st.sampled_from([100, 10_000, 100_000]),
)
def test_no_timetable_of_a_tiny_machine_beats_the_bound(
    sketch: Sketch, collective: Collective, chunk_bytes: int
) -> None:
    chunks = sketch.ranks if collective.divides else 1
    least_us = _least_us(sketch, _wanted(collective, sketch.ranks), chunk_bytes)
    bound_us = time_bound(collective, sketch).time_us(chunk_bytes * chunks)
    assert bound_us <= least_us * (1 + 1e-6)


@pytest.mark.parametrize("collective", [Collective.ALL_GATHER, Collective.ALLTOALL])
def test_a_tiny_machine_meets_the_bound(collective: Collective) -> None:
    """Rank 1 sends its own chunk over the narrow link while that of rank 0 is on its way to it."""
    speeds = {(0, 1): (50.0, 0.5), (1, 0): (50.0, 0.5), (1, 2): (10.0, 2.0), (2, 1): (50.0, 0.5)}
    edges = [Edge(*pair, EdgeKind.NVLINK, a, speed) for pair, (speed, a) in speeds.items()]
    sketch = _sketch(edges, (0, 0, 0))
    bound_us = time_bound(collective, sketch).time_us(300_000)
    assert bound_us == pytest.approx(2 * 10 + 2.0)
    assert bound_us == pytest.approx(_least_us(sketch, _wanted(collective, 3), 100_000))


@given(
    sketch=_sketches(2, 6),
    collective=st.sampled_from(COLLECTIVES),
    size_bytes=st.sampled_from([1 << 10, 1 << 16, 1 << 20, 1 << 26]),
    trees=st.sampled_from([0, 2]),
    data=st.data(),
)
def test_no_verified_schedule_beats_the_bound(
    sketch: Sketch, collective: Collective, size_bytes: int, trees: int, data: st.DataObject
) -> None:
    sketch = replace(sketch, symmetries=find_symmetries(sketch))
    root = data.draw(st.integers(0, sketch.ranks - 1)) if collective.has_root else 0
    options = SynthesisOptions(time_limit_s=0.1, gap=0.1, trees_per_rank=trees)
    algorithm = synthesize(collective, sketch, size_bytes, options, root=root).algorithm
    assert verify(algorithm).proved
    compiled = compile_schedule(algorithm, sketch)
    bound = time_bound(collective, sketch, root)
    for size in (size_bytes, 1 << 8, 1 << 16, 1 << 28):
        assert compiled.time_us(size, WIRES_ALONE) >= bound.time_us(size) * (1 - 1e-6)


@given(sketch=_sketches(2, 4), root=st.integers(0, 1))
def test_what_is_gathered_one_way_is_reduced_the_other_way(sketch: Sketch, root: int) -> None:
    turned = [replace(edge, src=edge.dst, dst=edge.src) for edge in sketch.edges]
    backwards = replace(_sketch(turned, sketch.node_of_rank), ports=sketch.ports)
    for gathering, reducing in (
        (Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
        (Collective.BROADCAST, Collective.REDUCE),
        (Collective.ALLTOALL, Collective.ALLTOALL),
    ):
        for size in (1 << 8, 1 << 16, 1 << 28):
            assert time_bound(gathering, sketch, root).time_us(size) == pytest.approx(
                time_bound(reducing, backwards, root).time_us(size)
            )
