"""The spaces of a run whose calls take a bounded share of a GPU, or of a host's cores."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from lookup_tables.collective import Collective
from sketches.candidates import whole_machine
from tests.sketches.machines import cluster
from tuccl.crew.places import Place, Places
from tuccl.measuring.backends.backend_choice import BackendRequest
from tuccl.models.across_hosts.grid_figures import grid_figures
from tuccl.models.figures import communicator_shape
from tuccl.options.run_options import RunOptions
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.phased_candidates import phased_candidates
from tuccl.schedules.staged_candidates import RoundsRequest, candidates_across_hosts
from tuccl.search.trials.config import PHASES_PREFIX, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.space import Space
from tuccl.tuning.pipeline.search_spaces import cores_note, search_spaces
from tuccl.tuning.settings import make_settings

TOPOLOGY = cluster(2, 2, 1)
TASK = Task(Collective.ALL_REDUCE, 1 << 26, communicator_shape(TOPOLOGY))
CANDIDATES = phased_candidates(
    TASK.operation, grid_figures(TOPOLOGY), whole_machine(TOPOLOGY), (TASK.size_bytes,)
)


def schedules_within(max_channels: int | None) -> Space:
    settings = make_settings(RunOptions(topology="shipped:a100-8gpu-8nic"))
    request = BackendRequest(TOPOLOGY, TASK.shape, options=RunOptions(max_channels=max_channels))
    candidates = {TASK.shape: {TASK.operation: CANDIDATES}}
    return search_spaces(settings, candidates, request).schedules(TASK)


def hashes(candidates: list[Candidate]) -> set[str]:
    return {f"{PHASES_PREFIX}{candidate.content_hash}" for candidate in candidates}


def test_schedules_whose_calls_along_rails_take_more_are_left_out() -> None:
    tried = [c for c in CANDIDATES if c.promises_for(TASK.size_bytes)]
    by_channels = {n: [c for c in tried if c.rail_channels == n] for n in (0, 1, 2)}
    assert all(by_channels.values()), "NCCL's own count, and settings of one and two channels"
    names = {family.algorithm for family in schedules_within(None).families}
    assert names == hashes(tried)
    names = {family.algorithm for family in schedules_within(1).families}
    assert names == hashes([*by_channels[0], *by_channels[1]])


def test_kernels_within_nodes_have_no_more_thread_blocks() -> None:
    assert max(config.nchannels for config in schedules_within(None)) == 32
    assert max(config.nchannels for config in schedules_within(16)) == 16
    assert {config.nchannels for config in schedules_within(3)} == {2}


@pytest.mark.parametrize("invariant", [False, True])
def test_nccl_cuts_calls_itself_where_sums_must_not_move(invariant: bool) -> None:
    options = RunOptions(topology="shipped:a100-8gpu-8nic", backend="nccl", invariant=invariant)
    table = CostTable.parse("ring/LL=1.0 ring/Simple=1.0 chunks")
    request = BackendRequest(TOPOLOGY, TASK.shape, options=options)
    spaces = search_spaces(make_settings(options), {}, request, lambda _: table)
    chunks = {1 << 15, 1 << 17, 1 << 19}
    found = {config.chunk_bytes for config in spaces.builtins(TASK)}
    assert found == ({0} if invariant else {0, *chunks})
    gathered = replace(TASK, operation=Collective.ALL_GATHER)
    assert chunks < {config.chunk_bytes for config in spaces.builtins(gathered)}


def on_cores(each: int) -> BackendRequest:
    """The request of four ranks with so many cores each."""
    places = tuple(
        Place(
            f"host{rank // 2}", rank % 2, frozenset(range(rank % 2 * each, (rank % 2 + 1) * each))
        )
        for rank in range(4)
    )
    return BackendRequest(
        TOPOLOGY, TASK.shape, places=cast("Places", SimpleNamespace(places=places))
    )


@pytest.mark.parametrize(("cores", "lanes"), [(2, {1}), (4, {1, 2}), (7, {1, 2, 4})])
def test_schedules_of_more_lanes_than_cores_can_drive_are_left_out(
    cores: int, lanes: set[int]
) -> None:
    settings = make_settings(RunOptions(topology="shipped:a100-8gpu-8nic", backend="nccl,executor"))
    request, candidates = on_cores(cores), {TASK.shape: {TASK.operation: CANDIDATES}}
    space = search_spaces(settings, candidates, request).schedules(TASK)
    named = {family.algorithm for family in space.families}
    tried = [c for c in CANDIDATES if f"{PHASES_PREFIX}{c.content_hash}" in named]
    assert {c.lanes for c in tried} == lanes
    left_out = sum(c.lanes > max(lanes) for c in CANDIDATES)
    note = cores_note(settings, candidates, request)
    assert note is not None
    assert f"left out: {left_out} schedules of more lanes" in note


def test_nothing_is_left_out_for_want_of_cores_where_nothing_is_timed() -> None:
    settings = make_settings(RunOptions(topology="shipped:a100-8gpu-8nic"))
    candidates = {TASK.shape: {TASK.operation: CANDIDATES}}
    assert cores_note(settings, candidates, on_cores(2)) is None
    space = search_spaces(settings, candidates, on_cores(2)).schedules(TASK)
    assert space == schedules_within(None)


@pytest.mark.long
def test_a_schedule_that_the_model_puts_before_every_plan_is_tried_first() -> None:
    """With a rail at half its rate a schedule that sends a third along it is; without, none is."""
    settings = make_settings(RunOptions(topology="shipped:a100-8gpu-8nic", backend="nccl,executor"))
    kinds = []
    for slow in (3.0, 1.5):
        rates = {(node, nic): (3.0, slow)[nic] for node in (0, 1) for nic in (0, 1)}
        machine = cluster(2, 2, 2, nic_gb_per_s=rates)
        wanted = RoundsRequest(TASK.operation, machine, whole_machine(machine), (TASK.size_bytes,))
        found = candidates_across_hosts(wanted)
        by_hash = {f"{PHASES_PREFIX}{each.content_hash}": each for each in found}
        schedules = {each.content_hash: each for each in found}
        request = BackendRequest(machine, TASK.shape, schedules=schedules)
        spaces = search_spaces(settings, {TASK.shape: {TASK.operation: found}}, request)
        first = by_hash[spaces.schedules(TASK).families[0].algorithm].phased
        assert first is not None
        kinds.append(first.is_uniform)
    assert kinds == [True, False]
