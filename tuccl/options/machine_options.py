"""`MachineOptions`: how a machine is described on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.options.option import MACHINE, machine_name, option


@dataclass(frozen=True)
class MachineOptions:
    """A machine, and the network that joins several copies of it.

    The identity of a run has the machine's figures, and none of these.
    """

    topology: str | None = option(
        MACHINE,
        "A file (TuCCL's JSON, NCCL's XML, ...) or shipped:NAME; else this host, or MPI's "
        "hosts, are probed.",
        "MACHINE",
        default=None,
        parse=machine_name,
        counts=False,
    )
    """Argument of `read_machine_argument`; None: the machine is probed, or the record's."""
    nodes: int = option(
        MACHINE,
        "Number of copies of it, joined by a network.",
        "N",
        default=1,
        bounds=(1, 1024),
        counts=False,
    )
    network_gbps: float | None = option(
        MACHINE,
        "Gbit/s of every network link; the NIC's own if not given.",
        "GBPS",
        default=None,
        bounds=(0.001, 1e6),
        counts=False,
    )
    network_latency_us: float = option(
        MACHINE, "Latency from NIC to NIC, in us.", "US", default=2.0, bounds=(0, 1e6), counts=False
    )
    network_layout: str = option(
        MACHINE,
        "rails: NIC i of every node on one switch; fabric: all on one.",
        "rails|fabric",
        default="rails",
        counts=False,
    )
    racks: str | None = option(
        MACHINE,
        "Number of nodes in each rack, as 4,4: leaf switches below a spine; one rack if not given.",
        "N,...",
        default=None,
        counts=False,
    )
    oversubscription: float = option(
        MACHINE,
        "Bandwidth of the NICs of a rack over that of its link to the spine.",
        "RATIO",
        default=1.0,
        bounds=(1, 1000),
        counts=False,
    )
    node_gpus: str | None = option(
        MACHINE,
        "Number of GPUs that each of the --nodes has, as 8,8,4: its first ones; all if not given.",
        "N,...",
        default=None,
        counts=False,
    )
