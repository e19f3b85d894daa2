"""Network ports of a host: their selection, positions and speeds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from probes.pci.inventory import NicPort, PciInventory
from probes.pci.sysfs import read_sysfs
from probes.pci.tree import DirectoryTree
from tests.probes.pci.sysfs_tree import ETHERNET, INFINIBAND, SysfsTree, real_snapshot
from tests.shared_data import SHARED_DATA, requires_shared_data


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    tree = SysfsTree(tmp_path)
    tree.cpu("GenuineIntel", 6, 143)
    return tree


def _read(tree: SysfsTree, *interfaces: str) -> PciInventory:
    return read_sysfs(DirectoryTree(tree.root), "here", interfaces)


def _nic(tree: SysfsTree, address: str, pci_class: str = INFINIBAND) -> str:
    return tree.device([f"pci{address[:7]}", address], pci_class=pci_class)


def test_an_rdma_port_and_its_interface_are_one_port(tree: SysfsTree) -> None:
    folder = _nic(tree, "0000:12:00.0")
    tree.rdma("mlx5_0", folder)
    tree.interface("ib0", folder, kind=32)
    assert _read(tree).ports == (
        NicPort(
            name="mlx5_0",
            function="0000:12:00.0",
            rdma_device="mlx5_0",
            rdma_port=1,
            interface="ib0",
            link_layer="InfiniBand",
            speed_gbit_per_s=200.0,
            active=True,
            state="4: ACTIVE",
        ),
    )
    assert _read(tree).gaps == ()


def test_ports_of_one_device_get_their_own_interfaces(tree: SysfsTree) -> None:
    folder = _nic(tree, "0000:12:00.0")
    tree.rdma("mlx4_0", folder, port=1, rate="56 Gb/sec (4X FDR)")
    tree.rdma("mlx4_0", folder, port=2, rate="40 Gb/sec (4X QDR)", layer="Ethernet")
    tree.interface("eth3", folder, dev_port=1)
    tree.interface("ib0", folder, dev_port=0, kind=32)
    tree.interface("ib0.8001", folder, dev_port=0, kind=32)
    found = [(port.rdma_port, port.interface, port.speed_gbit_per_s) for port in _read(tree).ports]
    assert found == [(1, "ib0", 56.0), (2, "eth3", 40.0)]


def test_a_fabric_that_is_neither_infiniband_nor_ethernet_has_no_link_layer(
    tree: SysfsTree,
) -> None:
    folder = _nic(tree, "0000:10:00.0", ETHERNET)
    tree.rdma("rdmap16s0", folder, rate="100 Gb/sec (4X EDR)", layer="Unknown")
    inventory = _read(tree)
    (port,) = inventory.ports
    assert (port.name, port.speed_gbit_per_s, port.link_layer) == ("rdmap16s0", 100.0, "")
    assert not [gap for gap in inventory.gaps if "link_layer" in gap.where]


def test_the_roce_gid_determines_the_interface(tree: SysfsTree) -> None:
    folder = _nic(tree, "0000:12:00.0", ETHERNET)
    tree.rdma("mlx5_bond_0", folder, layer="Ethernet")
    tree.write(f"{folder}/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/0", "bond0")
    tree.interface("enp18s0f0", folder)
    tree.interface("bond0", "")
    (port,) = _read(tree).ports
    assert (port.name, port.interface) == ("mlx5_bond_0", "bond0")


def test_a_port_that_is_down_stays_without_a_speed(tree: SysfsTree) -> None:
    tree.rdma("mlx5_0", _nic(tree, "0000:12:00.0"), rate="10 Gb/sec (4X SDR)", state="1: DOWN")
    tree.interface("eth0", _nic(tree, "0000:13:00.0", ETHERNET), state="down", speed="-1")
    tree.interface("eth1", _nic(tree, "0000:14:00.0", ETHERNET), state="lowerlayerdown")
    found = [
        (port.name, port.active, port.speed_gbit_per_s, port.state) for port in _read(tree).ports
    ]
    assert found == [
        ("mlx5_0", False, None, "1: DOWN (5: LinkUp)"),
        ("eth0", False, None, "down"),
        ("eth1", False, None, "lowerlayerdown"),
    ]


def test_the_device_of_a_virtio_interface_is_the_function_above(tree: SysfsTree) -> None:
    folder = tree.device(["pci0000:00", "0000:00:03.0"], pci_class=ETHERNET, link=None)
    tree.interface("eth0", f"{folder}/virtio2", speed="-1")
    (port,) = _read(tree).ports
    assert (port.name, port.function, port.speed_gbit_per_s) == ("eth0", "0000:00:03.0", None)


def test_an_adapter_on_usb_sits_at_no_pci_device(tree: SysfsTree) -> None:
    folder = tree.device(["pci0000:00", "0000:00:14.0"], pci_class="0x0c0330")
    tree.interface("usb0", f"{folder}/usb1/1-8/1-8:1.0", speed="100")
    (port,) = _read(tree).ports
    assert (port.name, port.function, port.speed_gbit_per_s) == ("usb0", None, 0.1)


def test_pseudo_interfaces_count_only_if_they_are_named(tree: SysfsTree) -> None:
    tree.interface("eth0", _nic(tree, "0000:12:00.0", ETHERNET))
    for name in ("lo", "docker0", "veth1a", "br0", "bond0", "ifb0", "wg0", "anything"):
        tree.interface(name, "", speed="10000")
    tree.write("sys/class/net/bonding_masters", "bond0")
    assert [port.name for port in _read(tree).ports] == ["eth0"]
    named = _read(tree, "veth*", "anything").ports
    assert [(port.name, port.function, port.speed_gbit_per_s) for port in named] == [
        ("eth0", "0000:12:00.0", 100.0),
        ("anything", None, 10.0),
        ("veth1a", None, 10.0),
    ]
    assert _read(tree).gaps == ()


def test_software_rdma_does_not_count_beside_its_interface(tree: SysfsTree) -> None:
    tree.interface("eth0", _nic(tree, "0000:12:00.0", ETHERNET))
    place = "sys/devices/virtual/infiniband/rxe0"
    tree.write(f"{place}/ports/1/state", "4: ACTIVE")
    tree.write(f"{place}/ports/1/rate", "2.5 Gb/sec (1X SDR)")
    tree.link("sys/class/infiniband/rxe0", place)
    assert [port.name for port in _read(tree).ports] == ["eth0"]
    assert [port.name for port in _read(tree, "rxe0").ports] == ["eth0", "rxe0"]


@pytest.mark.parametrize(
    ("speed", "state", "carrier", "expected"),
    [
        ("-1", "up", None, (True, None)),
        ("65535", "up", None, (True, None)),
        ("4294967295", "up", None, (True, None)),
        ("0", "up", None, (True, None)),
        ("25000", "unknown", "1", (True, 25.0)),
        ("25000", "unknown", None, (True, 25.0)),
        ("25000", "unknown", "0", (False, None)),
        ("1000", "dormant", None, (False, None)),
    ],
)
def test_what_kernels_write_for_an_unknown_speed_or_state(
    tree: SysfsTree, speed: str, state: str, carrier: str | None, expected: tuple[bool, object]
) -> None:
    place = tree.interface("eth0", _nic(tree, "0000:12:00.0", ETHERNET), speed=speed, state=state)
    if carrier is not None:
        tree.write(f"{place}/carrier", carrier)
    inventory = _read(tree)
    (port,) = inventory.ports
    assert (port.active, port.speed_gbit_per_s) == expected
    assert inventory.gaps == ()


@pytest.mark.parametrize("speed", ["-100000", "3200001", "fast", "1e5", ""])
def test_a_speed_that_no_port_has_is_a_gap(tree: SysfsTree, speed: str) -> None:
    tree.interface("eth0", _nic(tree, "0000:12:00.0", ETHERNET), speed=speed)
    inventory = _read(tree)
    assert inventory.ports[0].speed_gbit_per_s is None
    assert [gap.where for gap in inventory.gaps] == ["sys/class/net/eth0/speed"]


@pytest.mark.parametrize(
    ("rate", "state", "gaps"),
    [
        ("-200 Gb/sec (4X HDR)", "4: ACTIVE", ["rate"]),
        ("200", "4: ACTIVE", ["rate"]),
        ("0 Gb/sec", "4: ACTIVE", ["rate"]),
        ("99999 Gb/sec", "4: ACTIVE", ["rate"]),
        ("200 Gb/sec (4X HDR)", "ACTIVE", ["state"]),
        ("200 Gb/sec (4X HDR)", "", ["state"]),
    ],
)
def test_an_invalid_rate_or_state_is_a_gap(
    tree: SysfsTree, rate: str, state: str, gaps: list[str]
) -> None:
    tree.rdma("mlx5_0", _nic(tree, "0000:12:00.0"), rate=rate, state=state)
    inventory = _read(tree)
    (port,) = inventory.ports
    assert port.speed_gbit_per_s is None
    assert port.active is (gaps == ["rate"])
    assert [gap.where.rpartition("/")[2] for gap in inventory.gaps] == gaps


def test_a_device_without_ports_and_one_at_a_function_that_is_not_there(tree: SysfsTree) -> None:
    tree.link(f"{_nic(tree, '0000:12:00.0')}/infiniband/mlx5_0/device", "sys")
    tree.link(
        "sys/class/infiniband/mlx5_0",
        "sys/devices/pci0000:12/0000:12:00.0/infiniband/mlx5_0",
    )
    tree.rdma("mlx5_1", "sys/devices/pci0000:99/0000:99:00.0")
    inventory = _read(tree)
    assert [(port.name, port.function) for port in inventory.ports] == [("mlx5_1", None)]
    assert "it sits at 0000:99:00.0, which the host does not list" in {
        gap.what for gap in inventory.gaps
    }


def test_ports_are_in_the_order_of_their_addresses(
    tree: SysfsTree,
) -> None:
    for number, address in ((10, "0000:12:00.0"), (9, "0000:14:00.0"), (2, "10000:01:00.0")):
        folder = tree.device([f"pci{address[:-5]}", address], pci_class=INFINIBAND)
        tree.rdma(f"mlx5_{number}", folder)
    assert [port.name for port in _read(tree).ports] == ["mlx5_10", "mlx5_9", "mlx5_2"]


@requires_shared_data
def test_the_ports_of_a_real_h100_host(tree: SysfsTree) -> None:
    path = SHARED_DATA / "pci_sysfs/infiniband/h100-sys-class-infiniband.bundle.txt"
    # Lines `== path`, each followed by what the file holds.
    parts = re.split(r"^== +(\S.*)$", path.read_text("utf-8"), flags=re.MULTILINE)
    for name, value in zip(parts[1::2], parts[2::2], strict=True):
        tree.write(f"sys/class/infiniband/{name}", value.strip())
    ports = _read(tree).ports
    assert [(port.name, port.speed_gbit_per_s, port.link_layer) for port in ports] == [
        *((f"mlx5_{number}", 400.0, "InfiniBand") for number in (0, 1, 4, 5, 6, 7, 8, 9)),
        ("mlx5_bond_0", 200.0, "Ethernet"),
    ]
    assert all(port.active and port.function is None for port in ports)


@pytest.mark.long
@requires_shared_data
@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("2pa-pcidomain32bits", [("ens3", "0000:00:03.0", "ens3", None)]),
        (
            "32em64t-2n8c+dax+nvme+mic+dimms",
            [
                ("eth0", "0000:02:00.0", "eth0", 1.0),
                ("eth1", "0000:02:00.3", "eth1", None),
                ("mlx4_0", "0000:82:00.0", "ib0", 56.0),
            ],
        ),
        (
            "32intel64-2p8co2t+8ve",
            [
                ("enp96s0f0", "0000:60:00.0", "enp96s0f0", 1.0),
                ("enp96s0f1", "0000:60:00.1", "enp96s0f1", None),
            ],
        ),
        (
            "40intel64-2g2n4c+pcilocality",
            [
                ("eth0", "0000:02:00.0", "eth0", 1.0),
                ("eth1", "0000:02:00.1", "eth1", None),
                ("eth2", "0000:03:00.0", "eth2", None),
                ("eth3", "0000:03:00.1", "eth3", None),
                ("qib0", "0000:43:00.0", "ib0", 40.0),
            ],
        ),
    ],
)
def test_the_ports_of_real_snapshots(name: str, ports: list[object]) -> None:
    assert [
        (port.name, port.function, port.interface, port.speed_gbit_per_s)
        for port in real_snapshot(name).ports
    ] == ports
