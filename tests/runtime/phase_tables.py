"""Tables of schedules across hosts for the native tests of one grid, by name."""

from dataclasses import replace
from pathlib import Path

from kernel_schedules import kernel_schedules

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import HEADER, sealed
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    NcclAlgorithm,
    NcclProtocol,
    Shape,
    StoredSchedule,
)
from synthesizer.ir.algorithm import Buffer
from synthesizer.programs.layout import PHASE, RANK, Pattern, PhaseKind, pattern_in
from synthesizer.programs.phase_plans import phased_plans
from synthesizer.programs.phases import CallPhase, PhasedSchedule, Place
from tests.lookup_tables.tables import make_entry
from tests.runtime.executor_tables import (
    LL,
    LL128,
    bundle_of,
    entry_of,
    kernel,
    phased_entry,
    phased_schedule,
    with_settings,
)

SIZES = (1, 40_000)
BUFFER_BYTES = 1024
RING = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 1)
"""Calls of more bytes have several slices."""


def plan_names(nodes: int, local_ranks: int) -> list[str]:
    """Return the names of the tables for a grid."""
    return list(tables_of(nodes, local_ranks))


def tables_of(nodes: int, local_ranks: int) -> dict[str, list[PhasedSchedule]]:
    """Return the plans of each table: one for every operation that has a plan of this name."""
    tables: dict[str, list[PhasedSchedule]] = {}
    for collective in COLLECTIVES:
        for number, plan in enumerate(phased_plans(collective, nodes, local_ranks)):
            tables.setdefault(f"plans{number}", []).append(plan)
            tables.setdefault(f"lanes{number}", []).append(plan.with_lanes(2 + number))
            if number == 0:
                tables.setdefault("rails0", []).append(plan.with_lanes(2).with_rails(RING))
    if local_ranks > 1:
        tables["rail_first"] = [rail_first(nodes, local_ranks)]
    return tables


def rail_first(nodes: int, local_ranks: int) -> PhasedSchedule:
    """Return an all_reduce that crosses the network before it leaves the rank."""
    chunks = local_ranks
    across = CallPhase(
        *(PhaseKind.RAIL, Collective.ALL_GATHER, Place(Buffer.INPUT, 0), Place(Buffer.SCRATCH, 0)),
        chunks=chunks,
    )
    total = CallPhase(
        *(PhaseKind.SUM, Collective.REDUCE),
        *(Place(Buffer.SCRATCH, 0), Place(Buffer.SCRATCH, nodes * chunks)),
        chunks=chunks,
        repeats=nodes,
    )
    inside = CallPhase(
        *(PhaseKind.LOCAL, Collective.ALL_REDUCE),
        *(Place(Buffer.SCRATCH, nodes * chunks), Place(Buffer.OUTPUT, 0)),
        chunks=chunks,
        pattern=Pattern.TWO_PHASE,
    )
    phases = (across, total, inside)
    scratch = ((nodes + 1) * chunks,)
    return PhasedSchedule(
        "rail_first", Collective.ALL_REDUCE, (local_ranks,) * nodes, chunks, scratch, phases
    )


def write_phase_tables(folder: Path, nodes: int, local_ranks: int) -> None:
    """Write the tables of a grid as NAME.tuccl, and one that has nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nothing.tuccl").write_bytes(bundle_of([], []))
    for name, plans in tables_of(nodes, local_ranks).items():
        entries: list[Entry] = []
        schedules: list[StoredSchedule] = []
        for plan in plans:
            schedules.append(phased_schedule(plan))
            entries.append(phased_entry(plan, schedules[-1], SIZES, LL, (4, 128, BUFFER_BYTES)))
        (folder / f"{name}.tuccl").write_bytes(bundle_of(entries, schedules))
    (folder / "programs.tuccl").write_bytes(bundle_of([], programs_of(nodes, local_ranks)))
    (folder / "ll128.tuccl").write_bytes(ll128_table(nodes, local_ranks))
    if local_ranks > 1:
        for name, parts in (("shapes", "whole node rail"), ("nodes", "node")):
            (folder / f"{name}.tuccl").write_bytes(shapes_table(nodes, local_ranks, parts.split()))
        # Of pairs in a node and of other parts nothing was measured.
        shapes = [Shape(nodes * local_ranks, nodes, local_ranks), Shape(nodes, nodes, 1)]
        (folder / "settings.tuccl").write_bytes(
            with_settings(bundle_of([], []), shapes, {"NCCL_MIN_CTAS": "32"}, {})
        )


def domain_table(ranks: int, gpu_model: str) -> bytes:
    """Return a table of one node, whose kernels run small calls."""
    schedules = list(kernel_schedules(ranks).values())
    patterns = {schedule: pattern_in(schedule.program) for schedule in schedules}
    used = [schedule for schedule in schedules if patterns[schedule] is not Pattern.ONE_PHASE]
    entries = [entry_of(schedule, SIZES) for schedule in used]
    return bundle_of(entries, used, (gpu_model,))


def settings_table(ranks: int) -> bytes:
    """Return a table of one node whose entries are settings of NCCL."""
    shape = Shape(ranks, 1, ranks)
    operations = (Collective.ALL_GATHER, Collective.ALL_REDUCE)
    return bundle_of([make_entry(each, *SIZES, RING, shape=shape) for each in operations], [])


def programs_of(nodes: int, local_ranks: int) -> list[StoredSchedule]:
    """Return all_reduce schedules to choose from: of one lane, and of three."""
    plan = phased_plans(Collective.ALL_REDUCE, nodes, local_ranks)[0]
    return [phased_schedule(plan), phased_schedule(plan.with_lanes(3))]


def program_places(nodes: int, local_ranks: int) -> list[int]:
    """Return the index of each of these in its bundle."""
    hashes = [schedule.content_hash for schedule in programs_of(nodes, local_ranks)]
    return [sorted(hashes).index(content_hash) for content_hash in hashes]


def ll128_table(nodes: int, local_ranks: int) -> bytes:
    """Return a table of all_reduce whose kernels need NVLink."""
    plan = phased_plans(Collective.ALL_REDUCE, nodes, local_ranks)[0]
    schedule = phased_schedule(plan)
    entry = phased_entry(plan, schedule, SIZES, LL128, (4, 128, BUFFER_BYTES))
    return bundle_of([entry], [schedule])


def shapes_table(nodes: int, local_ranks: int, parts: list[str]) -> bytes:
    """Return a table of all_reduce for communicators of all ranks, of a node, and of a rail."""
    entries: list[Entry] = []
    schedules: list[StoredSchedule] = []
    for part, ranks in (("whole", local_ranks), ("rail", 1)):
        if part in parts:
            plan = phased_plans(Collective.ALL_REDUCE, nodes, ranks)[0]
            schedules.append(phased_schedule(plan))
            entries.append(phased_entry(plan, schedules[-1], SIZES, LL, (4, 128, BUFFER_BYTES)))
    if "node" in parts:
        schedules.append(kernel(local_ranks, "all_reduce", "two_phase"))
        entries.append(entry_of(schedules[-1]))
    return bundle_of(entries, schedules)


def damaged_table() -> bytes:
    """Return a table for 2 nodes of 2 ranks whose program has a right sum and a wrong phase."""
    plan = phased_plans(Collective.ALL_REDUCE, 2, 2)[0]
    schedule = phased_schedule(plan)
    program = bytearray(schedule.program)
    program[HEADER.size + RANK.size + PHASE.size] = len(PhaseKind)
    broken = replace(schedule, program=sealed(bytes(program)))
    return bundle_of([phased_entry(plan, schedule, SIZES)], [broken])
