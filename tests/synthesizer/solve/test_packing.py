"""Packed trees: published optima with few trees per source, and any connected mesh."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketches.sketch import Sketch
from sketches.symmetry import find_symmetries
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s
from synthesizer.ir.collectives import Collective
from synthesizer.solve.packing import packed_trees
from synthesizer.solve.routes import Family, RouteTree, expand, rank_orbits, resources, single
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, switched, torus

GIGABYTE = 10**9


def _alike(sketch: Sketch) -> Sketch:
    return replace(sketch, symmetries=find_symmetries(sketch))


def _packed(sketch: Sketch, trees: int) -> tuple[tuple[RouteTree, ...], float]:
    """Return all trees, and the share of the bound that their loads allow."""
    bound_us = GIGABYTE * 1e-3 / algbw_bound_gb_per_s(Collective.ALL_GATHER, sketch)
    costs = resources(sketch, GIGABYTE / sketch.ranks / trees)
    families = [Family(orbit, i) for orbit in rank_orbits(sketch) for i in range(trees)]
    found = expand(packed_trees(costs, families, sketch.ranks, bound_us))
    busiest_us = max(costs.loads_us(hop for tree in found for hop in tree.hops))
    return found, bound_us / busiest_us


@pytest.mark.parametrize(
    ("sketch", "trees", "share"),
    [
        (switched(1, 8), 1, 1.0),
        # Fifteen blocks over four links: four chunks each make fifteen per link.
        (_alike(torus(4)), 4, 1.0),
        # SCCL's optimum: six chunks in seven rounds.
        (_alike(hybrid_cube_mesh()), 6, 1.0),
        # A NIC brings one block of fifteen at 25 GB/s, the switch the others at 300.
        (switched(2, 8), 1, 15 / 325 / (14 / 300)),
        # It brings nine eighths in a little less time than the switch brings the others.
        (switched(2, 8), 8, 15 / 325 / ((15 - 9 / 8) / 300)),
        # A NIC brings three halves while the switch brings 27.
        (switched(2, 8, nvlink_gb_per_s=450.0, nic_gb_per_s=50.0), 2, 1.0),
    ],
)
def test_few_trees_reach_the_bound(sketch: Sketch, trees: int, share: float) -> None:
    found, reached = _packed(sketch, trees)
    assert len(found) == sketch.ranks * trees
    assert reached == pytest.approx(share, abs=1e-3)


def test_among_equal_loads_trees_are_shallow_and_connections_few() -> None:
    found, _ = _packed(switched(1, 8), 3)
    assert all(a == tree.source for tree in found for a, _ in tree.hops)


def test_same_request_same_trees() -> None:
    assert _packed(torus(3), 3) == _packed(torus(3), 3)


@given(st.integers(3, 7), st.integers(1, 3), st.data())
def test_any_connected_mesh_gets_spanning_trees_from_every_source(
    ranks: int, trees: int, data: st.DataObject
) -> None:
    ring = {(rank, (rank + 1) % ranks): 25.0 for rank in range(ranks)}
    pairs = [(a, b) for a in range(ranks) for b in range(a + 1, ranks)]
    more = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    sketch = direct(ranks, {**ring, **dict.fromkeys(more, 50.0)})
    costs = resources(sketch, 1e6)
    families = [Family(single(s, ranks), i) for s in range(ranks) for i in range(trees)]
    found = packed_trees(costs, families, ranks, 1e3, moves=500)
    assert list(found) == families
    for family, tree in found.items():
        reached = {family.orbit.representative}
        for a, b in tree.hops:
            assert (a, b) in sketch.edge
            assert a in reached
            assert b not in reached
            reached.add(b)
        assert reached == set(range(ranks))
