"""The order in which programs add up: worked by hand, and found again in runs on floats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from synthesizer.programs.layout import PhaseKind
from synthesizer.programs.phase_plans import phased_plans, plan_by_name
from synthesizer.programs.phases import CallPhase, PhasedSchedule
from synthesizer.programs.sum_order import (
    Tree,
    order_of_kernels,
    order_of_nodes,
    order_of_phases,
    order_text,
    ranks_of,
    sum_of,
)
from tests.synthesizer.programs.call_runs import Array, run_phases
from tests.synthesizer.programs.phased_schedules import by_hand

ALL_REDUCE, REDUCE_SCATTER = Collective.ALL_REDUCE, Collective.REDUCE_SCATTER


def told(phased: PhasedSchedule) -> str | None:
    tree = order_of_phases(phased)
    return None if tree is None else order_text(tree)


def test_one_addition_commutes_and_no_other_does() -> None:
    assert sum_of([1, 0]) == sum_of([0, 1])
    assert sum_of([1, 0, 2]) == sum_of([0, 1, 2])
    assert sum_of([0, 2, 1]) != sum_of([0, 1, 2])
    assert sum_of([(2, 3), (0, 1)]) == ((0, 1), (2, 3))
    assert sum_of([(0, 1), 2]) != sum_of([0, 1, 2])  # Rounded twice.
    assert sum_of([7]) == 7


def test_kernels_add_in_the_order_of_ranks() -> None:
    assert order_text(order_of_kernels(4) or 0) == "(0+1+2+3)"
    assert order_of_kernels(16) == tuple(range(16))
    assert order_of_kernels(17) is None
    assert order_of_kernels(1) is None


def test_the_order_of_a_table() -> None:
    assert order_of_nodes(Shape(4, 1, 4)) == (0, 1, 2, 3)
    assert order_of_nodes(Shape(4, 2, 2)) == ((0, 1), (2, 3))
    assert order_of_nodes(Shape(3, 3, 1)) == (0, 1, 2)
    assert order_of_nodes(Shape(3, 2, 0)) is None
    assert order_of_nodes(Shape(1, 1, 1)) == 0


def test_exchanges_add_nodes_in_their_order() -> None:
    assert told(plan_by_name(ALL_REDUCE, "exchange_full", 3, 2)) == "((0+1)+(2+3)+(4+5))"
    assert told(plan_by_name(REDUCE_SCATTER, "exchange", 3, 2)) == "((0+1)+(2+3)+(4+5))"
    assert told(plan_by_name(REDUCE_SCATTER, "exchange", 4, 1)) == "(0+1+2+3)"
    assert told(plan_by_name(ALL_REDUCE, "exchange", 4, 1)) == "(0+1+2+3)"


def test_left_over_elements_are_added_by_nccl_so_an_exchange_in_chunks_has_no_order() -> None:
    assert told(plan_by_name(ALL_REDUCE, "exchange", 3, 2)) is None
    assert told(plan_by_name(ALL_REDUCE, "exchange", 2, 2)) == "((0+1)+(2+3))"


def test_nccl_adds_two_nodes_in_one_addition_and_three_as_it_likes() -> None:
    for name in ("rail_all_reduce", "rail_all_reduce_full"):
        assert told(plan_by_name(ALL_REDUCE, name, 2, 4)) == "((0+1+2+3)+(4+5+6+7))"
        assert told(plan_by_name(ALL_REDUCE, name, 3, 4)) is None
    assert told(plan_by_name(REDUCE_SCATTER, "rails_last", 2, 2)) == "((0+1)+(2+3))"
    assert told(plan_by_name(REDUCE_SCATTER, "rails_last", 3, 2)) is None


def test_moves_and_statements_have_no_order() -> None:
    assert told(plan_by_name(Collective.ALL_GATHER, "rails_first", 2, 2)) is None
    assert told(by_hand()) is None


def evaluate(tree: Tree, parts: Sequence[Array]) -> Array:
    """Return the sum of float16 numbers, which are added in 32 bits and rounded once a sum."""
    if isinstance(tree, int):
        return parts[tree]
    return added([evaluate(part, parts) for part in tree])


def added(parts: Sequence[Array]) -> Array:
    total = np.asarray(parts[0], dtype=np.float32)
    for part in parts[1:]:
        total = total + np.asarray(part, dtype=np.float32)
    return total.astype(np.float16).astype(np.float64)


@settings(deadline=None)
@given(
    st.integers(2, 5),
    st.integers(1, 5),
    st.sampled_from([ALL_REDUCE, REDUCE_SCATTER]),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_a_run_on_floats_of_16_bits_gives_the_sums_of_the_order(
    nodes: int, local_ranks: int, collective: Collective, seed: int, in_place: bool
) -> None:
    rng = np.random.default_rng(seed)
    for plan in phased_plans(collective, nodes, local_ranks):
        tree = order_of_phases(plan)
        if tree is None:
            continue
        assert tree == order_of_nodes(Shape(plan.ranks, nodes, local_ranks))
        assert ranks_of(tree) == tuple(range(plan.ranks))

        def add(phase: CallPhase, parts: list[Array]) -> Array:
            # NCCL's two may come in either order.
            return added(parts[::-1] if phase.kind is PhaseKind.RAIL else parts)

        inputs = rng.normal(size=(plan.ranks, plan.larger_chunks)).astype(np.float16)
        given = inputs.astype(np.float64)
        found = run_phases(plan, given, in_place=in_place, averages=False, rng=rng, add=add)
        sums = evaluate(tree, list(given))
        wanted = np.tile(sums, (plan.ranks, 1))
        if collective is REDUCE_SCATTER:
            wanted = sums.reshape(plan.ranks, -1)
        assert np.array_equal(found, wanted)


def test_the_order_matters_for_floats_of_16_bits() -> None:
    rng = np.random.default_rng(1)
    parts = list(rng.normal(size=(8, 1021)).astype(np.float16).astype(np.float64))
    in_order, of_two = (
        evaluate(tuple(range(8)), parts),
        evaluate(((0, 1, 2, 3), (4, 5, 6, 7)), parts),
    )
    assert np.mean(in_order != of_two) > 0.1


@pytest.mark.parametrize("ranks", [2, 3])
def test_two_ranks_have_one_order_alone(ranks: int) -> None:
    orders = {order_text(sum_of(order)) for order in ([0, 1, 2][:ranks], [2, 1, 0][-ranks:])}
    assert len(orders) == ranks - 1
