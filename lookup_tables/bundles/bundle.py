"""Reader of the bundle, the checksummed binary file that the tuner plugin maps.

`read_bundle` refuses every bundle that the plugin refuses;
`lookup_tables.bundles.bundle_writer` is the writer. Of programs only the checksums are
checked here; `synthesizer.programs.compiler` reads them. Format: docs/reference/bundle-format.md.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from lookup_tables import bundle_layout as layout
from lookup_tables.bundle_layout import SectionKind
from lookup_tables.bundles.placed_entries import read_placement_records
from lookup_tables.bundles.program_section import read_programs_section
from lookup_tables.lookup import MAX_CHANNELS, TableIndex
from lookup_tables.table import (
    BuiltinConfig,
    EstimateLine,
    Key,
    Operation,
    ScheduleConfig,
    Shape,
    StoredSchedule,
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
    operation: Operation
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
    """Schedules; without programs in bundles from before programs."""
    placements: tuple[BundlePlacement, ...] = ()
    """Communicators with entries of their own, by shape and operation."""

    @property
    def all_entries(self) -> tuple[BundleEntry, ...]:
        """The entries of shapes, then those of placements."""
        return (*self.entries, *(entry for own in self.placements for entry in own.entries))

    @cached_property
    def _index(self) -> TableIndex[BundleEntry]:
        return TableIndex(self.entries)

    def lookup(self, operation: Operation, size_bytes: int, shape: Shape) -> BundleEntry | None:
        """Return the entry for a call; None where NCCL decides."""
        return self._index.lookup(operation, size_bytes, shape)


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
        if kind not in sections and kind not in layout.OPTIONAL:
            raise ValueError(f"section {kind.name} is missing")
    return sections


def _decode(sections: Mapping[SectionKind, bytes], crc: int, source: str) -> Bundle:
    def text(offset: int, length: int) -> str:
        if offset + length > len(sections[SectionKind.TEXT]):
            raise ValueError("a text lies outside its section")
        return sections[SectionKind.TEXT][offset : offset + length].decode()

    def records(kind: SectionKind) -> list[tuple[Any, ...]]:
        return list(layout.RECORDS[kind].iter_unpack(sections[kind]))

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
    raw_entries = records(SectionKind.ENTRIES)
    keys = _decode_keys(records(SectionKind.SHAPES), raw_entries, fingerprint)
    return Bundle(
        crc=crc,
        topology_name=text(*identity[2:]),
        fingerprint=fingerprint,
        gpu_models=tuple(
            f"{vendor:04x}:{device:04x}" for vendor, device, _ in records(SectionKind.GPU_MODELS)
        ),
        entries=tuple(
            _decode_entry(key, raw, schedules) for key, raw in zip(keys, raw_entries, strict=True)
        ),
        profile={text(*record[:2]): text(*record[2:]) for record in records(SectionKind.PROFILE)},
        schedules=schedules,
        placements=tuple(_decode_placements(sections, records, fingerprint)),
    )


def _decode_placements(
    sections: Mapping[SectionKind, bytes],
    records: Callable[[SectionKind], list[tuple[Any, ...]]],
    fingerprint: str,
) -> Iterator[BundlePlacement]:
    present = [kind in sections for kind in (SectionKind.PLACEMENTS, SectionKind.PLACED_ENTRIES)]
    if not any(present):
        return
    if not all(present):
        raise ValueError("of placements and their entries a section is missing")
    shapes = [Shape(*record[:3]) for record in records(SectionKind.SHAPES)]
    raw = records(SectionKind.PLACED_ENTRIES)
    found = read_placement_records(sections[SectionKind.PLACEMENTS], shapes, len(raw))
    for own in found:
        entries, end = [], -1
        for record in raw[own.first : own.first + own.count]:
            start, stop = record[:2]
            if not end < start <= stop:
                raise ValueError(f"range {start}..{stop} is empty, overlaps or is not sorted")
            end = stop
            key = Key(own.operation, start, stop, own.shape, fingerprint)
            entries.append(_decode_entry(key, record, ()))
            if entries[-1].builtin is None:
                raise ValueError("a placed entry has no built-in configuration")
        yield BundlePlacement(own.shape, own.operation, own.line, own.tolerance, tuple(entries))


def _decode_keys(
    shape_records: list[tuple[Any, ...]], raw_entries: list[tuple[Any, ...]], fingerprint: str
) -> list[Key]:
    """Return the keys in the order of the entries; every entry must be in exactly one range."""
    keys: list[Key] = []
    shapes = [Shape(*record[:3]) for record in shape_records]
    if any(before >= after for before, after in pairwise(shapes)):
        raise ValueError("shapes are not in ascending order")
    for shape, record in zip(shapes, shape_records, strict=True):
        ranges = zip(record[4::2], record[5::2], range(layout.OPERATION_SLOTS), strict=True)
        for first, count, code in sorted(ranges):
            if first + count > len(raw_entries):
                raise ValueError("an operation's entries lie outside their section")
            if count == 0:
                continue
            if first != len(keys):
                raise ValueError(f"entry {len(keys)} is in no range, or entry {first} in two")
            if code >= len(layout.OPERATIONS):
                raise ValueError(f"there is no operation {code}")
            end = -1
            for start, stop, *_ in raw_entries[first : first + count]:
                if not end < start <= stop:
                    raise ValueError(f"range {start}..{stop} is empty, overlaps or is not sorted")
                keys.append(Key(layout.OPERATIONS[code], start, stop, shape, fingerprint))
                end = stop
    if len(keys) != len(raw_entries):
        raise ValueError(f"entry {len(keys)} is in no range")
    return keys


def _decode_entry(
    key: Key, raw: tuple[Any, ...], schedules: tuple[StoredSchedule, ...]
) -> BundleEntry:
    algorithm, protocol, nchannels = raw[2:5]
    position, schedule_protocol, _, schedule_nchannels, nthreads, buffer_bytes = raw[5:11]
    builtin = None
    if nchannels > MAX_CHANNELS:
        raise ValueError(f"{nchannels} channels")
    if algorithm != layout.NO_CODE:
        builtin = BuiltinConfig(layout.ALGORITHMS[algorithm], layout.PROTOCOLS[protocol], nchannels)
    schedule = None
    if position != layout.NO_SCHEDULE:
        schedule = ScheduleConfig(
            schedules[position].content_hash,
            layout.PROTOCOLS[schedule_protocol],
            schedule_nchannels,
            nthreads,
            buffer_bytes,
        )
    return BundleEntry(key, builtin, schedule, raw[11], raw[12])
