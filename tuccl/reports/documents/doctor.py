"""The JSON documents of `doctor` and `ship --check`."""

from __future__ import annotations

from typing import Literal

from tuccl.reports.documents.document import SCHEMA_VERSION, Document


class DoctorNccl(Document):
    """The NCCL that a job would load."""

    version: str
    path: str
    source: str
    """Where it was found, in words."""


class DoctorFinding(Document):
    """A finding of one check."""

    check: str
    severity: Literal["ok", "note", "warning", "error"]
    text: str
    mend: str
    """The line that mends it; empty where nothing is to be done."""


class DoctorDocument(Document):
    """`doctor`: whether a job that starts here would load its table."""

    schema_version: Literal[8] = SCHEMA_VERSION
    directory: str | None
    """Shipped directory that was named; None: the environment was looked at as it is."""
    loads: bool
    """Whether the job would load its table and follow it: no finding is an error."""
    bundle_crc: str | None
    """Sum of the table; None: there is none that can be read."""
    nccl: DoctorNccl | None
    """None: which NCCL the job loads is not known."""
    findings: list[DoctorFinding]
    time_s: float | None = None
    """This host's clock at the end, in seconds since 1970; None from earlier releases."""


class CheckedHost(Document):
    """A host of `ship --check`."""

    host: str
    failure: str
    """Why there is no diagnosis; empty where there is one."""
    diagnosis: DoctorDocument | None
    clock_ahead_s: float = 0.0
    """Seconds that its clock is ahead of that of the host that asks, at least; 0 below 5 s."""


class ShipCheckDocument(Document):
    """`ship --check`: whether jobs on all hosts would load the same table."""

    schema_version: Literal[8] = SCHEMA_VERSION
    directory: str
    loads: bool
    """Whether all hosts answered, would load the table, and have the same one and one NCCL."""
    disagreements: list[str]
    """Differences between the hosts that can hang a job, one sentence each."""
    warnings: list[str]
    """Differences that cannot, one sentence each."""
    hosts: list[CheckedHost]
