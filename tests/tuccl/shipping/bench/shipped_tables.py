"""Tables for the stand-in of NCCL, in directories as `tuccl ship` writes them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import Collective
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    EstimateLine,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    SeenPlacement,
    Shape,
    StoredSchedule,
    Table,
    TimedSiblings,
)
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME
from tuccl.shipping.environment_file import ShippedExecutor, environment_file
from tuccl.shipping.locating import bundle_name

M = 1 << 20
TWO_RANKS = Shape(2, 1, 2)


def all_gather_entry(
    nchannels: int, promised: float = 1.5, size_bytes: int = 2 * M, shape: Shape = TWO_RANKS
) -> Entry:
    """all_gather on so many channels, of which one alone is slow on the stand-in."""
    key = Key(Collective.ALL_GATHER, size_bytes, size_bytes, shape, "test")
    ring = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE, nchannels)
    default_us = 64.0
    time_us = default_us / promised
    return Entry(key, size_bytes, ring, None, time_us, time_us, default_us, 5, 0.0, "")


def placed_pairs(*channels: tuple[int, ...], size_bytes: int = 2 * M) -> list[SeenPlacement]:
    """Pairs of four GPUs, neighbours and those two apart, as the stand-in estimates them.

    Each has an all_gather entry for these numbers of channels; none: no entry.
    """
    found = []
    for number, own in enumerate(channels):
        stride = number + 1
        line = EstimateLine(12.0 * stride, stride / size_bytes)
        entries = tuple(all_gather_entry(n, 1.5 + number, size_bytes) for n in own)
        timed = TimedSiblings(Shape(4, 1, 4), stride, (0, 1))
        example = f"gpu0 and gpu{stride}"
        lines = ((Collective.ALL_GATHER, line),)
        found.append(SeenPlacement(TWO_RANKS, number, example, lines, entries, timed))
    return found


def ship_entries(
    directory: Path,
    stand_ins: StandIns,
    *entries: Entry,
    profile: Mapping[str, str] | None = None,
    executor: bool = False,
    schedules: tuple[StoredSchedule, ...] = (),
    placements: Sequence[SeenPlacement] = (),
) -> Path:
    """A shipped directory of a table with these entries."""
    settings = dict(profile or {})
    table = Table("test", "test", (), entries, settings, schedules, tuple(placements))
    bundle = bundle_bytes(table)
    crc = bundle_crc(bundle)
    directory.mkdir()
    shutil.copy(stand_ins.plugin, directory / PLUGIN_NAME)
    (directory / bundle_name(crc)).write_bytes(bundle)
    (directory / "table.parquet").write_bytes(table_to_parquet_bytes(table))
    shipped = None
    if executor:
        shutil.copy(stand_ins.executor, directory / EXECUTOR_NAME)
        shipped = ShippedExecutor(directory / EXECUTOR_NAME, None)
    text = environment_file(table, directory, crc, executor=shipped)
    (directory / "tuccl.env").write_text(text, encoding="utf-8")
    return directory
