"""Two-step alltoall: messages between nodes, and nodes whose ranks are not in a row."""

from __future__ import annotations

import pytest

from synthesizer.experts.hierarchical import Grid, two_step_alltoall
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.proofs import latency_us, proved


def _grid(nodes: int, locals_: int) -> Grid:
    return tuple(tuple(range(locals_ * n, locals_ * n + locals_)) for n in range(nodes))


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
