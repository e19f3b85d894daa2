"""The plugin at the start of a communicator: bundle, checksum, machine, messages."""

import _ctypes
import os
import re
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundle_layout import LARGEST_BUNDLE_BYTES, bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Shape
from tests.lookup_tables.tables import invariant_table, make_entry, make_table
from tests.runtime.builds import RUNTIME
from tests.runtime.plugin_abi import VERSIONS, Plugin

SUCCESS, INVALID_USAGE = 0, 5
RING_LL = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 3)
TABLE = make_table(
    [
        make_entry(Collective.ALL_REDUCE, 1024, 4095, RING_LL),
        make_entry(Collective.ALL_REDUCE, 1024, 4095, RING_LL, shape=Shape(16, 2, 8)),
    ]
)
COST = [10.0] * 21


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "table.tuccl"
    path.write_bytes(bundle_bytes(TABLE))
    monkeypatch.setenv("TUCCL_BUNDLE", str(path))
    return path


def add_device(root: Path, name: str, class_: str, vendor: str, device: str) -> None:
    folder = root / "bus" / "pci" / "devices" / name
    folder.mkdir(parents=True)
    for file, value in (("class", class_), ("vendor", vendor), ("device", device)):
        (folder / file).write_text(value + "\n")


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a NIC, a bridge and a board's display chip, none of which is a GPU."""
    root = tmp_path / "sys"
    add_device(root, "0000:00:01.0", "0x020700", "0x15b3", "0x1021")
    add_device(root, "0000:00:02.0", "0x068000", "0x10de", "0x22a3")
    add_device(root, "0000:00:03.0", "0x030000", "0x1a03", "0x2000")
    monkeypatch.setenv("TUCCL_SYSFS", str(root))
    return root


def is_active(plugin: Plugin, *, nodes: int = 1, version: int = 5) -> bool:
    """Start a communicator, which must succeed, and return whether the table is in force."""
    result, communicator = plugin.init(version, 8 * nodes, nodes)
    assert result == SUCCESS
    got = communicator.call(4, 2048, COST)
    communicator.end()
    if version == 2:
        return got.algorithm == 1
    return got.cost != COST


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_bundle_nccl_stays_as_it_is(version: int, plugin: Plugin) -> None:
    assert not is_active(plugin, version=version)
    assert plugin.messages == [(3, "TuCCL: TUCCL_BUNDLE names no file; NCCL stays as it is")]


@pytest.mark.parametrize("version", VERSIONS)
def test_one_line_says_what_was_loaded(version: int, plugin: Plugin, bundle: Path) -> None:
    assert is_active(plugin, version=version)
    crc = bundle_crc(bundle.read_bytes())
    assert plugin.messages == [
        (3, f"TuCCL: {bundle} (CRC {crc:08x}): 1 entries for 8 ranks on 1 nodes, 8 per node")
    ]


def test_another_shape_is_normal(plugin: Plugin, bundle: Path) -> None:
    result, communicator = plugin.init(5, 4, 1)
    assert result == SUCCESS
    assert communicator.context.value is None
    assert plugin.warnings() == []
    assert "has no entries for 4 ranks on 1 nodes, 4 per node" in plugin.messages[0][1]
    assert str(bundle) in plugin.messages[0][1]


def sealed(data: bytes) -> bytes:
    return data[:12] + struct.pack("<I", bundle_crc(data)) + data[16:]


GOOD = bundle_bytes(TABLE)
BAD_FILES = [
    (GOOD[:-1], "is damaged"),
    (GOOD + b"\0", "is damaged"),
    (GOOD[:300] + bytes([GOOD[300] ^ 1]) + GOOD[301:], "is damaged: CRC"),
    (GOOD[:20], "is truncated at 20 bytes"),
    (b"", "is empty"),
    (b"PAR1" * 20, "is no TuCCL bundle"),
    (sealed(GOOD[:8] + b"\x02" + GOOD[9:]), "has format 2, this plugin reads 1"),
    (sealed(GOOD[:32] + b"\x63" + GOOD[33:]), "needs section 99"),
]


@pytest.mark.parametrize(("data", "why"), BAD_FILES, ids=[why for _, why in BAD_FILES])
def test_a_bad_bundle_gives_one_warning_and_leaves_nccl_alone(
    data: bytes, why: str, plugin: Plugin, bundle: Path
) -> None:
    bundle.write_bytes(data)
    for version in VERSIONS:
        assert not is_active(plugin, version=version)
    (warning,) = plugin.warnings()
    assert warning.startswith(f"TuCCL: {bundle} {why}")
    assert "NCCL stays as it is" in warning
    # The job has exported them already, and they were meant for the table.
    assert "unset its process profile too (the NCCL_ variables of tuccl.env)" in warning


def test_the_warning_is_not_repeated_after_nccl_unloads_the_plugin(
    plugin: Plugin, bundle: Path
) -> None:
    bundle.write_bytes(GOOD[:-1])
    assert not is_active(plugin)
    _ctypes.dlclose(plugin.library._handle)
    again = Plugin(plugin.path, plugin.logger_library)
    assert not is_active(again)
    assert len(plugin.warnings()) == 1
    assert again.warnings() == []


def test_unreadable_files(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path / "missing", tmp_path, fifo, Path("/dev/zero"), Path("/dev/tty")):
        monkeypatch.setenv("TUCCL_BUNDLE", str(path))
        assert not is_active(plugin)
    (warning,) = plugin.warnings()
    assert warning.startswith(f"TuCCL: {tmp_path / 'missing'} cannot be opened: No such file")


def memory_at_once(act: Callable[[], object]) -> int:
    """Return the peak growth of memory in bytes."""
    Path("/proc/self/clear_refs").write_text("5")

    def field(name: str) -> int:
        (line,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return 1024 * int(line)

    before = field("VmRSS")
    act()
    return field("VmHWM") - before


def test_a_large_file_that_is_no_bundle_is_not_read(plugin: Plugin, bundle: Path) -> None:
    with bundle.open("r+b") as file:
        file.write(b"PK")
        file.truncate(LARGEST_BUNDLE_BYTES)  # Sparse.
    assert not is_active(plugin)  # Whatever is loaded first.
    begin = time.process_time()
    assert memory_at_once(lambda: is_active(plugin)) < 4 << 20
    assert time.process_time() - begin < 0.05
    (warning,) = plugin.warnings()
    assert warning.startswith(f"TuCCL: {bundle} is no TuCCL bundle")


def test_a_bundle_with_something_behind_it_is_not_read(plugin: Plugin, bundle: Path) -> None:
    size_bytes = bundle.stat().st_size
    with bundle.open("r+b") as file:
        file.truncate(LARGEST_BUNDLE_BYTES)
    assert memory_at_once(lambda: is_active(plugin)) < 8 << 20
    (warning,) = plugin.warnings()
    assert f"is damaged: {LARGEST_BUNDLE_BYTES} bytes instead of {size_bytes}" in warning


def test_the_largest_bundle(plugin: Plugin, bundle: Path) -> None:
    with bundle.open("r+b") as file:
        file.truncate(LARGEST_BUNDLE_BYTES + 1)  # Sparse: takes no room.
    assert not is_active(plugin)
    (warning,) = plugin.warnings()
    assert warning.startswith(f"TuCCL: {bundle} is too large: {LARGEST_BUNDLE_BYTES + 1} bytes")
    header = (RUNTIME / "bundle_layout.h").read_text()
    assert f"TUCCL_LARGEST_BUNDLE_BYTES = {LARGEST_BUNDLE_BYTES}," in header


@pytest.mark.parametrize("version", VERSIONS)
def test_the_demanded_sum_must_match(
    version: int, plugin: Plugin, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crc = bundle_crc(bundle.read_bytes())
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", f"{crc:08x}")
    assert is_active(plugin, version=version)
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", f"{crc:08X}")
    assert is_active(plugin, version=version)
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", f"{crc ^ 1:08x}")
    result, communicator = plugin.init(version, 8, 1)
    assert result == INVALID_USAGE
    assert communicator.context.value is None
    (warning,) = plugin.warnings()
    assert warning.startswith(
        f"TuCCL: {bundle} has CRC {crc:08x} but TUCCL_BUNDLE_CRC={crc ^ 1:08x}"
    )
    assert "must not start together" in warning


@pytest.mark.parametrize("text", ["123", "123456789", "0x123456", "12345xyz", "-1234567"])
def test_a_malformed_sum_is_refused(
    text: str, plugin: Plugin, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", text)
    assert plugin.init(5, 8, 1)[0] == INVALID_USAGE
    assert f"TUCCL_BUNDLE_CRC={text} is not 8 hexadecimal digits" in plugin.warnings()[0]


def test_a_demanded_sum_needs_a_readable_bundle(
    plugin: Plugin, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", "00000000")
    bundle.write_bytes(GOOD[:-1])
    assert plugin.init(5, 8, 1)[0] == INVALID_USAGE
    bundle.unlink()
    assert plugin.init(5, 8, 1)[0] == INVALID_USAGE
    monkeypatch.setenv("TUCCL_BUNDLE", "")
    assert plugin.init(5, 8, 1)[0] == INVALID_USAGE
    assert len(plugin.warnings()) == 3
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", "")
    assert not is_active(plugin)


DISPLAY, COMPUTE, ACCELERATOR = "0x030000", "0x030200", "0x120000"
TUNED = (COMPUTE, "10de:20b2")
OTHER_UNIT = (DISPLAY, "1002:164e")
"""A processor's display unit, of a vendor that the table does not name."""
HOSTS: list[tuple[tuple[str, ...] | None, list[tuple[str, str]], str]] = [
    (None, [], ""),
    (None, [(COMPUTE, "10de:2335"), (ACCELERATOR, "10de:20b2"), OTHER_UNIT], ""),
    # A DGX Station's display card, and a host whose containers get one model or the other.
    (None, [*[TUNED] * 4, (DISPLAY, "10de:1fb0"), (COMPUTE, "10de:2330")], ""),
    (("10de:2684",), [(DISPLAY, "10de:2684")], ""),
    (None, [(DISPLAY, "10de:2684")], "10de:2684"),
    # A display unit alone says nothing: a machine's own GPUs may be hidden from sysfs.
    (None, [OTHER_UNIT], ""),
    (None, [OTHER_UNIT, (ACCELERATOR, "1002:74a1")], "1002:74a1"),
    ((), [(COMPUTE, "10de:2330")], ""),
]
"""GPU models of a table (None: as it is), a host's GPUs, and the one that it is not for."""


@pytest.mark.parametrize(("models", "gpus", "other"), HOSTS)
def test_which_hosts_a_table_is_for(
    models: tuple[str, ...] | None,
    gpus: list[tuple[str, str]],
    other: str,
    plugin: Plugin,
    bundle: Path,
    sysfs: Path,
) -> None:
    if models is not None:
        bundle.write_bytes(bundle_bytes(make_table(list(TABLE.entries), gpu_models=models)))
    for number, (class_, model) in enumerate(gpus, 16):
        vendor, device = model.split(":")
        add_device(sysfs, f"0000:{number:02x}:00.0", class_, f"0x{vendor}", f"0x{device}")
    assert is_active(plugin) == (not other)
    assert [f"GPU {other} here" in warning for warning in plugin.warnings()] == [True] * bool(other)


def other_host(sysfs: Path) -> None:
    """Eight GPUs of a model that the table does not list, and a display card."""
    add_device(sysfs, "0000:08:00.0", "0x030000", "0x10de", "0x1fb0")
    for bus in range(16, 24):
        add_device(sysfs, f"0000:{bus:02x}:00.0", "0x030200", "0x10de", "0x2330")


@pytest.mark.parametrize("crc_demanded", [False, True])
def test_another_machine(
    plugin: Plugin,
    bundle: Path,
    sysfs: Path,
    monkeypatch: pytest.MonkeyPatch,
    crc_demanded: bool,
) -> None:
    other_host(sysfs)
    if crc_demanded:
        monkeypatch.setenv("TUCCL_BUNDLE_CRC", f"{bundle_crc(GOOD):08x}")
    for version in VERSIONS:
        for ranks, nodes in ((8, 1), (16, 2)):
            result, communicator = plugin.init(version, ranks, nodes)
            assert result == (INVALID_USAGE if crc_demanded else SUCCESS)
            assert communicator.context.value is None
    told = f"{bundle} is for another machine: GPU 10de:2330 here, none of its 2"
    if crc_demanded:
        # Another rank may see other GPUs and follow the table, also on this host: in a container.
        assert len(plugin.warnings()) == 2 * len(VERSIONS)
        assert all(told in warning for warning in plugin.warnings())
        assert "would decide differently" in plugin.warnings()[-1]
    else:
        (warning,) = plugin.warnings()
        assert told in warning
        assert "unset its process profile too (the NCCL_ variables of tuccl.env)" in warning


def test_a_rank_by_itself_disagrees_with_nobody_about_its_machine(
    plugin: Plugin, bundle: Path, sysfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_host(sysfs)
    monkeypatch.setenv("TUCCL_BUNDLE_CRC", f"{bundle_crc(GOOD):08x}")
    assert plugin.init(5, 1, 1)[0] == SUCCESS
    assert plugin.init(5, 2, 1)[0] == INVALID_USAGE


def test_replacing_the_file_does_not_touch_running_communicators(
    plugin: Plugin, bundle: Path
) -> None:
    _, communicator = plugin.init(5, 8, 1)
    bundle.write_bytes(b"")  # In place: the worst way.
    for _ in range(3):
        assert communicator.call(4, 2048, COST).nchannels == 3
    communicator.end()


@pytest.mark.parametrize("version", VERSIONS)
def test_another_nccl_than_the_tables_is_told_once_and_the_table_applies(
    version: int, plugin: Plugin, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUCCL_NCCL", "2.28.9")
    monkeypatch.setenv("STAND_IN_NCCL_VERSION", "22903")
    assert is_active(plugin, version=version)
    assert is_active(plugin, version=version)
    (told,) = [text for level, text in plugin.messages if level == 2]
    assert told == (
        "TuCCL: the table was measured with NCCL 2.28.9, this is NCCL 2.29.3, whose times and "
        "choices differ: run tuccl retune with it and ship the table again"
    )


@pytest.mark.parametrize(
    ("of_table", "here"), [("2.28.9", "22809"), ("", "22903"), ("2.28.9", ""), ("2.28.9", "-1")]
)
def test_the_same_nccl_or_one_that_is_not_known_is_not_told(
    of_table: str, here: str, plugin: Plugin, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUCCL_NCCL", of_table)
    monkeypatch.setenv("STAND_IN_NCCL_VERSION", here)
    assert is_active(plugin)
    assert all(level != 2 for level, _ in plugin.messages)


def write_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, builtin: bool = False) -> None:
    """Write a bundle whose sums do not move, by schedules or by NCCL's settings."""
    table = invariant_table()
    if builtin:
        entries = [
            replace(entry, builtin=RING_LL, schedule=None, builtin_time_us=8.5)
            for entry in table.entries
        ]
        table = replace(table, entries=tuple(entries))
    path = tmp_path / "kept.tuccl"
    path.write_bytes(bundle_bytes(table))
    monkeypatch.setenv("TUCCL_BUNDLE", str(path))


def test_without_the_executor_a_job_is_told_once_that_its_sums_may_move(
    plugin: Plugin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_kept(tmp_path, monkeypatch)
    assert [plugin.init(5, 8, 1)[0] for _ in range(2)] == [SUCCESS, SUCCESS]
    assert plugin.init(5, 4, 1)[0] == SUCCESS
    line = capfd.readouterr().err
    assert line == (
        f"TuCCL: {tmp_path}/kept.tuccl keeps sums from moving by the executor, which this process "
        "has not loaded or goes past: its sums are NCCL's and may move; preload "
        "libtuccl-executor.so as tuccl.env says\n"
    )


def test_a_strict_job_does_not_start_without_the_executor(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kept(tmp_path, monkeypatch)
    monkeypatch.setenv("TUCCL_INVARIANT", "strict")
    assert plugin.init(5, 8, 1)[0] == INVALID_USAGE
    assert plugin.init(5, 4, 1)[0] == INVALID_USAGE  # A shape that the table does not have.
    assert plugin.init(5, 2, 1)[0] == SUCCESS  # A sum of two has one order alone.
    write_kept(tmp_path, monkeypatch, builtin=True)
    assert plugin.init(5, 8, 1)[0] == SUCCESS
