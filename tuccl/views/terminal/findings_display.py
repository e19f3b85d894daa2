"""Findings on standard output: of `doctor`, of `ship --check` on several hosts, and of `watch`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.inputs.messages import printable
from tuccl.quantities import count_of
from tuccl.shipping.doctor.diagnosis import Diagnosis
from tuccl.shipping.doctor.findings import Finding, Severity
from tuccl.shipping.doctor.ship_check import ShipCheck
from tuccl.shipping.watching.watch import WatchResult

_LONGEST = 1000


def diagnosis_lines(found: Diagnosis) -> Iterator[str]:
    """Yield every finding, worst last, then whether the job loads the table."""
    order = list(Severity)
    for each in sorted(found.findings, key=lambda finding: order.index(finding.severity)):
        yield from _finding_lines(each)
    counts = Counter(each.severity for each in found.findings)
    if found.process is None:
        job, loads, does_not = "a job here", "would load", "would not load the table, or not"
    else:
        job, loads, does_not = (
            f"process {found.process}",
            "follows",
            "has not loaded the table, or does not",
        )
    if found.loads:
        warned = counts[Severity.WARNING]
        yield f"{job} {loads} the table" + (
            f", with {count_of(warned, 'warning')}" if warned else ""
        )
    else:
        errors = count_of(counts[Severity.ERROR], "error")
        yield f"{job} {does_not} follow it: {errors}"


def check_lines(checked: ShipCheck) -> Iterator[str]:
    """Yield a line for each host, its warnings and errors below it, and the verdict."""
    for host in checked.hosts:
        name = printable(host.host)
        if host.diagnosis is None:
            yield f"{name}: not known: {printable(host.failure, _LONGEST)}"
            continue
        verdict = "would load" if host.diagnosis.loads else "would not load"
        yield f"{name}: {verdict} the table {host.table}".rstrip()
        for finding in host.diagnosis.findings:
            if finding.severity in {Severity.WARNING, Severity.ERROR}:
                yield from (f"  {line}" for line in _finding_lines(finding))
    yield from (printable(line, _LONGEST) for line in (*checked.warnings, *checked.disagreements))
    hosts = count_of(len(checked.hosts), "host")
    if checked.loads:
        yield f"jobs on {hosts} would load one table"
    else:
        yield f"jobs on these {hosts} would not all load one table: a job can hang where some do"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity.value:<7}  {finding.check}: {printable(finding.text, _LONGEST)}"
    if finding.mend:
        yield f"{'':<7}    mend: {printable(finding.mend, _LONGEST)}"


def watch_lines(found: WatchResult, *, verbose: bool) -> Iterator[str]:
    """Yield the lines of a watch: changes, checks that could not be made, with `verbose` all."""
    changes = found.changes
    for each in found.findings if verbose else changes:
        word = "changed" if each in changes else each.severity.value
        mend = f"; mend: {each.mend}" if each.mend else ""
        yield f"{word:<9}  {printable(f'{each.check}: {each.text}{mend}', _LONGEST)}"
    for reason in found.unchecked:
        yield f"unchecked  {printable(reason, _LONGEST)}"
    if not verbose:
        return
    for key in found.keys:
        yield (
            f"measured   {printable(key.described)}: {key.table_us:.4g} us, stock NCCL "
            f"{key.stock_us:.4g} us, {key.gain.ratio:.3f}x ({key.promised.ratio:.3f}x promised)"
        )
    phases = ", ".join(f"{phase} {took:.1f}" for phase, took in found.seconds_by_phase.items())
    counts = f"{len(changes)} changed, {len(found.unchecked)} unchecked"
    yield f"{counts}, {found.seconds:.1f} s ({phases})"
