"""`ProbeCommand`: the options of `tuccl probe` and their defaults.

The command line shows the defaults in its help, and must not import the probe for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_HOST_TIMEOUT_S = 120.0
DEFAULT_SECONDS_PER_PAIR = 2


@dataclass(frozen=True, slots=True)
class ProbeCommand:
    """The options of `tuccl probe`."""

    check: bool = False
    output: Path | None = None
    hosts: str | None = None
    launcher: str = ""
    remote_python: str = ""
    interfaces: tuple[str, ...] = ()
    rack_map: Path | None = None
    slurm_topology: Path | None = None
    ibnetdiscover: Path | None = None
    traffic_log: Path | None = None
    p2p: bool = True
    network: bool = True
    allow_missing: bool = False
    host_timeout_s: float = DEFAULT_HOST_TIMEOUT_S
    seconds_per_pair: int = DEFAULT_SECONDS_PER_PAIR
    root: Path | None = None
    as_json: bool = False
