"""A watch on standard output: a line for each change, nothing where nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from socket import gethostname

from probes.inputs.printable import printable
from tuccl.reports.documents.watch import WatchDocument, WatchedKey, WatchFinding
from tuccl.shipping.doctor.findings import Finding
from tuccl.shipping.watching.spot_verdicts import SpotVerdict
from tuccl.shipping.watching.watch import Watched

_LONGEST = 1000


def watch_document(found: Watched) -> WatchDocument:
    """Return a watch as the document of `tuccl watch --json`."""
    return WatchDocument(
        directory=str(found.view.directory),
        bundle_crc=f"{found.view.bundle.crc:08x}",
        topology=found.view.bundle.topology_name,
        host=gethostname(),
        unchanged=not found.changes,
        complete=not found.unchecked,
        findings=[
            WatchFinding(
                check=each.check,
                severity=each.severity.value,
                text=each.text,
                mend=each.mend,
            )
            for each in found.findings
        ],
        unchecked=list(found.unchecked),
        keys=[_key(spot) for spot in found.spots],
        seconds=found.seconds,
    )


def _key(spot: SpotVerdict) -> WatchedKey:
    return WatchedKey(
        operation=spot.task.operation,
        size_bytes=spot.task.size_bytes,
        shape=spot.task.shape,
        placement=spot.promise.like or None,
        stock_us=spot.stock_us,
        table_us=spot.table_us,
        gain=spot.gain,
        gain_high=spot.high,
        promised=spot.promise.gain,
        recorded_stock_us=spot.promise.stock_us,
        recorded_table_us=spot.promise.time_us,
        suspicion=None if spot.suspicion is None else spot.suspicion.value,
    )


def watch_lines(found: Watched, *, verbose: bool) -> Iterator[str]:
    """Yield the lines of a watch: changes, checks that could not be made, with `verbose` all."""
    for each in found.findings if verbose else found.changes:
        word = "changed" if each in found.changes else each.severity.value
        yield f"{word:<9}  {_line(each)}"
    for reason in found.unchecked:
        yield f"unchecked  {printable(reason, _LONGEST)}"
    if not verbose:
        return
    for spot in found.spots:
        yield (
            f"measured   {printable(spot.name)}: {spot.table_us:.4g} us, stock NCCL "
            f"{spot.stock_us:.4g} us, {spot.gain:.3f}x ({spot.promise.gain:.3f}x promised)"
        )
    changes, open_checks = len(found.changes), len(found.unchecked)
    yield f"{changes} changed, {open_checks} unchecked, {found.seconds:.1f} s"


def _line(finding: Finding) -> str:
    mend = f"; mend: {finding.mend}" if finding.mend else ""
    return printable(f"{finding.check}: {finding.text}{mend}", _LONGEST)
