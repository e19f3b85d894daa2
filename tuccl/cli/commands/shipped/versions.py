"""The commands `tuccl history`, `rollback` and `diff`: tables that were shipped before."""

from __future__ import annotations

import shlex
from pathlib import Path

from tuccl.errors import ExitCode
from tuccl.reports.table_difference import compare_tables
from tuccl.shipping import rollback as rolling
from tuccl.shipping.shipped_view import view_shipped
from tuccl.shipping.table_places import read_placed_table
from tuccl.shipping.versions import versions_of
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_document
from tuccl.workspace.atomic_file import absolute


def history(directory: Path, as_json: bool) -> int:
    """Run `tuccl history DIR`."""
    from tuccl.views.terminal.shipped.history_display import (
        history_document,
        print_history,
    )

    place = absolute(directory)
    current = f"{view_shipped(place).bundle.crc:08x}"
    shown = history_document(place, current, versions_of(place))
    if as_json:
        print_document(shown)
    else:
        print_history(shown)
    if not any(version.current for version in shown.versions):
        display.say(
            f"note: {place} does not keep its current table {current} as a version yet: the next "
            "`tuccl ship` or `rollback` does"
        )
    damaged = any(version.problems for version in shown.versions)
    return ExitCode.FINDING if damaged else ExitCode.OK


def rollback(directory: Path, version: str | None, force: bool, as_json: bool) -> int:
    """Run `tuccl rollback DIR [VERSION]`."""
    done = rolling.rollback(directory, version, force=force)
    before = None if done.before is None else done.before.number
    if as_json:
        from tuccl.reports.documents.versions import RollbackDocument

        print_document(
            RollbackDocument(
                directory=str(absolute(directory)),
                version=done.version.number,
                bundle_crc=done.version.crc,
                before=before,
                caveats=list(done.caveats),
            )
        )
    else:
        print(  # noqa: T201 - the command's result
            f"version {done.version.number} (table {done.version.crc}, shipped "
            f"{done.version.origin.shipped_at}) is current; jobs that start now load it"
        )
        if before not in {None, done.version.number}:
            display.say(f"to undo: tuccl rollback {shlex.quote(str(directory))} {before}")
    display.say_notes(done.caveats)
    return ExitCode.OK


def diff(first: str, second: str, as_json: bool) -> int:
    """Run `tuccl diff A B`."""
    from tuccl.views.terminal.shipped.difference_display import (
        diff_document,
        print_difference,
    )

    sides = read_placed_table(first), read_placed_table(second)
    difference = compare_tables(sides[0].promises, sides[1].promises)
    shown = diff_document(*sides, difference)
    if as_json:
        print_document(shown)
    else:
        print_difference(shown)
    return ExitCode.OK if shown.same else ExitCode.FINDING
