"""Writer of bundles, the binary form of a table.

Equal tables have equal bytes, without a time stamp, because ranks compare tables by their CRC.
Format: docs/reference/bundle-format.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from itertools import groupby

from lookup_tables import bundle_layout as layout
from lookup_tables.bundle_layout import SectionKind
from lookup_tables.bundles.host_devices import NO_FACTS, BundleFacts, host_device_record
from lookup_tables.bundles.program_section import programs_section
from lookup_tables.collective import ASKED_ABOUT
from lookup_tables.lookup import PLACEMENT_TOLERANCE, check_table
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    RunnersUp,
    ScheduleConfig,
    SeenPlacement,
    Shape,
    Table,
)
from tuccl.errors import TableError


def bundle_bytes(table: Table, facts: BundleFacts = NO_FACTS) -> bytes:
    """Return the bundle of a table.

    Args:
        table: The table.
        facts: What the plugin compares with a job's host and environment.

    Raises:
        TableError: The table breaks a rule of `check_table`, or its bundle would be larger
            than `LARGEST_BUNDLE_BYTES`.
    """
    check_table(table)
    text = _TextPool()
    identity = layout.IDENTITY.pack(*text.add(table.fingerprint), *text.add(table.topology_name))
    profile = _pack_pairs(table.profile, text)
    settings = b"".join(
        layout.SETTING.pack(
            *astuple(own.shape), 0, *text.add(own.name), *text.add(table.profile[own.name])
        )
        for own in table.settings
    )
    schedules = [
        (*text.add(stored.content_hash), *text.add(stored.name), *text.add(stored.msccl_xml))
        for stored in table.schedules
    ]
    of_facts = _pack_facts(facts, text)
    shapes = sorted(
        {entry.key.shape for entry in table.entries} | {own.shape for own in table.placements}
    )
    sums = b"".join(
        layout.SUM_ORDER.pack(shapes.index(own.shape), own.operation.code, *text.add(own.order))
        for own in table.sums
    )
    position = {stored.content_hash: index for index, stored in enumerate(table.schedules)}
    sections = {
        SectionKind.IDENTITY: identity,
        SectionKind.GPU_MODELS: b"".join(_pack_gpu_model(model) for model in table.gpu_models),
        SectionKind.SHAPES: _pack_shapes(table.entries, shapes),
        SectionKind.ENTRIES: b"".join(_pack_entry(entry, position) for entry in table.entries),
        SectionKind.PROFILE: profile,
        SectionKind.SCHEDULES: b"".join(layout.SCHEDULE.pack(*record) for record in schedules),
        SectionKind.TEXT: text.data(),
    }
    if table.schedules:
        sections[SectionKind.PROGRAMS] = programs_section(
            [stored.program for stored in table.schedules]
        )
    if settings:
        sections[SectionKind.SETTINGS] = settings
    if runners_up := [own for own in table.runners_up if own.settings]:
        sections[SectionKind.RUNNERS_UP] = b"".join(map(_pack_runners_up, runners_up))
    if tried := [own for own in table.runners_up if own.schedules]:
        sections[SectionKind.RUNNER_UP_SCHEDULES] = b"".join(
            _pack_runner_up_schedules(own, position) for own in tried
        )
    if sums:
        sections[SectionKind.SUMS] = sums
    placements, placed = _pack_placements(table.placements, shapes)
    if placements:
        sections[SectionKind.PLACEMENTS] = placements
        sections[SectionKind.PLACED_ENTRIES] = b"".join(_pack_entry(own, {}) for own in placed)
    return _assemble(sections | of_facts)


def _pack_facts(facts: BundleFacts, text: _TextPool) -> dict[SectionKind, bytes]:
    sections = {}
    if facts.hosts:
        sections[SectionKind.HOST_DEVICES] = b"".join(
            host_device_record(number, device, text.add(device.name))
            for number, devices in enumerate(facts.hosts)
            for device in devices
        )
    if facts.variables is not None:
        sections[SectionKind.VARIABLES] = _pack_pairs(facts.variables, text)
    return sections


def _pack_pairs(pairs: Mapping[str, str], text: _TextPool) -> bytes:
    return b"".join(
        layout.PROFILE.pack(*text.add(name), *text.add(value))
        for name, value in sorted(pairs.items())
    )


def _check_size(size_bytes: int) -> None:
    if size_bytes > layout.LARGEST_BUNDLE_BYTES:
        raise TableError(
            f"the bundle takes {size_bytes} bytes or more, at most {layout.LARGEST_BUNDLE_BYTES} "
            "are allowed; split the table by communicator shape, or drop schedules"
        )


class _TextPool:
    """Concatenated texts, each distinct text once."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        self._encoded: list[bytes] = []
        self._size = 0

    def add(self, text: str) -> tuple[int, int]:
        if text not in self._places:
            data = text.encode()
            _check_size(self._size + len(data))
            self._places[text] = (self._size, len(data))
            self._encoded.append(data)
            self._size += len(data)
        return self._places[text]

    def data(self) -> bytes:
        return b"".join(self._encoded)


def _pack_gpu_model(model: str) -> bytes:
    vendor, device = model.split(":")
    return layout.GPU_MODEL.pack(int(vendor, 16), int(device, 16), 0)


def _pack_shapes(entries: tuple[Entry, ...], shapes: Sequence[Shape]) -> bytes:
    """Return the section SHAPES; a shape with placements alone has no range."""
    records = []
    first = 0
    of_shapes = {
        shape: tuple(group) for shape, group in groupby(entries, key=lambda entry: entry.key.shape)
    }
    for shape in shapes:
        slots = [(0, 0)] * layout.OPERATION_SLOTS
        of_shape = of_shapes.get(shape, ())
        for operation, group in groupby(of_shape, key=lambda entry: entry.key.operation):
            count = sum(1 for _ in group)
            slots[operation.code] = (first, count)
            first += count
        flat = [number for slot in slots for number in slot]
        records.append(layout.SHAPE.pack(shape.ranks, shape.nodes, shape.ranks_per_node, 0, *flat))
    return b"".join(records)


def _pack_placements(
    placements: Sequence[SeenPlacement], shapes: Sequence[Shape]
) -> tuple[bytes, list[Entry]]:
    """Return the section PLACEMENTS, and the entries that it refers to in their order.

    The records of a shape and operation follow one another, two or more, since a single class of
    communicators has nothing to be told from.
    """
    records, entries = [], list[Entry]()
    for index, shape in enumerate(shapes):
        of_shape = [own for own in placements if own.shape == shape]
        for operation in ASKED_ABOUT:
            found = [
                [entry for entry in own.entries if entry.key.operation is operation]
                for own in of_shape
            ]
            for own, of_class in zip(of_shape if any(found) else (), found, strict=False):
                line = dict(own.lines)[operation]
                records.append(
                    layout.PLACEMENT.pack(
                        index, operation.code, line.latency_us, line.us_per_byte,
                        len(entries), len(of_class), PLACEMENT_TOLERANCE, 0,
                    )
                )  # fmt: skip
                entries += of_class
    return b"".join(records), entries


def _pack_entry(entry: Entry, schedule_position: Mapping[str, int]) -> bytes:
    sizes = entry.key.min_bytes, entry.key.max_bytes
    times = entry.builtin_time_us or 0.0, entry.default_time_us
    return entry_record(sizes, entry.builtin, entry.schedule, schedule_position, times)


def entry_record(
    sizes: tuple[int, int],
    builtin: BuiltinConfig | None,
    schedule: ScheduleConfig | None,
    schedule_position: Mapping[str, int],
    times_us: tuple[float, float] = (0.0, 0.0),
) -> bytes:
    """One record of ENTRIES; also what `tuccl_executor_choose` takes.

    Args:
        sizes: The smallest and the largest, inclusive.
        builtin: The built-in configuration, if there is one.
        schedule: The schedule, if there is one.
        schedule_position: Index of each schedule in the bundle, by content hash.
        times_us: Of the built-in configuration and of the stock default.
    """
    builtin_codes = (layout.NO_CODE, layout.NO_CODE, 0, 0)
    if builtin is not None:
        builtin_codes = (
            layout.ALGORITHMS.index(builtin.algorithm),
            layout.PROTOCOLS.index(builtin.protocol),
            builtin.nchannels,
            layout.chunk_code(builtin.chunk_bytes),
        )
    executor = (layout.NO_SCHEDULE, layout.NO_CODE, 0, 0, 0, 0)
    if schedule is not None:
        executor = (
            schedule_position[schedule.schedule],
            layout.PROTOCOLS.index(schedule.protocol),
            layout.IN_WINDOWS if schedule.in_windows else 0,
            schedule.nchannels,
            schedule.nthreads,
            schedule.buffer_bytes,
        )
    return layout.ENTRY.pack(*sizes, *builtin_codes, *executor, *times_us)


def _pack_runners_up(own: RunnersUp) -> bytes:
    words = [
        int.from_bytes(
            (
                layout.ALGORITHMS.index(setting.algorithm),
                layout.PROTOCOLS.index(setting.protocol),
                setting.nchannels,
                layout.chunk_code(setting.chunk_bytes),
            ),
            "little",
        )
        for setting in own.settings
    ]
    key = own.key
    return layout.RUNNERS_UP.pack(
        *astuple(key.shape),
        key.operation.code,
        *(key.min_bytes, key.max_bytes, len(words)),
        *(words + [0] * (layout.MOST_RUNNERS_UP - len(words))),
    )


def _pack_runner_up_schedules(own: RunnersUp, position: Mapping[str, int]) -> bytes:
    key = own.key
    sizes = key.min_bytes, key.max_bytes
    entries = (entry_record(sizes, None, schedule, position) for schedule in own.schedules)
    return b"".join(
        layout.RUNNER_UP_SCHEDULE.pack(
            *astuple(key.shape), key.operation.code, *layout.ENTRY.unpack(entry)
        )
        for entry in entries
    )


def _assemble(sections: Mapping[SectionKind, bytes]) -> bytes:
    offset = layout.HEADER.size + len(sections) * layout.SECTION.size
    directory, body = [], []
    for kind, data in sections.items():
        record_bytes = layout.RECORDS[kind].size
        directory.append(
            layout.SECTION.pack(
                kind,
                0 if kind in layout.OPTIONAL else layout.SECTION_REQUIRED,
                offset,
                len(data),
                len(data) // record_bytes,
                record_bytes,
            )
        )
        padded = data + bytes(-len(data) % layout.ALIGNMENT)
        body.append(padded)
        offset += len(padded)
    _check_size(offset)
    header = (layout.MAGIC, layout.FORMAT_VERSION, 0, layout.HEADER.size, len(sections), offset)
    return layout.with_crc(b"".join([layout.HEADER.pack(*header), *directory, *body]))
