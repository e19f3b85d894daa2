"""All_reduce and alltoall over nodes in few steps: steps, bytes, and messages between nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from synthesizer.experts import expert_algorithms
from synthesizer.experts.hierarchical import (
    Grid,
    three_step_all_reduce,
    two_step_all_reduce,
    two_step_alltoall,
)
from synthesizer.ir.program import Program
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, simulate_us
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.proofs import latency_us, proved

SHAPES = [(2, 2), (2, 3), (3, 2), (3, 5), (4, 4), (2, 8), (8, 2)]


def _grid(nodes: int, locals_: int) -> Grid:
    return tuple(tuple(range(locals_ * n, locals_ * n + locals_)) for n in range(nodes))


def _buffers_sent_between_nodes(program: Program, locals_: int, rank: int) -> float:
    """Return the data that a rank sends to other nodes, in buffers."""
    crossing = [
        statement.src.count
        for statement in program.statements
        if statement.src.rank == rank and statement.dst.rank // locals_ != rank // locals_
    ]
    return sum(crossing) / program.chunks


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "locals_"), SHAPES)
def test_two_and_three_steps(nodes: int, locals_: int) -> None:
    sketch = switched(nodes, locals_, nvlink_alpha_us=1.0, nic_alpha_us=10.0)
    for build, steps in ((two_step_all_reduce, 1), (three_step_all_reduce, 2)):
        algorithm = proved(build(_grid(nodes, locals_)))
        assert latency_us(algorithm, sketch) == pytest.approx(steps + 10.0, rel=1e-3)


@pytest.mark.parametrize(("nodes", "locals_"), SHAPES)
def test_bytes_between_nodes(nodes: int, locals_: int) -> None:
    grid = _grid(nodes, locals_)
    for rank in range(nodes * locals_):
        whole = _buffers_sent_between_nodes(two_step_all_reduce(grid), locals_, rank)
        assert whole == nodes - 1
        share = _buffers_sent_between_nodes(three_step_all_reduce(grid), locals_, rank)
        assert share == pytest.approx((nodes - 1) / locals_)


@pytest.mark.parametrize("pieces", [1, 8])
def test_pieces_of_a_share_pass_the_three_steps_one_after_the_other(pieces: int) -> None:
    # Half a megabyte takes 20 us through a NIC; the first piece comes from a neighbour, and the
    # last one goes to it, at 300 GB/s. An alpha each: 0.7, 1.7 and 0.7 us.
    algorithm = proved(three_step_all_reduce(_grid(2, 2), pieces))
    time_us = simulate_us(algorithm, switched(2, 2), 10**6, ExecutionModel())
    assert time_us == pytest.approx(3.1 + 20 + 2 * 500 / 300 / pieces)


def test_two_nodes_exchange_over_the_rails_that_they_have() -> None:
    whole = switched(2, 3, rotations=False)
    sketch = replace(whole, edges=tuple(e for e in whole.edges if {e.src, e.dst} != {0, 3}))
    found = {a.name: a for a in expert_algorithms(Collective.ALL_REDUCE, sketch)}
    assert "all_reduce_three_step" not in found
    assert verify(found["all_reduce_three_step_8c"]).proved
    # Half of the buffer takes 20 us through each of two NICs; every piece first and at last passes
    # the links inside, at 300 GB/s, to or from two ranks.
    time_us = simulate_us(found["all_reduce_three_step_8c"], sketch, 10**6, ExecutionModel())
    assert 3.1 + 20 < time_us < 3.1 + 20 + 2 * 2 * 500 / 300 / 8 + 0.1


@pytest.mark.parametrize(("nodes", "locals_"), [(2, 2), (2, 3), (3, 2), (3, 5), (4, 4), (2, 8)])
def test_one_message_to_each_other_node_of_all_that_the_node_has(nodes: int, locals_: int) -> None:
    program = two_step_alltoall(_grid(nodes, locals_))
    for rank in range(nodes * locals_):
        crossing = [
            statement
            for statement in program.statements
            if statement.src.rank == rank and statement.dst.rank // locals_ != rank // locals_
        ]
        assert sorted(statement.dst.rank for statement in crossing) == [
            rank % locals_ + locals_ * node for node in range(nodes) if node != rank // locals_
        ]
        assert {statement.src.count for statement in crossing} == {locals_}
    sketch = switched(nodes, locals_, nvlink_alpha_us=1.0, nic_alpha_us=10.0)
    assert latency_us(proved(program), sketch) == pytest.approx(11.0, rel=1e-3)


def test_ranks_dealt_out_over_the_nodes_give_a_message_per_run() -> None:
    program = two_step_alltoall(((0, 1, 4), (2, 3, 5)))
    proved(program)
    crossing = [s for s in program.statements if s.src.rank == 0 and s.dst.rank == 2]
    assert [(s.dst.offset, s.dst.count) for s in crossing] == [(0, 2), (4, 1)]
