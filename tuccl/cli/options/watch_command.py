"""`WatchCommand`: the options of `tuccl watch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tuccl.options.option import MEASURING, OUTPUT, named_path, option


class ServiceFile(StrEnum):
    """A file that has a host watched."""

    SERVICE = "service"
    """A systemd service, which runs one watch."""
    TIMER = "timer"
    """The systemd timer that starts it."""
    SLURM = "slurm"
    """A HealthCheckProgram for slurm.conf."""


@dataclass(frozen=True)
class WatchCommand:
    """The options of `tuccl watch`."""

    directory: Path = field(
        metadata=option(
            "",
            "A directory of `tuccl ship`, whose table jobs here load.",
            "DIR",
            positional=True,
            parse=named_path,
        ),
    )
    no_measure: bool = field(
        default=False,
        metadata=option(MEASURING, "Measure nothing: no process uses a GPU."),
    )
    limit: str = field(
        default="5s",
        metadata=option(
            MEASURING,
            "Time limit of the measurement; a suspicion is measured once more.",
            "TIME",
        ),
    )
    nccl: Path | None = field(
        default=None,
        metadata=option(MEASURING, "The libnccl.so.2 to load; else the one that is found.", "PATH"),
    )
    accept: bool = field(
        default=False,
        metadata=option(
            OUTPUT,
            "Measure nothing, and take this host as it is now for what later watches compare.",
        ),
    )
    verbose: bool = field(
        default=False,
        metadata=option(
            OUTPUT,
            "Print what is as it was, too, and what was measured.",
            names=("--verbose", "-v"),
        ),
    )
    textfile: Path | None = field(
        default=None,
        metadata=option(
            OUTPUT,
            "Write metrics for the textfile collector of Prometheus' node_exporter.",
            "FILE.prom",
            parse=named_path,
        ),
    )
    print_file: ServiceFile | None = field(
        default=None,
        metadata=option(
            OUTPUT,
            "Check nothing; print a systemd service, its timer, or Slurm's HealthCheckProgram.",
            "service|timer|slurm",
            names=("--print",),
        ),
    )
    as_json: bool = False
