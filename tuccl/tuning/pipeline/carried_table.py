"""A retune's share in the table before: where its searches begin, and the entries that are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

from lookup_tables.lookup import check_table, key_order
from lookup_tables.table import Entry, SeenPlacement, Shape, Table, schedules_of
from probes.topology.graph import Topology
from tuccl.errors import WorkspaceError
from tuccl.models.figures import communicator_shape
from tuccl.reports.report import KeyReport, Report, RetunedKey, RetunedReport
from tuccl.reports.tuning_result import TuningResult, read_machine
from tuccl.search.strategies.warm import WarmStart
from tuccl.search.trials.config import (
    PHASES_PREFIX,
    SCHEDULE_PREFIX,
    Config,
    ProcessProfile,
    Task,
)
from tuccl.search.trials.shapes import ShapeName
from tuccl.tuning.pipeline.retune_plan import RetunePlan, from_the_beginning
from tuccl.tuning.placing.kept import KeptEntries
from tuccl.tuning.results import AgainstBefore
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.measurement_lines import Contents, Recorded
from tuccl.workspace.measurement_log import read_log

_FEWEST_SAMPLES = 3
"""Samples of an earlier configuration below which its time says little."""
_MOST_CONTENDERS = 4
"""Most of NCCL's settings, and most schedules, that are taken from the earlier log."""


@dataclass(frozen=True)
class Carried:
    """The run before a change, and what becomes of its keys."""

    old: TuningResult
    plan: RetunePlan
    warm: WarmStart
    samples_before: int | None
    """Samples that the run took; None: its log cannot be read."""
    jobs_run_schedules: bool
    """Whether the schedules run as in a job, on the executor."""

    @property
    def identity(self) -> str:
        """Identity of the run before."""
        return self.old.run.root.name


def carried_from(
    old: TuningResult,
    plan: RetunePlan,
    tell: Callable[[str], None],
    *,
    jobs_run_schedules: bool,
    kept: KeptEntries = MappingProxyType({}),
) -> Carried:
    """Prepare what a retune takes over.

    Args:
        old: The run before the change.
        plan: Keys that are kept, and those that are measured.
        tell: Told what is damaged in its log, in a line.
        jobs_run_schedules: Whether the schedules run as in a job, on the executor.
        kept: Entries of single communicators of the measured keys' shapes that are kept.
    """
    profile = profile_of(old.table)
    old_whole = communicator_shape(read_machine(old.run))
    log = _read_log(old, tell)
    entries = {
        (entry.key.operation, entry.key.shape, entry.tuned_bytes): entry
        for entry in old.table.entries
    }
    placed = [entry for own in old.table.placements for entry in own.entries]
    contenders, choices = {}, {}
    for task in plan.measured:
        key = (task.operation, task.shape, task.size_bytes)
        entry = entries.get(key)
        own = () if entry is None else calls_of(entry, profile)
        elsewhere = [
            choice
            for entry in placed
            if (entry.key.operation, entry.key.shape, entry.tuned_bytes) == key
            for choice in calls_of(entry, profile)
        ]
        choices[task] = tuple(c for c in own if jobs_run_schedules or not c.is_schedule)
        earlier = replace(task, shape=_shape_before(task, plan, old.report, old_whole))
        tried = () if log is None else _best(log, earlier, profile)
        contenders[task] = tuple(dict.fromkeys((*own, *elsewhere, *tried)))
    samples = None if log is None else samples_in(log)
    warm = WarmStart(profile, plan.measured, contenders, choices, kept)
    return Carried(old, plan, warm, samples, jobs_run_schedules)


def all_again(carried: Carried, why: str, tell: Callable[[str], None]) -> Carried:
    """Return the same run before, none of whose keys are kept."""
    plan = from_the_beginning(carried.plan, why)
    return carried_from(carried.old, plan, tell, jobs_run_schedules=carried.jobs_run_schedules)


def profile_of(table: Table) -> ProcessProfile:
    """Return the process profile of a table."""
    return ProcessProfile.of(tuple(sorted(table.profile.items())))


def samples_in(log: Contents) -> int:
    """Return the number of samples that a log holds."""
    return sum(len(recorded.samples_us) for recorded in log.all)


def _read_log(old: TuningResult, tell: Callable[[str], None]) -> Contents | None:
    record = old.run.record()
    if record is None or not old.run.measurements.is_file():
        return None
    try:
        return read_log(old.run.measurements, record.identity, tell)
    except WorkspaceError as error:
        tell(f"note: {error}; searches begin from the table alone")
        return None


def _shape_before(task: Task, plan: RetunePlan, report: Report, old_whole: Shape) -> Shape:
    """Return the earlier shape of the same name, for a shape that was not there before."""
    known = report.shapes or {ShapeName.WHOLE.value: old_whole}
    if task.shape in known.values():
        return task.shape
    name = next(each.name for each in plan.shapes if each.shape == task.shape)
    return known.get(name, task.shape)


def calls_of(entry: Entry, profile: ProcessProfile) -> tuple[Config, ...]:
    """Return an entry's winner, then the setting for jobs without the executor."""
    found = []
    if entry.schedule is not None:
        own = entry.schedule
        prefix = PHASES_PREFIX if entry.key.shape.nodes > 1 else SCHEDULE_PREFIX
        found.append(
            Config(
                f"{prefix}{own.schedule}",
                own.protocol.value,
                own.nchannels,
                own.nthreads,
                own.buffer_bytes,
            )
        )
    if entry.builtin is not None:
        builtin = entry.builtin
        found.append(
            Config(
                builtin.algorithm.value,
                builtin.protocol.value,
                builtin.nchannels,
                chunk_bytes=builtin.chunk_bytes,
            )
        )
    return tuple(map(profile.applied_to, found))


def _best(log: Contents, task: Task, profile: ProcessProfile) -> tuple[Config, ...]:
    """Return the fastest configurations of a key under a profile, settings before schedules."""

    def usable(recorded: Recorded) -> bool:
        config = recorded.config
        under = not config.needs_profile or config.profile == profile
        sampled = len(recorded.samples_us) >= _FEWEST_SAMPLES
        return under and sampled and not recorded.failed and not config.is_default

    found = [recorded for recorded in log.all if recorded.task == task and usable(recorded)]
    found.sort(key=lambda recorded: (median(recorded.samples_us), recorded.config))
    settings = [each.config for each in found if not each.config.is_schedule]
    schedules = [each.config for each in found if each.config.is_schedule]
    return (*settings[:_MOST_CONTENDERS], *schedules[:_MOST_CONTENDERS])


def joined_table(new: Table, carried: Carried) -> Table:
    """Return the new table with the entries that keep their worth, of the machine as it is now.

    Raises:
        TableError: The entries break a rule of the format.
    """
    shapes = {task.shape for task in carried.plan.kept}
    kept = [
        replace(entry, key=replace(entry.key, fingerprint=new.fingerprint))
        for entry in carried.old.table.entries
        if entry.key.shape in shapes
    ]
    entries = tuple(sorted([*kept, *new.entries], key=lambda entry: key_order(entry.key)))
    runners_up = tuple(
        sorted(
            [
                *(
                    replace(own, key=replace(own.key, fingerprint=new.fingerprint))
                    for own in carried.old.table.runners_up
                    if own.key.shape in shapes
                ),
                *new.runners_up,
            ],
            key=lambda own: key_order(own.key),
        )
    )
    used = schedules_of(entries, runners_up)
    stored = {
        schedule.content_hash: schedule
        for schedule in (*carried.old.table.schedules, *new.schedules)
        if schedule.content_hash in used
    }
    joined = replace(
        new,
        entries=entries,
        schedules=tuple(stored[name] for name in sorted(stored)),
        placements=_joined_placements(new, carried.old.table, shapes),
        runners_up=runners_up,
        sums=tuple(
            sorted(
                [*(own for own in carried.old.table.sums if own.shape in shapes), *new.sums],
                key=lambda own: (own.shape, own.operation.value),
            )
        ),
        settings=tuple(
            sorted(
                {*(own for own in carried.old.table.settings if own.shape in shapes)}
                | {*new.settings}
            )
        ),
    )
    check_table(joined)
    return joined


def _joined_placements(
    new: Table, old: Table, kept: Collection[Shape]
) -> tuple[SeenPlacement, ...]:
    """Return the new communicators with entries of their own, and the old ones of kept shapes."""
    found = [*new.placements]
    for own in old.placements:
        if own.shape in kept:
            entries = tuple(
                replace(entry, key=replace(entry.key, fingerprint=new.fingerprint))
                for entry in own.entries
            )
            found.append(replace(own, entries=entries))
    return tuple(sorted(found, key=lambda own: (own.shape, own.number)))


def empty_table(topology: Topology, profile: ProcessProfile) -> Table:
    """Return a table of a machine without entries."""
    return Table(
        topology_name=topology.name,
        fingerprint=topology.fingerprint(),
        gpu_models=topology.gpu_models,
        entries=(),
        profile=profile.environment,
    )


def joined_report(
    new: Report | None, carried: Carried, settings: RunSettings, retuned: RetunedReport
) -> Report:
    """Return the new report with the keys that keep their worth.

    Args:
        new: Report on the keys that were measured; None: none were.
        carried: The run before.
        settings: Settings of the new run.
        retuned: Relation of the two tables.
    """
    old, plan = carried.old.report, carried.plan
    old_whole = communicator_shape(read_machine(carried.old.run))
    of_shape = {task.shape for task in plan.kept}
    found = [key for key in old.keys if (key.shape or old_whole) in of_shape]
    keys = {_task_key(key, old_whole): key for key in (*found, *(new.keys if new else ()))}
    base = old.model_copy(update={"measuring_s": 0.0, "starts": None}) if new is None else new
    return base.model_copy(
        update={
            "keys": [
                key.model_copy(update={"shape": task.shape, "whole": None})
                for task in plan.tasks
                if (key := keys.get((task.operation.value, task.size_bytes, task.shape)))
            ],
            "schedules": {**old.schedules, **base.schedules},
            "shapes": {named.name: named.shape for named in settings.shapes},
            "workload": settings.workload,
            "sums": [
                *(own for own in old.sums if (own.shape or old_whole) in of_shape),
                *([] if new is None else new.sums),
            ],
            "start_error": max(old.start_error, base.start_error),
            "whole": None,
            "retuned": retuned,
        }
    )


def _task_key(key: KeyReport, whole: Shape) -> tuple[str, int, Shape]:
    return key.operation, key.size_bytes, key.shape or whole


def retuned_report(
    carried: Carried, against: Iterable[AgainstBefore], samples: int, *, measured: int
) -> RetunedReport:
    """Return the relation of a table to the one before.

    Args:
        carried: The run before.
        against: Measured keys under both tables.
        samples: Samples that were taken.
        measured: Number of keys that were measured.
    """
    compared, kept = list(against), len(carried.plan.kept)
    gain = None
    if len(compared) == measured:
        total = math.fsum(math.log(each.ratio) for each in compared)
        gain = math.exp(total / max(1, kept + measured))
    keys = [
        RetunedKey(
            operation=each.task.operation,
            size_bytes=each.task.size_bytes,
            shape=each.task.shape,
            before=each.before.describe(),
            before_us=each.before_us,
            now=each.now.describe(),
            now_us=each.now_us,
            ratio=each.ratio,
        )
        for each in compared
    ]
    return RetunedReport(
        run=carried.identity, kept=kept, measured=measured, keys=keys, gain=gain,
        samples=samples, samples_before=carried.samples_before,
    )  # fmt: skip
