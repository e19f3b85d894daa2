"""The command `tuccl doctor`: would a job that starts here load its table, and why not."""

from __future__ import annotations

from pathlib import Path

from tuccl.errors import ExitCode
from tuccl.shipping.doctor.diagnosis import diagnose
from tuccl.views.terminal.display import print_lines
from tuccl.views.terminal.findings_display import diagnosis_lines
from tuccl.views.terminal.json_output import print_document
from tuccl.workspace.atomic_file import absolute


def doctor(directory: Path | None, as_json: bool) -> int:
    """Run `tuccl doctor [DIR]`."""
    found = diagnose(None if directory is None else absolute(directory))
    if as_json:
        print_document(found)
    else:
        print_lines(diagnosis_lines(found))
    return ExitCode.OK if found.loads else ExitCode.FINDING
