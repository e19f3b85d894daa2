"""The command `tuccl history`: the tables that a shipped directory keeps."""

from __future__ import annotations

from tuccl.cli.command import command
from tuccl.cli.show import ShowOptions
from tuccl.errors import ExitCode


@command("tuccl history /shared/tuccl")
def history(options: ShowOptions) -> int:
    """List the tables that a shipped directory keeps: when, of which run and machine, what gain.

    Exit code 1: files of a version, or the bundle that jobs load, are missing or damaged.
    """
    from tuccl.shipping.shown_table import history_of
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_either
    from tuccl.views.terminal.shipped_display import print_history
    from tuccl.workspace.atomic_file import absolute

    shown = history_of(absolute(options.directory))
    print_either(shown, options.as_json, print_history)
    if not any(version.current for version in shown.versions):
        display.say(
            f"note: {shown.directory} does not keep its current table {shown.bundle_crc} as a "
            "version: `tuccl ship` there again to have it kept"
        )
    damaged = shown.problems or any(version.problems for version in shown.versions)
    return ExitCode.FINDING if damaged else ExitCode.OK
