"""The command `tuccl probe`."""

from __future__ import annotations

from dataclasses import replace

import typer

from tuccl.api.hosts.probe_command import ProbeCommand
from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import JsonOption

EXAMPLES = examples(
    "tuccl probe --check", "tuccl probe -o machine.json", "tuccl probe --hosts 'node[01-16]'"
)


@with_fields()
def probe(command: ProbeCommand, as_json: JsonOption = False) -> None:
    """Detect the devices and links of this host or cluster, and measure them.

    Exit code 1: hosts did not answer or differ from the others, or links are slow or unreachable;
    each is named. The topology is written all the same, except that missing hosts need
    --allow-missing. With --check, exit code 1: nothing can be probed here.
    """
    from tuccl.api.hosts import probing

    raise typer.Exit(probing.probe(replace(command, as_json=as_json)))
