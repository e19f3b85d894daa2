"""The versions of a shipped directory on standard output: a row each, then their problems."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from probes.inputs.printable import printable
from tuccl.reports.documents.shipped import ShownMachine
from tuccl.reports.documents.versions import HistoryDocument, KeptVersion
from tuccl.shipping.versions import Version
from tuccl.views.terminal.display import print_lines, standard_output
from tuccl.words.counts import count_of


def history_document(directory: Path, crc: str, versions: tuple[Version, ...]) -> HistoryDocument:
    """Return the document of `tuccl history`.

    Args:
        directory: The directory.
        crc: Checksum of the table that jobs load.
        versions: Versions that it keeps.
    """
    return HistoryDocument(
        directory=str(directory),
        bundle_crc=crc,
        versions=[_kept(version, is_current=version.crc == crc) for version in versions],
    )


def _kept(version: Version, *, is_current: bool) -> KeptVersion:
    manifest, size = version.manifest, version.manifest.machine
    return KeptVersion(
        version=version.number,
        bundle_crc=version.crc,
        current=is_current,
        shipped_at=version.origin.shipped_at,
        run=version.origin.run,
        tuccl=manifest.tuccl,
        topology=manifest.topology_name,
        fingerprint=manifest.fingerprint,
        machine=None if size is None else ShownMachine(gpus=size.gpus, nodes=size.nodes),
        nccl=manifest.nccl,
        times=manifest.times,
        tuned_from=manifest.tuned_from,
        tuned_to=manifest.tuned_to,
        gain=version.origin.gain,
        profile=manifest.profile,
        shapes=manifest.shapes,
        parts=manifest.parts,
        executor=manifest.executor,
        folder=str(version.folder),
        problems=list(version.problems()),
    )


def print_history(shown: HistoryDocument) -> None:
    """Print a row for each version, the newest last, then what is wrong with their files."""
    if shown.versions:
        standard_output().print(_rows(shown), crop=False)
    print_lines(
        f"problem: version {version.version}: {problem}"
        for version in shown.versions
        for problem in version.problems
    )


def _rows(shown: HistoryDocument) -> RichTable:
    title = f"{printable(shown.directory)}: tables that it keeps; jobs load the one with a star"
    rows = RichTable(
        title=Text(title), title_justify="left", header_style="bold", box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )  # fmt: skip
    rows.add_column("version", justify="right", no_wrap=True)
    for heading in ("table", "shipped", "machine", "NCCL"):
        rows.add_column(heading, no_wrap=True)
    rows.add_column("gain", justify="right", no_wrap=True)
    rows.add_column("times", overflow="fold")
    rows.add_column("run", overflow="fold")
    for version in shown.versions:
        rows.add_row(
            f"{'* ' if version.current else ''}{version.version}",
            version.bundle_crc,
            printable(version.shipped_at),
            _machine(version),
            printable(version.nccl or "-"),
            "-" if version.gain is None else f"{version.gain:.3f}x",
            _times(version),
            "-" if version.run is None else printable(Path(version.run).name),
        )
    return rows


def _machine(version: KeptVersion) -> str:
    size = version.machine
    extent = "" if size is None else f", {count_of(size.gpus, 'GPU')}"
    return f"{printable(version.topology)}{extent} ({printable(version.fingerprint, 8)})"


def _times(version: KeptVersion) -> str:
    """Return `measured: 12 entries of all_gather, all_reduce`."""
    entries = sum(part.entries for part in version.parts)
    operations = ", ".join(sorted({part.operation.value for part in version.parts}))
    return f"{version.times.value}: {entries} of {operations}" if entries else version.times.value
