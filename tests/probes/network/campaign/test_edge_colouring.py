import itertools
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.network.campaign.edge_colouring import Edge, colour_edges, round_robin


def check_proper(rounds: list[list[Edge]], edges: list[Edge]) -> None:
    for members in rounds:
        ends = [vertex for edge in members for vertex in edge]
        assert members
        assert len(ends) == len(set(ends)), "a vertex appears twice in one round"
    assert sorted(itertools.chain.from_iterable(rounds)) == sorted(edges)


def largest_degree(edges: list[Edge]) -> int:
    ends = [vertex for edge in edges for vertex in edge]
    return max((ends.count(vertex) for vertex in set(ends)), default=0)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    count = draw(st.integers(1, 14))
    pairs = list(itertools.combinations(range(count), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return count, [edge[::-1] if draw(st.booleans()) else edge for edge in chosen]


@given(graphs())
def test_every_edge_once_in_at_most_one_round_more_than_the_largest_degree(
    graph: tuple[int, list[Edge]],
) -> None:
    count, edges = graph
    rounds = colour_edges(count, edges)
    check_proper(rounds, edges)
    assert len(rounds) <= largest_degree(edges) + 1
    assert rounds == colour_edges(count, edges)


@given(st.integers(0, 3000))
def test_dense_graphs_that_need_the_fan(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(5, 24)
    edges = [e for e in itertools.combinations(range(count), 2) if chance.random() < 0.85]
    chance.shuffle(edges)
    rounds = colour_edges(count, edges)
    check_proper(rounds, edges)
    assert len(rounds) <= largest_degree(edges) + 1


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(10, 19))))
def test_a_bipartite_graph_takes_exactly_its_largest_degree(pairs: set[Edge]) -> None:
    edges = sorted(pairs)
    rounds = colour_edges(20, edges)
    check_proper(rounds, edges)
    assert len(rounds) == largest_degree(edges)


@pytest.mark.parametrize(("count", "rounds"), [(2, 1), (4, 3), (5, 5), (8, 7), (9, 9), (16, 15)])
def test_round_robin_is_exact(count: int, rounds: int) -> None:
    every_pair = list(itertools.combinations(range(count), 2))
    check_proper(round_robin(count), every_pair)
    assert len(round_robin(count)) == rounds
    assert len(colour_edges(count, every_pair)) == rounds


def test_nothing_to_pair() -> None:
    assert round_robin(0) == round_robin(1) == []
    assert colour_edges(3, []) == colour_edges(0, []) == []


def test_odd_rings_take_three_rounds_and_the_petersen_graph_four() -> None:
    assert len(colour_edges(7, [(i, (i + 1) % 7) for i in range(7)])) == 3
    outer = [(i, (i + 1) % 5) for i in range(5)]
    inner = [(5 + i, 5 + (i + 2) % 5) for i in range(5)]
    petersen = [*outer, *inner, *((i, i + 5) for i in range(5))]
    rounds = colour_edges(10, petersen)
    check_proper(rounds, petersen)
    assert len(rounds) == 4


@pytest.mark.parametrize("edges", [[(0, 0)], [(0, 3)], [(-1, 0)], [(0, 1), (1, 0)]])
def test_what_is_no_simple_graph_is_refused(edges: list[Edge]) -> None:
    with pytest.raises(ValueError, match="edge"):
        colour_edges(3, edges)


@pytest.mark.long
def test_eight_thousand_ports_take_seconds() -> None:
    chance = random.Random(1)
    pairs: set[Edge] = set()
    while len(pairs) < 32_000:
        a, b = chance.randrange(8000), chance.randrange(8000)
        if a != b:
            pairs.add((min(a, b), max(a, b)))
    edges = sorted(pairs)
    started = time.process_time()
    rounds = colour_edges(8000, edges)
    assert time.process_time() - started < 5.0
    check_proper(rounds, edges)
    degree = [0] * 8000
    for a, b in edges:
        degree[a] += 1
        degree[b] += 1
    assert len(rounds) <= max(degree) + 1
