"""`TableFigures`: what a page says of one table, beside the figures of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

from lookup_tables.table import Shape
from tuccl.reports.documents.step import StepDocument
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import Runner, job_gains
from tuccl.views.page.figures.key_figures import KeyFigures, keys_of
from tuccl.views.page.figures.places import ReportedTable
from tuccl.views.terminal.table_display import placed_entries_lines, summary_lines
from tuccl.words.counts import count_of
from tuccl.workspace.measurement_lines import Contents


@dataclass(frozen=True, slots=True)
class ShapeFigures:
    """The gain on communicators of one shape."""

    name: str
    shape: Shape
    keys: int
    speedup: float
    """Geometric mean over its keys of what a job here gains."""


@dataclass(frozen=True, slots=True)
class TableFigures:
    """A table: what it is of, what it gains, and what that rests on."""

    name: str
    """The place as the user named it."""
    shipped: bool
    """Whether the place is a shipped directory."""
    topology: str
    fingerprint: str
    gpu_models: tuple[str, ...]
    times: Evidence
    backend: str
    """Backend that took or computed the times."""
    replayed: bool
    """Whether the times come from a record of it."""
    recorded_at: str
    """When the run of that record began; empty: unknown, or there is none."""
    conditions: tuple[str, ...]
    """How calls were timed where a job's are not made so: faked nodes, shared GPUs."""
    nccl_version: str | None
    tuccl_version: str | None
    details: str
    """Driver, CUDA and GPU, or the state of the model."""
    run: str
    """Identity of the run; empty for a shipped directory."""
    dates: tuple[str, ...]
    measuring_s: float | None
    """Seconds of the machine that measuring took."""
    profile: Mapping[str, str]
    speedup: float
    """Geometric mean over all keys of what a job here gains."""
    speedup_with_all_schedules: float
    shapes: tuple[ShapeFigures, ...]
    """The communicator shapes, in the order of the keys; empty where there is one."""
    keys: tuple[KeyFigures, ...]
    """Keys whose entries hold wherever ranks sit."""
    placed: tuple[KeyFigures, ...]
    """Entries that hold for some communicators of a shape, and come before those of the shape."""
    step: StepDocument | None
    """The gain of a step of the workload that was tuned; None where options named the keys."""
    remarks: tuple[str, ...]
    """Sentences on gains, caveats, profile and cost."""

    @property
    def all_keys(self) -> tuple[KeyFigures, ...]:
        """The keys, then the entries by where ranks sit."""
        return (*self.keys, *self.placed)


def table_figures(found: ReportedTable, samples: Contents | None) -> TableFigures:
    """Return the figures of a table.

    Args:
        found: The table.
        samples: The measurements of its run, if the place has them.
    """
    known = keys_of(found, samples)
    keys = tuple(key for key in known if not key.placement)
    provenance = found.provenance
    source = samples.source if samples is not None else None
    if provenance is None and source is not None:
        provenance = source.provenance
    version = None if provenance is None else provenance.nccl_version
    report = found.report
    return TableFigures(
        name=found.name,
        shipped=report is None,
        topology=found.table.topology_name,
        fingerprint=found.table.fingerprint,
        gpu_models=found.table.gpu_models,
        times=found.evidence,
        backend=_backend(found),
        replayed=_is_replayed(found),
        recorded_at="" if report is None else report.recorded_at,
        conditions=() if report is None else tuple(report.laboratory.conditions()),
        nccl_version=None if version is None else str(version),
        tuccl_version=None if provenance is None else provenance.tuccl_version,
        details="" if provenance is None else provenance.details,
        run=found.identity,
        dates=found.dates,
        measuring_s=None if report is None else report.measuring_s,
        profile=dict(found.table.profile),
        speedup=geometric_mean([key.speedup for key in keys]),
        speedup_with_all_schedules=geometric_mean(
            [key.speedup if key.schedule_speedup is None else key.schedule_speedup for key in keys]
        ),
        shapes=_shapes(keys),
        keys=keys,
        placed=tuple(key for key in known if key.placement),
        step=found.step,
        remarks=_remarks(found, keys),
    )


def _shapes(keys: tuple[KeyFigures, ...]) -> tuple[ShapeFigures, ...]:
    by_shape: dict[Shape, list[KeyFigures]] = {}
    for key in keys:
        by_shape.setdefault(key.shape, []).append(key)
    if len(by_shape) < 2:
        return ()
    return tuple(
        ShapeFigures(
            own[0].shape_name, shape, len(own), geometric_mean([key.speedup for key in own])
        )
        for shape, own in by_shape.items()
    )


def geometric_mean(ratios: list[float]) -> float:
    """Return the geometric mean, 1 of nothing."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else 1.0


def _backend(found: ReportedTable) -> str:
    if found.report is not None:
        return found.report.source
    provenance = found.provenance
    return "" if provenance is None else provenance.backend


def _is_replayed(found: ReportedTable) -> bool:
    if found.report is not None:
        return found.report.recorded_backend is not None
    return found.provenance is not None and found.provenance.replayed


def _remarks(found: ReportedTable, keys: tuple[KeyFigures, ...]) -> tuple[str, ...]:
    if found.report is not None:
        gains = job_gains(found.table, found.report, has_executor=found.has_executor)
        return tuple(summary_lines(found.table, found.report, gains))
    remarks = [
        (
            f"a shipped directory holds {count_of(len(keys), 'key')} with an entry: keys left to "
            "NCCL, the search and the machine are in the workspace that it was shipped from"
        )
    ]
    if found.evidence.caveat:
        remarks.append(found.evidence.caveat)
    remarks += placed_entries_lines(found.table)
    obstacles = dict.fromkeys(key.obstacle for key in keys if key.obstacle is not None)
    remarks += [obstacle.sentence for obstacle in obstacles]
    unknown = sum(key.runner is Runner.PROFILE for key in keys)
    if unknown:
        remarks.append(
            f"{count_of(unknown, 'key')} without a setting of NCCL's count as no gain: their time "
            "under the process profile is not in the directory"
        )
    return tuple(remarks)
