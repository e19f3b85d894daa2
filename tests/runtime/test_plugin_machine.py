"""The plugin on another machine than its table's: GPUs and NICs by sysfs, and variables."""

import _ctypes
import ctypes
import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.bundles.host_devices import (
    BundleFacts,
    HostDevice,
    HostDeviceKind,
    HostDevices,
)
from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Setting, Shape
from tests.lookup_tables.tables import make_entry, make_table
from tests.runtime.builds import compile_native
from tests.runtime.plugin_abi import Plugin
from tuccl.shipping.doctor.seen_devices import difference, see_devices

SUCCESS, INVALID_USAGE = 0, 5
H200, A100, CX7, CX6, INTEL = "10de:2335", "10de:20b2", "15b3:1021", "15b3:101b", "8086:1572"
RING = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 3)
TABLE = make_table(
    [
        make_entry(Collective.ALL_REDUCE, 1024, 4095, RING, shape=shape)
        for shape in (Shape(8, 1, 8), Shape(4, 1, 4), Shape(16, 2, 8))
    ],
    gpu_models=(A100, H200),
)


def gpus(model: str, count: int) -> HostDevice:
    return HostDevice(HostDeviceKind.GPU, model, count=count)


def nic(model: str, mbit_per_s: int, name: str = "") -> HostDevice:
    return HostDevice(HostDeviceKind.NIC, model, mbit_per_s, name=name)


HGX = (gpus(H200, 8), *(nic(CX7, 400_000, f"mlx5_{number}") for number in range(8)))
"""Eight GPUs and eight NICs, as a table has them."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a NIC in a stand-in sysfs."""

    name: str
    gbit_per_s: float
    up: bool = True
    rdma: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function of a stand-in sysfs sits."""

    above: tuple[str, ...]
    """The root bus, and the bridges down to the function."""
    numa_node: int | None


def below_switch(number: int, numa_node: int | None = None) -> Place:
    """Below a downstream port of the switch with a number."""
    ports = (f"00{number:02x}:00:01.0", f"00{number:02x}:01:00.0", f"00{number:02x}:02:00.0")
    return Place((f"pci00{number:02x}:00", *ports), numa_node)


def below_root_port(number: int, numa_node: int | None = None) -> Place:
    return Place((f"pci00{number:02x}:00", f"00{number:02x}:00:01.0"), numa_node)


class Sysfs:
    """A stand-in sysfs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._number = itertools.count(1)
        self.devices = root / "bus" / "pci" / "devices"

    def clear(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self._number = itertools.count(1)

    def add(self, model: str, kind: str, place: "Place | None" = None) -> Path:
        """Add a function; without a place its path shows nothing."""
        address = f"0000:{next(self._number):02x}:00.0"
        folder = self.devices / address
        if place is not None:
            folder = self.root.joinpath("devices", *place.above, address)
            self.devices.mkdir(parents=True, exist_ok=True)
            (self.devices / address).symlink_to(os.path.relpath(folder, self.devices))
        folder.mkdir(parents=True)
        if place is not None and place.numa_node is not None:
            (folder / "numa_node").write_text(f"{place.numa_node}\n")
        vendor, device = model.split(":")
        for name, text in (("class", kind), ("vendor", f"0x{vendor}"), ("device", f"0x{device}")):
            (folder / name).write_text(f"{text}\n")
        return folder

    def add_gpus(self, model: str, count: int, place: "Place | None" = None) -> None:
        for _ in range(count):
            self.add(model, "0x030200", place)

    def add_nic(
        self,
        model: str,
        port: Port | None,
        place: "Place | None" = None,
        kind: str = "0x020700",
    ) -> None:
        folder = self.add(model, kind, place)
        if port is None:
            return
        if port.rdma:
            files = {
                "state": "4: ACTIVE" if port.up else "1: DOWN",
                "rate": f"{port.gbit_per_s:g} Gb/sec (4X NDR)",
            }
            folder = folder / "infiniband" / port.name / "ports" / "1"
        else:
            speed = int(1000 * port.gbit_per_s) if port.up else -1
            files = {"operstate": "up" if port.up else "down", "speed": f"{speed}"}
            folder = folder / "net" / port.name
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(f"{text}\n")

    def add_hgx(self, nics: Sequence[int] = range(8)) -> None:
        self.add_gpus(H200, 8)
        for number in nics:
            self.add_nic(CX7, Port(f"mlx5_{number}", 400.0))


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sysfs:
    monkeypatch.setenv("TUCCL_SYSFS", str(tmp_path / "sys"))
    return Sysfs(tmp_path / "sys")


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "table.tuccl"
    path.write_bytes(bundle_bytes(TABLE, BundleFacts((HGX,))))
    monkeypatch.setenv("TUCCL_BUNDLE", str(path))
    return path


def is_active(plugin: Plugin, ranks: int, nodes: int) -> bool:
    result, communicator = plugin.init(5, ranks, nodes)
    assert result == SUCCESS
    active = communicator.context.value is not None
    communicator.end()
    return active


def told(plugin: Plugin) -> str:
    """Return what the only warning says of this host."""
    (warning,) = plugin.warnings()
    return warning.partition(" is for another machine: ")[2].partition(";")[0]


@pytest.mark.usefixtures("bundle")
def test_the_same_host_is_the_tables_and_is_read_once_in_a_process(
    plugin: Plugin, sysfs: Sysfs
) -> None:
    sysfs.add_hgx()
    assert is_active(plugin, 16, 2)
    shutil.rmtree(sysfs.root)
    sysfs.add_gpus("10de:1eb8", 1)
    assert is_active(plugin, 16, 2), "it was read for the first communicator"
    assert not is_active(plugin, 4, 1), "NICs did not count here, so that it is read again"


@pytest.mark.usefixtures("bundle")
def test_a_host_that_has_more_is_the_tables(plugin: Plugin, sysfs: Sysfs) -> None:
    sysfs.add_hgx()
    sysfs.add_gpus(H200, 2)
    sysfs.add_nic(CX7, Port("mlx5_8", 200.0))
    sysfs.add_nic(INTEL, Port("eth0", 10.0, rdma=False))
    assert is_active(plugin, 16, 2)
    # A job of fewer GPUs: sysfs shows all of the host's.
    assert is_active(plugin, 4, 1)
    assert plugin.warnings() == []


@pytest.mark.usefixtures("bundle")
def test_a_missing_nic_is_named_across_hosts_and_no_matter_inside_one(
    plugin: Plugin, sysfs: Sysfs
) -> None:
    sysfs.add_hgx(nics=(0, 1, 2, 4, 5, 6, 7))
    assert is_active(plugin, 8, 1)
    assert not is_active(plugin, 16, 2)
    assert told(plugin) == "7 NICs 15b3:1021 here, 8 on its hosts: mlx5_3 is missing"


@pytest.mark.usefixtures("bundle")
def test_a_slower_nic_is_another_machine(plugin: Plugin, sysfs: Sysfs) -> None:
    sysfs.add_hgx(nics=range(7))
    sysfs.add_nic(CX7, Port("mlx5_7", 200.0))
    assert not is_active(plugin, 16, 2)
    assert told(plugin) == "7 NICs 15b3:1021 at 400 Gb/s here, 8 on its hosts"


@pytest.mark.parametrize(("gbit_per_s", "same"), [(2.5, True), (2.0, False), (12.5, False)])
def test_a_rate_may_have_a_fraction(
    gbit_per_s: float, same: bool, plugin: Plugin, sysfs: Sysfs, bundle: Path
) -> None:
    bundle.write_bytes(bundle_bytes(TABLE, BundleFacts(((nic(CX7, 2_500),),))))
    sysfs.add_gpus(H200, 8)
    sysfs.add_nic(CX7, Port("mlx5_0", gbit_per_s))
    assert is_active(plugin, 16, 2) == same


@pytest.mark.parametrize("kind", ["0x020000", "0x020700", "0x020800", "0x0c0600"])
def test_nics_are_those_of_networks_and_of_infiniband_on_a_serial_bus(
    kind: str, plugin: Plugin, sysfs: Sysfs, bundle: Path
) -> None:
    """As those of QLogic, for which PCI's list of classes has a place of its own."""
    hosts = (nic("1077:7322", 40_000, "qib0"),)
    bundle.write_bytes(bundle_bytes(TABLE, BundleFacts((hosts,))))
    sysfs.add_gpus(H200, 8)
    sysfs.add_nic("1077:7322", Port("qib0", 40.0), kind=kind)
    assert is_active(plugin, 16, 2)
    assert not difference([hosts], *see_devices(sysfs.root), across_hosts=True)


@pytest.mark.usefixtures("bundle")
def test_fewer_gpus_are_another_machine(plugin: Plugin, sysfs: Sysfs) -> None:
    sysfs.add_gpus(H200, 4)
    assert not is_active(plugin, 4, 1)
    assert told(plugin) == "4 GPUs 10de:2335 here, 8 on its hosts"


@pytest.mark.usefixtures("bundle")
def test_what_is_not_known_refuses_nothing(plugin: Plugin, sysfs: Sysfs) -> None:
    """A network namespace hides ports, a port that is down has no rate; no GPUs, no sysfs."""
    assert is_active(plugin, 16, 2)
    sysfs.add_hgx(nics=range(5))
    sysfs.add_nic(CX7, None)
    sysfs.add_nic(CX7, Port("mlx5_6", 10.0, up=False))
    sysfs.add_nic(CX7, Port("eth7", 400.0, rdma=False))
    assert is_active(plugin, 16, 2)
    sysfs.clear()
    sysfs.add_nic(CX7, Port("mlx5_0", 400.0))
    assert is_active(plugin, 16, 2)
    assert plugin.warnings() == []


def test_a_demanded_sum_keeps_ranks_from_deciding_differently(
    plugin: Plugin, sysfs: Sysfs, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sysfs.add_hgx(nics=range(7))
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", f"{bundle_crc(bundle.read_bytes()):08x}")
    assert is_active(plugin, 8, 1)
    assert plugin.init(5, 16, 2)[0] == INVALID_USAGE
    assert "7 NICs 15b3:1021 here, 8 on its hosts: mlx5_7 is missing" in plugin.warnings()[0]
    assert "would decide differently" in plugin.warnings()[0]


TWO_SWITCHES = (
    HostDevice(HostDeviceKind.GPU, H200, count=4, gpus_at_switch=1, gpus_at_numa_node=1),
    *(
        HostDevice(
            HostDeviceKind.NIC, CX7, 400_000, 1, f"mlx5_{number}", 0,
            gpus_at_switch=2, gpus_at_numa_node=2,
        )
        for number in range(2)
    ),
)  # fmt: skip
"""Two switches, each of a NUMA node of its own, with two GPUs and a NIC."""


@pytest.fixture
def two_switches(bundle: Path) -> None:
    bundle.write_bytes(bundle_bytes(TABLE, BundleFacts((TWO_SWITCHES,))))


def add_two_switches(sysfs: Sysfs, *nics: Place) -> None:
    for number in (0, 1):
        sysfs.add_gpus(H200, 2, below_switch(number, number))
    for number, place in enumerate(nics):
        sysfs.add_nic(CX7, Port(f"mlx5_{number}", 400.0), place)


@pytest.mark.usefixtures("two_switches")
def test_a_host_with_the_same_tree_is_the_tables(plugin: Plugin, sysfs: Sysfs) -> None:
    add_two_switches(sysfs, below_switch(0, 0), below_switch(1, 1))
    assert is_active(plugin, 16, 2)
    assert plugin.warnings() == []


@pytest.mark.usefixtures("two_switches")
def test_a_nic_in_another_slot_is_named_across_hosts(plugin: Plugin, sysfs: Sysfs) -> None:
    """The second NIC is below a root port of the second NUMA node, without a switch."""
    add_two_switches(sysfs, below_switch(0, 0), below_root_port(7, 1))
    assert is_active(plugin, 8, 1)
    assert not is_active(plugin, 16, 2)
    assert told(plugin) == (
        "1 NICs 15b3:1021 with 2 or more GPUs below their PCIe switches here, 2 on its hosts: "
        "mlx5_1 has 0"
    )


@pytest.mark.usefixtures("two_switches")
def test_a_nic_of_another_numa_node_is_named(plugin: Plugin, sysfs: Sysfs) -> None:
    """No NIC is below a switch with GPUs, as in a virtual machine, but NUMA nodes are shown."""
    add_two_switches(sysfs, below_root_port(7, 0), below_root_port(8, 2))
    assert not is_active(plugin, 16, 2)
    assert told(plugin) == (
        "1 NICs 15b3:1021 with 2 or more GPUs of their NUMA node here, 2 on its hosts: mlx5_1 has 0"
    )


@pytest.mark.usefixtures("two_switches")
def test_gpus_in_other_slots_are_named_inside_a_host(plugin: Plugin, sysfs: Sysfs) -> None:
    sysfs.add_gpus(H200, 2, below_switch(0, 0))
    sysfs.add_gpus(H200, 1, below_switch(1, 0))
    sysfs.add_gpus(H200, 1, below_root_port(7, 1))
    assert not is_active(plugin, 8, 1)
    assert told(plugin) == (
        "2 GPUs 10de:2335 with 1 or more GPUs below their PCIe switches here, 4 on its hosts: "
        "0000:03:00.0 has 0"
    )


@pytest.mark.usefixtures("two_switches")
@pytest.mark.parametrize("numa_node", [None, -1])
def test_a_tree_that_shows_nothing_refuses_nothing(
    numa_node: int | None, plugin: Plugin, sysfs: Sysfs
) -> None:
    """A virtual machine: each device has a root bus of its own; one has no NUMA node."""
    for number in range(6):
        place = below_root_port(number, numa_node if number == 3 else number)
        if number < 4:
            sysfs.add_gpus(H200, 1, place)
        else:
            sysfs.add_nic(CX7, Port(f"mlx5_{number - 4}", 400.0), place)
    assert is_active(plugin, 16, 2)
    sysfs.clear()
    sysfs.add_gpus(H200, 4)
    assert is_active(plugin, 8, 1)
    assert plugin.warnings() == []


SPEEDS = (0, 100_000, 200_000, 2_500)
CLOSE = st.sampled_from((0, 0, 0, 1, 2))
NICS = st.builds(
    HostDevice,
    st.just(HostDeviceKind.NIC),
    st.sampled_from((CX7, CX6)),
    st.sampled_from(SPEEDS),
    st.just(1),
    st.sampled_from(("", "mlx5_0", "x")),
    st.just(0),
    CLOSE,
    CLOSE,
)
GPUS = st.builds(
    HostDevice,
    st.just(HostDeviceKind.GPU),
    st.sampled_from((H200, A100)),
    st.just(0),
    st.integers(1, 4),
    st.just(""),
    st.integers(0, 18),
    CLOSE,
    CLOSE,
)
ROOTS = ("pci0000:00", "pci0001:00")
BRIDGES = ("00ff:08:00.0", "00ff:09:00.0", "10000:e1:00.1", "10000:e2:1f.7")
PLACES = st.builds(
    Place,
    st.builds(
        lambda root, bridges: (root, *bridges),
        st.sampled_from(ROOTS),
        st.lists(st.sampled_from(BRIDGES), max_size=4, unique=True),
    ),
    st.sampled_from((0, 1)),
)
ANYWHERE = st.none() | PLACES | PLACES.map(lambda place: replace(place, numa_node=None))
HOSTS = st.lists(
    st.builds(
        lambda cards, nics: tuple(sorted({*cards, *nics})),
        st.lists(GPUS, max_size=2),
        st.lists(NICS, max_size=4),
    ).filter(bool),
    max_size=3,
)
PORTS = st.none() | st.builds(
    Port,
    st.sampled_from(("mlx5_0", "mlx5_1", "ib2")),
    st.sampled_from((100.0, 200.0, 2.5, 12.0)),
    st.booleans(),
    st.booleans(),
)


EXAMPLES = itertools.count()


def check_random_host(
    hosts: list[HostDevices],
    cards: list[tuple[str, Place | None]],
    ports: list[tuple[str, Port | None, Place | None]],
    nodes: int,
    fixtures: tuple[Plugin, Sysfs, Path, pytest.MonkeyPatch],
) -> None:
    plugin, sysfs, bundle, monkeypatch = fixtures
    # A process reads its host once for each table, so each example has its own.
    table = replace(TABLE, topology_name=f"machine {next(EXAMPLES)}")
    data = bundle_bytes(table, BundleFacts(tuple(hosts)))
    bundle.write_bytes(data)
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", f"{bundle_crc(data):08x}")
    sysfs.clear()
    for card, place in cards:
        sysfs.add_gpus(card, 1, place)
    for model, port, place in ports:
        sysfs.add_nic(model, port, place)
    del plugin.messages[:]
    result, communicator = plugin.init(5, 8 * nodes, nodes)
    communicator.end()
    seen = see_devices(sysfs.root)
    wanted = difference(hosts, *seen, across_hosts=nodes > 1)
    assert result == (INVALID_USAGE if wanted else SUCCESS)
    assert [f"another machine: {wanted}, and" in text for text in plugin.warnings()] == (
        [True] if wanted else []
    )


@pytest.mark.long
@pytest.mark.usefixtures("bundle")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    hosts=HOSTS,
    cards=st.lists(st.tuples(st.sampled_from((H200, A100)), ANYWHERE), min_size=1, max_size=6),
    ports=st.lists(st.tuples(st.sampled_from((CX7, CX6, INTEL)), PORTS, ANYWHERE), max_size=5),
    nodes=st.sampled_from((1, 2)),
)
def test_plugin_and_doctor_say_the_same_of_random_hosts(
    hosts: list[HostDevices],
    cards: list[tuple[str, Place | None]],
    ports: list[tuple[str, Port | None, Place | None]],
    nodes: int,
    plugin: Plugin,
    sysfs: Sysfs,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_random_host(hosts, cards, ports, nodes, (plugin, sysfs, bundle, monkeypatch))


@pytest.mark.long
@pytest.mark.usefixtures("bundle")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    close=st.lists(st.tuples(CLOSE, CLOSE), min_size=3, max_size=3),
    places=st.lists(PLACES, min_size=5, max_size=5),
)
def test_plugin_and_doctor_say_the_same_of_random_trees(
    close: list[tuple[int, int]],
    places: list[Place],
    plugin: Plugin,
    sysfs: Sysfs,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table has two GPUs and a NIC; three GPUs and two NICs are here."""
    cards = [HostDevice(HostDeviceKind.GPU, H200, 0, 1, "", 0, *figures) for figures in close[:2]]
    network = HostDevice(HostDeviceKind.NIC, CX7, 400_000, 1, "mlx5_0", 0, *close[2])
    check_random_host(
        [tuple(sorted((*cards, network)))],
        [(H200, place) for place in places[:3]],
        [(CX7, Port(f"mlx5_{number}", 400.0), place) for number, place in enumerate(places[3:])],
        2,
        (plugin, sysfs, bundle, monkeypatch),
    )


def variables_told(plugin: Plugin, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_active(plugin, 8, 1)
    assert is_active(plugin, 8, 1)
    found = [text for text in plugin.warnings() if "variables" in text]
    assert len(found) <= 1
    return found[0].partition("brackets: ")[2].partition(";")[0] if found else ""


@pytest.mark.parametrize(
    ("measured", "environment", "told"),
    [
        ({}, {}, "NCCL_BUFFSIZE unset (8388608), NCCL_NTHREADS unset (256)"),
        ({}, {"NCCL_BUFFSIZE": "8388608", "NCCL_NTHREADS": "256"}, ""),
        (
            {"NCCL_IB_TC": "106", "NCCL_CROSS_NIC": "1"},
            {
                "NCCL_BUFFSIZE": "8388608",
                "NCCL_NTHREADS": "64",
                "NCCL_CROSS_NIC": "1",
                "NCCL_DEBUG": "INFO",
                "NCCL_P2P_DISABLE": "1",
                "NCCL_ALGO": "",
            },
            "NCCL_IB_TC unset (106), NCCL_NTHREADS=64 (256), NCCL_P2P_DISABLE=1 (unset)",
        ),
        # What another table has set in this shell is not the job's own.
        (
            {},
            {
                "NCCL_BUFFSIZE": "8388608",
                "NCCL_NTHREADS": "256",
                "NCCL_MAX_CTAS": "8",
                "TUCCL_PROFILE": "NCCL_NTHREADS NCCL_MAX_CTAS",
            },
            "",
        ),
        (None, {"NCCL_P2P_DISABLE": "1"}, ""),
    ],
)
def test_variables_that_differ_from_the_tables_are_named_once(
    measured: dict[str, str] | None,
    environment: dict[str, str],
    told: str,
    plugin: Plugin,
    sysfs: Sysfs,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sysfs.add_hgx()
    bundle.write_bytes(bundle_bytes(TABLE, BundleFacts((), measured)))
    assert variables_told(plugin, monkeypatch, **environment) == told


def test_a_long_list_of_variables_is_cut(
    plugin: Plugin, sysfs: Sysfs, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sysfs.add_hgx()
    many = {f"NCCL_{number:02d}": "1" * 60 for number in range(40)}
    bundle.write_bytes(bundle_bytes(TABLE, BundleFacts((), many)))
    told = variables_told(plugin, monkeypatch)
    assert told.startswith(f"NCCL_00 unset ({'1' * 40}), NCCL_01 unset (")
    assert told.endswith(", ...")
    assert len(told) < 600


def load_executor(folder: Path, *, called: bool) -> int:
    """Load a library of the executor's name, through which NCCL was called or not."""
    source, name = folder / "executor.c", "libtuccl-executor.so"
    source.write_text(
        f"_Bool tuccl_executor_is_called(void);\n"
        f"_Bool tuccl_executor_is_called(void) {{ return {int(called)}; }}\n"
    )
    library = compile_native(folder / name, [source], "-shared", "-fPIC", f"-Wl,-soname,{name}")
    return int(ctypes.CDLL(str(library))._handle)


@pytest.fixture
def executor_is_called(tmp_path: Path) -> Iterator[None]:
    """The process calls NCCL through the executor."""
    handle = load_executor(tmp_path, called=True)
    yield
    _ctypes.dlclose(handle)


@pytest.fixture
def executor_is_passed(tmp_path: Path) -> Iterator[None]:
    """The process has loaded the executor, and calls NCCL past it."""
    handle = load_executor(tmp_path, called=False)
    yield
    _ctypes.dlclose(handle)


def tell_of_settings(
    plugin: Plugin, sysfs: Sysfs, bundle: Path, monkeypatch: pytest.MonkeyPatch, **own: str
) -> str:
    sysfs.add_hgx()
    table = replace(
        TABLE,
        profile={"NCCL_MIN_CTAS": "32", "NCCL_NTHREADS": "256"},
        settings=(Setting(Shape(8, 1, 8), "NCCL_MIN_CTAS"),),
    )
    bundle.write_bytes(bundle_bytes(table, BundleFacts((), {})))
    return variables_told(plugin, monkeypatch, **own)


def test_a_process_without_the_executor_lacks_what_that_would_set(
    plugin: Plugin, sysfs: Sysfs, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tell_of_settings(plugin, sysfs, bundle, monkeypatch)
    assert said == "NCCL_MIN_CTAS unset (32), NCCL_NTHREADS unset (256)"


@pytest.mark.usefixtures("executor_is_passed")
def test_so_does_a_process_that_goes_past_it(
    plugin: Plugin, sysfs: Sysfs, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tell_of_settings(plugin, sysfs, bundle, monkeypatch)
    assert said == "NCCL_MIN_CTAS unset (32), NCCL_NTHREADS unset (256)"


@pytest.mark.usefixtures("executor_is_called")
@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({}, "NCCL_NTHREADS unset (256)"),
        ({"NCCL_MIN_CTAS": "16"}, "NCCL_MIN_CTAS=16 (32), NCCL_NTHREADS unset (256)"),
    ],
)
def test_a_process_with_the_executor_may_lack_what_that_sets(
    plugin: Plugin,
    sysfs: Sysfs,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: dict[str, str],
    told: str,
) -> None:
    assert tell_of_settings(plugin, sysfs, bundle, monkeypatch, **own) == told
