from dataclasses import replace

import pytest

from probes.topology.graph import Device, DeviceKind, Link, LinkKind, PairLimit, Topology
from probes.topology.paths import (
    Path,
    Proximity,
    local_path,
    network_path,
    pcie_distance,
    pcie_hops,
)
from probes.topology.replicate import Network, NetworkLayout, replicate
from tests.probes.machines import both_ways, gpu, ring, shipped


def _devices(path: Path | None) -> tuple[str, ...]:
    return () if path is None else path.devices


def _pcie(a: str, b: str, gb_per_s: float = 24.0) -> list[Link]:
    return both_ways(a, b, LinkKind.PCIE, gb_per_s, latency_us=0.1, lanes=16)


def test_a_direct_link_beats_every_detour() -> None:
    path = local_path(ring([0, 1, 2, 3]), "n0/gpu0", "n0/gpu1")
    assert path is not None
    assert path.kinds == (LinkKind.NVLINK,)
    assert (path.latency_us, path.bandwidth_gb_per_s) == (0.7, 25.0)


def test_no_gpu_relays() -> None:
    # GPU 0 and 2 of a ring are neighbours of 1 and 3, yet the way is through the CPU.
    path = local_path(ring([0, 1, 2, 3]), "n0/gpu0", "n0/gpu2")
    assert path is not None
    assert path.devices == ("n0/gpu0", "n0/cpu0", "n0/gpu2")
    assert path.latency_us == pytest.approx(0.2)
    assert path.bandwidth_gb_per_s == 12.0


def test_without_a_cpu_there_is_no_path_around_a_gpu() -> None:
    line = Topology(
        "line",
        (gpu(0), gpu(1), gpu(2)),
        (*both_ways("n0/gpu0", "n0/gpu1"), *both_ways("n0/gpu1", "n0/gpu2")),
    )
    assert local_path(line, "n0/gpu0", "n0/gpu2") is None


def test_nvswitch_before_pcie() -> None:
    path = local_path(shipped(), "n0/gpu0", "n0/gpu7")
    assert path is not None
    assert path.devices == ("n0/gpu0", "n0/nvswitch0", "n0/gpu7")
    assert path.latency_us == pytest.approx(0.7)
    assert path.bandwidth_gb_per_s == 300.0


def test_the_widest_of_equally_long_paths_then_the_first_by_name() -> None:
    def machine(width_b: float) -> Topology:
        switches = [Device(f"n0/sw{x}", DeviceKind.PCIE_SWITCH, 0) for x in "ab"]
        links = []
        for name, width in (("n0/swa", 12.0), ("n0/swb", width_b)):
            links += [*_pcie("n0/gpu0", name, width), *_pcie(name, "n0/gpu1", width)]
        return Topology("two ways", (gpu(0), gpu(1), *switches), tuple(links))

    assert _devices(local_path(machine(24.0), "n0/gpu0", "n0/gpu1"))[1] == "n0/swb"
    assert _devices(local_path(machine(12.0), "n0/gpu0", "n0/gpu1"))[1] == "n0/swa"


def test_proximity_of_the_shipped_machine() -> None:
    machine = shipped()
    assert pcie_distance(machine, "n0/gpu0", "n0/nic1") is Proximity.SWITCH
    assert pcie_distance(machine, "n0/gpu0", "n0/nic2") is Proximity.HOST_BRIDGE
    assert pcie_distance(machine, "n0/gpu0", "n0/nic4") is Proximity.SOCKETS
    assert Proximity.SWITCH < Proximity.HOST_BRIDGE < Proximity.SOCKETS < Proximity.UNKNOWN
    across = local_path(machine, "n0/gpu0", "n0/nic4")
    assert across is not None
    assert across.kinds == (LinkKind.PCIE, LinkKind.PCIE, LinkKind.UPI, *[LinkKind.PCIE] * 2)
    assert across.bandwidth_gb_per_s == 16.0


def test_hops_distinguish_nested_switches() -> None:
    nics = [Device(f"n0/nic{i}", DeviceKind.NIC, 0, i) for i in range(2)]
    switches = [Device(f"n0/pcie{i}", DeviceKind.PCIE_SWITCH, 0, i) for i in range(3)]
    links = [*_pcie("n0/pcie1", "n0/pcie0"), *_pcie("n0/pcie2", "n0/pcie0")]
    for i in range(2):
        links += [*_pcie(f"n0/gpu{i}", f"n0/pcie{i + 1}"), *_pcie(f"n0/nic{i}", f"n0/pcie{i + 1}")]
    nested = Topology("nested", (gpu(0), gpu(1), *nics, *switches), tuple(links))
    assert pcie_distance(nested, "n0/gpu0", "n0/nic0") is Proximity.SWITCH
    assert pcie_distance(nested, "n0/gpu0", "n0/nic1") is Proximity.SWITCH
    assert pcie_hops(nested, "n0/gpu0", "n0/nic0") == 2
    assert pcie_hops(nested, "n0/gpu0", "n0/nic1") == 4
    assert pcie_hops(ring([0, 1]), "n0/gpu0", "n0/gpu0") is None


def test_a_nic_without_a_path_is_of_unknown_proximity() -> None:
    machine = ring([0, 1])
    lost = Device("n0/nic0", DeviceKind.NIC, 0)
    machine = replace(machine, devices=(*machine.devices, lost))
    assert pcie_distance(machine, "n0/gpu0", "n0/nic0") is Proximity.UNKNOWN


def test_rails_do_not_cross_and_a_fabric_does() -> None:
    rails = replicate(shipped(), 2, Network(1.7))
    path = network_path(rails, "n0/nic3", "n1/nic3")
    assert path is not None
    assert path.devices == ("n0/nic3", "rail3", "n1/nic3")
    assert path.latency_us == pytest.approx(1.7)
    assert path.bandwidth_gb_per_s == 25.0
    assert network_path(rails, "n0/nic3", "n1/nic4") is None
    assert local_path(rails, "n0/gpu0", "n1/gpu0") is None
    fabric = replicate(shipped(), 2, Network(1.7, NetworkLayout.FABRIC))
    assert network_path(fabric, "n0/nic3", "n1/nic4") is not None
    # NICs of one host never talk over PCIe here, but they may over the fabric.
    assert network_path(fabric, "n0/nic3", "n0/nic4") is not None


def test_network_of_two_levels() -> None:
    nics = [Device(f"n{i}/nic0", DeviceKind.NIC, i) for i in range(3)]
    switches = [Device(f"s{i}", DeviceKind.NETWORK_SWITCH, -1, i) for i in range(3)]
    links = []
    for nic, leaf in (("n0/nic0", "s0"), ("n1/nic0", "s1"), ("n2/nic0", "s1")):
        links += both_ways(nic, leaf, LinkKind.NETWORK, 25.0, latency_us=0.5)
    for leaf in ("s0", "s1"):
        links += both_ways(leaf, "s2", LinkKind.NETWORK, 100.0, latency_us=0.3)
    topology = Topology("leaf and spine", (*nics, *switches), tuple(links))
    far = network_path(topology, "n0/nic0", "n1/nic0")
    assert far is not None
    assert far.devices == ("n0/nic0", "s0", "s2", "s1", "n1/nic0")
    assert far.latency_us == pytest.approx(1.6)
    assert _devices(network_path(topology, "n1/nic0", "n2/nic0")) == ("n1/nic0", "s1", "n2/nic0")


def test_unknown_names_are_an_error() -> None:
    with pytest.raises(KeyError):
        local_path(shipped(), "n0/gpu0", "n0/gpu99")


def test_a_measured_limit_bounds_the_path_of_its_pair_only() -> None:
    machine = ring([0, 1, 2, 3])
    slow = replace(machine, limits=(PairLimit("n0/gpu0", "n0/gpu1", 9.0),))
    limited = local_path(slow, "n0/gpu0", "n0/gpu1")
    back = local_path(slow, "n0/gpu1", "n0/gpu0")
    assert limited is not None
    assert back is not None
    assert (limited.bandwidth_gb_per_s, back.bandwidth_gb_per_s) == (9.0, 25.0)


def test_a_path_that_was_asked_for_is_that_of_its_topology_alone() -> None:
    topology = ring([0, 1, 2, 3])
    pair = ("n0/gpu0", "n0/gpu2")
    first = local_path(topology, *pair)
    assert first is not None
    assert local_path(topology, *pair) == first
    limited = replace(topology, limits=(PairLimit(*pair, 3.0),))
    assert local_path(limited, *pair) == replace(first, limit_gb_per_s=3.0)
    gone = replace(topology, links=tuple(set(topology.links) - {first.links[0]}))
    assert local_path(gone, *pair) is None
    assert local_path(gone, *pair) is None
