"""Candidates for the executor on several nodes, their space and their copies on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Shape
from probes.topology.graph import Topology
from sketches.candidates import whole_machine
from synthesizer.programs import proof
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.phase_plans import phased_plans
from synthesizer.programs.proof import is_within_reach
from tests.sketches.machines import cluster
from tests.synthesizer.programs.phased_schedules import is_uniform, read_phases
from tuccl.errors import WorkspaceError
from tuccl.measuring.backends.simulated import SimulatedBackend
from tuccl.models.across_hosts.grid_figures import grid_figures
from tuccl.models.figures import communicator_shape
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.executor_schedules import (
    executor_programs,
    executor_space,
    modelled_space,
)
from tuccl.schedules.phased_candidates import fastest_us, phased_candidates
from tuccl.schedules.saved_candidates import load_candidates, save_candidates
from tuccl.search.trials.config import Task

SIZES = (1 << 10, 1 << 20, 1 << 26)
PLAN = {"collective": "reduce_scatter", "name": "rails_last", "nodes": 2, "local_ranks": 2}
TOPOLOGY = cluster(2, 2, 1)
MACHINE = whole_machine(TOPOLOGY)


def candidates(operation: Collective, topology: Topology = TOPOLOGY) -> tuple[Candidate, ...]:
    return phased_candidates(operation, grid_figures(topology), whole_machine(topology), SIZES)


@pytest.mark.parametrize(
    ("operation", "plans"),
    [
        (
            Collective.ALL_REDUCE,
            ["rail_all_reduce", "exchange", "rail_all_reduce_full", "exchange_full"],
        ),
        (Collective.ALL_GATHER, ["rails_first"]),
        (Collective.REDUCE_SCATTER, ["rails_last", "exchange"]),
        (Collective.ALLTOALL, ["rails_last"]),
        (Collective.BROADCAST, []),
    ],
)
def test_each_plan_is_tried_with_settings_of_its_rails(
    operation: Collective, plans: list[str]
) -> None:
    assert communicator_shape(TOPOLOGY) == Shape(4, 2, 2)
    found = candidates(operation)
    settings = [each.phases for each in found if each.phases is not None]
    assert len({each.content_hash for each in found}) == len(found) == len(settings)
    assert [each.name for each in settings if each.lanes == 1 and "@" not in each.name] == plans
    for each in found:
        assert each.phases is not None
        assert each.name == f"{operation.value}_{each.phases.name}"
        assert each.collective.value == operation.value
        assert each.promises
        assert all(0 < promise.ratio <= 1 + 1e-9 for promise in each.promises)
    for size_bytes in SIZES:
        assert any(each.promises_for(size_bytes) for each in found) is bool(plans)


@pytest.mark.long
@pytest.mark.parametrize(("local_ranks", "has_plans"), [(16, True), (17, False)])
def test_plans_are_for_nodes_that_kernels_of_patterns_serve(
    local_ranks: int, has_plans: bool
) -> None:
    """Two DGX-2, and nodes of which schedules in rounds alone are candidates."""
    found = candidates(Collective.ALL_GATHER, cluster(2, local_ranks, 8))
    assert bool(found) is has_plans
    assert all(each.program for each in found)


def test_settings_are_tried_at_the_sizes_that_they_are_for() -> None:
    sizes = {
        each.phases.name: [promise.size_bytes for promise in each.promises]
        for each in candidates(Collective.ALL_REDUCE)
        if each.phases is not None
    }
    small, *large = SIZES
    assert sizes["exchange"] == list(SIZES)
    assert sizes["exchange@ring-LL-1"] == sizes["exchange_full"] == [small]
    assert sizes["exchange@ring-Simple-1"] == sizes["exchange*4@ring-Simple-2"] == large
    assert "rail_all_reduce@pat-Simple-1" not in sizes
    alltoalls = [each.phases for each in candidates(Collective.ALLTOALL) if each.phases]
    assert [each.name for each in alltoalls] == ["rails_last"], "its slices would lie apart"


def test_the_program_of_a_candidate_is_that_of_its_phases() -> None:
    found = candidates(Collective.ALL_REDUCE)
    programs = executor_programs(found)
    assert programs.content_hashes == {each.content_hash for each in found}
    for each in found:
        assert each.phases is not None
        assert is_uniform(each.program)
        assert each.program == compile_program(each.phases)
        assert read_phases(each.program).phases == each.phases.phases


def test_parameters_of_kernels_are_searched_where_there_are_kernels() -> None:
    own = candidates(Collective.ALL_GATHER)[:1]
    space = executor_space(own, 1 << 10)
    assert {family.protocol for family in space.families} == {"LL"}
    assert all(config.algorithm.startswith("phases:") for config in space)
    assert space.size == 4 * 2
    assert {family.protocol for family in executor_space(own, 1 << 16).families} == {"LL", "LL128"}
    large = executor_space(own, 1 << 26)
    assert {family.protocol for family in large.families} == {"LL128"}
    assert {family.protocol for family in executor_space(own, 1 << 26, ll128=False).families} == {
        "LL"
    }
    assert len(set(large.configs)) == large.size
    alone = candidates(Collective.ALL_REDUCE, cluster(2, 1, 1))
    exchange = [each for each in alone if each.phases and each.phases.name == "exchange"]
    assert executor_space(exchange, 1 << 10).size == 1


def test_one_call_of_nodes_of_one_gpu_is_tried_with_lanes_alone() -> None:
    names = {
        each.phases.name
        for each in candidates(Collective.ALL_REDUCE, cluster(2, 1, 1))
        if each.phases is not None and each.phases.name.startswith("rail_all_reduce")
    }
    laned = {f"rail_all_reduce*{lanes}" for lanes in (2, 4, 8)}
    steered = {f"{name}@ring-Simple-{count}" for name in laned for count in (1, 2)}
    assert names == laned | steered


def test_saved_plans_are_read_back_equal(tmp_path: Path) -> None:
    found = candidates(Collective.REDUCE_SCATTER)
    save_candidates(tmp_path, found)
    assert load_candidates(tmp_path, [MACHINE]) == found


@pytest.mark.parametrize(
    "plan",
    [
        {**PLAN, "name": "exchange"},
        {**PLAN, "name": "detour"},
        {**PLAN, "collective": "broadcast"},
        {"name": "rails_last"},
    ],
)
def test_a_plan_that_is_not_the_schedule_is_refused(
    tmp_path: Path, plan: dict[str, object]
) -> None:
    save_candidates(tmp_path, candidates(Collective.REDUCE_SCATTER))
    path = tmp_path / "index.json"
    index = json.loads(path.read_text())
    index["schedules"][0]["plan"] = plan
    path.write_text(json.dumps(index))
    with pytest.raises(WorkspaceError):
        load_candidates(tmp_path, [MACHINE])


def test_plans_that_differ_in_their_rails_alone_are_different_candidates(tmp_path: Path) -> None:
    (plain, *_) = candidates(Collective.ALL_REDUCE)
    assert plain.phases is not None
    steered = tuple(
        replace(plain, schedule=phases)
        for nchannels in (1, 2)
        for rails in [BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, nchannels)]
        for phases in [plain.phases.with_rails(rails)]
    )
    found = (plain, *steered)
    assert len({each.content_hash for each in found}) == 3
    save_candidates(tmp_path, found)
    assert load_candidates(tmp_path, [MACHINE]) == found


def test_plans_that_no_proof_has_room_for_are_no_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (plan,) = phased_plans(Collective.ALLTOALL, 2, 2)
    monkeypatch.setattr(proof, "MOST_CELLS", 4 * (4 + 4 + 4) - 1)
    assert not is_within_reach(plan)
    assert candidates(Collective.ALLTOALL) == ()
    assert len(candidates(Collective.ALL_GATHER)) > 1


def test_a_plan_has_no_steps_and_no_xml_of_them() -> None:
    (plain, *_) = candidates(Collective.ALL_GATHER)
    assert plain.phases is not None
    with pytest.raises(TypeError, match="all_gather_rails_first has phases, no steps of ranks"):
        _ = plain.steps
    assert plain.msccl_xml == ""


def test_the_fastest_plan_is_the_fastest_of_all_that_are_tried() -> None:
    machine = cluster(2, 2, 1)
    grid = grid_figures(machine)
    plans = phased_candidates(Collective.ALL_REDUCE, grid, whole_machine(machine), SIZES)
    schedules = {plan.content_hash: plan for plan in plans}
    backend = SimulatedBackend(machine, schedules, seed=0, spread=0.0)
    for size_bytes, found_us in fastest_us(plans, grid, SIZES).items():
        task = Task(Collective.ALL_REDUCE, size_bytes, communicator_shape(machine))
        promising = [plan for plan in plans if plan.promises_for(size_bytes)]
        best_us = min(
            backend.measure(task, config, 0, 1).samples_us[0]
            for config in modelled_space(promising, size_bytes)
        )
        assert found_us == pytest.approx(best_us)
    assert fastest_us((), grid, SIZES) == {}
