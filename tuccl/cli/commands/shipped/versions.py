"""The commands `tuccl history`, `rollback` and `diff`: tables that were shipped before."""

from __future__ import annotations

import shlex
from pathlib import Path

from tuccl.errors import ExitCode
from tuccl.shipping import rollback as rolling
from tuccl.shipping.table_places import diff_tables
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_document
from tuccl.workspace.atomic_file import absolute


def history(directory: Path, as_json: bool) -> int:
    """Run `tuccl history DIR`."""
    from tuccl.shipping.shown_table import history_of
    from tuccl.views.terminal.shipped_display import print_history

    shown = history_of(absolute(directory))
    if as_json:
        print_document(shown)
    else:
        print_history(shown)
    if not any(version.current for version in shown.versions):
        display.say(
            f"note: {shown.directory} does not keep its current table {shown.bundle_crc} as a "
            "version: `tuccl ship` there again to have it kept"
        )
    damaged = any(version.problems for version in shown.versions)
    return ExitCode.FINDING if damaged else ExitCode.OK


def rollback(directory: Path, version: str | None, force: bool, as_json: bool) -> int:
    """Run `tuccl rollback DIR [VERSION]`."""
    done = rolling.rollback(directory, version, force=force)
    if as_json:
        print_document(done)
    else:
        print(  # noqa: T201 - the command's result
            f"version {done.version} (table {done.bundle_crc}, shipped {done.shipped_at}) is "
            "current; jobs that start now load it"
        )
        if done.before not in {None, done.version}:
            display.say(f"to undo: tuccl rollback {shlex.quote(str(directory))} {done.before}")
    display.say_notes(done.caveats)
    return ExitCode.OK


def diff(first: str, second: str, as_json: bool) -> int:
    """Run `tuccl diff A B`."""
    from tuccl.views.terminal.shipped_display import print_difference

    shown = diff_tables(first, second)
    if as_json:
        print_document(shown)
    else:
        print_difference(shown)
    return ExitCode.OK if shown.same else ExitCode.FINDING
