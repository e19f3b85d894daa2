"""The command `tuccl export`: a table in forms that others read."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.errors import ExitCode, UsageError
from tuccl.options.output_file import check_output, require_replaceable
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_document
from tuccl.workspace.atomic_file import absolute, write_atomically
from tuccl.workspace.default_place import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from tuccl.views.page.place import ReportedTable

_TUNER_CSV, _THRESHOLDS = "tuner-csv", "thresholds"
_FORMS = {_TUNER_CSV: "nccl_tuner.conf", _THRESHOLDS: "all_reduce_thresholds.json"}
"""Files of the forms of `export`, where none is named."""


def export(
    place: Path | None,
    form: str,
    output: Path | None,
    root: Path,
    as_json: bool,
    against: Path | None = None,
) -> int:
    """Run `tuccl export`.

    Raises:
        UsageError: The form is unknown or lacks its times, the table has nothing that it can say,
            or the output is another file.
        InputFileError: The engine's times cannot be read.
    """
    from tuccl.views.page.place import read_place

    if form not in _FORMS:
        raise UsageError(f"--to {form!a:.40} is unknown: use {' or '.join(_FORMS)}")
    if (against is not None) != (form == _THRESHOLDS):
        raise UsageError(f"--against TIMES.csv goes with --to {_THRESHOLDS}, which needs it")
    if place is not None and root != DEFAULT_WORKSPACE:
        raise UsageError(f"name {place} or --workspace {root}, not both")
    target = Path(_FORMS[form]) if output is None else output
    check_output(target, "--output")
    found = read_place(root if place is None else place)
    if against is None:
        exported = _tuner_rows(found, target)
    else:
        exported = _thresholds(found, target, against)
    write_atomically(target, exported.text)
    notes = (*filter(None, [found.evidence.caveat]), *exported.notes)
    if as_json:
        print_document(Export(target, form, exported.rows, notes))
    else:
        print(target)  # noqa: T201 - the command's result
        for line in exported.said:
            display.say(line)
    display.say_notes(notes)
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class Export:
    """`export`: a table in a form for others' readers."""

    file: Path
    form: str
    """tuner-csv or thresholds."""
    rows: int
    """Rows of the CSV, or communicators with a threshold."""
    notes: tuple[str, ...]
    """Contents of the table that the form cannot hold, and reasons not to rely on it."""


@dataclass(frozen=True)
class _Exported:
    """The content of an export."""

    text: str
    rows: int
    said: tuple[str, ...]
    notes: tuple[str, ...]


def _tuner_rows(found: ReportedTable, target: Path) -> _Exported:
    from tuccl.shipping.exports.tuner_csv import MARK, tuner_csv

    require_replaceable(target, "--output", MARK.encode())
    exported = tuner_csv(found.table)
    if not exported.rows:
        reasons = "; ".join(exported.notes) or "it has no entries"
        raise UsageError(f"{found.name}: the table has no row for {_TUNER_CSV}: {reasons}")
    said = (
        f"{exported.rows} of {len(found.table.entries)} entries; a job reads it with: "
        f"NCCL_TUNER_CONFIG_FILE={shlex.quote(str(absolute(target)))}"
    )
    return _Exported(exported.text, exported.rows, (said,), exported.notes)


def _thresholds(found: ReportedTable, target: Path, against: Path) -> _Exported:
    from tuccl.reports.job_gains import job_gains
    from tuccl.shipping.exports.thresholds import MARK, thresholds, thresholds_text
    from tuccl.workloads.recordings.call_csv import CallCsvReader
    from tuccl.workloads.recordings.recording_file import RecordingFile

    require_replaceable(target, "--output", MARK.encode())
    if found.report is None:
        raise UsageError(
            f"{found.name}: a shipped directory lacks the times of calls that are left to NCCL; "
            "name the workspace that it was shipped from"
        )
    reader = CallCsvReader()
    with RecordingFile(against) as file:
        reader.read(file)
    own = reader.workload((str(against),), None)
    gains = job_gains(found.table, found.report, has_executor=False)
    borders = thresholds(gains, own)
    if not borders.found:
        reasons = "; ".join(borders.notes) or "it has no times (us_per_call) of all_reduce"
        raise UsageError(f"{against}: nothing to hold against the table: {reasons}")
    text = thresholds_text(borders, found.table.topology_name, found.table.fingerprint)
    said = tuple(each.sentence for each in borders.found)
    return _Exported(text, len(borders.found), said, borders.notes)
