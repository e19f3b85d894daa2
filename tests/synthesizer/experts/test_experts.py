"""Expert algorithms: selection for a sketch, shape, and proof."""

from __future__ import annotations

import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.experts.hierarchical import rail_grid
from synthesizer.experts.ring import ring_orders
from synthesizer.experts.tree import binary_tree
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.msccl_limits import check_limits
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, switched, torus
from tests.synthesizer.proofs import show_right

pytestmark = pytest.mark.long


SKETCHES = {
    **{f"1x{ranks}": switched(1, ranks) for ranks in (*range(2, 10), 13, 16)},
    **{
        f"{nodes}x{locals_}": switched(nodes, locals_)
        for nodes, locals_ in ((2, 1), (2, 3), (2, 4), (3, 2), (3, 3))
    },
    "cube_mesh": hybrid_cube_mesh(),
    "torus": torus(4),
}


def _sent(algorithm: Algorithm) -> int:
    """Return the number of chunks sent between ranks."""
    return sum(
        step.count
        for gpu in algorithm.programs
        for tb in gpu.threadblocks
        for step in tb.steps
        if step.type.sends
    )


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", SKETCHES)
def test_every_expert_algorithm_is_proved_and_moves_data_right(
    name: str, collective: Collective
) -> None:
    sketch = SKETCHES[name]
    algorithms = expert_algorithms(collective, sketch, root=sketch.ranks - 1)
    for number, algorithm in enumerate(algorithms):
        show_right(algorithm, seed=sketch.ranks + number)
        assert algorithm.out_of_place
        assert algorithm.in_place is (collective is not Collective.ALLTOALL)
    full_mesh = len(sketch.edge) == sketch.ranks * (sketch.ranks - 1)
    assert bool(algorithms) is (
        collective is not Collective.ALLTOALL or full_mesh or rail_grid(sketch) is not None
    )


def test_schedules_stay_within_the_runtimes_limits() -> None:
    for collective in (Collective.ALL_GATHER, Collective.ALL_REDUCE):
        for algorithm in expert_algorithms(collective, switched(1, 34)):
            assert check_limits(algorithm) == (), algorithm.name


def test_ring_traffic_is_the_textbooks() -> None:
    sketch = switched(1, 8)
    sent = {a.name: _sent(a) for a in expert_algorithms(Collective.ALL_REDUCE, sketch)}
    assert sent["all_reduce_ring_1x"] == 2 * 7 * 8
    assert sent["all_reduce_all_pairs_one_phase"] == 7 * 8
    assert sent["all_reduce_all_pairs_two_phase"] == 2 * 7 * 8
    assert sent["all_reduce_tree_1c"] == 2 * 7


def test_hierarchical_all_gather_crosses_each_nic_once_per_remote_rank_of_its_rail() -> None:
    sketch = switched(3, 4)
    names = {a.name: a for a in expert_algorithms(Collective.ALL_GATHER, sketch)}
    algorithm = names["all_gather_hierarchical_1c"]
    crossing = [
        step
        for gpu in algorithm.programs
        for tb in gpu.threadblocks
        for step in tb.steps
        if step.type.sends and sketch.node_of_rank[gpu.rank] != sketch.node_of_rank[tb.send_peer]
    ]
    assert len(crossing) == 12 * 2


def test_names_are_unique_and_the_order_is_fixed() -> None:
    once, again = (expert_algorithms(Collective.ALL_REDUCE, switched(2, 4)) for _ in range(2))
    assert [a.name for a in once] == [
        "all_reduce_ring_4x",
        "all_reduce_tree_1c",
        "all_reduce_tree_8c",
        "all_reduce_double_tree_1c",
        "all_reduce_double_tree_8c",
        "all_reduce_recursive_doubling",
        "all_reduce_recursive_halving_doubling",
        "all_reduce_hierarchical_1c",
        "all_reduce_hierarchical_4c",
        "all_reduce_two_step",
        "all_reduce_three_step",
        "all_reduce_three_step_8c",
        "all_reduce_three_step_16c",
    ]
    assert repr(once) == repr(again)


def _edges(ring: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(ring, ring[1:] + ring[:1], strict=True))


def test_one_ring_per_nic_and_each_nic_in_one_ring() -> None:
    sketch = switched(2, 8)
    rings = ring_orders(sketch)
    crossings = [edge for ring in rings for edge in _edges(ring) if edge[0] // 8 != edge[1] // 8]
    assert len(rings) == 8
    assert sorted(a for a, _ in crossings) == list(range(16))


def test_rings_of_a_cube_mesh_use_every_link_to_the_full() -> None:
    rings = ring_orders(hybrid_cube_mesh())
    use = dict.fromkeys(hybrid_cube_mesh().edge, 0.0)
    for ring in rings:
        for edge in _edges(ring):
            use[edge] += 25.0
    assert len(rings) == 6
    assert use == {key: edge.bandwidth_gb_per_s for key, edge in hybrid_cube_mesh().edge.items()}


def test_two_rails_close_no_ring_over_three_nodes() -> None:
    # A node must be entered and left on different rails: an odd cycle needs three colours.
    assert ring_orders(switched(3, 2)) == ()
    assert len(ring_orders(switched(3, 3))) == 3


def test_a_tree_is_binary_and_crosses_between_nodes_once_per_node() -> None:
    sketch = switched(4, 8)
    tree = binary_tree(sketch, 5)
    assert tree is not None
    assert tree.order[0] == 5
    assert max(len(tree.children(rank)) for rank in range(32)) == 2
    crossings = [r for r in range(32) if r != 5 and r // 8 != tree.parent[r] // 8]
    assert len(crossings) == 3


def test_leaves_of_the_one_tree_are_inner_ranks_of_the_other() -> None:
    for ranks in (4, 8, 16):
        sketch = switched(1, ranks)
        first, second = binary_tree(sketch, 0), binary_tree(sketch, ranks - 1, backwards=True)
        assert first is not None
        assert second is not None
        inner = [{rank for rank in range(ranks) if tree.children(rank)} for tree in (first, second)]
        assert inner[0].isdisjoint(inner[1])


def test_a_star_gives_its_centre_more_than_two_children() -> None:
    star = direct(4, {(0, 1): 25.0, (0, 2): 25.0, (0, 3): 25.0})
    tree = binary_tree(star, 0)
    assert tree is not None
    assert tree.children(0) == (1, 2, 3)


def test_disconnected_ranks_have_no_expert_algorithm() -> None:
    apart: Sketch = direct(4, {(0, 1): 25.0, (2, 3): 25.0})
    assert expert_algorithms(Collective.ALL_REDUCE, apart) == ()
