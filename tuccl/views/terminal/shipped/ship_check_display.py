"""The verdicts of several hosts on a shipped directory, on standard output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from probes.inputs.printable import printable
from tuccl.reports.documents.doctor import CheckedHost, DoctorFinding, ShipCheckDocument
from tuccl.views.terminal.display import print_lines
from tuccl.views.terminal.json_output import print_document
from tuccl.words.counts import count_of

_LONGEST = 1000
_MOST_NAMED = 5


def print_check(directory: Path, hosts: Sequence[CheckedHost], as_json: bool) -> bool:
    """Print what the hosts answered; return whether jobs on them would load one table."""
    checked = check_document(directory, hosts)
    if as_json:
        print_document(checked)
    else:
        print_lines(check_lines(checked))
    return checked.loads


def check_document(directory: Path, hosts: Sequence[CheckedHost]) -> ShipCheckDocument:
    """Return the verdicts as the document of `tuccl ship --check --json`."""
    differences = [
        *_differences("tables", {host.host: _table(host) for host in hosts}),
        *_differences("NCCLs", {host.host: _nccl(host) for host in hosts}),
    ]
    answered = all(host.diagnosis is not None and host.diagnosis.loads for host in hosts)
    return ShipCheckDocument(
        directory=str(directory),
        loads=answered and not differences,
        disagreements=differences,
        warnings=list(_clocks(hosts)),
        hosts=list(hosts),
    )


def _table(host: CheckedHost) -> str:
    return "" if host.diagnosis is None else host.diagnosis.bundle_crc or ""


def _nccl(host: CheckedHost) -> str:
    nccl = None if host.diagnosis is None else host.diagnosis.nccl
    return "" if nccl is None else nccl.version


def _differences(subject: str, values: dict[str, str]) -> Iterator[str]:
    """Yield a sentence where hosts have different values; those without one do not count."""
    by_value: dict[str, list[str]] = {}
    for host, value in values.items():
        if value:
            by_value.setdefault(value, []).append(host)
    if len(by_value) > 1:
        listed = "; ".join(f"{value} on {_named(hosts)}" for value, hosts in by_value.items())
        yield f"the hosts have different {subject}: {listed}"


def _clocks(hosts: Sequence[CheckedHost]) -> Iterator[str]:
    """Yield a sentence for each host whose clock is not that of the host that asks."""
    for host in hosts:
        if host.clock_ahead_s:
            way = "ahead of" if host.clock_ahead_s > 0 else "behind"
            yield (
                f"{host.host}'s clock is {abs(host.clock_ahead_s):.0f} s {way} this host's: times "
                "in histories and logs mislead; set it, as by chronyc makestep"
            )


def _named(hosts: Sequence[str]) -> str:
    more = len(hosts) - _MOST_NAMED
    return ", ".join(hosts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def check_lines(checked: ShipCheckDocument) -> Iterator[str]:
    """Yield a line for each host, its warnings and errors below it, and the verdict."""
    for host in checked.hosts:
        name = printable(host.host)
        if host.diagnosis is None:
            yield f"{name}: not known: {printable(host.failure, _LONGEST)}"
            continue
        verdict = "would load" if host.diagnosis.loads else "would not load"
        yield f"{name}: {verdict} the table {_table(host)}".rstrip()
        yield from (
            line
            for finding in host.diagnosis.findings
            if finding.severity in {"warning", "error"}
            for line in _finding_lines(finding)
        )
    yield from (printable(line, _LONGEST) for line in (*checked.warnings, *checked.disagreements))
    hosts = count_of(len(checked.hosts), "host")
    if checked.loads:
        yield f"jobs on {hosts} would load one table"
    else:
        yield f"jobs on these {hosts} would not all load one table: a job can hang where some do"


def _finding_lines(finding: DoctorFinding) -> Iterator[str]:
    yield f"  {finding.severity:<7}  {finding.check}: {printable(finding.text, _LONGEST)}"
    if finding.mend:
        yield f"  {'':<7}    mend: {printable(finding.mend, _LONGEST)}"
