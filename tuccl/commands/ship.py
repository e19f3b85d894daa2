"""The commands `tuccl ship` and `show`: a directory for jobs, written and read."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from tuccl.console import display
from tuccl.console.json_output import print_document
from tuccl.errors import ExitCode
from tuccl.shipping import shipment
from tuccl.shipping.forms import Form
from tuccl.shipping.shipped_view import view_shipped
from tuccl.workspace.atomic_file import absolute
from tuccl.workspace.runs import Workspace


def ship(
    directory: Path,
    root: Path,
    as_json: bool,
    force: bool = False,
    forms: Sequence[Form] = (),
    place: Path | None = None,
) -> int:
    """Run `tuccl ship DIR`."""
    shipped = shipment.ship(
        Workspace(root).current(), directory, force=force, forms=forms, place=place
    )
    if as_json:
        from tuccl.reports.json_documents import ShipDocument  # noqa: PLC0415 - for JSON

        files = [str(path) for path in shipped.files]
        print_document(ShipDocument(files=files, caveats=list(shipped.caveats)))
    else:
        for path in shipped.files:
            print(path)  # noqa: T201 - the command's result
        display.say(f"a job loads it with: . {shlex.quote(str(shipped.files[-1]))}")
    display.say_notes(shipped.caveats)
    return ExitCode.OK


def show(directory: Path, as_json: bool) -> int:
    """Run `tuccl show DIR`."""
    from tuccl.console.shipped_display import print_shipped, show_document  # noqa: PLC0415 - slow

    shown = show_document(view_shipped(absolute(directory)))
    if as_json:
        print_document(shown)
    else:
        print_shipped(shown)
    return ExitCode.FINDING if shown.problems else ExitCode.OK
