"""`diagnose`: all checks of a host and a job, and the verdict whether the job loads its table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuccl.measuring.workers.cores import own_cores
from tuccl.shipping.doctor.findings import Finding, Severity
from tuccl.shipping.doctor.host_checks import (
    check_cores,
    check_direct_access,
    check_machine,
    check_shared_memory,
)
from tuccl.shipping.doctor.job_view import JobView, job_environment, view_job
from tuccl.shipping.doctor.library_checks import (
    check_c_library,
    check_plugin,
    check_preload,
    check_version,
    find_job_nccl,
)
from tuccl.shipping.doctor.table_checks import (
    check_clock,
    check_directory,
    check_permissions,
    check_table,
)
from tuccl.shipping.doctor.variable_checks import check_configuration, check_variables
from tuccl.shipping.shipped_view import ShippedView, view_shipped


@dataclass(frozen=True)
class Diagnosis:
    """Findings for a job that starts here."""

    directory: Path | None
    """Shipped directory that was named; None: the environment was looked at as it is."""
    job: JobView
    findings: tuple[Finding, ...]

    @property
    def loads(self) -> bool:
        """Whether the job would load its table, and follow it."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def diagnose(directory: Path | None, environment: Mapping[str, str] = os.environ) -> Diagnosis:
    """Check whether a job that starts here would load its table.

    Args:
        directory: Shipped directory whose `tuccl.env` the job sources; None: the environment is
            the job's as it is.
        environment: Environment of this process.

    Raises:
        UsageError: The directory is none of `tuccl ship`, or its bundle cannot be used.
    """
    view = None if directory is None else view_shipped(directory)
    job = view_job(job_environment(directory, environment))
    nccl, found = find_job_nccl(job.environment)
    job = replace(job, nccl=nccl)
    return Diagnosis(directory, job, (*found, *_findings(view, job)))


def _findings(view: ShippedView | None, job: JobView) -> Iterator[Finding]:
    yield from check_version(job)
    yield from check_table(job)
    if view is not None:
        yield from check_directory(view)
        yield from check_clock(view)
    yield from check_plugin(job)
    yield from check_c_library(job)
    yield from check_preload(job)
    yield from check_variables(job)
    yield from check_configuration(job)
    yield from check_permissions(job)
    yield from check_shared_memory()
    if job.bundle is not None:
        yield from check_machine(job.bundle, job.environment)
        yield from check_cores(job.bundle, own_cores(), os.cpu_count())
    yield from check_direct_access()
