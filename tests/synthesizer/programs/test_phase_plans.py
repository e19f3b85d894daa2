"""The known schedules across hosts: each computes its operation, whatever the grid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.program_header import HEADER
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from synthesizer.programs.compiler import compile_program, program_hash
from synthesizer.programs.phase_plans import phased_plans, plan_by_name
from synthesizer.programs.proof import prove
from tests.synthesizer.programs.phased_schedules import all_plans
from tuccl.errors import NoProgramError

NAMES = {
    Collective.ALL_REDUCE: ["rail_all_reduce", "exchange", "rail_all_reduce_full", "exchange_full"],
    Collective.ALL_GATHER: ["rails_first"],
    Collective.REDUCE_SCATTER: ["rails_last", "exchange"],
    Collective.ALLTOALL: ["rails_last"],
}


@pytest.mark.parametrize("local_ranks", [1, 2, 3, 4, 5, 8, 16])
def test_every_plan_is_proved_in_place_too(local_ranks: int) -> None:
    for nodes in range(2, 6):
        assert all(prove(plan).in_place for plan in all_plans(nodes, local_ranks))


@pytest.mark.parametrize("collective", Collective)
def test_the_plans_of_an_operation(collective: Collective) -> None:
    plans = phased_plans(collective, 3, 4)
    assert [plan.name for plan in plans] == NAMES.get(collective, [])
    for plan in plans:
        assert plan_by_name(collective, plan.name, 3, 4) == plan
        assert (plan.collective, plan.nodes, plan.local_ranks) == (collective, 3, 4)


def test_nodes_of_one_rank_have_lanes_of_one_call_and_exchanges() -> None:
    plans = all_plans(4, 1)
    assert [(plan.collective, plan.name) for plan in plans] == [
        (Collective.REDUCE_SCATTER, "exchange"),
        (Collective.ALL_REDUCE, "rail_all_reduce"),
        (Collective.ALL_REDUCE, "exchange"),
    ]


@pytest.mark.parametrize("grid", [(1, 8), (0, 4), (4097, 8), (2, 17), (2, 0)])
def test_other_grids_have_no_plans(grid: tuple[int, int]) -> None:
    assert all_plans(*grid) == []


def test_a_plan_that_does_not_exist_is_named() -> None:
    with pytest.raises(NoProgramError, match="no plan 'rings'; known: rails_last, exchange"):
        plan_by_name(Collective.REDUCE_SCATTER, "rings", 2, 4)
    with pytest.raises(NoProgramError, match="known: none"):
        plan_by_name(Collective.BROADCAST, "rings", 2, 4)


def test_a_name_may_end_with_a_configuration_of_rails() -> None:
    rails = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.SIMPLE, 2)
    plan = plan_by_name(Collective.ALL_REDUCE, "rail_all_reduce", 2, 4).with_rails(rails)
    assert plan.name == "rail_all_reduce@tree-Simple-2"
    assert plan_by_name(Collective.ALL_REDUCE, plan.name, 2, 4) == plan
    for words in ("", "tree-Simple", "bush-Simple-2", "tree-Simple-two"):
        with pytest.raises(NoProgramError, match="not a configuration of rails, such as ring-LL-1"):
            plan_by_name(Collective.ALL_REDUCE, f"rail_all_reduce@{words}", 2, 4)


def test_configurations_of_rails_have_hashes_of_their_own() -> None:
    plan = plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 4)
    rails = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL)
    plans = [plan, *(plan.with_rails(replace(rails, nchannels=n)) for n in range(5))]
    assert len({program_hash(plan) for plan in plans}) == 6
    assert program_hash(replace(plan, name="")) == program_hash(plan)


def test_different_plans_have_different_addresses() -> None:
    plans = [
        plan
        for nodes in (2, 3)
        for local_ranks in (1, 2, 8)
        for plan in all_plans(nodes, local_ranks)
    ]
    addresses = {HEADER.unpack_from(compile_program(plan))[3] for plan in plans}
    assert len(addresses) == len(plans)
