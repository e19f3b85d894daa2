"""Recursive halving and doubling: steps, bytes, folding and applicability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from synthesizer.experts.halving_doubling import (
    doubling_all_gather,
    doubling_all_reduce,
    exchange_grid,
    halving_doubling_all_reduce,
    halving_reduce_scatter,
)
from synthesizer.experts.hierarchical import Grid
from synthesizer.ir.program import Program
from tests.synthesizer.hand_sketches import direct, hybrid_cube_mesh, switched, torus
from tests.synthesizer.proofs import latency_us, proved


def _row(ranks: int) -> Grid:
    return (tuple(range(ranks)),)


def _chunks_through(program: Program, rank: int) -> tuple[int, int]:
    """Return the chunks that a rank sends and receives."""
    remote = [statement for statement in program.statements if statement.remote]
    sent = sum(statement.src.count for statement in remote if statement.src.rank == rank)
    return sent, sum(statement.src.count for statement in remote if statement.dst.rank == rank)


# log2(N) exchanges. Data from a folded rank takes a step before, data to one a step after; a chunk
# takes both with as many exchanges as lie between the partners of two folded ranks.
STEPS = {2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 4, 8: 3, 9: 4, 12: 4, 15: 5, 16: 4}


@pytest.mark.long
@pytest.mark.parametrize("ranks", STEPS)
def test_steps_are_logarithmic(ranks: int) -> None:
    sketch = switched(1, ranks, nvlink_alpha_us=1.0)

    def steps(build: Callable[[Grid], Program]) -> float:
        return latency_us(proved(build(_row(ranks))), sketch)

    assert steps(doubling_all_reduce) == pytest.approx(STEPS[ranks], rel=1e-3)
    assert steps(doubling_all_gather) == pytest.approx(STEPS[ranks], rel=1e-3)
    assert steps(halving_reduce_scatter) == pytest.approx(STEPS[ranks], rel=1e-3)
    both = steps(halving_doubling_all_reduce)
    assert both <= 2 * STEPS[ranks] * (1 + 1e-3)
    assert both >= 2 * (ranks - 1).bit_length() * (1 - 1e-3)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_powers_of_two_move_no_more_than_a_ring(ranks: int) -> None:
    gather, scatter, both = (
        build(_row(ranks))
        for build in (doubling_all_gather, halving_reduce_scatter, halving_doubling_all_reduce)
    )
    for rank in range(ranks):
        assert _chunks_through(gather, rank) == (ranks - 1, ranks - 1)
        assert _chunks_through(scatter, rank) == (ranks - 1, ranks - 1)
        assert _chunks_through(both, rank) == (2 * (ranks - 1), 2 * (ranks - 1))


def test_what_partners_exchange_in_an_all_reduce_is_one_message() -> None:
    program = halving_doubling_all_reduce(((0, 1, 2, 3), (4, 5, 6, 7)))
    first = [(s.src.rank, s.dst.rank, s.src.count) for s in program.statements if s.remote]
    assert len(first) == 8 * 2 * 3
    assert {count for _, _, count in first} == {1, 2, 4}


def test_a_folded_rank_talks_to_its_partner_alone() -> None:
    for build in (doubling_all_gather, halving_doubling_all_reduce, doubling_all_reduce):
        remote = [s for s in build(_row(6)).statements if s.remote]
        for extra, partner in ((1, 0), (3, 2)):
            peers = {s.dst.rank for s in remote if s.src.rank == extra}
            peers |= {s.src.rank for s in remote if s.dst.rank == extra}
            assert peers == {partner}


def test_between_nodes_travels_what_is_least() -> None:
    grid = tuple(tuple(range(8 * node, 8 * node + 8)) for node in range(2))
    for build in (doubling_all_gather, halving_reduce_scatter):
        crossing = [
            s for s in build(grid).statements if s.remote and s.src.rank // 8 != s.dst.rank // 8
        ]
        assert len(crossing) == 16
        assert {s.src.count for s in crossing} == {1}


def test_where_it_applies() -> None:
    assert exchange_grid(switched(2, 4)) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert exchange_grid(switched(3, 5)) is not None
    assert exchange_grid(hybrid_cube_mesh()) == _row(8), "a hypercube with more"
    assert exchange_grid(torus(4)) is None, "ranks at distance two have no link"
    uneven = replace(switched(1, 5), node_of_rank=(0, 0, 0, 1, 1))
    assert exchange_grid(uneven) == _row(5)
    assert exchange_grid(direct(3, {(0, 1): 25.0, (1, 2): 25.0})) is None
