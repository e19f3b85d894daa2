"""The command `tuccl synthesize`."""

from __future__ import annotations

from dataclasses import replace

import typer

from tuccl.cli.options.synthesize_command import SynthesizeCommand
from tuccl.cli.parameters.fields import with_fields
from tuccl.cli.parameters.help import examples
from tuccl.cli.parameters.options import JsonOption

EXAMPLES = examples(
    "tuccl synthesize --topology topo.xml --op all_gather --size 1M -o all_gather.xml"
)


@with_fields(
    required=["topology"],
    helps={
        "topology": "Any file that `tuccl topology show` reads, shipped:NAME, FILE.json#name of a "
        "file of benchmark topologies, or a topology file of TACCL's."
    },
)
def synthesize(command: SynthesizeCommand, as_json: JsonOption = False) -> None:
    """Find the fastest schedule for one collective and size, proved right, beside its bound."""
    from tuccl.cli.commands import synthesize as synthesizing

    raise typer.Exit(synthesizing.synthesize_command(replace(command, as_json=as_json)))
