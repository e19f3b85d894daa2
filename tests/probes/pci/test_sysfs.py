"""PCI functions of a host as sysfs shows them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.pci.inventory import (
    CpuModel,
    NumaNode,
    PcieLink,
    PciFunction,
    PciInventory,
)
from probes.pci.records import host_topology
from probes.pci.sysfs import read_sysfs
from probes.pci.tree import DirectoryTree
from tests.probes.pci.sysfs_tree import ETHERNET, GPU, INFINIBAND, SysfsTree, real_snapshot
from tests.shared_data import requires_shared_data
from tuccl.errors import MachineError

ROOT, PORT, UP, DOWN, LEAF = (
    "pci0000:3a",
    "0000:3a:00.0",
    "0000:3b:00.0",
    "0000:3c:04.0",
    "0000:3d:00.0",
)


def _read(tree: SysfsTree) -> PciInventory:
    return read_sysfs(DirectoryTree(tree.root), "here")


def _gaps(inventory: PciInventory) -> list[str]:
    return [gap.sentence() for gap in inventory.gaps]


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    """A GPU below a switch below a root port, on socket 1 of two."""
    tree = SysfsTree(tmp_path)
    for depth in (2, 3, 4):
        tree.device([ROOT, PORT, UP, DOWN][:depth], numa_node=1)
    tree.device([ROOT, PORT, UP, DOWN, LEAF], pci_class=GPU, ids=("0x10de", "0x2330"), numa_node=1)
    tree.numa(0, 1)
    tree.cpu("GenuineIntel", 6, 143)
    return tree


def _leaf(inventory: PciInventory) -> PciFunction:
    return inventory.by_address[LEAF]


def _leaf_file(name: str) -> str:
    return f"sys/devices/{ROOT}/{PORT}/{UP}/{DOWN}/{LEAF}/{name}"


def test_a_function_knows_what_it_is_and_where_it_sits(tree: SysfsTree) -> None:
    tree.write("etc/hostname", "node7")
    inventory = _read(tree)
    assert [function.address for function in inventory.functions] == [PORT, UP, DOWN, LEAF]
    assert [function.parent for function in inventory.functions] == [None, PORT, UP, DOWN]
    assert {function.root for function in inventory.functions} == {ROOT}
    assert [function.class_code for function in inventory.functions[:3]] == [0x060400] * 3
    gpu = _leaf(inventory)
    assert (gpu.class_code, gpu.vendor, gpu.device) == (0x030200, 0x10DE, 0x2330)
    assert (gpu.numa_node, gpu.link, gpu.window_bytes) == (1, PcieLink(16.0, 16), 0)
    assert inventory.numa_nodes == (NumaNode(0, 0), NumaNode(1, 1))
    assert inventory.cpu == CpuModel("x86_64", "GenuineIntel", 6, 143)
    assert (inventory.hostname, inventory.gaps) == ("node7", ())


def test_links_are_as_fast_as_their_slower_end_could_be_and_as_wide_as_they_run(
    tree: SysfsTree,
) -> None:
    # An idle GPU: 2.5 GT/s now, 32 possible; its port does 16 at most.
    tree.write(_leaf_file("max_link_speed"), "32.0 GT/s PCIe")
    tree.write(_leaf_file("current_link_speed"), "2.5 GT/s PCIe")
    assert _leaf(_read(tree)).link == PcieLink(16.0, 16)
    # Old kernels: no PCIe suffix, no .0; the port does not know its own speed.
    tree.write(_leaf_file("max_link_speed"), "8 GT/s")
    port = f"sys/devices/{ROOT}/{PORT}/{UP}/{DOWN}"
    tree.write(f"{port}/max_link_speed", "Unknown speed")
    tree.write(f"{port}/current_link_speed", "Unknown")
    assert _leaf(_read(tree)).link == PcieLink(8.0, 16)
    # The device is x16, and eight lanes are up.
    tree.write(_leaf_file("current_link_width"), "8")
    inventory = _read(tree)
    assert _leaf(inventory).link == PcieLink(8.0, 8)
    assert _gaps(inventory) == [
        f"{LEAF}: runs at x8 of x16; look at its slot and riser if that is not on purpose."
    ]
    # Width 0 now: what is possible counts.
    tree.write(_leaf_file("current_link_width"), "0")
    tree.write(_leaf_file("max_link_width"), "4")
    assert _leaf(_read(tree)).link == PcieLink(8.0, 4)


def test_a_nic_has_the_speed_its_link_was_trained_to(tree: SysfsTree) -> None:
    tree.write(_leaf_file("class"), ETHERNET)
    tree.write(_leaf_file("current_link_speed"), "8.0 GT/s PCIe")
    inventory = _read(tree)
    assert _leaf(inventory).link == PcieLink(8.0, 16)
    assert _gaps(inventory) == [
        f"{LEAF}: runs at 8 of 16 GT/s; look at its slot and riser if that is not on purpose."
    ]
    # Virtual functions do not tell what the link does now.
    tree.write(_leaf_file("current_link_speed"), "Unknown")
    assert _leaf(_read(tree)).link == PcieLink(16.0, 16)
    # A slot that can do no more than the NIC does is no fault of the link.
    tree.write(_leaf_file("current_link_speed"), "16.0 GT/s PCIe")
    tree.write(_leaf_file("max_link_speed"), "32.0 GT/s PCIe")
    inventory = _read(tree)
    assert (_leaf(inventory).link, inventory.gaps) == (PcieLink(16.0, 16), ())


def test_the_kernels_word_for_an_unknown_width_is_no_gap(tree: SysfsTree) -> None:
    """Functions inside the CPU have no link: their width reads 255 at most, 0 now."""
    tree.write(_leaf_file("max_link_speed"), "Unknown")
    tree.write(_leaf_file("current_link_speed"), "Unknown")
    tree.write(_leaf_file("max_link_width"), "255")
    tree.write(_leaf_file("current_link_width"), "0")
    inventory = _read(tree)
    assert (_leaf(inventory).link, inventory.gaps) == (PcieLink(16.0, 16), ())


def test_without_link_files_nothing_is_known_and_no_gap_is_made(tmp_path: Path) -> None:
    tree = SysfsTree(tmp_path)
    tree.device(["pci0000:00", "0000:00:06.0"], pci_class=GPU, link=None)
    tree.cpu("GenuineIntel", 6, 207)
    inventory = _read(tree)
    assert inventory.functions[0].link is None
    assert inventory.gaps == ()


@pytest.mark.parametrize(
    ("file", "value", "field"),
    [
        ("class", "0x0302", "class_code"),
        ("class", "0x1030200", "class_code"),
        ("class", "", "class_code"),
        ("vendor", "10de", "vendor"),
        ("device", "0x12345", "device"),
        ("device", b"\xff\xfe", "device"),
        ("numa_node", "-2", "numa_node"),
        ("numa_node", "one", "numa_node"),
        ("numa_node", "99999999999999", "numa_node"),
    ],
)
def test_garbage_in_a_value_is_a_gap_and_no_figure(
    tree: SysfsTree, file: str, value: str | bytes, field: str
) -> None:
    tree.write(_leaf_file(file), value)
    inventory = _read(tree)
    assert getattr(_leaf(inventory), field) is None
    assert len(inventory.gaps) == 1
    assert inventory.gaps[0].where == f"sys/devices/{ROOT}/{PORT}/{UP}/{DOWN}/{LEAF}/{file}"
    assert "so its value is not known" in inventory.gaps[0].what


@pytest.mark.parametrize("value", ["-8.0 GT/s PCIe", "7.3 GT/s", "1e9 GT/s", "fast", "8.0"])
def test_speeds_that_no_link_has_are_gaps(tree: SysfsTree, value: str) -> None:
    for name in ("max_link_speed", "current_link_speed"):
        tree.write(_leaf_file(name), value)
    port = f"sys/devices/{ROOT}/{PORT}/{UP}/{DOWN}"
    for name in ("max_link_speed", "current_link_speed"):
        (tree.root / f"{port}/{name}").unlink()
    inventory = _read(tree)
    assert _leaf(inventory).link == PcieLink(0.0, 16)
    assert [gap.what for gap in inventory.gaps] == [
        f"holds '{value}', which is not a PCIe transfer rate, so its value is not known"
    ] * 2


@pytest.mark.parametrize("value", ["-4", "3", "254", "1e1"])
def test_widths_that_no_link_has_are_gaps(tree: SysfsTree, value: str) -> None:
    tree.write(_leaf_file("current_link_width"), value)
    inventory = _read(tree)
    assert _leaf(inventory).link == PcieLink(16.0, 16)
    assert [gap.what for gap in inventory.gaps] == [
        f"holds '{value}', which is not a PCIe width, so its value is not known"
    ]


def test_address_ranges_leave_out_what_is_unused_and_name_what_is_wrong(tree: SysfsTree) -> None:
    tree.write(
        _leaf_file("resource"),
        "0x0000001040020000 0x000000104002ffff 0x000000000014220c\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000001000000000 0x00000013ffffffff 0x000000000014220c\n"
        "0x0000000000000000 0x00000000000fffff 0x0000000020040200\n"
        "0x0000000000002000 0x0000000000001fff 0x0000000000000200\n"
        "garbage\n",
    )
    inventory = _read(tree)
    assert _leaf(inventory).window_bytes == 16 << 30
    assert [gap.what for gap in inventory.gaps] == [
        "line 5 ends before it starts; the range was left out",
        "line 6 is 'garbage', which is not an address range",
    ]


def test_files_that_cannot_be_read_are_gaps(tree: SysfsTree) -> None:
    (tree.root / _leaf_file("class")).unlink()
    (tree.root / _leaf_file("class")).mkdir()
    (tree.root / _leaf_file("vendor")).unlink()
    (tree.root / _leaf_file("vendor")).symlink_to("vendor")
    (tree.root / _leaf_file("numa_node")).unlink()
    (tree.root / _leaf_file("numa_node")).symlink_to("nothing")
    (tree.root / _leaf_file("device")).unlink()
    inventory = _read(tree)
    gpu = _leaf(inventory)
    assert (gpu.class_code, gpu.vendor, gpu.device, gpu.numa_node) == (None, None, None, None)
    assert [(gap.where.rpartition("/")[2], gap.what.split(",")[0]) for gap in inventory.gaps] == [
        ("class", "cannot be read (Is a directory)"),
        ("vendor", "cannot be read (its links form a loop)"),
        ("device", "cannot be read (No such file or directory)"),
        ("numa_node", "cannot be read (its link leads nowhere)"),
    ]


def test_entries_that_lead_nowhere_or_are_no_devices_are_named_and_left_out(
    tree: SysfsTree,
) -> None:
    tree.link("sys/bus/pci/devices/0000:99:00.0", "sys/devices/gone")
    tree.link("sys/bus/pci/devices/nonsense", f"sys/devices/{ROOT}")
    tree.link("sys/bus/pci/devices/0000:98:00.0", "sys/bus/pci/devices/0000:98:00.0")
    inventory = _read(tree)
    assert len(inventory.functions) == 4
    assert [(gap.where.rpartition("/")[2], gap.what) for gap in inventory.gaps] == [
        ("0000:98:00.0", "cannot be followed (its links form a loop); it was left out"),
        ("0000:99:00.0", "cannot be followed (its link leads nowhere); it was left out"),
        ("nonsense", "its name is not a PCI address; it was left out"),
    ]


def test_a_bridge_that_is_not_listed_is_still_on_the_way(tree: SysfsTree) -> None:
    (tree.root / f"sys/bus/pci/devices/{UP}").unlink()
    (tree.root / f"sys/bus/pci/devices/{DOWN}").unlink()
    inventory = _read(tree)
    assert [function.parent for function in inventory.functions] == [None, PORT, UP, DOWN]
    assert inventory.by_address[UP].class_code is None
    assert [gap.where for gap in inventory.gaps] == [DOWN, UP]


def test_a_link_to_another_device_does_not_move_it_there(tree: SysfsTree) -> None:
    tree.link("sys/bus/pci/devices/0000:77:00.0", f"sys/devices/{ROOT}/{PORT}/{UP}/{DOWN}/{LEAF}")
    inventory = _read(tree)
    stray = inventory.by_address["0000:77:00.0"]
    assert (stray.root, stray.parent) == ("pci0000:77", None)
    assert _gaps(inventory) == ["0000:77:00.0: its folder does not show what it hangs below."]


def test_bridges_that_claim_to_be_below_each_other_end(tmp_path: Path) -> None:
    tree = SysfsTree(tmp_path)
    first, second = "0000:01:00.0", "0000:02:00.0"
    tree.device(["pci0000:00", first, second])
    tree.device(["pci0000:00", second, first])
    inventory = _read(tree)
    assert [function.parent for function in inventory.functions] == [None, None]
    assert f"{first}: hangs below {second}, which lies elsewhere itself." in _gaps(inventory)


def test_wide_domains_and_devices_behind_a_controller_have_roots_of_their_own(
    tmp_path: Path,
) -> None:
    tree = SysfsTree(tmp_path)
    tree.device(["pci0000:00", "0000:00:0e.0", "pci10000:e0", "10000:e0:06.0", "10000:e1:00.0"])
    tree.device(["pci0000:00", "0000:00:0e.0", "pci10000:e0", "10000:e0:06.0"])
    tree.device(["pci0000:00", "0000:00:0e.0"])
    found = [(f.address, f.root, f.parent) for f in _read(tree).functions]
    assert found == [
        ("0000:00:0e.0", "pci0000:00", None),
        ("10000:e0:06.0", "pci10000:e0", None),
        ("10000:e1:00.0", "pci10000:e0", "10000:e0:06.0"),
    ]


@pytest.mark.parametrize(
    ("text", "model"),
    [
        # AMD Rome: kernel family 23; NCCL writes 15 + (8 << 4).
        ("vendor_id : AuthenticAMD\ncpu family : 23\nmodel : 49\n\n", ("AuthenticAMD", 143, 49)),
        ("vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\n", ("AuthenticAMD", 175, 1)),
        ("vendor_id : GenuineIntel\ncpu family : 6\nmodel : 207\n", ("GenuineIntel", 6, 207)),
    ],
)
def test_x86_cpus_are_recorded_as_nccl_does(
    tree: SysfsTree, text: str, model: tuple[str, int, int]
) -> None:
    tree.write("proc/cpuinfo", text)
    assert _read(tree).cpu == CpuModel("x86_64", *model)


def test_other_cpus_and_what_is_none(tree: SysfsTree) -> None:
    tree.write("proc/cpuinfo", "processor : 0\nCPU implementer : 0x41\n")
    assert _read(tree).cpu == CpuModel("arm64")
    tree.write("proc/cpuinfo", "processor : 0\ncpu : POWER9, altivec supported\n")
    assert _read(tree).cpu == CpuModel("ppc64")
    tree.write("proc/cpuinfo", "cpu family : -6\nmodel : 1")
    inventory = _read(tree)
    assert inventory.cpu == CpuModel("x86_64")
    assert [gap.where for gap in inventory.gaps] == ["proc/cpuinfo"]


def test_a_node_that_holds_memory_only_has_no_package(tree: SysfsTree) -> None:
    tree.write("sys/devices/system/node/node2/cpulist", "")
    assert _read(tree).numa_nodes == (NumaNode(0, 0), NumaNode(1, 1), NumaNode(2))


def test_a_folder_that_is_no_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no PCI devices below sys/bus/pci/devices and no"):
        _read(SysfsTree(tmp_path))
    with pytest.raises(MachineError, match="give the root directory"):
        _read(SysfsTree(tmp_path / "absent"))


def test_more_devices_than_a_domain_can_hold_are_refused_at_once(tmp_path: Path) -> None:
    class Crowd(DirectoryTree):
        def list(self, _: str) -> list[str]:
            return [f"{number:04x}:00:00.0" for number in range(65_537)]

    started = time.process_time()
    with pytest.raises(MachineError, match=r"65,537 PCI devices, at most 65,536"):
        read_sysfs(Crowd(tmp_path), "here")
    assert time.process_time() - started < 1.0


def test_a_tree_cut_anywhere_is_read_as_far_as_it_goes(tree: SysfsTree, tmp_path: Path) -> None:
    whole = _read(tree)
    assert whole.gaps == ()
    files = sorted(path for path in tree.root.rglob("*") if path.is_file() and path.stat().st_size)
    needed = {"class", "vendor", "device", "resource", "cpuinfo"}
    for path in files:
        content = path.read_bytes()
        path.write_bytes(b"")
        inventory = _read(tree)
        assert len(inventory.functions) == 4
        if path.name in needed:
            assert inventory.gaps, path
        path.write_bytes(content)


_FILES = [
    *(_leaf_file(name) for name in ("class", "vendor", "device", "numa_node", "resource")),
    *(
        _leaf_file(f"{when}_link_{what}")
        for when in ("max", "current")
        for what in ("speed", "width")
    ),
    "sys/devices/system/node/node1/cpulist",
    "sys/devices/system/cpu/cpu2/topology/physical_package_id",
    "proc/cpuinfo",
    "etc/hostname",
    "sys/class/infiniband/mlx5_0/ports/1/state",
    "sys/class/infiniband/mlx5_0/ports/1/rate",
    "sys/class/infiniband/mlx5_0/ports/1/link_layer",
    "sys/class/net/eth0/speed",
    "sys/class/net/eth0/operstate",
    "sys/class/net/eth0/dev_port",
]


_QUIET = ("cpulist", "dev_port", "current_link_speed")
"""Files that are asked only where another does not tell."""


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> SysfsTree:
    tree = SysfsTree(tmp_path_factory.mktemp("complete"))
    for depth in (2, 3, 4):
        tree.device([ROOT, PORT, UP, DOWN][:depth], numa_node=1)
    tree.device([ROOT, PORT, UP, DOWN, LEAF], pci_class=GPU, numa_node=1)
    nic = tree.device([ROOT, PORT, UP, "0000:3c:08.0", "0000:3e:00.0"], pci_class=INFINIBAND)
    tree.device([ROOT, PORT, UP, "0000:3c:08.0"])
    tree.rdma("mlx5_0", nic)
    tree.interface("eth0", tree.device([ROOT, "0000:3a:01.0"], pci_class="0x020000"))
    tree.numa(0, 1)
    tree.cpu("GenuineIntel", 6, 143)
    tree.write("etc/hostname", "node7")
    return tree


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(_FILES),
    st.binary(max_size=40) | st.text("0123456789abcdefx-. GT/s:\n", max_size=30).map(str.encode),
)
def test_bytes_of_any_kind_give_a_believable_value_or_a_gap(
    complete: SysfsTree, file: str, content: bytes
) -> None:
    path = complete.root / file
    kept = path.read_bytes()
    path.write_bytes(content)
    try:
        inventory = _read(complete)
    finally:
        path.write_bytes(kept)
    for function in inventory.functions:
        assert function.class_code is None or 0 <= function.class_code <= 0xFFFFFF
        assert function.numa_node is None or 0 <= function.numa_node <= 65_535
        link = function.link or PcieLink(0, 0)
        assert link.gt_per_s in {0, 2.5, 5, 8, 16, 32, 64, 128}
        assert link.width in {0, 1, 2, 4, 8, 12, 16, 32}
        assert 0 <= function.window_bytes <= 1 << 64
    for port in inventory.ports:
        assert port.speed_gbit_per_s is None or 0 < port.speed_gbit_per_s <= 3200
    assert all("\n" not in gap.sentence() for gap in inventory.gaps)
    assert len(host_topology(inventory, "here").notes) >= len({gap.what for gap in inventory.gaps})
    if "\ufffd" in content.decode("utf-8", "replace") and not file.endswith(_QUIET):
        assert [gap.where for gap in inventory.gaps][:1] == [file]


@pytest.mark.long
@requires_shared_data
@pytest.mark.parametrize(
    ("name", "functions", "roots", "nodes"),
    [
        ("2pa-pcidomain32bits", 9, 2, 1),
        ("32em64t-2n8c+dax+nvme+mic+dimms", 137, 4, 2),
        ("32intel64-2p8co2t+8ve", 29, 3, 2),
        ("40intel64-2g2n4c+pcilocality", 37, 2, 4),
    ],
)
def test_snapshots_of_real_machines(name: str, functions: int, roots: int, nodes: int) -> None:
    inventory = real_snapshot(name)
    assert len(inventory.functions) == functions
    assert len({function.root for function in inventory.functions}) == roots
    assert len(inventory.numa_nodes) == nodes
    # The Ethernet ports inside the chipset of the machine with Vector Engines are at gen 1, and so
    # is the bridge above them, which the snapshot does not list.
    slow = "runs at 2.5 of 8 GT/s; look at its slot and riser if that is not"
    assert all(function.class_code is not None for function in inventory.functions) or (
        _gaps(inventory)
        == [
            "0000:5f:03.0: devices hang below it, but it is not listed in sys/bus/pci/devices.",
            f"0000:60:00.0: {slow} on purpose.",
            f"0000:60:00.1: {slow} on purpose.",
        ]
    )
    for function in inventory.functions:
        assert function.parent is None or inventory.by_address[function.parent].root == (
            function.root
        )


@requires_shared_data
def test_domains_of_more_than_four_digits() -> None:
    functions = real_snapshot("2pa-pcidomain32bits").functions
    wide = [f for f in functions if f.address.startswith("10000:")]
    assert [(function.address, function.root) for function in wide] == [
        ("10000:00:00.0", "pci10000:00"),
        ("10000:00:04.0", "pci10000:00"),
    ]


def test_one_tree_read_twice_is_one_inventory(tree: SysfsTree, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tree.root / "sys", copy / "sys", symlinks=True)
    shutil.copytree(tree.root / "proc", copy / "proc")
    assert read_sysfs(DirectoryTree(copy), "here") == _read(tree)
