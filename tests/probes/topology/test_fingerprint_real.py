"""The properties of the fingerprint, on every shipped or published machine."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Topology
from probes.topology.replicate import Network, replicate
from tests.probes.machines import disguised
from tests.shared_data import SHARED_DATA
from tuccl.errors import MachineError

pytestmark = pytest.mark.long


@cache
def _machines() -> tuple[Topology, ...]:
    """Shipped machines, a cluster of one of them, and those of the shared data if present."""
    shipped = [read_topology(path) for path in shipped_machines().values()]
    found = [*shipped, replicate(shipped[0], 3, Network(1.7))]
    for path in sorted((SHARED_DATA / "nccl_topo").rglob("*.xml")):
        try:
            found.append(read_topology(path))
        except MachineError:
            continue
    return tuple(found)


machines = st.deferred(lambda: st.sampled_from(_machines()))


@st.composite
def machines_with_a_link(draw: st.DrawFn) -> tuple[Topology, Link]:
    machine = draw(machines)
    return machine, draw(st.sampled_from(machine.links))


def test_the_machines_are_those_that_parse() -> None:
    assert len(_machines()) in (len(shipped_machines()) + 1, len(shipped_machines()) + 1 + 53)


@given(machines, st.integers(0, 10**6))
def test_names_bus_numbers_order_and_noise_leave_it_alone(machine: Topology, seed: int) -> None:
    copy = disguised(machine, seed, noise=0.03)
    assert {device.name for device in copy.devices}.isdisjoint(machine.device)
    assert copy.fingerprint() == machine.fingerprint()


@given(machines_with_a_link())
def test_a_missing_link_changes_it(drawn: tuple[Topology, Link]) -> None:
    machine, gone = drawn
    one_way = tuple(link for link in machine.links if link is not gone)
    ends = {gone.src, gone.dst}
    none = tuple(link for link in one_way if {link.src, link.dst} != ends)
    found = {replace(machine, links=links).fingerprint() for links in (one_way, none)}
    assert machine.fingerprint() not in found
    assert len(found) == 1 + (len(none) < len(one_way))


@given(machines_with_a_link())
def test_a_link_at_half_speed_changes_it(drawn: tuple[Topology, Link]) -> None:
    machine, slow = drawn
    half = replace(slow, bandwidth_gb_per_s=slow.bandwidth_gb_per_s / 2)
    links = tuple(half if link is slow else link for link in machine.links)
    assert replace(machine, links=links).fingerprint() != machine.fingerprint()


@given(machines, st.data())
def test_a_nic_on_another_switch_changes_it(machine: Topology, data: st.DataObject) -> None:
    on_pcie = [nic for nic in machine.nics if _pcie_parent(machine, nic)]
    assume(on_pcie)
    nic = data.draw(st.sampled_from(on_pcie))
    old = _pcie_parent(machine, nic)
    others = [
        device.name
        for device in machine.devices
        if device.kind in (DeviceKind.PCIE_SWITCH, DeviceKind.CPU)
        and device.node == nic.node
        and device.name != old
    ]
    assume(others)
    new = data.draw(st.sampled_from(others))
    plug = {(nic.name, old): (nic.name, new), (old, nic.name): (new, nic.name)}
    links = []
    for link in machine.links:
        src, dst = plug.get((link.src, link.dst), (link.src, link.dst))
        links.append(replace(link, src=src, dst=dst))
    assert replace(machine, links=tuple(links)).fingerprint() != machine.fingerprint()


def _pcie_parent(machine: Topology, nic: Device) -> str:
    """Name of the device that the NIC is attached to; empty without one."""
    above = (link.dst for link in machine.links_from[nic.name] if link.kind is LinkKind.PCIE)
    return next(above, "")
