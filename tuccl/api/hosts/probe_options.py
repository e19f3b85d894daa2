"""`ProbeOptions`: what `tuccl probe` and `probe` of the interface look at, and how.

The help of the command line shows them without importing the probe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuccl.crew.started_rank import ranks_of_launcher, ray_job
from tuccl.errors import UsageError
from tuccl.options.option import MEASURING, NETWORK, option

_ADDRESS = re.compile(r"auto|(ray://)?[\w.:%\[\]-]+:\d+")


@dataclass(frozen=True)
class Reach:
    """How a command reaches other hosts."""

    hosts: str | None = option(
        NETWORK,
        "Hosts to start on, as node[01-16],login, or a file with a line of hosts each, as of "
        "mpirun: `node1 slots=8`; else this one, or a launcher's.",
        "LIST|FILE",
        default=None,
    )
    launcher: str = option(
        NETWORK, "Command that starts another on a host; ssh if not given.", "COMMAND", default=""
    )
    remote_python: str = option(
        NETWORK, "Python on the hosts; the path of this one if not given.", "PATH", default=""
    )

    ray: str | None = option(
        NETWORK,
        "Start on all GPUs of a Ray cluster: its GCS, as head:6379; that of this host if nothing "
        "follows. A job of Ray does so by itself.",
        "[ADDRESS]",
        default=None,
    )

    def ray_address(self, environment: Mapping[str, str]) -> str:
        """Return the address of the Ray cluster whose nodes are the hosts; empty: they are not."""
        if self.hosts or ranks_of_launcher(environment) > 1:
            return ""
        return self.ray or ray_job(environment)

    def names_hosts(self, environment: Mapping[str, str]) -> bool:
        """Return whether this command starts processes on other hosts."""
        return bool(self.hosts or self.ray_address(environment))

    def require_possible(self, tasks: int) -> None:
        """Refuse what contradicts itself.

        Args:
            tasks: Number of processes that a launcher started.

        Raises:
            UsageError: Hosts are named within a job, or twice, or nothing says which ones to reach.
        """
        if self.hosts and tasks > 1:
            raise UsageError(
                f"--hosts within {tasks} tasks of a launcher: start it once, or leave out the list"
            )
        if self.ray and (self.hosts or tasks > 1):
            other = "--hosts" if self.hosts else f"{tasks} tasks of a launcher"
            raise UsageError(f"--ray beside {other}: leave one out, as each names all hosts")
        if self.ray is not None and not _ADDRESS.fullmatch(self.ray):
            raise UsageError(
                f"--ray {self.ray!a:.80} is not an address: write HOST:PORT, as head:6379, or "
                "nothing and an option behind it"
            )
        if self.hosts is not None and not self.hosts.strip():
            raise UsageError("--hosts names no host; leave it out for this one")
        if (self.launcher or self.remote_python) and not self.hosts:
            raise UsageError(
                "--launcher and --remote-python say how to reach --hosts: name these, too"
            )


@dataclass(frozen=True)
class PartialReach(Reach):
    """How a command reaches other hosts, not all of which it needs."""

    allow_missing: bool = option(NETWORK, "Go on without hosts that do not answer.", default=False)


@dataclass(frozen=True)
class ProbeOptions(PartialReach):
    """The options of a probe, as those of `tuccl probe`."""

    interfaces: tuple[str, ...] = option(
        NETWORK, "Interfaces that count as NICs, as veth*; repeatable.", "PATTERN", default=()
    )
    rack_map: Path | None = option(
        NETWORK, "File with a line `HOST RACK` each.", "FILE", default=None
    )
    rack_prefix: tuple[str, ...] = option(
        NETWORK,
        "Addresses of a rack begin alike: bits, as 24, or a rack's network, as 10.0.1.0/24; "
        "repeatable.",
        "PREFIX",
        default=(),
    )
    slurm_topology: Path | None = option(NETWORK, "Slurm's topology.conf.", "FILE", default=None)
    ibnetdiscover: Path | None = option(
        NETWORK, "Output of ibnetdiscover: leaf switches of ports.", "FILE", default=None
    )
    traffic_log: Path | None = option(
        NETWORK, "CSV of the use of links; idle ones are left out.", "FILE", default=None
    )
    p2p: bool = option(MEASURING, "Measure between GPUs.", default=True, names=("--p2p/--no-p2p",))
    network: bool = option(
        MEASURING, "Measure between hosts.", default=True, names=("--network/--no-network",)
    )
    host_timeout: str = option(
        NETWORK, "Time that a host may take to answer, as 30s or 2m.", "TIME", default="120s"
    )
    seconds_per_pair: int = option(
        MEASURING,
        "Time of each bandwidth measurement.",
        "SECONDS",
        default=2,
    )
    root: Path | None = option(
        MEASURING, "Read the system below this directory; nothing is measured.", "DIR", default=None
    )
