"""Bundles for the interposer's native tests, by name."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from kernel_schedules import kernel_schedules, switched, with_pattern

from lookup_tables import bundle_layout as layout
from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.bundles.host_devices import BundleFacts
from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.lookup import MAX_SIZE_BYTES
from lookup_tables.program_header import header_of
from lookup_tables.table import (
    Entry,
    NcclProtocol,
    RunnersUp,
    ScheduleConfig,
    Setting,
    Shape,
    StoredSchedule,
    SumOrder,
)
from synthesizer.experts import expert_algorithms
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.layout import Pattern
from synthesizer.programs.phases import PhasedSchedule
from tests.lookup_tables.tables import make_entry, make_table

LL, LL128, SIMPLE = NcclProtocol
MOST_RANKS = 8
SMALL = (1, 65536)


def entry_of(
    schedule: StoredSchedule,
    sizes: tuple[int, int] = SMALL,
    protocol: NcclProtocol = LL,
    cut: tuple[int, int, int] = (8, 512, 65536),
) -> Entry:
    """Return an entry won by a schedule, with its program's operation and ranks.

    Args:
        schedule: That won.
        sizes: The smallest and the largest.
        protocol: It was tuned with.
        cut: Channels, threads and bytes of a buffer.
    """
    header = header_of(schedule.program)
    operation, ranks = COLLECTIVES[header.operation], header.ranks
    config = ScheduleConfig(schedule.content_hash, protocol, *cut)
    return make_entry(operation, *sizes, None, shape=Shape(ranks, 1, ranks), schedule=config)


def phased_schedule(plan: PhasedSchedule) -> StoredSchedule:
    """Return a plan across hosts with its program; its content hash is unique among the plans."""
    hashed = zlib.crc32(f"{plan.collective} {plan.name} {plan.nodes} {plan.local_ranks}".encode())
    return StoredSchedule(f"{hashed:x}", plan.name, "", compile_program(plan))


def phased_entry(
    plan: PhasedSchedule,
    schedule: StoredSchedule,
    sizes: tuple[int, int] = SMALL,
    protocol: NcclProtocol = LL,
    cut: tuple[int, int, int] = (8, 512, 65536),
) -> Entry:
    """Return an entry won by a plan across hosts."""
    config = ScheduleConfig(schedule.content_hash, protocol, *cut)
    shape = Shape(plan.ranks, plan.nodes, plan.local_ranks)
    return make_entry(plan.collective, *sizes, None, shape=shape, schedule=config)


def bundle_of(
    entries: Sequence[Entry],
    schedules: Sequence[StoredSchedule],
    gpu_models: tuple[str, ...] = (),
) -> bytes:
    """Return a bundle, for any machine without GPU models; repeated schedules are stored once."""
    by_hash = {schedule.content_hash: schedule for schedule in schedules}
    ordered = tuple(schedule for _, schedule in sorted(by_hash.items()))
    return bundle_bytes(make_table(list(entries), gpu_models=gpu_models, schedules=ordered))


def kernel(ranks: int, operation: str, pattern: str, name: str | None = None) -> StoredSchedule:
    """Return a schedule that a kernel runs, optionally with another content hash."""
    schedule = kernel_schedules(ranks)[operation, pattern]
    return schedule if name is None else replace(schedule, content_hash=name)


def session_table(*, across_hosts: bool = False) -> bytes:
    """Small calls of all operations but reduce, for 2 to 8 ranks; one range that is Simple's.

    Args:
        across_hosts: With an entry for two nodes, so that communicators of several are looked for.
    """
    entries: list[Entry] = []
    schedules: list[StoredSchedule] = []
    for ranks in range(2, MOST_RANKS + 1):
        kernels = kernel_schedules(ranks)
        broadcast = session_broadcast(ranks)
        two_phase = kernels["all_reduce", "two_phase"]
        entries += [
            entry_of(two_phase),
            entry_of(two_phase, (1_000_000, 2_000_000), SIMPLE),
            entry_of(kernels["all_gather", "direct"]),
            entry_of(kernels["reduce_scatter", "direct"], protocol=LL128),
            entry_of(broadcast),
            entry_of(kernels["alltoall", "direct"]),
        ]
        schedules += [*kernels.values(), broadcast]
    if across_hosts:
        entries.append(entry_across_hosts())
    return bundle_of(entries, schedules)


def window_table() -> bytes:
    """Calls of two ranks: small ones of all_reduce serve windows, too."""
    schedule = kernel(2, "all_reduce", "two_phase")
    small, large = entry_of(schedule, (1, 1024)), entry_of(schedule, (1025, 65536))
    assert small.schedule is not None
    small = replace(small, schedule=replace(small.schedule, in_windows=True))
    chain = session_broadcast(2)
    entries = [small, large, entry_of(kernel(2, "all_gather", "direct")), entry_of(chain)]
    return bundle_of(entries, [schedule, kernel(2, "all_gather", "direct"), chain])


def runners_up_table(*, with_entry: bool) -> bytes:
    """All_reduce on three ranks: a schedule to try on 4 and 8 channels, after an entry or alone."""
    entered = kernel(3, "all_reduce", "two_phase")
    tried = kernel(3, "all_reduce", "one_phase")
    entry = entry_of(entered)
    configs = tuple(
        ScheduleConfig(tried.content_hash, LL, channels, 512, 65536) for channels in (4, 8)
    )
    table = make_table(
        [entry] if with_entry else [],
        gpu_models=(),
        schedules=tuple(sorted((entered, tried), key=lambda own: own.content_hash)),
        runners_up=(RunnersUp(entry.key, (), configs),),
    )
    return bundle_bytes(table)


def with_settings(
    bundle: bytes, shapes: Sequence[Shape], variables: dict[str, str], base: dict[str, str]
) -> bytes:
    """Return a bundle whose executor sets variables on communicators of these shapes.

    Args:
        bundle: A bundle of `bundle_of`.
        shapes: Shapes that were measured.
        variables: The process profile.
        base: Variables that every process had.
    """
    read = read_bundle(bundle, "bundle")
    schedules = read.schedules
    entries = [
        make_entry(
            each.key.operation,
            *(each.key.min_bytes, each.key.max_bytes),
            each.builtin,
            shape=each.key.shape,
            schedule=each.schedule,
        )
        for each in read.entries
    ]
    settings = tuple(sorted(Setting(shape, name) for shape in shapes for name in variables))
    table = make_table(
        entries, gpu_models=(), schedules=schedules, profile=variables, settings=settings
    )
    return bundle_bytes(table, BundleFacts(variables=base))


def settings_tables() -> dict[str, bytes]:
    """Return tables with settings for communicators of four ranks and of two."""
    shapes, least = [Shape(4, 1, 4), Shape(2, 1, 2)], {"NCCL_MIN_CTAS": "32"}
    return {
        "settings": with_settings(session_table(), shapes, least, {"NCCL_MAX_CTAS": "48"}),
        "settings_alone": with_settings(bundle_of([], []), shapes, least, {}),
        "settings_of_nvls": with_settings(
            session_table(),
            shapes,
            {**least, "NCCL_NVLS_NCHANNELS": "24", "NCCL_COLLNET_ENABLE": "1"},
            {},
        ),
        "settings_of_no_flag": with_settings(
            session_table(), shapes, {**least, "NCCL_COLLNET_ENABLE": "2"}, {}
        ),
        "settings_none": with_settings(session_table(), shapes, {"NCCL_MIN_CTAS": "0"}, {}),
        "settings_crossed": with_settings(
            session_table(), shapes, {**least, "NCCL_MAX_CTAS": "16"}, {}
        ),
        "settings_of_no_cluster": with_settings(
            session_table(), shapes, {**least, "NCCL_CGA_CLUSTER_SIZE": "16"}, {}
        ),
        "settings_of_many_peers": with_settings(
            session_table(), shapes, {**least, "NCCL_NCHANNELS_PER_NET_PEER": "65"}, {}
        ),
    }


@cache
def session_broadcast(ranks: int) -> StoredSchedule:
    """Return a chain as if of a kernel, for every root.

    The stand-in of the device looks at no program.
    """
    chain = next(iter(expert_algorithms(Collective.BROADCAST, switched(ranks))))
    program = with_pattern(compile_program(chain), Pattern.DIRECT)
    return StoredSchedule(chain.content_hash(), chain.name, "", program)


def entry_across_hosts() -> Entry:
    """Return an entry for two nodes of two GPUs."""
    config = ScheduleConfig(kernel(4, "all_reduce", "two_phase").content_hash, LL, 8, 512, 65536)
    return make_entry(Collective.ALL_REDUCE, *SMALL, None, shape=Shape(4, 2, 2), schedule=config)


def one_phase_table(ranks: int, largest: int) -> bytes:
    """All_reduce up to a size."""
    schedule = kernel(ranks, "all_reduce", "one_phase")
    return bundle_of([entry_of(schedule, (1, largest), cut=(1, 32, 0))], [schedule])


def invariant_table() -> bytes:
    """All_reduce of four ranks at every size, whose sums do not move."""
    schedule = kernel(4, "all_reduce", "two_phase")
    entry = entry_of(schedule, (1, MAX_SIZE_BYTES))
    sums = (SumOrder(Shape(4, 1, 4), Collective.ALL_REDUCE, "(0+1+2+3)"),)
    return bundle_bytes(make_table([entry], gpu_models=(), schedules=(schedule,), sums=sums))


def chosen_schedules() -> list[StoredSchedule]:
    """Return schedules whose content hash is their index in the bundles `chosen` and `programs`."""
    return [
        kernel(2, "all_reduce", "two_phase", "0"),
        kernel(2, "all_gather", "direct", "1"),
        kernel(3, "all_reduce", "two_phase", "2"),
        StoredSchedule("3", "without a program", "", b""),
    ]


def chosen_table() -> bytes:
    """Schedules of several kinds, and an entry of the first."""
    schedules = chosen_schedules()
    return bundle_of([entry_of(schedules[0])], schedules)


def phased_table() -> bytes:
    """No entry, and a schedule whose program's header is of one across hosts."""
    made = kernel(2, "all_reduce", "two_phase")
    bundle = bundle_of([], [made])
    nodes = bundle.index(made.program) + 40
    return layout.with_crc(bundle[:nodes] + struct.pack("<I", 2) + bundle[nodes + 4 :])


def with_wrong_entry(bundle: bytes) -> bytes:
    """A bundle with a right sum whose first entry ends before it begins."""
    for index in range(layout.HEADER.unpack_from(bundle)[4]):
        place = layout.HEADER.size + index * layout.SECTION.size
        kind, _, offset, *_ = layout.SECTION.unpack_from(bundle, place)
        if kind == layout.SectionKind.ENTRIES:
            return layout.with_crc(
                bundle[:offset] + struct.pack("<QQ", 2, 1) + bundle[offset + 16 :]
            )
    raise AssertionError("no entries")


def write_tables(folder: Path) -> None:
    """Write all bundles as NAME.tuccl."""
    folder.mkdir(exist_ok=True)
    tables = {
        "session": session_table(),
        "across_hosts": session_table(across_hosts=True),
        "sixteen": one_phase_table(16, 1024),
        "nothing": bundle_of([], []),
        "one_phase": one_phase_table(2, 1024),
        "to_4096": one_phase_table(3, 4096),
        "to_8192": one_phase_table(3, 8192),
        "phased": phased_table(),
        "chosen": chosen_table(),
        "invariant": invariant_table(),
        "programs": bundle_of([], chosen_schedules()),
        "windows": window_table(),
        "runners_up": runners_up_table(with_entry=True),
        "only_runners_up": runners_up_table(with_entry=False),
        **settings_tables(),
        "wrong_entry": with_wrong_entry(one_phase_table(2, 1024)),
        "no_bundle": b"all_reduce 1 65536 two_phase ll 8 512 65536\n",
    }
    for name, data in tables.items():
        (folder / f"{name}.tuccl").write_bytes(data)
