"""Which keys keep their worth after a change, and which are measured again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from probes.topology.graph import LinkKind, Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from tests.probes.two_port_machines import has_two_ports_on_a_bus_id, two_port_a100
from tests.sketches.machines import cluster
from tuccl.models.figures import MachineFigures, communicator_shape
from tuccl.models.siblings import SiblingMachines
from tuccl.options.run_options import RunOptions
from tuccl.reports.report import KeyReport, Report
from tuccl.search.trials.shapes import shape_named
from tuccl.tuning.pipeline.options_to_settings import with_shapes
from tuccl.tuning.pipeline.retune_plan import (
    KEPT_WHY,
    Fate,
    RetunePlan,
    already_tuned,
    plan_lines,
    plan_retune,
)
from tuccl.tuning.pipeline.retuning import compare
from tuccl.tuning.run_keys import keys_of
from tuccl.tuning.settings import RunSettings

ALL = "whole,node,rail,pairs"
OPERATIONS = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
BASE = RunSettings(OPERATIONS, (1024, 4096), RunOptions(shapes=ALL))


def settings_on(machine: Topology, base: RunSettings = BASE) -> RunSettings:
    return with_shapes(base, communicator_shape(machine), only_possible=True)


def report_on(machine: Topology, base: RunSettings = BASE) -> Report:
    """A report of a run that tuned all keys of a machine."""
    own = settings_on(machine, base)
    keys = [
        KeyReport(
            operation=task.operation, size_bytes=task.size_bytes, shape=task.shape,
            min_bytes=task.size_bytes, max_bytes=task.size_bytes, stock_us=1.0,
            profile_default_us=1.0, builtin=None, schedule=None, rejected=[], configs_tried=1,
            repeats_measured=1, converged=True, why="",
        )
        for task in keys_of(own, communicator_shape(machine))
    ]  # fmt: skip
    shapes = {named.name: named.shape for named in own.shapes}
    return Report(
        version=2, backend="simulated", profile={}, schedules={}, keys=keys, shapes=shapes
    )


def plan(before: Topology, now: Topology, *everywhere: str) -> RetunePlan:
    return plan_retune(before, now, report_on(before), settings_on(now), everywhere)


def fates(found: RetunePlan) -> dict[str, Fate]:
    return {each.name: each.fate for each in found.shapes}


def with_halved(machine: Topology, kind: LinkKind, *names: str) -> Topology:
    """The machine with the links of this kind at these devices at half their bandwidth."""
    return replace(
        machine,
        links=tuple(
            replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s / 2)
            if link.kind is kind and {link.src, link.dst} & set(names)
            else link
            for link in machine.links
        ),
    )


def renamed(machine: Topology) -> Topology:
    return replace(machine, name="elsewhere", hosts=tuple(f"new{n}" for n in range(4)))


A, K, N = Fate.AGAIN, Fate.KEPT, Fate.NEW
BEFORE = cluster(2, 4, 4)


@pytest.mark.parametrize(
    ("before", "now", "wanted", "gone"),
    [
        pytest.param(
            BEFORE, cluster(2, 4, 4, absent=frozenset({"n1/gpu3"})), {"whole": N},
            {"whole", "node", "rail", "pairs"}, id="one GPU hidden",
        ),
        pytest.param(
            cluster(1, 4, 4), cluster(1, 4, 4, absent=frozenset({"n0/gpu2", "n0/gpu3"})),
            {"whole": K}, {"whole"},
            id="two GPUs of a host hidden: the two left are a pair as before",
        ),
        pytest.param(
            BEFORE, cluster(2, 4, 4, nic_gb_per_s={(1, 2): 6.0}),
            {"whole": A, "node": K, "rail": A, "pairs": K}, set(), id="one NIC slower",
        ),
        pytest.param(
            cluster(3, 4, 4), cluster(2, 4, 4),
            {"whole": N, "node": K, "rail": N, "pairs": K}, {"whole", "rail"}, id="one node gone",
        ),
        pytest.param(
            BEFORE, with_halved(BEFORE, LinkKind.NVLINK, "n1/gpu3"),
            {"whole": A, "node": A, "rail": K, "pairs": A}, set(), id="one NVLink slower",
        ),
        pytest.param(
            BEFORE, with_halved(BEFORE, LinkKind.PCIE, "n0/nic1"),
            {"whole": A, "node": K, "rail": A, "pairs": K}, set(), id="a NIC's PCIe link slower",
        ),
        pytest.param(
            cluster(1, 4, 4), cluster(1, 4, 4, nic_gb_per_s={(0, 0): 6.0}),
            {"whole": K, "pairs": K}, set(), id="a NIC of a single host slower",
        ),
    ],
)  # fmt: skip
def test_exactly_what_a_change_touches_is_measured_again(
    before: Topology, now: Topology, wanted: dict[str, Fate], gone: set[str]
) -> None:
    found = plan(before, now)
    assert fates(found) == wanted
    assert set(found.gone) == gone
    assert len(found.tasks) == 4 * len(wanted)
    assert {task.shape for task in found.kept} == {
        each.shape for each in found.shapes if each.fate is K
    }
    assert set(found.kept) | set(found.measured) == set(found.tasks)


def test_renamed_hosts_change_nothing() -> None:
    assert compare(BEFORE, renamed(BEFORE)).changes == ()
    assert set(fates(plan(BEFORE, renamed(BEFORE))).values()) == {K}


@pytest.mark.long
def test_two_ports_on_a_bus_id_with_only_an_nvlink_changed() -> None:
    before = replicate(two_port_a100(), 2, Network(1.0, NetworkLayout.RAILS))
    assert has_two_ports_on_a_bus_id(before)
    now = with_halved(before, LinkKind.NVLINK, "n0/gpu5")
    assert len(compare(before, now).changes) == 1
    found = plan(before, now)
    assert fates(found) == {"whole": A, "node": A, "rail": K, "pairs": A}
    (pairs,) = (each for each in found.shapes if each.name == "pairs")
    assert pairs.why == compare(before, now).changes[0]


def test_the_why_of_a_shape_names_its_own_changes() -> None:
    both = with_halved(cluster(2, 4, 4, nic_gb_per_s={(1, 2): 6.0}), LinkKind.NVLINK, "n0/gpu1")
    why = {each.name: each.why for each in plan(BEFORE, both).shapes}
    assert "NVLink" in why["node"]
    assert "nic2" not in why["node"]
    assert "nic2" in why["rail"]
    assert "NVLink" not in why["rail"]
    assert "NVLink" in why["whole"]
    assert "nic2" in why["whole"]


def test_another_nccl_touches_every_key_from_the_beginning() -> None:
    found = plan(BEFORE, BEFORE, "NCCL is 2.29.")
    assert set(fates(found).values()) == {A}
    assert {each.why for each in found.shapes} == {"NCCL is 2.29."}
    assert not found.is_partial
    assert plan(BEFORE, cluster(2, 4, 2)).is_partial


def test_keys_that_the_old_table_lacks_are_measured() -> None:
    more = replace(BASE, sizes_bytes=(1024, 4096, 16384))
    now = with_halved(BEFORE, LinkKind.NVLINK, "n0/gpu1")
    found = plan_retune(BEFORE, now, report_on(BEFORE), settings_on(now, more))
    assert set(fates(found).values()) == {N}


def test_a_report_without_shapes_is_of_all_gpus() -> None:
    old = report_on(BEFORE)
    whole = shape_named(next(iter(settings_on(BEFORE).shapes)).name, communicator_shape(BEFORE))
    keys = [key.model_copy(update={"shape": None}) for key in old.keys if key.shape == whole]
    old = old.model_copy(update={"keys": keys, "shapes": {}})
    now = cluster(2, 4, 4, nic_gb_per_s={(1, 2): 6.0})
    found = plan_retune(BEFORE, now, old, settings_on(now))
    assert fates(found) == {"whole": A, "node": N, "rail": N, "pairs": N}


def test_lines_are_for_each_shape_and_operation() -> None:
    lines = list(plan_lines(plan(cluster(3, 4, 4), cluster(2, 4, 4))))
    assert f"node all_reduce: 2 keys kept: {KEPT_WHY}" in lines
    assert any(line.startswith("rail all_gather: 2 keys measured for the first") for line in lines)
    assert "whole: the entries for 12 ranks on 3 node(s) go" in "\n".join(lines)
    assert lines[-1] == "8 of 16 keys to measure, 8 kept"
    assert not already_tuned(plan(BEFORE, cluster(2, 4, 2))).measured


Change = Callable[[Topology, int, int], tuple[Topology, set[str]]]
"""Changes a device of a machine; returns the machine and the names of the shapes that it touches.
"""


def slower_nvlink(machine: Topology, node: int, place: int) -> tuple[Topology, set[str]]:
    gpu = f"n{node}/gpu{place}"
    return with_halved(machine, LinkKind.NVLINK, gpu), {"whole", "node", "pairs"}


def slower_nic(machine: Topology, node: int, place: int) -> tuple[Topology, set[str]]:
    nic = f"n{node}/nic{place}"
    return with_halved(machine, LinkKind.NETWORK, nic), {"whole", "rail"}


def slower_switch(machine: Topology, node: int, place: int) -> tuple[Topology, set[str]]:
    """The PCIe link of a GPU, which carries what it sends to its NIC, and no NVLink's traffic."""
    gpu = f"n{node}/gpu{place}"
    return with_halved(machine, LinkKind.PCIE, gpu), {"whole", "rail"}


def other_names(machine: Topology, _node: int, _place: int) -> tuple[Topology, set[str]]:
    return renamed(machine), set()


@pytest.mark.long
@given(
    nodes=st.integers(2, 3),
    gpus=st.sampled_from([2, 4]),
    rails_only=st.booleans(),
    place=st.integers(0, 1),
    node=st.integers(0, 1),
    change=st.sampled_from([slower_nvlink, slower_nic, slower_switch, other_names]),
)
def test_a_change_touches_the_communicators_that_use_the_device_and_no_others(
    nodes: int, gpus: int, rails_only: bool, place: int, node: int, change: Change
) -> None:
    before = cluster(nodes, gpus, gpus, rails_only=rails_only)
    now, touched = change(before, node, place)
    found = plan(before, now)
    assert {each.name for each in found.shapes if each.fate is A} == touched & fates(found).keys()
    machines, before_machines = SiblingMachines(now), SiblingMachines(before)
    for each in found.shapes:
        if each.fate is K:  # A model sees no difference either.
            seen, seen_before = (
                {_figures(figures) for figures in found.figures(each.shape)}
                for found in (machines, before_machines)
            )
            assert seen == seen_before


def _figures(figures: MachineFigures) -> MachineFigures:
    """The figures that count: a GPU that is alone on its host sends nothing inside it."""
    alone = figures.shape.ranks_per_node == 1
    return replace(figures, intra_gb_per_s=0.0) if alone else figures
