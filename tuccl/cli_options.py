"""Options that several commands take, with one wording."""

from __future__ import annotations

from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
NodesOption = Annotated[int, typer.Option(help="Machines like it, joined by a network.")]
NetworkGbpsOption = Annotated[
    float | None, typer.Option(help="Gbit/s of every network link; the NIC's own if not given.")
]
NetworkLatencyOption = Annotated[float, typer.Option(help="From NIC to NIC, in us.")]
NetworkLayoutOption = Annotated[
    str, typer.Option(help="rails: NIC i of every node on one switch; fabric: all on one.")
]
