"""The commands `tuccl topology`: show, compare, convert and draw descriptions of machines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tuccl.cli.command import HelpGroup, command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.option import AS_JSON, OUTPUT, OUTPUT_FILE, Option, metadata, option

if TYPE_CHECKING:
    from probes.topology.graph import Topology

SCHEMA_VERSION = 1
FILE_HELP = (
    "TuCCL's JSON, NCCL's or hwloc's XML, a tar of /sys, the output of lspci -vvv or "
    "nvidia-smi topo -m; or shipped:NAME, FILE.json#name of many, or a topology file of TACCL's."
)
_OTHER_PICTURES = (".png", ".pdf", ".jpg", ".jpeg", ".gif", ".eps", ".dot")
_FILE = metadata(Option("", FILE_HELP, "FILE", positional=True))
_OUTPUT = metadata(
    Option(OUTPUT, "File to write; - or none: standard output.", "FILE", names=OUTPUT_FILE)
)

app = typer.Typer(
    name="topology",
    cls=HelpGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Look at, compare, convert and draw descriptions of machines.",
)


@dataclass(frozen=True)
class TopologyShowOptions:
    """The options of `tuccl topology show`."""

    file: str = option(
        "", f"{FILE_HELP} Without it: what is shipped.", "[FILE]", default="", positional=True
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl topology show topo.xml")
def show(options: TopologyShowOptions) -> int:
    """Show a machine as a tree, every figure with its source."""
    from probes.topology.hosts import hosts_alike
    from probes.topology.json_form import topology_to_json
    from tuccl.options.machine_argument import read_machine_argument
    from tuccl.views.drawing.tree_view import tree_lines
    from tuccl.views.terminal.json_output import print_json

    if not options.file:
        return _list_shipped(as_json=options.as_json)
    topology = read_machine_argument(options.file)
    if options.as_json:
        print_json(
            {
                "fingerprint": topology.fingerprint(),
                "hosts_alike": [list(group.nodes) for group in hosts_alike(topology)],
                "topology": json.loads(topology_to_json(topology)),
            },
            SCHEMA_VERSION,
        )
    else:
        sys.stdout.write("\n".join(tree_lines(topology)) + "\n")
    return ExitCode.OK


def _list_shipped(*, as_json: bool) -> int:
    """List the shipped machines, each with the first line of its tree."""
    from probes.files.read import read_topology, shipped_machines
    from tuccl.options.machine_argument import SHIPPED
    from tuccl.views.drawing.tree_view import tree_lines
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_json

    machines = {name: read_topology(path) for name, path in shipped_machines().items()}
    if as_json:
        prints = {name: machine.fingerprint() for name, machine in machines.items()}
        print_json(
            {"shipped": [{"name": n, "fingerprint": f} for n, f in prints.items()]}, SCHEMA_VERSION
        )
    else:
        for name, machine in machines.items():
            sys.stdout.write(f"{SHIPPED}{name}  {tree_lines(machine)[0].partition(': ')[2]}\n")
        display.say("show one with: tuccl topology show shipped:NAME, or a file of your own")
    return ExitCode.OK


@dataclass(frozen=True)
class TopologyDiffOptions:
    """The options of `tuccl topology diff`."""

    old: str = option("", FILE_HELP, "OLD", positional=True)
    new: str = option("", "As OLD.", "NEW", positional=True)
    figures: bool = option(
        "Options", "Also list figures that differ within their class.", default=False
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl topology diff before.json after.json")
def diff(options: TopologyDiffOptions) -> int:
    """List the differences between two descriptions of a machine. Exit code 1: they differ."""
    from probes.comparison.changes import describe_changes, describe_figures
    from tuccl.options.machine_argument import read_machine_argument
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_json

    old, new = read_machine_argument(options.old), read_machine_argument(options.new)
    prints = old.fingerprint(), new.fingerprint()
    changes = describe_changes(old, new)
    figures = describe_figures(old, new) if options.figures else ()
    if options.as_json:
        print_json(
            {
                "same": prints[0] == prints[1],
                "old": prints[0],
                "new": prints[1],
                "changes": list(changes),
                "figures": list(figures) if options.figures else None,
            },
            SCHEMA_VERSION,
        )
    else:
        sys.stdout.write("".join(f"{sentence}\n" for sentence in (*changes, *figures)))
        if not changes:
            display.say(f"both are the same kind of machine: fingerprint {prints[0]}")
    return ExitCode.FINDING if changes else ExitCode.OK


@dataclass(frozen=True)
class TopologyConvertOptions:
    """The options of `tuccl topology import` and `draw`."""

    file: str = field(metadata=_FILE)
    output: Path | None = field(default=None, metadata=_OUTPUT)
    as_json: bool = field(default=False, metadata=AS_JSON)


@command("tuccl topology import topo.xml -o machine.json", name="import")
def import_machine(options: TopologyConvertOptions) -> int:
    """Read a machine from any form and write it in TuCCL's JSON."""
    from probes.topology.json_form import topology_to_json
    from tuccl.options.machine_argument import read_machine_argument

    topology = read_machine_argument(options.file)
    return _deliver(options, topology, topology_to_json(topology), topology.notes)


@dataclass(frozen=True)
class TopologyExportOptions(TopologyConvertOptions):
    """The options of `tuccl topology export`."""

    host: str = option(
        "Options", "Host of a cluster, by number from 0 or by name.", "HOST", default=""
    )


@command("tuccl topology export machine.json -o topo.xml")
def export(options: TopologyExportOptions) -> int:
    """Write a machine as NCCL's XML (NCCL_TOPO_FILE), and note what that form cannot express."""
    from probes.nccl_xml.export import export_losses, topology_to_nccl_xml
    from tuccl.options.machine_argument import read_machine_argument

    topology = read_machine_argument(options.file)
    if options.host:
        topology = _host(topology, options.host)
    return _deliver(options, topology, topology_to_nccl_xml(topology), export_losses(topology))


def _host(topology: Topology, which: str) -> Topology:
    from probes.topology.hosts import split_hosts

    hosts = split_hosts(topology)
    named = [node for node in hosts if which in topology.hosts[node : node + 1]]
    if len(named) > 1:
        raise UsageError(f"{len(named)} hosts are named {which!a:.60}; give the number of one")
    node = named[0] if named else int(which) if re.fullmatch(r"[0-9]{1,9}", which) else -1
    if node not in hosts:
        raise UsageError(
            f"--host {which!a:.60}: '{topology.name}' has {len(hosts)} hosts; give a number from "
            f"{min(hosts, default=0)} to {max(hosts, default=0)}, or a name"
        )
    return hosts[node]


@command("tuccl topology draw topo.xml -o machine.svg")
def draw(options: TopologyConvertOptions) -> int:
    """Draw devices and links as an SVG picture."""
    from tuccl.options.machine_argument import read_machine_argument
    from tuccl.views.drawing.svg import draw_svg

    output = options.output
    if output is not None and output.suffix.lower() in _OTHER_PICTURES:
        raise UsageError(f"--output {output}: a drawing is SVG; name a file that ends in .svg")
    topology = read_machine_argument(options.file)
    return _deliver(options, topology, draw_svg(topology), ())


def _deliver(
    options: TopologyConvertOptions, topology: Topology, text: str, remarks: Sequence[str]
) -> int:
    """Write the text of a machine to standard output or to a file, with its remarks."""
    from tuccl.options.output_file import check_output
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_json
    from tuccl.workspace.atomic_file import write_atomically

    output = None if options.output == Path("-") else options.output
    if options.as_json and output is None:
        raise UsageError(
            "--json describes a written file: give one with -o, or leave --json out to get the "
            "text itself on standard output"
        )
    if output is None:
        sys.stdout.write(text)
    else:
        check_output(output, "--output", (options.file,))
        write_atomically(output, text)
        display.say(f"written to {output}")
    if options.as_json:
        document = {"file": str(output), "fingerprint": topology.fingerprint()}
        print_json({**document, "remarks": list(remarks)}, SCHEMA_VERSION)
    else:
        display.say_notes(remarks)
    return ExitCode.OK


for each in (show, diff, import_machine, export, draw):
    each.add_to(app)
