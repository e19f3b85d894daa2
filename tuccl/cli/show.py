"""The command `tuccl show`: the table of a shipped directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.cli.command import command
from tuccl.errors import ExitCode
from tuccl.options.option import AS_JSON, SHIPPED_DIRECTORY


@dataclass(frozen=True)
class ShowOptions:
    """The options of `tuccl show`, and of `tuccl history`."""

    directory: Path = field(metadata=SHIPPED_DIRECTORY)
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl show /shared/tuccl", "tuccl show /shared/tuccl --json")
def show(options: ShowOptions) -> int:
    """Show the table in a shipped directory. Exit code 1: its files do not fit together."""
    from tuccl.shipping.manifest import PROFILE_LEFT_OUT
    from tuccl.shipping.shipped_view import view_shipped
    from tuccl.shipping.shown_table import shown_table
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_either
    from tuccl.views.terminal.shipped_display import print_shipped
    from tuccl.workspace.atomic_file import absolute

    shown = shown_table(view_shipped(absolute(options.directory)))
    if shown.profile_left_out:
        display.say_notes([PROFILE_LEFT_OUT])
    print_either(shown, options.as_json, print_shipped)
    return ExitCode.FINDING if shown.problems else ExitCode.OK
