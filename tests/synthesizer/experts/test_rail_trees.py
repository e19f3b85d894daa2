"""Broadcast and reduce over rails: proof, real values, load of NICs and links, and speed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from synthesizer import experts
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s
from synthesizer.experts import expert_algorithms, takes_rails_alone
from synthesizer.experts.rail_trees import GROUP, rail_broadcast, rail_reduce
from synthesizer.ir.program import Program
from synthesizer.lower.lowering import lower
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from tests.synthesizer.emulator import expected_outputs, run
from tests.synthesizer.hand_sketches import switched

pytestmark = pytest.mark.long

BUILDERS = {Collective.BROADCAST: rail_broadcast, Collective.REDUCE: rail_reduce}


@given(
    collective=st.sampled_from(sorted(BUILDERS)),
    nodes=st.integers(2, 6),
    locals_=st.integers(1, 4),
    groups=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_any_shape_is_proved_and_gives_the_right_values(
    collective: Collective, nodes: int, locals_: int, groups: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ranks = nodes * locals_
    grid = tuple(tuple(row) for row in rng.permutation(ranks).reshape(nodes, locals_).tolist())
    root = int(rng.integers(ranks))
    a = lower(BUILDERS[collective](grid, root, groups), "rails")
    assert verify(a, slots=1).describe() == "proved"
    inputs = [rng.integers(0, 1 << 40, size=2 * a.chunks_per_loop) for _ in range(ranks)]
    wanted = expected_outputs(collective, inputs, root)
    for in_place in (True, False):
        outputs = run(a, inputs, in_place=in_place, slots=1, seed=seed)
        for rank in range(ranks) if collective is Collective.BROADCAST else (root,):
            assert np.array_equal(outputs[rank], wanted[rank])


def _sent(program: Program, node_of: dict[int, int], *, across: bool) -> tuple[int, int]:
    """Return the most chunks that a rank sends and receives, to other nodes or within its own."""
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for statement in program.statements:
        src, dst = statement.src.rank, statement.dst.rank
        if src != dst and (node_of[src] != node_of[dst]) is across:
            sent[src] += statement.src.count
            received[dst] += statement.src.count
    return max(sent.values()), max(received.values())


def test_no_nic_and_no_link_carries_more_than_the_data_once() -> None:
    """9 nodes of 4, 12 groups: a rail has 48 chunks; the root sends each of all 192 once."""
    nodes, locals_, groups = 9, 4, 12
    grid = tuple(tuple(range(n * locals_, (n + 1) * locals_)) for n in range(nodes))
    node_of = {rank: n for n, row in enumerate(grid) for rank in row}
    of_rail, whole = groups * GROUP, locals_ * groups * GROUP
    broadcast, reduce = rail_broadcast(grid, 14, groups), rail_reduce(grid, 14, groups)
    assert _sent(broadcast, node_of, across=True) == (of_rail, of_rail)
    assert _sent(reduce, node_of, across=True) == (of_rail, of_rail)
    assert _sent(broadcast, node_of, across=False)[0] == whole
    assert _sent(reduce, node_of, across=False)[1] == whole


@pytest.mark.parametrize(
    "collective",
    [Collective.BROADCAST, pytest.param(Collective.REDUCE, marks=pytest.mark.slow)],
)
def test_they_come_near_the_bound_and_before_all_others(collective: Collective) -> None:
    """64 chunks pass a pipeline about 12 chunks deep, of two trees over five nodes."""
    sketch = switched(6, 8, nvlink_gb_per_s=450.0, nic_gb_per_s=50.0)
    found = {
        a.name: compile_schedule(a, sketch).times(10**9, ExecutionModel())
        for a in expert_algorithms(collective, sketch, 3)
    }
    best = f"{collective}_rails_16g"
    assert min(found, key=lambda name: found[name].worse_us) == best
    bound_us = 1e6 / algbw_bound_gb_per_s(collective, sketch, 3)
    assert found[best].in_turn_us < bound_us / 0.8
    assert found[best].fair_us < bound_us / 0.75


def test_where_edges_are_too_many_they_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = switched(3, 2)
    beside = {a.name for a in expert_algorithms(Collective.REDUCE, sketch, 1)}
    rails = ["reduce_rails_2g", "reduce_rails_16g"]
    assert beside > set(rails)
    monkeypatch.setattr(experts, "MOST_EDGES_OF_ROOTED", 10)
    alone = [a.name for a in expert_algorithms(Collective.REDUCE, sketch, 1)]
    assert alone == [*rails, "reduce_over_1_homes"]
    assert takes_rails_alone(Collective.BROADCAST, sketch)
    assert not takes_rails_alone(Collective.ALLTOALL, sketch)
