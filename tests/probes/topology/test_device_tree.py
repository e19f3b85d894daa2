import itertools
from dataclasses import replace

import pytest

from probes.topology.device_tree import MAX_DEPTH, host_trees
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance, Topology
from tests.probes.machines import both_ways, gpu, ring, shipped
from tuccl.errors import InvalidTopologyError


def _chain(length: int) -> Topology:
    """A CPU, switches one below the other, a GPU at the end."""
    names = ["cpu", *(f"s{i}" for i in range(length)), "n0/gpu0"]
    devices = [Device("cpu", DeviceKind.CPU, 0), gpu(0)]
    devices += [Device(f"s{i}", DeviceKind.PCIE_SWITCH, 0, i) for i in range(length)]
    links: list[Link] = []
    for upper, lower in itertools.pairwise(names):
        links += both_ways(lower, upper, LinkKind.PCIE, 24.0, lanes=16)
    return Topology("chain", tuple(devices), tuple(links))


def test_devices_hang_where_their_pcie_links_lead() -> None:
    trees = host_trees(shipped())
    assert [root.device.name for root in trees.roots] == ["n0/cpu0", "n0/cpu1"]
    switches = [branch for root in trees.roots for branch in root.children]
    assert [[leaf.device.name for leaf in switch.children] for switch in switches][:2] == [
        ["n0/gpu0", "n0/nic0", "n0/gpu1", "n0/nic1"],
        ["n0/gpu2", "n0/nic2", "n0/gpu3", "n0/nic3"],
    ]
    uplink = switches[0].children[0].uplink
    assert uplink is not None
    assert (uplink.src, uplink.dst) == ("n0/gpu0", "n0/pcie0")
    assert not trees.switch_links


def test_a_device_without_a_cpu_is_a_root() -> None:
    machine = ring([0, 1])
    bare = replace(
        machine, links=tuple(link for link in machine.links if link.kind is not LinkKind.PCIE)
    )
    assert [root.device.name for root in host_trees(bare).roots] == [
        "n0/cpu0",
        "n0/gpu0",
        "n0/gpu1",
    ]


def test_an_assumed_link_between_switches_is_no_uplink() -> None:
    machine = _chain(2)
    second_switch = Device("s9", DeviceKind.PCIE_SWITCH, 0, 9)
    direct = [
        replace(link, provenance=Provenance.ASSUMED)
        for link in both_ways("s9", "s1", LinkKind.PCIE, 24.0, lanes=16)
    ]
    links = (*direct, *both_ways("s9", "cpu", LinkKind.PCIE, 24.0, lanes=16), *machine.links)
    trees = host_trees(replace(machine, devices=(*machine.devices, second_switch), links=links))
    assert [(link.src, link.dst) for link in trees.switch_links] == [("s9", "s1")]
    below = {branch.device.name: branch.uplink for branch in trees.walk()}
    assert below["s1"] is not None
    assert below["s1"].dst == "s0"


def test_nesting_is_bounded() -> None:
    assert len(list(host_trees(_chain(MAX_DEPTH - 1)).walk())) == MAX_DEPTH + 1
    with pytest.raises(InvalidTopologyError, match="more than 32 PCIe links below its CPU"):
        host_trees(_chain(MAX_DEPTH))


def test_a_loop_of_switches_ends() -> None:
    machine = _chain(3)
    loop = both_ways("s0", "s2", LinkKind.PCIE, 24.0, lanes=16)
    trees = host_trees(replace(machine, links=(*machine.links, *loop)))
    assert len(list(trees.walk())) == len(machine.devices)
    assert len(trees.switch_links) == 1
