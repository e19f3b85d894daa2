"""`watch`: all checks of this host against a shipped table, and their verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from lookup_tables.table import Shape
from probes.files.read import read_topology
from probes.nvidia.gpu_settings import GpuStates, read_gpu_states
from probes.topology.graph import Topology
from tuccl.errors import MachineError, MeasurementError, UnusableBundleError
from tuccl.measuring.engines.job_processes import Contender
from tuccl.measuring.engines.nccl_environment import check_environment, count_gpus
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE
from tuccl.measuring.workers.congestion import congestion_control
from tuccl.quantities import count_of
from tuccl.reports.evidence import Evidence, evidence_of
from tuccl.reports.host_record import probe_structure
from tuccl.reports.json_form import member
from tuccl.reports.keys import frame_of
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import read_shipped_table
from tuccl.shipping.bench.surroundings import without_table
from tuccl.shipping.doctor.findings import Finding, Severity, error, note, ok, warning
from tuccl.shipping.doctor.job_view import JobView, view_job
from tuccl.shipping.doctor.library_checks import check_version, find_job_nccl
from tuccl.shipping.doctor.table_checks import check_directory
from tuccl.shipping.manifest import read_manifest
from tuccl.shipping.shipped_directory import MACHINE_NAME, sourced_crc
from tuccl.shipping.shipped_view import ShippedView, view_shipped
from tuccl.shipping.sourcing import job_environment
from tuccl.shipping.watching.head_start import TABLE, HeadStart, conditions_of
from tuccl.shipping.watching.pair import Conditions, Pair
from tuccl.shipping.watching.setting_checks import (
    check_congestion,
    check_driver,
    check_gpus,
    check_variables,
)
from tuccl.shipping.watching.spot_keys import spot_keys
from tuccl.shipping.watching.spot_measurement import LIMIT_S, Spots
from tuccl.shipping.watching.spot_verdicts import Suspicion, WatchedKey, promise_of
from tuccl.shipping.watching.stopwatch import Phase, Stopwatch
from tuccl.shipping.watching.structure_checks import check_structure

if TYPE_CHECKING:
    import pandas as pd

MEASURED = "measured"
"""Name of the check by spot measurements."""
_RETUNE = (
    "see what else runs here, and the clocks under load; tuccl bench shows all keys, and "
    "tuccl init --workspace NEW tunes again"
)


@dataclass(frozen=True)
class WatchOptions:
    """Scope and time limit of a watch."""

    measure: bool = True
    limit_s: float = LIMIT_S
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    probe: Callable[[], Topology] = probe_structure
    """Probes this host without measurements."""
    gpu_states: Callable[[], GpuStates] = read_gpu_states
    """Reads the settings of this host's GPUs."""


@dataclass(frozen=True, slots=True)
class WatchResult:
    """`watch`: whether a host is still the one that a table was tuned for."""

    directory: Path
    bundle_crc: str
    topology: str
    """Name of the table's machine; empty: unknown."""
    host: str
    findings: tuple[Finding, ...]
    """Those with `warning` or `error` are changes; a `note` says what is unknown, or not
    compared."""
    unchecked: tuple[str, ...]
    """Reasons why a check could not be made."""
    keys: tuple[WatchedKey, ...]
    """Keys that were measured."""
    seconds: float
    """Time of the watch."""
    seconds_by_phase: Mapping[Phase, float]
    """The same by its phases."""

    @member
    def unchanged(self) -> bool:
        """Whether no change was found."""
        return not self.changes

    @member
    def complete(self) -> bool:
        """Whether every check could be made."""
        return not self.unchecked

    @property
    def changes(self) -> tuple[Finding, ...]:
        """The findings that are changes."""
        weights = (Severity.WARNING, Severity.ERROR)
        return tuple(each for each in self.findings if each.severity in weights)

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each key that was measured; see `frame_of`."""
        return frame_of(
            self.keys,
            promised=[key.promised.ratio for key in self.keys],
            recorded_stock_us=[key.recorded_stock_us for key in self.keys],
            recorded_table_us=[key.recorded_table_us for key in self.keys],
            suspicion=[key.suspicion for key in self.keys],
        )


def watch(directory: Path, options: WatchOptions, begun: HeadStart | None = None) -> WatchResult:
    """Check whether this host is the one that the table in a directory was tuned for.

    Args:
        directory: The directory.
        options: Scope and limits.
        begun: What has begun already, for the same directory and environment; the caller closes it.

    Raises:
        UsageError: The directory is none of `tuccl ship`.
    """
    begun = begun or HeadStart(options.gpu_states())
    stopwatch = begun.stopwatch
    try:
        view = view_shipped(directory)
    except UnusableBundleError as unusable:
        return _lost_table(directory, str(unusable), stopwatch)
    unchecked: list[str] = []
    job, found = _job(directory, options.environment)
    host = _host_findings(view, begun.states, options, unchecked)
    base = None if view.manifest is None else view.manifest.base
    variables = check_variables(without_table(job.environment), base)
    findings = [*check_directory(view), *found, *variables, *host]
    spots: tuple[WatchedKey, ...] = ()
    if options.measure:
        measuring = _Measuring(directory, view, job, begun, options.limit_s)
        try:
            reason = measuring.obstacle()
            spots = () if reason else measuring.spots()
            findings += [note(MEASURED, reason)] if reason else _spot_findings(spots)
        except MeasurementError as failure:
            unchecked.append(f"nothing could be measured: {failure}")
    stopwatch.end(Phase.CHECKING)
    return WatchResult(
        directory=view.directory,
        bundle_crc=f"{view.bundle.crc:08x}",
        topology=view.bundle.topology_name,
        host=gethostname(),
        findings=tuple(findings),
        unchecked=tuple(unchecked),
        keys=spots,
        seconds=sum(stopwatch.seconds.values()),
        seconds_by_phase=stopwatch.seconds,
    )


def _lost_table(directory: Path, problem: str, stopwatch: Stopwatch) -> WatchResult:
    """Return the result for a directory whose bundle cannot be used: a change, and no more."""
    manifest = read_manifest(directory)
    stopwatch.end(Phase.CHECKING)
    return WatchResult(
        directory=directory,
        bundle_crc=sourced_crc(directory),
        topology="" if manifest is None else manifest.topology_name,
        host=gethostname(),
        findings=(error("directory", problem, f"tuccl ship {directory}"),),
        unchecked=("this host was not compared: its jobs find no table",),
        keys=(),
        seconds=sum(stopwatch.seconds.values()),
        seconds_by_phase=stopwatch.seconds,
    )


def _job(directory: Path, environment: Mapping[str, str]) -> tuple[JobView, list[Finding]]:
    """Return the job that would start here with its NCCL, and findings on that."""
    job = view_job(job_environment(directory, environment))
    nccl, found = find_job_nccl(job.environment)
    job = replace(job, nccl=nccl)
    return job, [*found, *check_version(job)]


def _host_findings(
    view: ShippedView, states: GpuStates, options: WatchOptions, unchecked: list[str]
) -> Iterator[Finding]:
    record = None if view.manifest is None else view.manifest.host
    nodes = max((entry.key.shape.nodes for entry in view.bundle.all_entries), default=1)
    lost = record is not None and bool(record.gpus) and bool(states.problem)
    yield from check_gpus(record, states)
    yield from check_driver(record, states.driver)
    yield from check_congestion(record, congestion_control(), across_hosts=nodes > 1)
    if lost:
        return  # All links would be told as missing.
    try:
        yield from check_structure(record, _machine(view), options.probe())
    except MachineError as failure:
        unchecked.append(f"this host could not be probed: {failure}")


def _machine(view: ShippedView) -> Topology | None:
    """Return the machine of the table; None where the directory does not tell it."""
    listed = () if view.manifest is None else view.manifest.files
    if not any(file.path == MACHINE_NAME for file in listed):
        return None
    try:
        return read_topology(view.directory / MACHINE_NAME)
    except (OSError, MachineError):
        return None  # `check_directory` tells that the file is not as it was.


@dataclass(frozen=True)
class _Measuring:
    """The spot measurements of a watch."""

    directory: Path
    view: ShippedView
    job: JobView
    begun: HeadStart
    limit_s: float

    def obstacle(self) -> str:
        """Return why nothing is measured although nothing is wrong; empty: it is measured."""
        table, manifest = self.view.table, self.view.manifest
        conditions = self.begun.states.conditions
        busy = [str(gpu) for gpu, each in enumerate(conditions) if each.processes]
        if table is None or evidence_of(table, "") is not Evidence.MEASURED:
            return "nothing is measured, since the table's own times were not"
        if manifest is None or manifest.graphs is None:
            return "nothing is measured, since the manifest does not say how calls were timed"
        if busy:
            return f"nothing is measured, since processes use GPU {','.join(busy)}"
        return ""

    def spots(self) -> tuple[WatchedKey, ...]:
        """Measure the keys that fit the GPUs here; none: no key does.

        Raises:
            MeasurementError: A job cannot run.
        """
        manifest, failure = self.view.manifest, self.begun.failure
        base = None if manifest is None else manifest.base
        check_environment(without_table(self.job.environment), base)
        if failure is not None:
            raise failure
        table = read_shipped_table(self.directory, TABLE)
        conditions = self.begun.conditions or self._conditions(table)
        whole = Shape(conditions.gpus, 1, conditions.gpus)
        found = {task: promise_of(table, task) for task in spot_keys(table, whole)}
        promises = {task: promise for task, promise in found.items() if promise is not None}
        if not promises:
            return ()
        timing = Timing(
            graph=manifest is None or manifest.graphs is not False,
            in_place=manifest is not None and bool(manifest.in_place),
            computations=() if manifest is None else manifest.computations,
        )
        spots = Spots(promises, timing, self.limit_s, self.begun.stopwatch)
        self.begun.stopwatch.end(Phase.CHECKING)
        return spots.measure(self.begun.pair or Pair(conditions), conditions)

    def _conditions(self, table: Contender) -> Conditions:
        job = dict(self.job.environment)
        if self.job.nccl is not None:
            job[LIBRARY_VARIABLE] = str(self.job.nccl.path)
        return conditions_of(self.begun.states, job, table, count_gpus())


def _spot_findings(spots: tuple[WatchedKey, ...]) -> list[Finding]:
    if not spots:
        text = "nothing is measured, since no entry with a stated gain is for the GPUs here"
        return [note(MEASURED, text)]
    found = [_slow(spot) for spot in spots if spot.suspicion is not None]
    return found or [ok(MEASURED, f"{count_of(len(spots), 'key')} as fast as the table says")]


def _slow(spot: WatchedKey) -> Finding:
    key = spot.described
    if spot.suspicion is Suspicion.SLOWER_THAN_PROMISED:
        text = (
            f"{key} is {spot.gain.ratio:.3f}x as fast as stock NCCL, at most "
            f"{spot.gain.high:.3f}x; the table promises {spot.promised.ratio:.3f}x"
        )
    else:
        text = (
            f"{key} takes {spot.table_us:.4g} us, stock NCCL {spot.stock_us:.4g} us; they took "
            f"{spot.recorded_table_us:.4g} and {spot.recorded_stock_us:.4g} us"
        )
    return warning(MEASURED, text, _RETUNE)
