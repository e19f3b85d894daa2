"""Reader of the bundle, the checksummed binary file that the tuner plugin maps.

`read_bundle` refuses every bundle that the plugin refuses;
`lookup_tables.bundles.bundle_writer` is the writer. Of programs only the checksums are
checked here; `synthesizer.programs.compiler` reads them. Format: docs/reference/bundle-format.md.
"""

from __future__ import annotations

import math
import os
import stat
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lookup_tables import bundle_layout as layout
from lookup_tables.bundle_layout import SectionKind
from lookup_tables.bundles.host_devices import NO_FACTS, BundleFacts, hosts_of_records
from lookup_tables.bundles.program_section import read_programs_section
from lookup_tables.collective import ASKED_ABOUT, COLLECTIVES, Collective
from lookup_tables.lookup import (
    MAX_CHANNELS,
    MOST_PLACEMENTS,
    check_runners_up,
    check_settings,
    check_sums,
    has_sound_chunks,
    key_order,
    lookup,
)
from lookup_tables.table import (
    BuiltinConfig,
    EstimateLine,
    Key,
    RunnersUp,
    ScheduleConfig,
    Setting,
    Shape,
    StoredSchedule,
    SumOrder,
    process_profile,
)
from tuccl.errors import TableError


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """An entry of a bundle; samples, spread and provenance are only in the Parquet file."""

    key: Key
    builtin: BuiltinConfig | None
    schedule: ScheduleConfig | None
    builtin_time_us: float
    """Time of the built-in configuration, rounded to 32 bits; 0 without one."""
    default_time_us: float
    """Time of stock NCCL's own choice, rounded to 32 bits."""


@dataclass(frozen=True, slots=True)
class BundlePlacement:
    """Communicators of a shape that NCCL's estimates tell from others, for one operation."""

    shape: Shape
    operation: Collective
    line: EstimateLine
    tolerance: float
    """Relative distance from the line up to which an estimate is theirs, rounded to 32 bits."""
    entries: tuple[BundleEntry, ...]


@dataclass(frozen=True)
class Bundle:
    """The contents of a bundle file."""

    crc: int
    topology_name: str
    fingerprint: str
    gpu_models: tuple[str, ...]
    entries: tuple[BundleEntry, ...]
    profile: Mapping[str, str]
    schedules: tuple[StoredSchedule, ...]
    """The program of a schedule that no executor can run is empty."""
    placements: tuple[BundlePlacement, ...] = ()
    """Communicators with entries of their own, by shape and operation."""
    facts: BundleFacts = NO_FACTS
    sums: tuple[SumOrder, ...] = ()
    """As in `Table`."""
    settings: tuple[Setting, ...] = ()
    """As in `Table`."""
    runners_up: tuple[RunnersUp, ...] = ()
    """As in `Table`."""

    def process_profile(self, *, executor: bool) -> dict[str, str]:
        """As `Table.process_profile`."""
        return process_profile(self.profile, self.settings, executor=executor)

    @property
    def all_entries(self) -> tuple[BundleEntry, ...]:
        """The entries of shapes, then those of placements."""
        return (*self.entries, *(entry for own in self.placements for entry in own.entries))

    def lookup(self, operation: Collective, size_bytes: int, shape: Shape) -> BundleEntry | None:
        """Return the entry for a call; None where NCCL decides."""
        return lookup(self.entries, operation, size_bytes, shape)


def read_bundle(data: bytes, source: str) -> Bundle:
    """Return the contents of a bundle file.

    Args:
        data: The whole file.
        source: The file's name, for messages.

    Raises:
        TableError: The file is not a bundle, is damaged, truncated, or of an unknown version.
    """
    _check_header(data, len(data), source)
    crc = _check_sum(data, source)
    try:
        return _decode(_sections(data, source), crc, source)
    except (struct.error, ValueError, IndexError, KeyError) as error:
        raise TableError(
            f"{source}: the bundle contradicts itself ({error}); write it again with `tuccl ship`"
        ) from error


def load_bundle(path: Path) -> Bundle:
    """Return the contents of the bundle at a path.

    The header is checked first, so that no more is read of a file that is not a bundle.

    Raises:
        TableError: The path is not a regular file, or as for `read_bundle`.
        OSError: The file cannot be read.
    """
    source = str(path)
    # Opening a FIFO without a writer would block.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise TableError(f"{source}: no regular file; write a bundle with `tuccl ship`")
        with os.fdopen(file, "rb", closefd=False) as stream:
            start = stream.read(layout.HEADER.size)
            _check_header(start, status.st_size, source)
            return read_bundle(start + stream.read(status.st_size - len(start)), source)
    finally:
        os.close(file)


def _check_header(start: bytes, size_bytes: int, source: str) -> None:
    """Raise TableError unless a file of this size and this start may be a bundle."""
    if size_bytes > layout.LARGEST_BUNDLE_BYTES:
        raise TableError(f"{source}: larger than any bundle; write one with `tuccl ship`")
    if not start.startswith(layout.MAGIC):
        raise TableError(f"{source}: not a TuCCL bundle; write one with `tuccl ship`")
    if size_bytes < layout.HEADER.size:
        raise TableError(f"{source}: truncated at {size_bytes} bytes; copy the bundle again")
    _, version, _, header_bytes, _, total = layout.HEADER.unpack_from(start)
    if version != layout.FORMAT_VERSION:
        raise TableError(
            f"{source}: bundle format {version}, this release reads {layout.FORMAT_VERSION}; "
            "write it again with this release's `tuccl ship`"
        )
    if total != size_bytes or header_bytes != layout.HEADER.size:
        raise TableError(
            f"{source}: damaged: {size_bytes} bytes instead of {total}; copy the bundle again"
        )


def _check_sum(data: bytes, source: str) -> int:
    crc = int(layout.HEADER.unpack_from(data)[2])
    if layout.bundle_crc(data) != crc:
        raise TableError(
            f"{source}: damaged: CRC {layout.bundle_crc(data):08x} instead of {crc:08x}; "
            "copy the bundle again"
        )
    return crc


def _sections(data: bytes, source: str) -> dict[SectionKind, bytes]:
    count = layout.HEADER.unpack_from(data)[4]
    sections: dict[SectionKind, bytes] = {}
    for index in range(count):
        record = layout.SECTION.unpack_from(data, layout.HEADER.size + index * layout.SECTION.size)
        number, flags, offset, size, records, record_bytes = record
        if offset % layout.ALIGNMENT or offset + size > len(data):
            raise ValueError(f"section {number} lies outside the file")
        if number not in layout.RECORDS:
            if flags & layout.SECTION_REQUIRED:
                raise TableError(
                    f"{source}: needs section {number}, which a newer release introduced; "
                    "update TuCCL or write the bundle again with this release"
                )
            continue
        kind = SectionKind(number)
        if kind in sections:
            raise ValueError(f"section {kind.name} appears twice")
        if record_bytes != layout.RECORDS[kind].size or records * record_bytes != size:
            raise ValueError(f"section {kind.name} has records of another size")
        sections[kind] = data[offset : offset + size]
    for kind in SectionKind:
        if kind not in sections and kind not in layout.MAY_LACK:
            raise ValueError(f"section {kind.name} is missing")
    return sections


def _decode(sections: Mapping[SectionKind, bytes], crc: int, source: str) -> Bundle:
    def text(offset: int, length: int) -> str:
        if offset + length > len(sections[SectionKind.TEXT]):
            raise ValueError("a text lies outside its section")
        return sections[SectionKind.TEXT][offset : offset + length].decode()

    def records(kind: SectionKind) -> list[tuple[Any, ...]]:
        return list(layout.RECORDS[kind].iter_unpack(sections.get(kind, b"")))

    def pairs(kind: SectionKind) -> dict[str, str]:
        return {text(*record[:2]): text(*record[2:]) for record in records(kind)}

    (identity,) = records(SectionKind.IDENTITY)
    fingerprint = text(*identity[:2])
    schedule_records = records(SectionKind.SCHEDULES)
    programs = (b"",) * len(schedule_records)
    if SectionKind.PROGRAMS in sections:
        programs = read_programs_section(sections[SectionKind.PROGRAMS], source)
    if len(programs) != len(schedule_records):
        raise ValueError(f"{len(programs)} programs of {len(schedule_records)} schedules")
    schedules = tuple(
        StoredSchedule(text(*record[:2]), text(*record[2:4]), text(*record[4:]), program)
        for record, program in zip(schedule_records, programs, strict=True)
    )
    shape_records, raw_entries = records(SectionKind.SHAPES), records(SectionKind.ENTRIES)
    shapes = [Shape(*record[:3]) for record in shape_records]
    if any(before >= after for before, after in pairwise(shapes)):
        raise ValueError("shapes are not in ascending order")
    keys = _decode_keys(shapes, shape_records, raw_entries, fingerprint)
    if (SectionKind.PLACEMENTS in sections) != (SectionKind.PLACED_ENTRIES in sections):
        raise ValueError("of placements and their entries a section is missing")
    placements = tuple(
        _decode_placements(
            *(shapes, records(SectionKind.PLACEMENTS), records(SectionKind.PLACED_ENTRIES)),
            fingerprint,
        )
    )
    found = (_decode_entry(*each, schedules) for each in zip(keys, raw_entries, strict=True))
    entries = tuple(sorted(found, key=lambda entry: key_order(entry.key)))
    sums = tuple(
        SumOrder(shapes[index], COLLECTIVES[code], text(*order))
        for index, code, *order in records(SectionKind.SUMS)
    )
    if SectionKind.SUMS in sections and not sums:
        raise ValueError("there are no orders of sums in their section")
    check_sums(sums, entries, [entry for own in placements for entry in own.entries])
    profile = pairs(SectionKind.PROFILE)
    settings = []
    for *shape, zero, name, name_bytes, value, value_bytes in records(SectionKind.SETTINGS):
        own = Setting(Shape(*shape), text(name, name_bytes))
        if zero != 0 or text(value, value_bytes) != profile.get(own.name):
            raise ValueError(f"setting {own.name} is not the profile's")
        settings.append(own)
    check_settings(settings, profile)
    runners_up = _decode_runners_up(
        records(SectionKind.RUNNERS_UP),
        records(SectionKind.RUNNER_UP_SCHEDULES),
        schedules,
        fingerprint,
    )
    known = {schedule.content_hash for schedule in schedules}
    check_runners_up(runners_up, known, is_invariant=bool(sums))
    return Bundle(
        crc=crc,
        topology_name=text(*identity[2:]),
        fingerprint=fingerprint,
        gpu_models=tuple(
            f"{vendor:04x}:{device:04x}" for vendor, device, _ in records(SectionKind.GPU_MODELS)
        ),
        entries=entries,
        profile=profile,
        schedules=schedules,
        placements=placements,
        sums=sums,
        settings=tuple(settings),
        runners_up=runners_up,
        facts=BundleFacts(
            hosts_of_records(
                (record, text(*record[6:8])) for record in records(SectionKind.HOST_DEVICES)
            ),
            pairs(SectionKind.VARIABLES) if SectionKind.VARIABLES in sections else None,
        ),
    )


def _decode_runners_up(
    settings: Sequence[tuple[Any, ...]],
    tried: Sequence[tuple[Any, ...]],
    schedules: tuple[StoredSchedule, ...],
    fingerprint: str,
) -> tuple[RunnersUp, ...]:
    """Return the runners-up of each key; the records of each section ascend."""
    of_key: dict[Key, list[ScheduleConfig]] = {}
    keys: list[Key] = []
    for record in tried:
        ranks, nodes, per_node, code, least, most = record[:6]
        key = Key(COLLECTIVES[code], least, most, Shape(ranks, nodes, per_node), fingerprint)
        entry = _decode_entry(key, record[4:], schedules)
        if entry.schedule is None or entry.builtin is not None:
            raise ValueError("a runner-up schedule without a schedule, or with a setting")
        of_key.setdefault(key, []).append(entry.schedule)
        keys.append(key)
    found = [_decode_settings(record, fingerprint) for record in settings]
    of_found = [own.key for own in found]
    if keys != sorted(keys, key=key_order) or of_found != sorted(set(of_found), key=key_order):
        raise ValueError("runners-up are not in the order of their keys")
    of_settings = {own.key: own.settings for own in found}
    return tuple(
        RunnersUp(key, of_settings.get(key, ()), tuple(of_key.get(key, ())))
        for key in sorted(of_settings.keys() | of_key.keys(), key=key_order)
    )


def _decode_settings(record: tuple[Any, ...], fingerprint: str) -> RunnersUp:
    ranks, nodes, per_node, code, least, most, count, *words = record
    if not 1 <= count <= len(words) or any(words[count:]):
        raise ValueError(f"{count} runners-up")
    settings = []
    for word in words[:count]:
        algorithm, protocol, nchannels, chunk = word.to_bytes(4, "little")
        settings.append(
            BuiltinConfig(
                layout.ALGORITHMS[algorithm],
                layout.PROTOCOLS[protocol],
                nchannels,
                1 << chunk if chunk else 0,
            )
        )
    key = Key(COLLECTIVES[code], least, most, Shape(ranks, nodes, per_node), fingerprint)
    return RunnersUp(key, tuple(settings))


def _decode_placements(
    shapes: Sequence[Shape],
    placements: Iterable[tuple[Any, ...]],
    raw_entries: Sequence[tuple[Any, ...]],
    fingerprint: str,
) -> Iterator[BundlePlacement]:
    """Yield the placements; every placed entry must be in exactly one."""
    places, following = [], 0
    for raw in placements:
        index, code, latency_us, us_per_byte, first, count, tolerance, zero = raw
        figures = (latency_us, us_per_byte, tolerance)
        if not all(math.isfinite(figure) and figure > 0.0 for figure in figures):
            raise ValueError(f"an estimate of {latency_us} us and {us_per_byte} us per byte")
        if index >= len(shapes) or code >= len(ASKED_ABOUT) or zero != 0 or tolerance >= 1.0:
            raise ValueError(f"a placement of shape {index} and operation {code}")
        if first != following or count > len(raw_entries) - first:
            raise ValueError(f"placed entry {following} is in no placement, or in two")
        following += count
        places.append((index, code))
        shape, operation = shapes[index], ASKED_ABOUT[code]
        own = raw_entries[first:following]
        keys = _decode_ranges(operation, own, shape, fingerprint)
        entries = tuple(_decode_entry(key, each, ()) for key, each in zip(keys, own, strict=True))
        if any(entry.builtin is None for entry in entries):
            raise ValueError("a placed entry has no built-in configuration")
        line = EstimateLine(latency_us, us_per_byte)
        yield BundlePlacement(shape, operation, line, tolerance, entries)
    if places != sorted(places) or following != len(raw_entries):
        raise ValueError("placements are not in order, or leave entries over")
    if not all(2 <= count <= MOST_PLACEMENTS for count in Counter(places).values()):
        raise ValueError("an operation has a single placement, or too many")


def _decode_keys(
    shapes: Sequence[Shape],
    shape_records: Sequence[tuple[Any, ...]],
    raw_entries: Sequence[tuple[Any, ...]],
    fingerprint: str,
) -> list[Key]:
    """Return the keys in the order of the entries; every entry must be in exactly one range."""
    keys: list[Key] = []
    for shape, record in zip(shapes, shape_records, strict=True):
        ranges = zip(record[4::2], record[5::2], range(layout.OPERATION_SLOTS), strict=True)
        for first, count, code in sorted(ranges):
            if first + count > len(raw_entries):
                raise ValueError("an operation's entries lie outside their section")
            if count == 0:
                continue
            if first != len(keys):
                raise ValueError(f"entry {len(keys)} is in no range, or entry {first} in two")
            if code >= len(COLLECTIVES):
                raise ValueError(f"there is no operation {code}")
            own = raw_entries[first : first + count]
            keys += _decode_ranges(COLLECTIVES[code], own, shape, fingerprint)
    if len(keys) != len(raw_entries):
        raise ValueError(f"entry {len(keys)} is in no range")
    return keys


def _decode_ranges(
    operation: Collective, raw_entries: Iterable[tuple[Any, ...]], shape: Shape, fingerprint: str
) -> Iterator[Key]:
    """Yield the keys of the entries of one operation, whose ranges ascend."""
    end = -1
    for start, stop, *_ in raw_entries:
        if not end < start <= stop:
            raise ValueError(f"range {start}..{stop} is empty, overlaps or is not sorted")
        yield Key(operation, start, stop, shape, fingerprint)
        end = stop


def _decode_entry(
    key: Key, raw: tuple[Any, ...], schedules: tuple[StoredSchedule, ...]
) -> BundleEntry:
    algorithm, protocol, nchannels, chunk_code = raw[2:6]
    position, schedule_protocol, flags, schedule_nchannels, nthreads, buffer_bytes = raw[6:12]
    builtin = None
    if nchannels > MAX_CHANNELS:
        raise ValueError(f"{nchannels} channels")
    if algorithm != layout.NO_CODE:
        builtin = BuiltinConfig(
            layout.ALGORITHMS[algorithm],
            layout.PROTOCOLS[protocol],
            nchannels,
            1 << chunk_code if chunk_code else 0,
        )
    if chunk_code and (builtin is None or not has_sound_chunks(builtin)):
        raise ValueError(f"chunk code {chunk_code} of an entry")
    schedule = None
    if flags & ~layout.IN_WINDOWS:
        raise ValueError(f"flags {flags:#x} of an entry")
    if position != layout.NO_SCHEDULE:
        schedule = ScheduleConfig(
            schedules[position].content_hash,
            layout.PROTOCOLS[schedule_protocol],
            schedule_nchannels,
            nthreads,
            buffer_bytes,
            bool(flags & layout.IN_WINDOWS),
        )
    return BundleEntry(key, builtin, schedule, raw[12], raw[13])
