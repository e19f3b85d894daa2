"""All checks of a host and a job, or a running process: whether it loads its table."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuccl.crew.cores import own_cores
from tuccl.errors import UnusableBundleError
from tuccl.measuring.engines.nccl_environment import (
    configuration_files,
    configuration_lines,
    site_variables,
)
from tuccl.measuring.engines.nccl_variables import OVERRULING, PER_PROCESS
from tuccl.reports.json_form import member
from tuccl.shipping.doctor.findings import Finding, Severity, error, note, ok, warning
from tuccl.shipping.doctor.host_checks import (
    check_cores,
    check_direct_access,
    check_machine,
    check_nvlinks,
    check_shared_memory,
)
from tuccl.shipping.doctor.job_view import JobView, view_job
from tuccl.shipping.doctor.library_checks import (
    check_c_library,
    check_plugin,
    check_preload,
    check_version,
    find_job_nccl,
)
from tuccl.shipping.doctor.process_counts import ProcessCounts, read_counts
from tuccl.shipping.doctor.running_process import (
    check_loaded_plugin,
    check_ways,
    find_loaded_nccl,
    read_process,
)
from tuccl.shipping.doctor.table_checks import (
    check_clock,
    check_directory,
    check_permissions,
    check_table,
)
from tuccl.shipping.manifest import read_manifest
from tuccl.shipping.shipped_view import ShippedView, view_shipped
from tuccl.shipping.sourcing import job_environment

_OF_INTEREST = ("NCCL_", "TUCCL_")


def check_variables(job: JobView, base: Mapping[str, str] | None) -> Iterator[Finding]:
    """Check for variables that overrule the table, or differ from what it was measured with.

    Args:
        job: The job.
        base: Variables that every process had, stock NCCL's too; None: unknown.
    """
    profile = {} if job.bundle is None else {**(base or {}), **job.process_profile}
    of_site = site_variables(job.environment)
    known = [*profile, *PER_PROCESS, *(() if base is None else of_site)]
    found = [
        *(_overruling(job, name) for name in OVERRULING if job.value(name)),
        *(
            finding
            for name in dict.fromkeys(known)
            if name not in OVERRULING
            if (finding := _profile_finding(job, name, profile.get(name))) is not None
        ),
    ]
    if job.bundle is not None:
        found += _not_compared(name for name in of_site if name not in {*known, *OVERRULING})
    yield from found
    if not found and job.bundle is not None:
        also = "" if base is None else "; NCCL's others are as they were measured with"
        said = "no variable overrules the table, and its process profile is set"
        yield ok("variables", f"{said}{also}")


def _overruling(job: JobView, name: str) -> Finding:
    return error(
        "variables",
        f"{name}={job.value(name):.60} is set in {job.place(name)}, which overrules any table",
        _unset(job, name),
    )


def _profile_finding(job: JobView, name: str, wanted: str | None) -> Finding | None:
    """Return a finding on a variable that NCCL reads once per process; None: it is right."""
    set_to = job.value(name)
    if set_to == (wanted or ""):
        return None
    if not set_to:
        return warning(
            "variables",
            f"{name} is not set, and the table was measured with {name}={wanted}",
            f"export {name}={wanted}",
        )
    measured = f"with {name}={wanted}" if wanted is not None else "without it"
    mend = f"export {name}={wanted}" if wanted is not None else _unset(job, name)
    return warning(
        "variables",
        f"{name}={set_to:.60} is set in {job.place(name)}, and the table was measured {measured}",
        mend,
    )


def _not_compared(names: Iterable[str]) -> Iterator[Finding]:
    """Yield a note on the variables that nothing says the table was measured with or without."""
    listed = sorted(names)
    if listed:
        yield note(
            "variables",
            f"{', '.join(listed)}: set here, and not compared, because the table does not say "
            "which variables it was measured with (a model knows none)",
        )


def _unset(job: JobView, name: str) -> str:
    if name in job.environment:
        return f"unset {name}"
    return f"remove the line {name}= from {job.place(name)}"


def check_configuration(job: JobView) -> Iterator[Finding]:
    """Check the files from which NCCL takes variables that the environment lacks."""
    named = job.environment.get("NCCL_CONF_FILE")
    if named and not Path(named).is_file():
        yield warning(
            "conf files",
            f"NCCL_CONF_FILE names {named}, which is not a file: NCCL continues without it",
            "unset NCCL_CONF_FILE, or ship the form again: tuccl ship DIR --to nccl-conf",
        )
    for path in configuration_files(job.environment):
        names = [name for name, _ in configuration_lines(path) if name.startswith(_OF_INTEREST)]
        if names:
            used = [name for name in names if job.place(name) == str(path)]
            what = f"gives {', '.join(used)}" if used else "is overruled by the environment"
            yield note("conf files", f"{path} {what}")


@dataclass(frozen=True, slots=True)
class LoadedNccl:
    """The NCCL that a job would load."""

    version: str
    path: Path
    source: str
    """Where it was found, in words."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`doctor`: whether a job that starts here would load its table, or a process has."""

    directory: Path | None
    """Shipped directory that was named; None: the environment was looked at as it is."""
    process: int | None
    """Number of the running process that was examined; None: a job that would start here."""
    bundle_crc: str | None
    """Sum of the table; None: there is none that can be read."""
    nccl: LoadedNccl | None
    """None: which NCCL the job loads is not known."""
    findings: tuple[Finding, ...]
    counts: ProcessCounts | None
    """What the process's file of TUCCL_METRICS counts; None: it has none."""
    time_s: float
    """This host's clock at the end, in seconds since 1970."""

    @member
    def loads(self) -> bool:
        """Whether the job loads its table and follows it: no finding is an error."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def diagnose(directory: Path | None, environment: Mapping[str, str] = os.environ) -> Diagnosis:
    """Check whether a job that starts here would load its table.

    Args:
        directory: Shipped directory whose `tuccl.env` the job sources; None: the environment is
            the job's as it is.
        environment: Environment of this process.

    Raises:
        UsageError: The directory is none of `tuccl ship`.
    """
    try:
        view = None if directory is None else view_shipped(directory)
    except UnusableBundleError:
        view = None  # `check_table` reports it: the job would read the same bundle.
    job = view_job(job_environment(directory, environment))
    nccl, found = find_job_nccl(job.environment)
    job = replace(job, nccl=nccl)
    loading = (*check_plugin(job), *check_c_library(job), *check_preload(job))
    findings = (*found, *_findings(view, job, loading, own_cores()))
    return _diagnosis(job, findings, directory=directory)


def diagnose_process(number: int) -> Diagnosis:
    """Check whether a running process has loaded its table, and which of its calls it serves.

    Raises:
        UsageError: There is no such process, or it cannot be examined from here.
    """
    process = read_process(number)
    job = view_job(process.environment)
    nccl, found = find_loaded_nccl(process)
    job = replace(job, nccl=nccl, is_served=process.is_served)
    counts, counted = read_counts(process)
    entries = () if job.bundle is None else job.bundle.entries
    schedules = sum(entry.schedule is not None for entry in entries)
    loading = (*check_loaded_plugin(process, job), *check_ways(process, schedules))
    cores = frozenset(os.sched_getaffinity(number))
    findings = (*found, *_findings(None, job, (*loading, *counted), cores))
    return _diagnosis(job, findings, process=number, counts=counts)


def _diagnosis(
    job: JobView,
    findings: tuple[Finding, ...],
    directory: Path | None = None,
    process: int | None = None,
    counts: ProcessCounts | None = None,
) -> Diagnosis:
    nccl = job.nccl
    return Diagnosis(
        directory,
        process,
        None if job.bundle is None else f"{job.bundle.crc:08x}",
        None if nccl is None else LoadedNccl(nccl.version_text, Path(nccl.path), nccl.source),
        findings,
        counts,
        time.time(),
    )


def _base(view: ShippedView | None, job: JobView) -> Mapping[str, str] | None:
    """Return the variables that the table was measured with, from the manifest beside it."""
    manifest = None if view is None else view.manifest
    if view is None and job.bundle_path is not None:
        manifest = read_manifest(job.bundle_path.parent)
    return None if manifest is None else manifest.base


def _findings(
    view: ShippedView | None, job: JobView, loading: Iterable[Finding], cores: frozenset[int]
) -> Iterator[Finding]:
    yield from check_version(job)
    yield from check_table(job)
    if view is not None:
        yield from check_directory(view)
        yield from check_clock(view)
    yield from loading
    yield from check_variables(job, _base(view, job))
    yield from check_configuration(job)
    yield from check_permissions(job)
    yield from check_shared_memory()
    if job.bundle is not None:
        yield from check_machine(job.bundle, job.environment)
        yield from check_nvlinks(job.bundle, job.environment)
        if job.loads_executor:  # NCCL serves the calls of schedules else, on any cores.
            yield from check_cores(job.bundle, cores, os.cpu_count())
    yield from check_direct_access()
