"""The commands `tuccl topology`: read a machine, and show, compare, convert or draw it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from probes.comparison.changes import describe_changes, describe_figures
from probes.drawing.svg import draw_svg
from probes.drawing.tree_view import tree_lines
from probes.files.machine_file import read_machine_file
from probes.files.shipped import shipped_machines
from probes.nccl_xml.export import topology_to_nccl_xml
from probes.nccl_xml.losses import export_losses
from probes.topology.graph import Topology
from probes.topology.hosts import hosts_alike, split_hosts
from probes.topology.json_form import topology_to_json
from tuccl.errors import ExitCode, UsageError
from tuccl.options.machine_argument import SHIPPED, read_machine_argument
from tuccl.options.output_file import check_output
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_json
from tuccl.workspace.atomic_file import write_atomically

SCHEMA_VERSION = 1
_OTHER_PICTURES = (".png", ".pdf", ".jpg", ".jpeg", ".gif", ".eps", ".dot")


def show(file: str, as_json: bool) -> int:
    """Run `tuccl topology show [FILE]`."""
    if not file:
        return _list_shipped(as_json)
    topology = read_machine_argument(file)
    if as_json:
        print_json(
            {
                "fingerprint": topology.fingerprint(),
                "hosts_alike": [list(group.nodes) for group in hosts_alike(topology)],
                "topology": json.loads(topology_to_json(topology)),
            },
            SCHEMA_VERSION,
        )
    else:
        _print("\n".join(tree_lines(topology)) + "\n")
    return ExitCode.OK


def diff(old_file: str, new_file: str, with_figures: bool, as_json: bool) -> int:
    """Run `tuccl topology diff OLD NEW`."""
    old, new = read_machine_argument(old_file), read_machine_argument(new_file)
    prints = old.fingerprint(), new.fingerprint()
    changes = describe_changes(old, new)
    figures = describe_figures(old, new) if with_figures else ()
    if as_json:
        print_json(
            {
                "same": prints[0] == prints[1],
                "old": prints[0],
                "new": prints[1],
                "changes": list(changes),
                "figures": list(figures) if with_figures else None,
            },
            SCHEMA_VERSION,
        )
    else:
        _print("".join(f"{sentence}\n" for sentence in (*changes, *figures)))
        if not changes:
            display.say(f"one and the same kind of machine: fingerprint {prints[0]}")
    return ExitCode.FINDING if changes else ExitCode.OK


def import_machine(file: str, output: Path | None, as_json: bool) -> int:
    """Run `tuccl topology import FILE`."""
    topology = read_machine_argument(file)
    text = topology_to_json(topology)
    return _deliver(file, topology, text, output, topology.notes, as_json)


def export(file: str, output: Path | None, host: str, as_json: bool) -> int:
    """Run `tuccl topology export FILE`."""
    topology = read_machine_argument(file)
    if host:
        topology = _host(topology, host)
    text = topology_to_nccl_xml(topology)
    return _deliver(file, topology, text, output, export_losses(topology), as_json)


def draw(file: str, output: Path | None, as_json: bool) -> int:
    """Run `tuccl topology draw FILE`."""
    if output is not None and output.suffix.lower() in _OTHER_PICTURES:
        raise UsageError(f"--output {output}: a drawing is SVG; name a file that ends in .svg")
    topology = read_machine_argument(file)
    return _deliver(file, topology, draw_svg(topology), output, (), as_json)


def _list_shipped(as_json: bool) -> int:
    """List the shipped machines, each with the first line of its tree."""
    machines = {name: read_machine_file(path) for name, path in shipped_machines().items()}
    if as_json:
        prints = {name: machine.fingerprint() for name, machine in machines.items()}
        print_json(
            {"shipped": [{"name": n, "fingerprint": f} for n, f in prints.items()]}, SCHEMA_VERSION
        )
    else:
        for name, machine in machines.items():
            _print(f"{SHIPPED}{name}  {tree_lines(machine)[0].partition(': ')[2]}\n")
        display.say("show one with: tuccl topology show shipped:NAME, or a file of your own")
    return ExitCode.OK


def _host(topology: Topology, which: str) -> Topology:
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


def _deliver(
    file: str,
    topology: Topology,
    text: str,
    output: Path | None,
    remarks: Sequence[str],
    as_json: bool,
) -> int:
    """Write the text of a machine to standard output or to `output`, with its remarks."""
    to_stdout = output is None or output == Path("-")
    if as_json and to_stdout:
        raise UsageError(
            "--json tells about a written file: give one with -o, or leave --json out to get the "
            "text itself on standard output"
        )
    if output is None or to_stdout:
        _print(text)
    else:
        check_output(output, "--output", (file,))
        write_atomically(output, text)
        display.say(f"written to {output}")
    if as_json:
        document = {"file": str(output), "fingerprint": topology.fingerprint()}
        print_json({**document, "remarks": list(remarks)}, SCHEMA_VERSION)
    else:
        display.say_notes(remarks)
    return ExitCode.OK


def _print(text: str) -> None:
    sys.stdout.write(text)
