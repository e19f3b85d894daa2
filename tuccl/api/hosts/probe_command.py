"""`ProbeCommand`: the options of `tuccl probe` and their defaults.

The help of the command line shows them without importing the probe.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tuccl.options.option import AS_JSON, MEASURING, NETWORK, OUTPUT, OUTPUT_FILE, option

DEFAULT_HOST_TIMEOUT_S = 120.0
DEFAULT_SECONDS_PER_PAIR = 2


@dataclass(frozen=True)
class ProbeCommand:
    """The options of `tuccl probe`."""

    check: bool = field(
        default=False,
        metadata=option(OUTPUT, "Only show what can be probed here, and what cannot."),
    )
    output: Path | None = field(
        default=None,
        metadata=option(OUTPUT, "Write the topology there, as JSON.", "FILE", names=OUTPUT_FILE),
    )
    hosts: str | None = field(
        default=None,
        metadata=option(
            NETWORK, "Hosts to start on, as node[01-16],login; else this one, or MPI's.", "LIST"
        ),
    )
    launcher: str = field(
        default="",
        metadata=option(
            NETWORK, "Command that starts another on a host; ssh if not given.", "COMMAND"
        ),
    )
    remote_python: str = field(
        default="",
        metadata=option(NETWORK, "Python on the hosts; the path of this one if not given.", "PATH"),
    )
    interfaces: tuple[str, ...] = field(
        default=(),
        metadata=option(NETWORK, "Interfaces that count as NICs, as veth*; repeatable.", "PATTERN"),
    )
    rack_map: Path | None = field(
        default=None, metadata=option(NETWORK, "File with a line `HOST RACK` each.", "FILE")
    )
    slurm_topology: Path | None = field(
        default=None, metadata=option(NETWORK, "Slurm's topology.conf.", "FILE")
    )
    ibnetdiscover: Path | None = field(
        default=None,
        metadata=option(NETWORK, "Output of ibnetdiscover: leaf switches of ports.", "FILE"),
    )
    traffic_log: Path | None = field(
        default=None,
        metadata=option(NETWORK, "CSV of the use of links; idle ones are left out.", "FILE"),
    )
    p2p: bool = field(
        default=True,
        metadata=option(MEASURING, "Measure between GPUs.", names=("--p2p/--no-p2p",)),
    )
    network: bool = field(
        default=True,
        metadata=option(MEASURING, "Measure between hosts.", names=("--network/--no-network",)),
    )
    allow_missing: bool = field(
        default=False,
        metadata=option(NETWORK, "Go on without hosts that do not answer."),
    )
    host_timeout_s: float = field(
        default=DEFAULT_HOST_TIMEOUT_S,
        metadata=option(
            NETWORK,
            "Time that a host may take to answer.",
            "SECONDS",
            names=("--host-timeout",),
        ),
    )
    seconds_per_pair: int = field(
        default=DEFAULT_SECONDS_PER_PAIR,
        metadata=option(MEASURING, "Time of each bandwidth measurement.", "SECONDS"),
    )
    root: Path | None = field(
        default=None,
        metadata=option(
            MEASURING,
            "Read the system below this directory; nothing is measured.",
            "DIR",
        ),
    )
    as_json: bool = field(default=False, metadata=AS_JSON)
