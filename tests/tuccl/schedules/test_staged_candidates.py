"""Candidates in stages and rounds for nodes of different sizes, their space and copies on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import executor_serves, runs_across_hosts
from lookup_tables.table import NcclProtocol, Shape, StoredSchedule
from sketches.candidates import whole_machine
from synthesizer.programs import cutting
from synthesizer.programs.compiler import check_programs
from tests.sketches.machines import cluster
from tests.synthesizer.plan.test_uneven_machines import Shape as Uneven
from tests.synthesizer.programs.phased_schedules import has_rounds, read_phases
from tuccl.crew.pool import worker_processes
from tuccl.errors import WorkspaceError
from tuccl.models.across_hosts.staged_model import StagedModel
from tuccl.models.executor_model import KernelParameters
from tuccl.models.figures import communicator_shape, uses_sockets
from tuccl.schedules.candidates import Candidate, _cut
from tuccl.schedules.executor_schedules import (
    executor_programs,
    executor_space,
    modelled_space,
)
from tuccl.schedules.own_schedules import OwnSchedule, own_candidates
from tuccl.schedules.saved_candidates import load_candidates, save_candidates
from tuccl.schedules.staged_candidates import (
    RoundsRequest,
    node_sizes_of,
    staged_candidates,
)

SIZES = (1 << 10, 1 << 20, 1 << 26)
TOPOLOGY = Uneven((3, 1), 1, "mesh").topology()
MACHINE = whole_machine(TOPOLOGY)


@cache
def candidates(operation: Collective = Collective.ALL_REDUCE) -> tuple[Candidate, ...]:
    return staged_candidates(RoundsRequest(operation, TOPOLOGY, MACHINE, SIZES))


@pytest.mark.parametrize("operation", COLLECTIVES)
def test_expert_algorithms_are_cut_for_the_nodes_of_the_machine(operation: Collective) -> None:
    assert communicator_shape(TOPOLOGY) == Shape(4, 2, 0)
    found = candidates(operation)
    staged = [read_phases(each.program) for each in found]
    assert {each.node_sizes for each in staged} == {(3, 1)}
    assert {each.collective for each in staged} == {each.collective for each in found}
    assert len({each.content_hash for each in found}) == len(found)
    # The fewest rounds come first and are tried at every size.
    assert len(staged[0].rounds) == 1 == min(len(each.rounds) for each in staged)
    assert [promise.size_bytes for promise in found[0].promises] == list(SIZES)
    assert all(0.0 < promise.ratio <= 1.0 for each in found for promise in each.promises)


@pytest.mark.long
def test_nodes_beyond_the_kernels_of_patterns_have_schedules_in_rounds() -> None:
    topology = Uneven((17, 1), 1, "mesh").topology()
    request = RoundsRequest(Collective.ALL_GATHER, topology, whole_machine(topology), SIZES[:1])
    found = staged_candidates(request)
    assert {read_phases(each.program).node_sizes for each in found} == {(17, 1)}


def test_ranks_of_a_node_must_follow_one_another() -> None:
    assert node_sizes_of(MACHINE) == (3, 1)
    interleaved = replace(MACHINE, node_of_rank=(0, 1, 0, 0))
    assert node_sizes_of(interleaved) == ()
    assert (
        staged_candidates(RoundsRequest(Collective.ALL_REDUCE, TOPOLOGY, interleaved, SIZES)) == ()
    )


def test_an_executor_serves_nodes_of_different_sizes_and_runs_rounds_there() -> None:
    assert executor_serves(Shape(4, 2, 0))
    assert executor_serves(Shape(32, 2, 16))
    assert not executor_serves(Shape(66, 2, 33))
    (first, *_) = candidates()
    stored = StoredSchedule(first.content_hash, first.name, "", first.program)
    assert has_rounds(first.program)
    assert runs_across_hosts([stored], first.content_hash)
    check_programs([stored], "table")


def test_their_space_has_protocols_and_channels_and_slices_of_large_calls() -> None:
    (first, *_) = candidates()
    for size_bytes, protocols in ((1 << 10, {"LL"}), (1 << 16, {"LL", "LL128"})):
        families = executor_space([first], size_bytes).families
        assert {family.algorithm for family in families} == {f"phases:{first.content_hash}"}
        assert {family.protocol for family in families} == protocols
        assert {buffers for family in families for buffers in family.axes[2]} == {1 << 30}
    sliced = executor_space([first], 1 << 22).families
    assert {family.axes[2] for family in sliced} == {(1 << 18, 1 << 20, 1 << 30)}
    assert executor_programs(candidates()).content_hashes == {
        each.content_hash for each in candidates()
    }


def test_slices_are_spread_over_lanes_where_threads_drive_the_network() -> None:
    """Over TCP each lane is a thread."""
    nics = [replace(nic, os_name="eth0") for nic in TOPOLOGY.nics]
    others = [device for device in TOPOLOGY.devices if device not in TOPOLOGY.nics]
    over_tcp = replace(TOPOLOGY, devices=(*others, *nics))
    found = staged_candidates(RoundsRequest(Collective.ALL_GATHER, over_tcp, MACHINE, SIZES))
    laned = {each.lanes: each for each in found if each.lanes > 1}
    assert list(laned) == [2, 4, 8]
    for lanes, candidate in laned.items():
        assert candidate.name.endswith(f"*{lanes}")
        assert read_phases(candidate.program).lanes == lanes
        assert not candidate.promises_for(SIZES[0]), "too small for slices"
        assert candidate.promises_for(SIZES[-1])
        families = executor_space([candidate], SIZES[-1]).families
        slices = [SIZES[-1] // (lanes * times) for times in (4, 2, 1)]
        assert {family.axes[2] for family in families} == {tuple(slices)}
    (plain,) = {each for each in found if each.steps == laned[8].steps and each.lanes == 1}
    times_us = [
        StagedModel(each.phased, over_tcp).time_us(
            SIZES[-1], KernelParameters(NcclProtocol.LL128, 64, 512), SIZES[-1] // (2 * each.lanes)
        )
        for each in (plain, *laned.values())
        if each.phased is not None
    ]
    assert times_us[0] > 1.8 * times_us[1] > 1.8 * 1.5 * times_us[2] > 1.8 * 1.5 * times_us[3]


def test_lanes_are_tried_over_tcp_where_the_model_has_the_nic_slower_than_a_thread() -> None:
    """10 Gbit/s are assumed of NICs that state no speed, of loopback and of virtual machines."""
    slow = cluster(2, 2, 1, nic_gb_per_s={(0, 0): 1.25, (1, 0): 1.25})
    nics = tuple(replace(nic, os_name="eth0") for nic in slow.nics)
    others = tuple(device for device in slow.devices if device not in slow.nics)
    lanes_of = {}
    for topology in (slow, replace(slow, devices=(*others, *nics))):
        machine = whole_machine(topology)
        request = RoundsRequest(Collective.ALL_GATHER, topology, machine, SIZES)
        found = staged_candidates(request)
        lanes_of[uses_sockets(topology)] = {
            each.lanes for each in found if each.promises_for(SIZES[-1])
        }
    assert lanes_of[True] == {1, 2, 4, 8}
    assert 8 not in lanes_of[False]


def test_a_call_whose_chunks_do_not_fit_the_scratch_memory_has_no_space() -> None:
    (first, *_) = candidates()
    assert executor_space([first], 1 << 28).families
    assert executor_space([first], 1 << 34).families == ()
    assert executor_space(candidates(), 1 << 16) == modelled_space(candidates(), 1 << 16)
    large = staged_candidates(
        RoundsRequest(Collective.ALL_REDUCE, TOPOLOGY, MACHINE, (1 << 10, 1 << 34))
    )
    assert {promise.size_bytes for each in large for promise in each.promises} == {1 << 10}


@pytest.mark.long
def test_beside_a_faster_plan_none_is_tried() -> None:
    machine = cluster(2, 2, 1)
    request = RoundsRequest(Collective.ALL_REDUCE, machine, whole_machine(machine), SIZES)
    alone = staged_candidates(request)
    assert all(
        any(candidate.promises_for(size_bytes) for candidate in alone) for size_bytes in SIZES
    )
    rivals_us = {SIZES[0]: 1.0, SIZES[1]: 1e9, SIZES[2]: 1e9}
    beside = staged_candidates(replace(request, rivals_us=rivals_us))
    tried = {promise.size_bytes for each in beside for promise in each.promises}
    assert tried == set(SIZES[1:])


@pytest.mark.long
def test_a_slow_rail_carries_less_in_a_schedule_that_is_searched() -> None:
    """Two nodes of two GPUs, where one of four NICs has half of the others' bandwidth."""
    topology = cluster(2, 2, 2, nic_gb_per_s={(0, 0): 12.0, (0, 1): 24.0})
    machine, size_bytes = whole_machine(topology), 1 << 26
    request = RoundsRequest(
        Collective.ALL_GATHER, topology, machine, (size_bytes,), {size_bytes: 1e9}
    )
    experts = staged_candidates(request)
    searching = replace(request, searched_bytes=(size_bytes,))
    searched = staged_candidates(searching)
    assert not any(each.origin.startswith("synthesized") for each in experts)
    # The rails of the best expert carry as much as each other, so that it waits for the slow NIC.
    first, *_ = searched
    assert first.origin.startswith("synthesized on full_mesh")
    wires_us = [
        min(each.promises[0].simulated_us for each in found) for found in (searched, experts)
    ]
    assert wires_us[0] < 0.8 * wires_us[1]
    check_programs([StoredSchedule(first.content_hash, first.name, "", first.program)], "table")
    with worker_processes(2) as workers:
        assert staged_candidates(searching, workers=workers) == searched


def test_a_saved_candidate_is_the_same_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    made = (*candidates(), replace(candidates()[0], round_lanes=4))
    save_candidates(tmp_path, made)
    assert load_candidates(tmp_path, [MACHINE]) == made
    index = json.loads((tmp_path / "index.json").read_text())
    index["schedules"][0]["node_sizes"] = [1, 3]
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(WorkspaceError, match="was changed"):
        load_candidates(tmp_path, [MACHINE])


@pytest.mark.parametrize("topology", [TOPOLOGY, cluster(2, 2, 1)])
def test_a_schedule_of_the_user_runs_in_rounds_on_any_nodes(topology: object) -> None:
    own = OwnSchedule(Path("mine.xml"), candidates()[0].steps)
    machine = MACHINE if topology is TOPOLOGY else whole_machine(cluster(2, 2, 1))
    (candidate,) = own_candidates([own], [], machine, SIZES, in_rounds=True)[Collective.ALL_REDUCE]
    assert candidate.node_sizes == node_sizes_of(machine)
    assert read_phases(candidate.program).node_sizes == candidate.node_sizes


def test_a_schedule_of_the_user_without_rounds_keeps_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = OwnSchedule(Path("mine.xml"), candidates()[0].steps)
    monkeypatch.setattr(cutting, "MOST_ROUNDS", 0)
    _cut.cache_clear()
    found = own_candidates([own], [], MACHINE, SIZES, in_rounds=True)
    (candidate,) = found[Collective.ALL_REDUCE]
    assert candidate.node_sizes == ()
    assert candidate.content_hash == own.algorithm.content_hash()
