"""The command `tuccl rollback`: an earlier table of a shipped directory becomes its current one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tuccl.cli.command import command
from tuccl.errors import ExitCode
from tuccl.options.option import AS_JSON, OUTPUT, SHIPPED_DIRECTORY, option


@dataclass(frozen=True)
class RollbackOptions:
    """The options of `tuccl rollback`."""

    directory: Path = field(metadata=SHIPPED_DIRECTORY)
    version: str | None = option(
        "",
        "Number or sum of a version; the one before the current one if not given.",
        "VERSION",
        default=None,
        positional=True,
    )
    force: bool = option(
        OUTPUT,
        "Go back even beside files that are not its own, which stay, or to the table of "
        "another machine.",
        default=False,
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl rollback /shared/tuccl", "tuccl rollback /shared/tuccl 3")
def rollback(options: RollbackOptions) -> int:
    """Make a table that a shipped directory keeps its current one; running jobs keep theirs."""
    from tuccl.shipping import rollback as rolling
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_document

    directory = options.directory
    done = rolling.rollback(directory, options.version, force=options.force)
    if options.as_json:
        print_document(done)
    else:
        print(
            f"version {done.version} (table {done.bundle_crc}, shipped {done.shipped_at}) is "
            "current; jobs that start now load it"
        )
        if done.before not in {None, done.version}:
            display.say(f"to undo: tuccl rollback {shlex.quote(str(directory))} {done.before}")
    display.say_notes(done.caveats)
    return ExitCode.OK
