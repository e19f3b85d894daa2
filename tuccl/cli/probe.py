"""The command `tuccl probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuccl.cli.help import MEASURING, NETWORK, OUTPUT, examples
from tuccl.cli.options import JsonOption
from tuccl.hosts.probe_command import (
    DEFAULT_HOST_TIMEOUT_S,
    DEFAULT_SECONDS_PER_PAIR,
    ProbeCommand,
)

EXAMPLES = examples(
    "tuccl probe --check", "tuccl probe -o machine.json", "tuccl probe --hosts 'node[01-16]'"
)


def probe(
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only tell what can be probed here, and what not.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the topology there, as JSON.",
            readable=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Hosts to start on, as node[01-16],login; else this one, or MPI's.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    launcher: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="What starts a command on a host; ssh if not given.",
            rich_help_panel=NETWORK,
        ),
    ] = "",
    remote_python: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Python on the hosts; the path of this one if not given.",
            rich_help_panel=NETWORK,
        ),
    ] = "",
    interfaces: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Interfaces that count as NICs, as veth*; repeatable.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    rack_map: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with a line `HOST RACK` each.",
            readable=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    slurm_topology: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Slurm's topology.conf.",
            readable=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    ibnetdiscover: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What ibnetdiscover printed: leaf switches of ports.",
            readable=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    traffic_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV of the use of links; idle ones are left out.",
            readable=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    p2p: Annotated[
        bool,
        typer.Option("--p2p/--no-p2p", help="Measure between GPUs.", rich_help_panel=MEASURING),
    ] = True,
    network: Annotated[
        bool,
        typer.Option(
            "--network/--no-network", help="Measure between hosts.", rich_help_panel=MEASURING
        ),
    ] = True,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="Go on without hosts that do not answer.",
            rich_help_panel=NETWORK,
        ),
    ] = False,
    host_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long a host may take to answer.",
            rich_help_panel=NETWORK,
        ),
    ] = DEFAULT_HOST_TIMEOUT_S,
    seconds_per_pair: Annotated[
        int,
        typer.Option(
            metavar="SECONDS",
            help="Of each bandwidth measurement.",
            rich_help_panel=MEASURING,
        ),
    ] = DEFAULT_SECONDS_PER_PAIR,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Look at the system below this directory; nothing is measured.",
            readable=False,
            rich_help_panel=MEASURING,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find out what this host or cluster is, by looking and measuring.

    Exit code 1: hosts did not answer or are not like the others, or links are slow or unreachable;
    each is named. The topology is written all the same, except that missing hosts need
    --allow-missing. With --check, exit code 1: nothing can be probed here.
    """
    from tuccl.hosts import probing

    options = ProbeCommand(
        check=check,
        output=output,
        hosts=hosts,
        launcher=launcher,
        remote_python=remote_python,
        interfaces=tuple(interfaces or ()),
        rack_map=rack_map,
        slurm_topology=slurm_topology,
        ibnetdiscover=ibnetdiscover,
        traffic_log=traffic_log,
        p2p=p2p,
        network=network,
        allow_missing=allow_missing,
        host_timeout_s=host_timeout,
        seconds_per_pair=seconds_per_pair,
        root=root,
        as_json=as_json,
    )
    raise typer.Exit(probing.probe(options))
