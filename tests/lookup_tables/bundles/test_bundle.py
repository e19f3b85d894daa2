import contextlib
import dataclasses
import os
import random
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables import bundle_layout as layout
from lookup_tables.bundle_layout import bundle_crc, with_crc
from lookup_tables.bundles.bundle import load_bundle, read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.bundles.host_devices import BundleFacts, HostDevice, HostDeviceKind
from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.lookup import lookup
from lookup_tables.table import (
    BuiltinConfig,
    NcclAlgorithm,
    NcclProtocol,
    ScheduleConfig,
    Setting,
    Shape,
    StoredSchedule,
    Table,
)
from tests.lookup_tables.tables import (
    SHAPES,
    invariant_table,
    make_entry,
    make_table,
    random_placements,
    random_table,
)
from tuccl.errors import TableError

RING_LL = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 2)


def section_record(data: bytes, kind: int) -> int:
    """Offset of the directory record of a section."""
    for index in range(layout.HEADER.unpack_from(data)[4]):
        offset = layout.HEADER.size + index * layout.SECTION.size
        if layout.SECTION.unpack_from(data, offset)[0] == kind:
            return offset
    raise LookupError(kind)


def test_a_schedule_that_serves_windows_says_so_and_other_flags_are_refused() -> None:
    config = ScheduleConfig("5a5a", NcclProtocol.LL, 8, 512, 65536, in_windows=True)
    stored = StoredSchedule("5a5a", "own", "<algo/>", b"")
    entries = [
        make_entry(Collective.ALL_REDUCE, 1024, 2047, None, schedule=config),
        make_entry(
            Collective.ALL_REDUCE, 2048, 4095, None, schedule=replace(config, in_windows=False)
        ),
    ]
    data = bundle_bytes(make_table(entries, schedules=(stored,)))
    serving = [e.schedule.in_windows for e in read_bundle(data, "b").entries if e.schedule]
    assert serving == [True, False]
    section = layout.SECTION.unpack_from(data, section_record(data, layout.SectionKind.ENTRIES))
    spoiled = bytearray(data)
    spoiled[section[2] + 25] = 2
    with pytest.raises(TableError, match="flags 0x2"):
        read_bundle(with_crc(bytes(spoiled)), "b")


@pytest.mark.parametrize("seed", range(4))
def test_a_bundle_gives_back_the_table(seed: int) -> None:
    table = random_table(seed)
    bundle = read_bundle(bundle_bytes(table), "b")
    assert bundle.topology_name == table.topology_name
    assert bundle.fingerprint == table.fingerprint
    assert bundle.gpu_models == table.gpu_models
    assert bundle.profile == table.profile
    assert bundle.schedules == table.schedules
    assert [(e.key, e.builtin, e.schedule) for e in bundle.entries] == [
        (e.key, e.builtin, e.schedule) for e in table.entries
    ]
    assert {e.default_time_us for e in bundle.entries} == {10.0}


DEVICES = st.builds(
    HostDevice,
    st.sampled_from(HostDeviceKind),
    st.sampled_from(("10de:2335", "15b3:1021")),
    st.integers(0, 2**32 - 1),
    st.integers(1, 2**32 - 1),
    st.text(max_size=4),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 255),
)
FACTS = st.builds(
    BundleFacts,
    st.lists(st.lists(DEVICES, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
    st.none() | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
)


@given(FACTS)
def test_a_bundle_gives_back_its_facts(facts: BundleFacts) -> None:
    data = bundle_bytes(make_table([]), facts)
    assert read_bundle(data, "b").facts == facts


def test_hosts_of_too_many_devices_are_refused() -> None:
    device = HostDevice(HostDeviceKind.GPU, "10de:2335")
    most = layout.MOST_HOST_DEVICES
    assert read_bundle(bundle_bytes(make_table([]), BundleFacts(((device,) * most,))), "b").facts
    with pytest.raises(TableError, match="1025 devices of hosts"):
        read_bundle(bundle_bytes(make_table([]), BundleFacts(((device,) * (most + 1),))), "b")


def test_lookup_in_a_bundle_equals_lookup_in_its_table() -> None:
    table = random_table(11)
    bundle = read_bundle(bundle_bytes(table), "b")
    rng = random.Random(0)
    for _ in range(2000):
        size = max(0, rng.choice(table.entries).key.max_bytes + rng.randint(-1, 1))
        operation, shape = rng.choice(COLLECTIVES), rng.choice([*SHAPES, Shape(2, 1, 2)])
        wanted = lookup(table.entries, operation, size, shape)
        found = bundle.lookup(operation, size, shape)
        assert (wanted.key if wanted else None) == (found.key if found else None)


def test_operations_of_a_shape_are_found_in_any_order() -> None:
    operations = (Collective.ALL_REDUCE, Collective.BROADCAST)
    entries = [make_entry(operation, 0, 9, RING_LL) for operation in operations]
    data = bytearray(bundle_bytes(make_table(entries)))
    shape = struct.unpack_from("<Q", data, section_record(bytes(data), 4) + 8)[0]
    ranges = [slice(at, at + 8) for at in (shape + 16, shape + 48)]
    data[ranges[0]], data[ranges[1]] = data[ranges[1]], data[ranges[0]]
    bundle = read_bundle(with_crc(bytes(data)), "b")
    for entry in entries:
        found = bundle.lookup(entry.key.operation, 5, entry.key.shape)
        assert found is not None
        assert found.key == entry.key


def test_the_bytes_of_a_small_bundle_are_fixed() -> None:
    data = bundle_bytes(
        make_table([make_entry(Collective.ALL_REDUCE, 1024, 4095, RING_LL)], schedules=())
    )
    assert len(data) == 32 + 7 * 32 + 16 + 2 * 8 + 80 + 48 + 2 * 16 + 56
    assert data[:12] == b"TUCCLBDL\x01\x00\x00\x00"
    offset, size = struct.unpack_from("<QQ", data, section_record(data, 5) + 8)
    assert size == 48
    assert data[offset : offset + 24] == struct.pack("<QQBBHI", 1024, 4095, 1, 0, 2, 0xFFFFFFFF)
    # Changing this sum changes what deployed plugins must read: raise the format version with it.
    assert f"{bundle_crc(data):08x}" == "8e4976a2"


def test_profile_order_does_not_matter() -> None:
    forward = make_table([], profile={"A": "1", "B": "2"})
    backward = make_table([], profile={"B": "2", "A": "1"})
    assert bundle_bytes(forward) == bundle_bytes(backward)


def test_one_limit_for_writer_and_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin's limit is tested with the plugin."""
    assert layout.LARGEST_BUNDLE_BYTES == 2**30
    table = random_table(3, 2)
    data = bundle_bytes(table)
    monkeypatch.setattr(layout, "LARGEST_BUNDLE_BYTES", len(data))
    assert bundle_bytes(table) == data
    assert read_bundle(data, "b").crc == bundle_crc(data)
    monkeypatch.setattr(layout, "LARGEST_BUNDLE_BYTES", len(data) - 1)
    with pytest.raises(TableError, match=f"{len(data)} bytes.*split the table") as caught:
        bundle_bytes(table)
    assert "\n" not in str(caught.value)
    with pytest.raises(TableError, match="b: larger than any bundle"):
        read_bundle(data, "b")


def test_a_file_that_is_no_bundle_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "table.tuccl"
    good = bundle_bytes(random_table(3, 2))
    path.write_bytes(good)
    assert load_bundle(path) == read_bundle(good, str(path))
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(b"PK")
    for file, what in ((checkpoint, "not a TuCCL bundle"), (path, "damaged: 1073741824 bytes")):
        os.truncate(file, layout.LARGEST_BUNDLE_BYTES)  # Sparse.
        tracemalloc.start()
        with pytest.raises(TableError, match=f"{file}: {what}"):
            load_bundle(file)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()
    os.truncate(path, 20)
    with pytest.raises(TableError, match="truncated at 20 bytes"):
        load_bundle(path)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero")):
        with pytest.raises(TableError, match=f"{path}: no regular file"):
            load_bundle(path)
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises((OSError, TableError)):
            load_bundle(path)


@given(st.data())
def test_every_flipped_byte_is_found(data: st.DataObject) -> None:
    good = bundle_bytes(random_table(3, 2))
    position = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(TableError, match="b: "):
        read_bundle(bytes(bad), "b")


def test_every_truncation_and_extension_is_found() -> None:
    good = bundle_bytes(random_table(3, 1, SHAPES[:1]))
    for size in range(len(good)):
        with pytest.raises(TableError, match="b: "):
            read_bundle(good[:size], "b")
    with pytest.raises(TableError, match="damaged"):
        read_bundle(good + b"\0", "b")


@given(st.data())
def test_a_wrong_bundle_with_a_right_crc_never_escapes_as_another_error(
    data: st.DataObject,
) -> None:
    bad = bytearray(bundle_bytes(random_table(3, 2)))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(bad) - 1))
        bad[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TableError):
        read_bundle(with_crc(bytes(bad)), "b")


def test_unknown_sections_are_skipped_or_refused_by_their_flag() -> None:
    table = random_table(5, 2)
    data = bytearray(bundle_bytes(table))
    # PROFILE becomes a section of a newer release: required at first, then optional.
    record = section_record(bytes(data), layout.SectionKind.PROFILE)
    data[record : record + 4] = struct.pack("<I", 99)
    with pytest.raises(TableError, match="needs section 99"):
        read_bundle(with_crc(bytes(data)), "b")
    data[record + 4 : record + 8] = bytes(4)
    with pytest.raises(TableError, match="PROFILE is missing"):
        read_bundle(with_crc(bytes(data)), "b")


def test_an_additional_optional_section_is_skipped() -> None:
    table = random_table(5, 2)
    data = bytearray(bundle_bytes(table))
    total = len(data)
    count = layout.HEADER.unpack_from(data)[4]
    directory_end = layout.HEADER.size + count * layout.SECTION.size
    for index in range(count):
        place = layout.HEADER.size + index * layout.SECTION.size + 8
        (offset,) = struct.unpack_from("<Q", data, place)
        struct.pack_into("<Q", data, place, offset + layout.SECTION.size)
    data[directory_end:directory_end] = layout.SECTION.pack(99, 0, total + 32, 8, 1, 8)
    data += b"newprog!"
    struct.pack_into("<IQ", data, 20, count + 1, len(data))
    bundle = read_bundle(with_crc(bytes(data)), "b")
    assert [e.key for e in bundle.entries] == [e.key for e in table.entries]


def test_another_version_is_named() -> None:
    data = bytearray(bundle_bytes(random_table(3, 1)))
    data[8] = 2
    with pytest.raises(TableError, match="format 2, this release reads 1"):
        read_bundle(with_crc(bytes(data)), "b")


def test_a_schedule_may_win_without_a_better_builtin() -> None:
    table = random_table(8)
    only_schedule = [e for e in table.entries if e.builtin is None]
    assert only_schedule
    bundle = read_bundle(bundle_bytes(table), "b")
    for entry in only_schedule:
        found = bundle.lookup(entry.key.operation, entry.key.min_bytes, entry.key.shape)
        assert found is not None
        assert found.builtin is None
        assert found.schedule == entry.schedule
        assert dataclasses.asdict(found)["builtin_time_us"] == 0.0


def placed_table(seed: int) -> Table:
    shapes = (*SHAPES[:2], Shape(2, 1, 2))  # The last one has no other entries.
    return dataclasses.replace(random_table(seed, 2), placements=random_placements(seed, shapes))


def with_unknown_section(data: bytes, kind: int) -> bytes:
    """The bundle with a section's kind changed to that of a section of a later release."""
    changed = bytearray(data)
    struct.pack_into("<I", changed, section_record(data, kind), 77)
    return with_crc(bytes(changed))


@pytest.mark.parametrize("seed", range(4))
def test_placements_come_back_by_operation(seed: int) -> None:
    table = placed_table(seed)
    bundle = read_bundle(bundle_bytes(table), "b")
    assert [(e.key, e.builtin) for e in bundle.entries] == [
        (e.key, e.builtin) for e in table.entries
    ]
    found = {
        (own.shape, own.operation, own.line, entry.key, entry.builtin)
        for own in bundle.placements
        for entry in own.entries
    }
    assert found == {
        (own.shape, e.key.operation, dict(own.lines)[e.key.operation], e.key, e.builtin)
        for own in table.placements
        for e in own.entries
    }
    assert all(own.tolerance == pytest.approx(0.01) for own in bundle.placements)


def test_a_reader_that_does_not_know_placements_has_all_other_entries() -> None:
    table = placed_table(0)
    older = with_unknown_section(with_unknown_section(bundle_bytes(table), 9), 10)
    bundle = read_bundle(older, "b")
    assert bundle.placements == ()
    assert [entry.key for entry in bundle.entries] == [entry.key for entry in table.entries]


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [
        (0, "<I", 99),  # A shape that the bundle lacks.
        (4, "<I", 5),  # NCCL does not estimate alltoall.
        (8, "<d", -1.0),
        (8, "<d", float("nan")),
        (16, "<d", float("inf")),
        (24, "<I", 1),  # The first entry is in no placement.
        (28, "<I", 2**32 - 1),
        (32, "<f", 1.0),
        (36, "<I", 1),
    ],
)
def test_a_damaged_placement_is_refused(offset: int, form: str, value: float) -> None:
    data = bytearray(bundle_bytes(placed_table(0)))
    at = struct.unpack_from("<Q", data, section_record(bytes(data), 9) + 8)[0]
    struct.pack_into(form, data, at + offset, value)
    with pytest.raises(TableError, match="contradicts itself"):
        read_bundle(with_crc(bytes(data)), "b")


@pytest.mark.parametrize("kind", [9, 10])
def test_placements_and_their_entries_come_together(kind: int) -> None:
    with pytest.raises(TableError, match="contradicts itself"):
        read_bundle(with_unknown_section(bundle_bytes(placed_table(0)), kind), "b")


def test_placements_that_tell_nothing_apart_are_not_written() -> None:
    table = placed_table(0)
    schedule = ScheduleConfig("5a5a", NcclProtocol.LL, 4, 512, 1 << 20)
    number, own = next((n, own) for n, own in enumerate(table.placements) if own.entries)
    by_schedule = dataclasses.replace(own.entries[0], schedule=schedule)
    replaced = dataclasses.replace(own, entries=(by_schedule, *own.entries[1:]))
    before, after = table.placements[:number], table.placements[number + 1 :]
    for wrong, message in (
        (table.placements[:1], "one placement alone"),
        (table.placements[1:], "numbered from 0"),
        ((dataclasses.replace(table.placements[0], lines=()), *table.placements[1:]), "different"),
        ((*before, replaced, *after), "cannot distinguish placements"),
    ):
        with pytest.raises(TableError, match=message):
            bundle_bytes(dataclasses.replace(table, placements=wrong))


def test_a_bundle_gives_back_the_order_of_sums() -> None:
    table = invariant_table()
    data = bundle_bytes(table)
    assert read_bundle(data, "b").sums == table.sums
    assert table.is_invariant
    flags = layout.SECTION.unpack_from(data, section_record(data, layout.SectionKind.SUMS))[1]
    assert flags == layout.SECTION_REQUIRED
    assert read_bundle(bundle_bytes(random_table(1)), "b").sums == ()


def test_a_bundle_gives_back_settings_of_shapes() -> None:
    profile = {"NCCL_MIN_CTAS": "32", "NCCL_NTHREADS": "256"}
    settings = (Setting(Shape(2, 1, 2), "NCCL_MIN_CTAS"), Setting(Shape(4, 1, 4), "NCCL_MIN_CTAS"))
    table = dataclasses.replace(random_table(1), profile=profile, settings=settings)
    data = bundle_bytes(table)
    found = read_bundle(data, "b")
    assert (found.settings, found.profile) == (settings, profile)
    assert found.process_profile(executor=False) == profile
    assert found.process_profile(executor=True) == {"NCCL_NTHREADS": "256"}
    # A reader that does not know them is right without: the process may have the variable.
    flags = layout.SECTION.unpack_from(data, section_record(data, layout.SectionKind.SETTINGS))[1]
    assert flags == 0


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 1, "a shape needs"),
        (4, 3, "a shape needs"),
        (12, 1, "is not the profile's"),
        (16, 0, "is not the profile's"),
    ],
    ids=["one rank", "more nodes than ranks", "a word that is zero", "another text"],
)
def test_settings_that_contradict_the_profile_are_refused(
    at: int, value: int, message: str
) -> None:
    profile = {"NCCL_MIN_CTAS": "32"}
    settings = (Setting(Shape(2, 2, 1), "NCCL_MIN_CTAS"),)
    table = dataclasses.replace(random_table(1), profile=profile, settings=settings)
    data = bytearray(bundle_bytes(table))
    record = section_record(bytes(data), layout.SectionKind.SETTINGS)
    start = layout.SECTION.unpack_from(data, record)[2]
    struct.pack_into("<I", data, start + at, value)
    with pytest.raises(TableError, match=message):
        read_bundle(layout.with_crc(bytes(data)), "b")
