"""The command `tuccl watch`."""

from __future__ import annotations

from dataclasses import replace

import typer

from tuccl.cli.options.watch_command import WatchCommand
from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import JsonOption

EXAMPLES = examples(
    "tuccl watch /shared/tuccl",
    "tuccl watch /shared/tuccl --no-measure --textfile /var/lib/node_exporter/tuccl.prom",
    "tuccl watch /shared/tuccl --print slurm",
)


@with_fields()
def watch(command: WatchCommand, as_json: JsonOption = False) -> None:
    """Check in seconds whether this host is still the one that the table was tuned for.

    Nothing is printed where nothing changed. Exit code 1: it changed, each change is named; 3: a
    check could not be made.
    """
    from tuccl.cli.commands.shipped import watch as watching

    raise typer.Exit(watching.watch(replace(command, as_json=as_json)))
