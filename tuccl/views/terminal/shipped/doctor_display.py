"""A diagnosis on standard output: a row per finding, its remedy below it, the verdict last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from probes.inputs.printable import printable
from tuccl.reports.documents.doctor import DoctorDocument, DoctorFinding, DoctorNccl
from tuccl.shipping.doctor.diagnosis import Diagnosis
from tuccl.shipping.doctor.findings import Severity
from tuccl.views.terminal.display import print_lines
from tuccl.words.counts import count_of

_LONGEST = 1000


def doctor_document(found: Diagnosis) -> DoctorDocument:
    """Return a diagnosis as the document of `tuccl doctor --json`."""
    nccl, bundle = found.job.nccl, found.job.bundle
    return DoctorDocument(
        directory=None if found.directory is None else str(found.directory),
        loads=found.loads,
        bundle_crc=None if bundle is None else f"{bundle.crc:08x}",
        nccl=None
        if nccl is None
        else DoctorNccl(version=nccl.version_text, path=str(nccl.path), source=nccl.source),
        findings=[
            DoctorFinding(
                check=each.check, severity=each.severity.value, text=each.text, mend=each.mend
            )
            for each in found.findings
        ],
        time_s=time.time(),
    )


def print_diagnosis(found: Diagnosis) -> None:
    """Print every finding, worst last, then whether a job would load the table."""
    print_lines(diagnosis_lines(found))


def diagnosis_lines(found: Diagnosis) -> Iterator[str]:
    """Yield the lines of a diagnosis."""
    order = list(Severity)
    for each in sorted(found.findings, key=lambda finding: order.index(finding.severity)):
        yield f"{each.severity.value:<7}  {each.check}: {printable(each.text, _LONGEST)}"
        if each.mend:
            yield f"{'':<7}    mend: {printable(each.mend, _LONGEST)}"
    counts = Counter(each.severity for each in found.findings)
    if found.loads:
        warned = counts[Severity.WARNING]
        yield "a job here would load the table" + (
            f", with {count_of(warned, 'warning')}" if warned else ""
        )
    else:
        errors = count_of(counts[Severity.ERROR], "error")
        yield f"a job here would not load the table, or not follow it: {errors}"
