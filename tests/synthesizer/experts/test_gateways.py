"""Algorithms over gateways: nodes of different sizes, fewer NICs than ranks, and their traffic."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from sketches.candidates import sketch_candidates, whole_machine
from synthesizer import experts
from synthesizer.experts import expert_algorithms
from synthesizer.experts.gateways import (
    Gateways,
    broadcast_over_homes,
    gateway_programs,
    gateways_of,
    programs_over,
)
from synthesizer.lower.lowering import lower
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.plan.test_uneven_machines import Shape
from tests.synthesizer.proofs import show_right

SHAPES = {
    "3+1": Shape((3, 1), 2, "switch"),
    "2+1": Shape((2, 1), 1, "switch"),
    "1+3": Shape((1, 3), 1, "switch"),
    "3+4": Shape((3, 4), 4, "switch"),
    "2+1+3": Shape((2, 1, 3), 2, "switch"),
}


def _sizes(nodes: tuple[tuple[int, ...], ...]) -> list[int]:
    return [len(row) for row in nodes]


@pytest.mark.long
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("shape", SHAPES)
def test_uneven_nodes_have_algorithms_that_give_the_right_values(
    shape: str, collective: Collective
) -> None:
    topology = SHAPES[shape].topology()
    for sketch in (*sketch_candidates(topology), whole_machine(topology)):
        for root in (0, sketch.ranks - 1) if collective.has_root else (0,):
            found = expert_algorithms(collective, sketch, root)
            over_gateways = [each for each in found if "gateways" in each.name]
            assert over_gateways, sketch.name
            for algorithm in over_gateways:
                show_right(algorithm, seed=root)
                assert algorithm.in_place is (collective is not Collective.ALLTOALL)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_equal_nodes_with_one_nic_cross_at_its_rank(collective: Collective) -> None:
    gateways = Gateways(((0, 1, 2), (3, 4, 5)), ((1, 4),))
    for name, program in programs_over(gateways, collective, 5):
        show_right(lower(program, name), seed=1)
        crossing = {
            (s.src.rank, s.dst.rank)
            for s in program.statements
            if s.remote and gateways.node_of(s.src.rank) != gateways.node_of(s.dst.rank)
        }
        assert crossing <= {(1, 4), (4, 1)}


def test_equal_nodes_with_all_rails_take_homes_alone() -> None:
    assert gateways_of(switched(1, 4)) is None
    found = {each: list(gateway_programs(each, switched(4, 2), 0)) for each in COLLECTIVES}
    named = {each: [name for name, _ in programs] for each, programs in found.items() if programs}
    assert named == {
        each: [f"{each}_over_1_homes", f"{each}_over_3_homes"]
        for each in (Collective.BROADCAST, Collective.REDUCE)
    }


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE])
@pytest.mark.parametrize("root", [0, 5])
def test_homes_share_the_network(collective: Collective, root: int) -> None:
    gateways = gateways_of(switched(4, 2))
    assert gateways is not None
    *_, (name, program) = gateway_programs(collective, switched(4, 2), root)
    show_right(lower(program, name), seed=root)
    across = Counter(
        tuple(map(gateways.node_of, (s.src.rank, s.dst.rank)))
        for s in program.statements
        if gateways.node_of(s.src.rank) != gateways.node_of(s.dst.rank)
    )
    # Two rails of three homes: the root's node and each home exchange two chunks, and a home
    # exchanges them with both of the others.
    at_root = gateways.node_of(root)
    others = [node for node in range(4) if node != at_root]
    ways = {(at_root, node): 2 for node in others} | dict.fromkeys(permutations(others, 2), 2)
    back = {(dst, src): count for (src, dst), count in ways.items()}
    assert across == (ways if collective is Collective.BROADCAST else back)


def test_those_who_have_a_chunk_double() -> None:
    gateways = Gateways(tuple((rank,) for rank in range(8)), (tuple(range(8)),))
    program = broadcast_over_homes(gateways, 0, 1)
    hops = [(s.src.rank, s.dst.rank) for s in program.statements if s.remote]
    assert hops == [(0, 1), (1, 2), (1, 3), (2, 4), (1, 5), (2, 6), (3, 7)]


def test_a_large_machine_without_rails_has_gateways_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "MOST_RANKS_WRITTEN_OUT", 4)
    monkeypatch.setattr(experts, "MOST_EDGES_OF_ROOTED", 10)
    sketch = whole_machine(SHAPES["2+1+3"].topology())
    found = expert_algorithms(Collective.BROADCAST, sketch, 0)
    assert [each.name for each in found] == ["broadcast_gateways", "broadcast_over_1_homes"]
    assert not experts.beyond_experts(Collective.BROADCAST, sketch)
    assert experts.beyond_experts(Collective.ALL_GATHER, sketch)


def test_gateways_take_turns_and_a_chunk_crosses_once() -> None:
    gateways = gateways_of(whole_machine(SHAPES["2+1+3"].topology()))
    assert gateways is not None
    assert _sizes(gateways.nodes) == [2, 1, 3]
    assert len(gateways.routes) == 6
    ((_, exchange), (_, homes)) = programs_over(gateways, Collective.ALL_REDUCE)
    for program, crossings in ((exchange, 3 * 2), (homes, 2 * 2)):
        across = Counter(
            s.dst.offset if s.operand is None else s.operand.offset
            for s in program.statements
            if s.remote and gateways.node_of(s.src.rank) != gateways.node_of(s.dst.rank)
        )
        assert sum(across.values()) == crossings * program.chunks
    ((_, gather),) = programs_over(gateways, Collective.ALL_GATHER)
    received = Counter(
        gateways.node_of(s.dst.rank)
        for s in gather.statements
        if s.remote and gateways.node_of(s.src.rank) != gateways.node_of(s.dst.rank)
    )
    assert received == {0: 4, 1: 5, 2: 3}


def test_an_alltoall_leaves_a_node_at_the_gateways_alone() -> None:
    gateways = Gateways(((0, 1, 2), (3, 4), (5,)), ((1, 3, 5), (2, 4, 5)))
    ((_, program),) = programs_over(gateways, Collective.ALLTOALL)
    across = Counter(
        (s.src.rank, s.dst.rank)
        for s in program.statements
        if s.remote and gateways.node_of(s.src.rank) != gateways.node_of(s.dst.rank)
    )
    assert (
        sum(across.values())
        == 3 * 3 + 2 * 4 + 1 * 5
        == sum(len(row) * (6 - len(row)) for row in gateways.nodes)
    )
    linked = {pair for route in gateways.routes for pair in permutations(route, 2)}
    assert across.keys() <= linked
