"""Bundles with a correct CRC that break one rule each: plugin and Python reader refuse alike."""

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables import bundle_layout as layout
from lookup_tables.bundle_layout import SectionKind, bundle_crc
from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from tests.lookup_tables.tables import invariant_table
from tests.runtime.plugin_abi import Plugin
from tests.runtime.write_bundles import ON_CHANNELS, RING, TREE, native_bundle, native_table
from tuccl.errors import TableError

pytestmark = pytest.mark.long

GOOD = native_bundle(2)  # Whose first shape has entries of every operation.
ENTRIES = len(native_table(2).entries)
SECTIONS = int(layout.HEADER.unpack_from(GOOD)[4])
KEPT = bundle_bytes(invariant_table())


def sealed(data: bytearray) -> bytes:
    data[12:16] = struct.pack("<I", bundle_crc(bytes(data)))
    return bytes(data)


def record_of(data: bytes | bytearray, kind: SectionKind) -> int:
    """Return the offset of a section's directory record."""
    for index in range(layout.HEADER.unpack_from(data)[4]):
        place = layout.HEADER.size + index * layout.SECTION.size
        if struct.unpack_from("<I", data, place)[0] == kind:
            return place
    raise LookupError(kind)


def start_of(data: bytes | bytearray, kind: SectionKind) -> int:
    return int(struct.unpack_from("<Q", data, record_of(data, kind) + 8)[0])


def section(kind: SectionKind, at: int, form: str, *values: int) -> Callable[[bytearray], None]:
    """Writes into the directory record of a section."""
    return lambda data: struct.pack_into(form, data, record_of(data, kind) + at, *values)


def content(kind: SectionKind, at: int, form: str, *values: int) -> Callable[[bytearray], None]:
    """Writes into the contents of a section."""
    return lambda data: struct.pack_into(form, data, start_of(data, kind) + at, *values)


def swap_shapes(data: bytearray) -> None:
    start, size = start_of(data, SectionKind.SHAPES), layout.SHAPE.size
    first, second = data[start : start + size], data[start + size : start + 2 * size]
    data[start : start + 2 * size] = second + first


def drop_entry_but_keep_ranges(data: bytearray) -> None:
    """The section ends one entry early, with a sound entry behind its end that a range names."""
    section(SectionKind.ENTRIES, 16, "<QI", layout.ENTRY.size * (ENTRIES - 1), ENTRIES - 1)(data)
    all_reduce = start_of(data, SectionKind.SHAPES) + 16 + 8 * 4
    first, count = struct.unpack_from("<II", data, all_reduce)
    assert count > 1
    struct.pack_into("<II", data, all_reduce, first, count - 1)


def slots_of(data: bytearray, shape: int = 0) -> int:
    """Return the offset of a shape's entry ranges, 8 bytes for each operation code."""
    return start_of(data, SectionKind.SHAPES) + shape * layout.SHAPE.size + 16


def used_codes(data: bytearray) -> list[int]:
    slots = struct.unpack_from("<16I", data, slots_of(data))
    return [code for code, count in enumerate(slots[1::2]) if count]


def claim_entries_twice(data: bytearray) -> None:
    """Two operations name the same entries; the number of all entries stays right."""
    first_code, second_code, *_ = used_codes(data)
    slots = slots_of(data)
    first, count = struct.unpack_from("<II", data, slots + 8 * first_code)
    assert struct.unpack_from("<I", data, slots + 8 * second_code + 4) == (count,)
    struct.pack_into("<II", data, slots + 8 * second_code, first, count)


def move_to_code(code: int) -> Callable[[bytearray], None]:
    def move(data: bytearray) -> None:
        slots, last = slots_of(data), used_codes(data)[-1]
        taken = data[slots + 8 * last : slots + 8 * last + 8]
        data[slots + 8 * last : slots + 8 * last + 8] = bytes(8)
        data[slots + 8 * code : slots + 8 * code + 8] = taken

    return move


def exchange_ranges_of_shapes(data: bytearray) -> None:
    """Every entry still belongs to one range, but the second shape's come first."""
    first, second = slots_of(data), slots_of(data, 1)
    ranges = data[first : first + 64]
    data[first : first + 64] = data[second : second + 64]
    data[second : second + 64] = ranges


def only_optional_sections(data: bytearray) -> None:
    """A file that ends where its directory should go on; behind it the page is zero."""
    del data[64:]
    struct.pack_into("<IQ", data, 20, 1000, len(data))
    struct.pack_into("<IIQQII", data, 32, 99, 0, 0, 0, 0, 0)


def second_text_section(data: bytearray) -> None:
    """One more record in the directory; everything behind it moves."""
    end = layout.HEADER.size + SECTIONS * layout.SECTION.size
    text = record_of(data, SectionKind.TEXT)
    data[end:end] = data[text : text + layout.SECTION.size]
    for place in range(layout.HEADER.size, end + layout.SECTION.size, layout.SECTION.size):
        (offset,) = struct.unpack_from("<Q", data, place + 8)
        struct.pack_into("<Q", data, place + 8, offset + layout.SECTION.size)
    struct.pack_into("<IQ", data, 20, SECTIONS + 1, len(data))


ENTRY = SectionKind.ENTRIES
DEFECTS: dict[str, Callable[[bytearray], None]] = {
    "more sections than the file can hold": lambda data: struct.pack_into(
        "<I", data, 20, 2**32 - 1
    ),
    "a section missing": lambda data: struct.pack_into("<I", data, 20, 6),
    "a directory behind the end": only_optional_sections,
    "a section twice": second_text_section,
    "a section behind the end": section(ENTRY, 8, "<Q", 2**63),
    "a section whose offset and size wrap around": section(
        SectionKind.TEXT, 8, "<QQII", 2**64 - 8, 8, 8, 1
    ),
    "a section longer than the file": section(
        SectionKind.TEXT, 16, "<QII", len(GOOD), len(GOOD), 1
    ),
    "entries that reach behind the end": section(
        ENTRY, 16, "<QI", 48 * (ENTRIES + 1000), ENTRIES + 1000
    ),
    "a section that is not aligned": section(SectionKind.TEXT, 8, "<Q", 9),
    "records of another size": section(ENTRY, 24, "<II", ENTRIES * 2, 24),
    "a record count that contradicts the size": section(ENTRY, 24, "<I", ENTRIES + 1),
    "an empty range of bytes": content(ENTRY, 0, "<QQ", 5, 4),
    "ranges that overlap": content(ENTRY, 8, "<Q", 2**64 - 1),
    "65 channels": content(ENTRY, 18, "<H", 65),
    "algorithm 7": content(ENTRY, 16, "<B", 7),
    "protocol 3": content(ENTRY, 16, "<BB", 1, 3),
    "a schedule with protocol 3": content(ENTRY, 20, "<IB", 0, 3),
    "shapes out of order": swap_shapes,
    "one shape twice": content(SectionKind.SHAPES, layout.SHAPE.size, "<III", 8, 1, 8),
    "a range of entries behind the end": drop_entry_but_keep_ranges,
    "a range of entries far behind the end": content(
        SectionKind.SHAPES, 16 + 8 * 4, "<I", 2**32 - 1
    ),
    "more entries in ranges than there are": content(SectionKind.SHAPES, 16, "<II", 0, 2**32 - 1),
    "entries claimed twice": claim_entries_twice,
    "operation code 6": move_to_code(6),
    "operation code 7": move_to_code(7),
    "ranges that do not follow one another": exchange_ranges_of_shapes,
    "an empty range behind the end": content(SectionKind.SHAPES, 16 + 8 * 7, "<II", ENTRIES + 1, 0),
    "no identity": section(SectionKind.IDENTITY, 16, "<QI", 0, 0),
    "kinds of hosts that begin at 1": content(SectionKind.HOST_DEVICES, 0, "<I", 1),
    "kinds of hosts with a gap": content(SectionKind.HOST_DEVICES, 32, "<I", 2),
    "devices of no kind": content(SectionKind.HOST_DEVICES, 4, "<I", 2),
    "no devices": content(SectionKind.HOST_DEVICES, 12, "<I", 0),
    "a device with something more": content(SectionKind.HOST_DEVICES, 31, "<B", 1),
    "a device whose name lies outside": content(SectionKind.HOST_DEVICES, 20, "<II", 2**32 - 1, 2),
    "a variable whose name lies outside": content(SectionKind.VARIABLES, 0, "<II", 0, 2**32 - 1),
    "a variable whose value lies outside": content(SectionKind.VARIABLES, 8, "<II", 2**32 - 8, 9),
    "a profile that lies outside": content(SectionKind.PROFILE, 8, "<II", 2**31, 1),
    "entries of no shape": content(SectionKind.SHAPES, 16 + 8 * 4, "<II", 0, 0),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_broken_rule_is_found(
    defect: str, plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(GOOD)
    DEFECTS[defect](data)
    path = tmp_path / "b.tuccl"
    path.write_bytes(sealed(data))
    monkeypatch.setenv("TUCCL_BUNDLE", str(path))
    result, communicator = plugin.init(5, 8, 1)
    assert result == 0
    assert communicator.context.value is None
    assert f"{path} contradicts itself in its" in plugin.warnings()[0]
    with pytest.raises(TableError, match="contradicts itself"):
        read_bundle(path.read_bytes(), "b")


SUMS = SectionKind.SUMS
KEPT_ENTRY = layout.ENTRY.size
BROKEN_SUMS: dict[str, Callable[[bytearray], None]] = {
    "a shape that is none": content(SUMS, 0, "<I", 1),
    "an operation that adds nothing": content(SUMS, 4, "<I", 2),
    "an operation that is none": content(SUMS, 4, "<I", 6),
    "a text behind the end": content(SUMS, 8, "<I", 2**31),
    "one operation twice, and another never": content(SUMS, 4, "<I", 3),
    "a size below the smallest entry": content(ENTRY, KEPT_ENTRY, "<Q", 2),
    "a size between two entries": content(ENTRY, 2 * KEPT_ENTRY, "<Q", 8193),
    "a size above the largest entry": content(ENTRY, 3 * KEPT_ENTRY + 8, "<Q", 2**63 - 2),
    "no orders": section(SUMS, 16, "<QI", 0, 0),
    "one order of two": section(SUMS, 16, "<QI", 16, 1),
}


@pytest.mark.parametrize("defect", BROKEN_SUMS)
def test_a_table_whose_sums_would_move_after_all_is_refused(
    defect: str, is_usable: Callable[[bytes], bool]
) -> None:
    assert is_usable(KEPT)
    assert is_readable(KEPT)
    data = bytearray(KEPT)
    BROKEN_SUMS[defect](data)
    assert not is_usable(sealed(data))
    assert not is_readable(sealed(data))


SETTINGS = SectionKind.SETTINGS
BROKEN_SETTINGS: dict[str, Callable[[bytearray], None]] = {
    "one rank": content(SETTINGS, 0, "<I", 1),
    "no nodes": content(SETTINGS, 4, "<I", 0),
    "a word that is zero": content(SETTINGS, 12, "<I", 1),
    "a name behind the end": content(SETTINGS, 16, "<I", 2**31),
    "a value behind the end": content(SETTINGS, 28, "<I", 2**31),
    "records of another size": section(SETTINGS, 28, "<I", 16),
}


@pytest.mark.parametrize("defect", BROKEN_SETTINGS)
def test_settings_that_are_none_are_refused(
    defect: str, is_usable: Callable[[bytes], bool]
) -> None:
    assert is_usable(GOOD)
    assert is_readable(GOOD)
    data = bytearray(GOOD)
    BROKEN_SETTINGS[defect](data)
    assert not is_usable(sealed(data))
    assert not is_readable(sealed(data))


RUNNERS_UP, TRIED = SectionKind.RUNNERS_UP, SectionKind.RUNNER_UP_SCHEDULES
BROKEN_RUNNERS_UP: dict[str, Callable[[bytearray], None]] = {
    "no ranks": content(RUNNERS_UP, 0, "<I", 0),
    "more nodes than ranks": content(RUNNERS_UP, 4, "<I", 9),
    "an operation that asks no tuner": content(RUNNERS_UP, 12, "<I", 5),
    "a range that ends before it begins": content(RUNNERS_UP, 16, "<Q", 4097),
    "no setting": content(RUNNERS_UP, 32, "<I", 0),
    "more settings than it has room for": content(RUNNERS_UP, 32, "<I", 8),
    "a setting behind the last one": content(RUNNERS_UP, 32, "<I", 1),
    "an algorithm that is none": content(RUNNERS_UP, 36, "<B", 7),
    "a protocol that is none": content(RUNNERS_UP, 37, "<B", 3),
    "too many channels": content(RUNNERS_UP, 38, "<B", 65),
    "chunks that are too large": content(RUNNERS_UP, 39, "<B", 25),
    "chunks of NVLS": content(RUNNERS_UP, 36, "<B", 4),
    "channels of CollNet": content(RUNNERS_UP, 36, "<I", 2 | 2 << 8 | 4 << 16),
    "records of another size": section(RUNNERS_UP, 28, "<I", 32),
    "schedules of no ranks": content(TRIED, 0, "<I", 0),
    "schedules of more nodes than ranks": content(TRIED, 4, "<I", 9),
    "schedules of an operation that is none": content(TRIED, 12, "<I", 6),
    "schedules of a range that ends before it begins": content(TRIED, 16, "<Q", 4097),
    "a setting beside a schedule": content(TRIED, 32, "<B", 0),
    "a schedule that is none": content(TRIED, 36, "<I", 0xFFFFFFFF),
    "a schedule that the table lacks": content(TRIED, 36, "<I", 1),
    "a schedule's protocol that is none": content(TRIED, 40, "<B", 3),
    "a schedule's flags": content(TRIED, 41, "<B", 2),
}


def test_runners_up_come_out_as_they_went_in() -> None:
    (tried,) = read_bundle(GOOD, "b").runners_up
    assert (tried.settings, tried.schedules) == ((TREE, RING), (ON_CHANNELS,))
    # A table without any is written as before there were any.
    bare = bundle_bytes(replace(native_table(1), runners_up=()))
    assert len(bare) == len(bundle_bytes(native_table(1))) - 2 * (layout.SECTION.size + 64)


@pytest.mark.parametrize("defect", BROKEN_RUNNERS_UP)
def test_runners_up_that_nccl_does_not_have_are_refused(
    defect: str, is_usable: Callable[[bytes], bool]
) -> None:
    assert is_usable(GOOD)
    data = bytearray(GOOD)
    BROKEN_RUNNERS_UP[defect](data)
    assert not is_usable(sealed(data))
    assert not is_readable(sealed(data))


def is_readable(data: bytes) -> bool:
    try:
        read_bundle(data, "b")
    except TableError:
        return False
    return True


@pytest.fixture
def is_usable(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bytes], bool]:
    """Whether the plugin takes a bundle."""
    path = tmp_path / "b.tuccl"
    monkeypatch.setenv("TUCCL_BUNDLE", str(path))

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        del plugin.messages[:]
        assert plugin.init(5, 8, 1)[0] == 0
        return any(f"(CRC {bundle_crc(data):08x})" in text for _, text in plugin.messages)

    return take


def test_reader_and_plugin_accept_the_same_shapes_and_entries(
    is_usable: Callable[[bytes], bool],
) -> None:
    """Plugin and Python reader agree, except on texts and schedules, which only Python checks."""
    rng = random.Random(2)
    shapes, entries = start_of(GOOD, SectionKind.SHAPES), start_of(GOOD, SectionKind.ENTRIES)
    accepted = 0
    for _ in range(2000):
        data = bytearray(GOOD)
        for _ in range(rng.randint(1, 2)):
            if rng.random() < 0.7:
                place = shapes + 4 * rng.randrange(layout.SHAPE.size // 4 * 2)
                struct.pack_into("<I", data, place, rng.randrange(ENTRIES + 2))
            else:  # Sizes, codes and channels of an entry; not its schedule.
                place = entries + layout.ENTRY.size * rng.randrange(ENTRIES) + rng.randrange(20)
                data[place] = rng.choice([0, 1, 2, 3, 64, 127, 255])
        changed = sealed(data)
        assert is_usable(changed) == is_readable(changed)
        accepted += is_readable(changed)
    assert 50 < accepted < 1950


def test_what_the_reader_accepts_the_plugin_accepts(is_usable: Callable[[bytes], bool]) -> None:
    rng = random.Random(1)
    accepted = 0
    for _ in range(2000):
        data = bytearray(GOOD)
        data[rng.randrange(len(data))] = rng.choice([0, 1, 2, 127, 255])
        changed = sealed(data)
        if is_readable(changed):
            accepted += 1
            assert is_usable(changed)
    assert accepted > 200
