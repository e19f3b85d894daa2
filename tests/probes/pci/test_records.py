"""The topology of an inventory, equal to that of NCCL's own dump."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.nccl_xml.assembly import parse_nccl_xml
from probes.nccl_xml.records import GpuRecord
from probes.pci.inventory import (
    NicPort,
    NumaNode,
    PcieLink,
    PciFunction,
    PciInventory,
)
from probes.pci.records import (
    SILENT_TREE,
    host_topology,
    is_tree_silent,
)
from probes.pci.relation import Relation, relation
from probes.pci.sysfs import read_sysfs
from probes.pci.tree import DirectoryTree
from probes.topology.graph import DeviceKind, LinkKind, Topology
from probes.topology.paths import Proximity, local_path, pcie_distance
from tests.probes.machines import shipped, shipped_text
from tests.probes.pci.sysfs_tree import ETHERNET, GPU, SysfsTree, real_snapshot
from tests.shared_data import SHARED_DATA, requires_shared_data


def _inventory(tree: SysfsTree, *interfaces: str) -> PciInventory:
    return read_sysfs(DirectoryTree(tree.root), "here", interfaces)


def _function(
    address: str,
    pci_class: int,
    vendor: int,
    *,
    numa_node: int | None = None,
    link: PcieLink | None = None,
) -> PciFunction:
    root = f"pci{address[:7]}"
    return PciFunction(address, root, None, pci_class, vendor, 0x1, numa_node, link)


def _note(topology: Topology, beginning: str) -> str:
    (note,) = (note for note in topology.notes if note.startswith(beginning))
    return note


def _names(topology: Topology, kind: DeviceKind) -> list[str]:
    return [device.bus_id for device in topology.devices if device.kind is kind]


@pytest.fixture
def a100(tmp_path: Path) -> tuple[SysfsTree, dict[str, GpuRecord]]:
    """The shipped machine as its kernel shows it: with root ports and downstream ports."""
    tree = SysfsTree(tmp_path)
    return tree, tree.machine(shipped_text())


def test_sysfs_and_driver_give_the_machine_that_nccl_dumped(
    a100: tuple[SysfsTree, dict[str, GpuRecord]],
) -> None:
    tree, gpus = a100
    inventory = _inventory(tree)
    # Per switch a root port, an upstream port, four downstream ports, two GPUs and two NICs.
    assert len(inventory.functions) == 4 * (1 + 1 + 4 + 4)
    topology = host_topology(inventory, "a100", gpus)
    assert topology.fingerprint() == shipped().fingerprint()
    assert _names(topology, DeviceKind.PCIE_SWITCH) == _names(shipped(), DeviceKind.PCIE_SWITCH)
    assert [nic.os_name for nic in topology.nics] == [f"mlx5_{number}" for number in range(8)]
    assert topology.notes == ()


def test_without_a_driver_eight_board_parts_are_gpus_by_class(
    a100: tuple[SysfsTree, dict[str, GpuRecord]],
) -> None:
    tree, _ = a100
    topology = host_topology(_inventory(tree), "a100")
    assert topology.fingerprint() == shipped().fingerprint()
    assert _note(topology, "The links of the GPUs cannot be read without NVML").endswith(
        "NVLinks are not known."
    )
    assert _note(topology, "The file does not mention NVLink")  # ... but these have an NVSwitch


def test_a_narrow_link_a_nic_elsewhere_and_a_port_that_is_down_change_the_machine(
    a100: tuple[SysfsTree, dict[str, GpuRecord]],
) -> None:
    tree, gpus = a100
    inventory = _inventory(tree)
    whole = host_topology(inventory, "a100", gpus).fingerprint()
    gpu = inventory.by_address["0000:13:00.0"]
    folder = tree.root / "sys/bus/pci/devices/0000:13:00.0"

    (folder / "current_link_width").write_text("8\n")
    narrow = host_topology(_inventory(tree), "a100", gpus)
    assert narrow.fingerprint() != whole
    assert _note(narrow, "0000:13:00.0").startswith("0000:13:00.0: runs at x8 of x16")
    (folder / "current_link_width").write_text("16\n")

    moved = replace(
        inventory,
        functions=tuple(
            replace(f, parent=gpu.parent, numa_node=0) if f.address == "0000:72:00.0" else f
            for f in inventory.functions
        ),
    )
    assert host_topology(moved, "a100", gpus).fingerprint() != whole

    state = tree.root / "sys/class/infiniband/mlx5_5/ports/1/state"
    state.write_text("1: DOWN\n")
    less = host_topology(_inventory(tree), "a100", gpus)
    assert [nic.os_name for nic in less.nics] == [f"mlx5_{n}" for n in (0, 1, 2, 3, 4, 6, 7)]
    assert _note(less, "Network ports") == (
        "Network ports that are not up were left out: 'mlx5_5 (1: DOWN (5: LinkUp))'."
    )


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_inventory_plays_no_part(random: Random) -> None:
    functions = [
        _function("0000:01:00.0", 0x060400, 0x8086, numa_node=0, link=PcieLink(16.0, 16)),
        *(
            replace(
                _function(f"0000:{bus:02x}:00.0", 0x030200, 0x10DE, link=PcieLink(16.0, 16)),
                root="pci0000:01",
                parent="0000:01:00.0",
            )
            for bus in (2, 3, 4)
        ),
        _function("0000:80:00.0", 0x020700, 0x15B3, numa_node=1, link=PcieLink(16.0, 16)),
    ]
    ports = [NicPort(f"mlx5_{n}", "0000:80:00.0", f"mlx5_{n}", 1) for n in (9, 10)]
    inventory = PciInventory("x", tuple(functions), tuple(ports))
    random.shuffle(functions)
    random.shuffle(ports)
    shuffled = PciInventory("x", tuple(functions), tuple(ports))
    gpus = {f"0000:{b:02x}:00.0": GpuRecord(b, None, 80, ()) for b in (4, 2, 3)}
    assert host_topology(shuffled, "x", gpus) == host_topology(inventory, "x", gpus)
    assert [nic.os_name for nic in host_topology(shuffled, "x", gpus).nics] == ["mlx5_9", "mlx5_10"]


def _h200_vm(tree: SysfsTree) -> dict[str, GpuRecord]:
    """Four GPUs straight on the one root bus, a virtio interface, no NUMA node, no width."""
    tree.cpu("GenuineIntel", 6, 207)
    tree.write("sys/devices/system/node/node0/cpulist", "0-63")
    for device in range(6, 10):
        folder = tree.device(
            ["pci0000:00", f"0000:00:{device:02x}.0"],
            pci_class=GPU,
            ids=("0x10de", "0x2335"),
            link=("32.0 GT/s PCIe", 0),
        )
        (tree.root / folder / "current_link_width").unlink()
    folder = tree.device(
        ["pci0000:00", "0000:00:03.0"], pci_class=ETHERNET, ids=("0x1af4", "0x1041"), link=None
    )
    tree.interface("eth0", f"{folder}/virtio2", speed="-1")
    tree.interface("ifb0", "")
    return {f"0000:00:0{6 + n}.0": GpuRecord(n, n, 90, ()) for n in range(4)}


def test_a_virtual_machine_whose_tree_shows_no_proximity_is_noted(tmp_path: Path) -> None:
    tree = SysfsTree(tmp_path)
    gpus = _h200_vm(tree)
    topology = host_topology(_inventory(tree), "vm", gpus)
    assert SILENT_TREE in topology.notes
    assert [gpu.bus_id for gpu in topology.gpus] == list(gpus)
    # NCCL hangs what its driver does not show as a PCI device on the first CPU, at its own speed.
    (nic,) = topology.nics
    assert (nic.os_name, nic.bus_id, nic.line_rate_gb_per_s) == ("eth0", "", 1.25)
    assert pcie_distance(topology, "n0/gpu0", "n0/nic0") is Proximity.HOST_BRIDGE
    assert any("state their speed: 10,000 Mb/s assumed" in note for note in topology.notes)


@requires_shared_data
def test_the_h200_machine_with_its_interface_is_the_one_that_nccl_dumped(tmp_path: Path) -> None:
    tree = SysfsTree(tmp_path)
    _h200_vm(tree)
    text = (SHARED_DATA / "replay/h200x4_topo.xml").read_text("utf-8")
    gpus = SysfsTree(tmp_path / "other").machine(text)
    topology = host_topology(_inventory(tree), "vm", gpus)
    assert topology.fingerprint() == parse_nccl_xml(text, "h200").fingerprint()


def _devices(*places: tuple[str, str, str | None, int | None]) -> Iterable[PciFunction]:
    return [PciFunction(address, root, parent, numa_node=n) for address, root, parent, n in places]


@pytest.mark.parametrize(
    ("devices", "silent"),
    [
        # One GPU alone: nothing to tell apart.
        (_devices(("0000:00:06.0", "pci0000:00", None, None)), False),
        # All on one root bus.
        (_devices(*((f"0000:00:0{n}.0", "pci0000:00", None, None) for n in (6, 7))), True),
        # Every device in a domain of its own, as Azure shows them, NUMA node told or not.
        (_devices(*((f"000{n}:00:00.0", f"pci000{n}:00", None, n) for n in (1, 2, 3))), True),
        # Root buses that hold several devices each, as AWS shows them: they tell quartets.
        (
            _devices(
                *((f"0000:{b}:0{n}.0", f"pci0000:{b}", None, 0) for b in (10, 20) for n in (1, 2))
            ),
            False,
        ),
        # Domains of their own behind root ports: NUMA nodes tell them apart, or nothing does.
        (_devices(*((f"000{n}:01:00.0", f"pci000{n}:00", "p", n) for n in (1, 2))), False),
        (_devices(*((f"000{n}:01:00.0", f"pci000{n}:00", "p", 0) for n in (1, 2))), True),
        # Below root ports of one domain.
        (
            _devices(*((f"0000:0{n}:00.0", "pci0000:00", f"0000:00:0{n}.0", 0) for n in (1, 2))),
            False,
        ),
    ],
)
def test_which_trees_are_silent(devices: Iterable[PciFunction], silent: bool) -> None:
    assert is_tree_silent(devices) is silent


@requires_shared_data
def test_the_vector_engines_hang_on_two_switches_with_one_hca_each() -> None:
    inventory = real_snapshot("32intel64-2p8co2t+8ve")
    topology = host_topology(inventory, "aurora")
    assert len(topology.gpus) == 8
    near: dict[str, list[str]] = {}
    for gpu in topology.gpus:
        for nic in topology.nics:
            if pcie_distance(topology, gpu.name, nic.name) is Proximity.SWITCH:
                near.setdefault(nic.bus_id, []).append(gpu.bus_id)
    assert near == {
        "0000:1a:00.0": [f"0000:{bus}:00.0" for bus in ("1b", "1c", "1d", "1e")],
        "0000:3e:00.0": [f"0000:{bus}:00.0" for bus in ("3d", "3f", "40", "41")],
    }
    for nic_bus_id, gpus in near.items():
        for gpu in topology.gpus:
            expected = Relation.SWITCH if gpu.bus_id in gpus else Relation.NUMA_NODE
            assert relation(inventory, nic_bus_id, gpu.bus_id) is expected
    path_to_peer = local_path(topology, "n0/gpu0", "n0/gpu1")
    assert path_to_peer is not None
    assert path_to_peer.devices == ("n0/gpu0", "n0/pcie0", "n0/gpu1")
    assert path_to_peer.bandwidth_gb_per_s == 12.0  # 16 lanes of 8 GT/s
    assert _note(topology, "Processing accelerators that are not GPUs")


@requires_shared_data
@pytest.mark.parametrize(
    "name",
    [
        "a100x2-pcie-nvlinkbridge-dump",
        "h800x8-dump",
        "oci-h100x8-baremetal",
        "rtx3090x8-dump",
        "rtx4090-epyc-rome-dump",
        "rtxa6000x4-2socket-dump",
        "rccl/topo_8p_rome_n2",
    ],
)
def test_real_dumps_seen_in_sysfs_are_the_same_machines(tmp_path: Path, name: str) -> None:
    text = (SHARED_DATA / f"nccl_topo/{name}.xml").read_text("utf-8")
    tree = SysfsTree(tmp_path)
    gpus = tree.machine(text)
    dumped = parse_nccl_xml(text, name)
    seen = host_topology(_inventory(tree), name, gpus)
    assert seen.fingerprint() == dumped.fingerprint()


def test_gpus_hidden_by_the_driver_are_left_out_and_by_the_tree_are_kept() -> None:
    functions = tuple(_function(f"0000:0{n}:00.0", 0x030200, 0x10DE) for n in (1, 2, 3))
    driver_gpus = {
        "0000:02:00.0": GpuRecord(0, None, 90, ()),
        "0000:09:00.0": GpuRecord(1, None, 90, ()),
    }
    topology = host_topology(PciInventory("x", functions), "x", driver_gpus)
    assert [gpu.bus_id for gpu in topology.gpus] == list(driver_gpus)
    assert "'0000:01:00.0', '0000:03:00.0'" in _note(topology, "GPUs that the driver does not")
    assert "'0000:09:00.0'" in _note(topology, "GPUs that the PCI tree does not show")


@pytest.mark.parametrize(
    ("functions", "gpus"),
    [
        # NVIDIA and AMD by class; the display chip of a board controller is none.
        ([("03", 0x030000, 0x1A03), ("04", 0x030200, 0x10DE)], ["0000:04:00.0"]),
        ([("03", 0x120000, 0x1002), ("04", 0x038000, 0x1002)], ["0000:03:00.0", "0000:04:00.0"]),
        # An accelerator counts where there is no such GPU; QuickAssist never does.
        ([("03", 0x120000, 0x10EE), ("04", 0x030200, 0x10DE)], ["0000:04:00.0"]),
        ([("03", 0x120000, 0x1DA3), ("04", 0x0B4000, 0x1BCF)], ["0000:03:00.0", "0000:04:00.0"]),
        ([("03", 0x0B4000, 0x8086)], []),
    ],
)
def test_what_counts_as_a_gpu(functions: list[tuple[str, int, int]], gpus: list[str]) -> None:
    found = [_function(f"0000:{bus}:00.0", code, vendor) for bus, code, vendor in functions]
    # ES1000, the console chip of a server board.
    found.append(replace(_function("0000:01:03.0", 0x030000, 0x1002), device=0x515E))
    inventory = PciInventory("x", tuple(found))
    assert [gpu.bus_id for gpu in host_topology(inventory, "x").gpus] == gpus


def test_interfaces_beside_rdma_are_left_out_and_named_pseudo_devices_stay(tmp_path: Path) -> None:
    tree = SysfsTree(tmp_path)
    tree.cpu("GenuineIntel", 6, 143)
    tree.interface("veth0", "", speed="10000")
    alone = host_topology(_inventory(tree, "veth*"), "x")
    assert [(nic.os_name, nic.line_rate_gb_per_s) for nic in alone.nics] == [("veth0", 1.25)]
    folder = tree.device(["pci0000:01", "0000:01:00.0"], pci_class="0x020700")
    tree.rdma("mlx5_0", folder)
    both = host_topology(_inventory(tree, "veth*"), "x")
    assert [(nic.os_name, nic.line_rate_gb_per_s) for nic in both.nics] == [("mlx5_0", 25.0)]
    assert "'veth0'" in _note(both, "Interfaces beside RDMA devices were left out")


def test_two_ports_of_one_device_share_its_link() -> None:
    link = PcieLink(16.0, 16)
    nic = _function("0000:01:00.0", 0x020700, 0x15B3, numa_node=0, link=link)
    ports = tuple(
        NicPort("mlx4_0", nic.address, "mlx4_0", n, speed_gbit_per_s=56.0) for n in (1, 2)
    )
    topology = host_topology(PciInventory("x", (nic,), ports), "x")
    assert [nic.line_rate_gb_per_s for nic in topology.nics] == [7.0, 7.0]
    way = local_path(topology, "n0/nic0", "n0/nic1")
    assert way is not None
    assert way.devices == ("n0/nic0", "n0/pcie0", "n0/nic1")


@pytest.mark.parametrize(
    ("bridge", "second", "shared"),
    [
        ("0000:00:01.0", "0000:01:00.1", True),  # the second port of a card
        ("0000:00:01.0", "0000:01:02.3", True),  # a virtual function
        ("", "0000:01:00.1", True),
        ("", "0000:01:02.3", False),  # on a root bus it is a card of its own
    ],
)
def test_functions_of_one_rdma_nic_share_its_link(bridge: str, second: str, shared: bool) -> None:
    link = PcieLink(16.0, 16)
    above = [_function(bridge, 0x060400, 0x8086, link=link)] if bridge else []
    nics = [
        replace(_function(address, 0x020000, 0x15B3, link=link), parent=bridge or None)
        for address in ("0000:01:00.0", second)
    ]
    ports = tuple(
        NicPort(f"mlx5_{n}", nic.address, f"mlx5_{n}", 1, speed_gbit_per_s=100.0)
        for n, nic in enumerate(nics)
    )
    topology = host_topology(PciInventory("x", (*above, *nics), ports), "x")
    assert [nic.os_name for nic in topology.nics] == ["mlx5_0", "mlx5_1"]
    switches = [device for device in topology.devices if device.kind is DeviceKind.PCIE_SWITCH]
    assert [switch.bus_id for switch in switches] == ["0000:01:00.0"] * shared
    # An interface without RDMA keeps its function, as in NCCL's socket transport.
    plain = tuple(replace(port, rdma_device="", rdma_port=0) for port in ports)
    apart = host_topology(PciInventory("x", (*above, *nics), plain), "x")
    assert [nic.bus_id for nic in apart.nics] == ["0000:01:00.0", second]


def test_virtual_functions_beside_their_card_are_named(tmp_path: Path) -> None:
    tree = SysfsTree(tmp_path)
    way = ["pci0000:00", "0000:00:01.0"]
    tree.device(way)
    card, virtual = (
        tree.device([*way, f"0000:01:00.{n}"], pci_class=ETHERNET, ids=("0x15b3", "0x101e"))
        for n in (0, 2)
    )
    tree.rdma("mlx5_0", card)
    tree.rdma("mlx5_1", virtual)
    words = "Virtual functions (SR-IOV) count as NICs"
    topology = host_topology(_inventory(tree), "x")
    assert not [note for note in topology.notes if note.startswith(words)]
    tree.link(f"{virtual}/physfn", card)
    topology = host_topology(_inventory(tree), "x")
    assert [nic.os_name for nic in topology.nics] == ["mlx5_0", "mlx5_1"]
    assert "shares the wire of its card: 'mlx5_1'; if jobs" in _note(topology, words)


def test_a_host_without_ports_has_nics_of_unknown_speed_by_class() -> None:
    nic = _function("0000:01:00.0", 0x020000, 0x15B3, link=PcieLink(16.0, 16))
    topology = host_topology(PciInventory("x", (nic,)), "x")
    assert [(nic.bus_id, nic.line_rate_gb_per_s) for nic in topology.nics] == [
        ("0000:01:00.0", 0.0)
    ]
    assert "'0000:01:00.0'" in _note(topology, "Network controllers that show no port")


def test_numa_nodes_are_cpus_and_those_that_hold_nothing_are_left_out() -> None:
    functions = (
        _function("0000:01:00.0", 0x030200, 0x10DE, numa_node=2),
        _function("0000:02:00.0", 0x030200, 0x10DE),
    )
    nodes = tuple(NumaNode(number, 0) for number in range(4))
    topology = host_topology(PciInventory("x", functions, numa_nodes=nodes), "x")
    assert len(_names(topology, DeviceKind.CPU)) == 2
    assert len([link for link in topology.links if link.kind is LinkKind.UPI]) == 2
    assert "'0000:02:00.0'" in _note(topology, "PCI devices that state no NUMA node")
    alone = host_topology(PciInventory("x", functions, numa_nodes=nodes[2:3]), "x")
    assert len(_names(alone, DeviceKind.CPU)) == 1


def test_a_host_that_holds_nothing_of_interest_is_one_cpu() -> None:
    topology = host_topology(PciInventory("x", (), hostname="node7"), "x")
    assert [device.name for device in topology.devices] == ["n0/cpu0"]
    assert topology.hosts == ("node7",)
