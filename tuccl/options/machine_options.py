"""`MachineOptions`: how a machine is described on the command line."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuccl.options.option import MACHINE, machine_name, option


@dataclass(frozen=True)
class MachineOptions:
    """A machine, and the network that joins several copies of it.

    The identity of a run has the machine's figures, and none of these.
    """

    topology: str | None = field(
        default=None,
        metadata=option(
            MACHINE,
            "A file (TuCCL's JSON, NCCL's XML, ...) or shipped:NAME; else this host, or MPI's "
            "hosts, are probed.",
            "MACHINE",
            parse=machine_name,
            counts=False,
        ),
    )
    """Argument of `read_machine_argument`; None: the machine is probed, or the record's."""
    nodes: int = field(
        default=1,
        metadata=option(
            MACHINE,
            "Number of copies of it, joined by a network.",
            "N",
            bounds=(1, 1024),
            counts=False,
        ),
    )
    network_gbps: float | None = field(
        default=None,
        metadata=option(
            MACHINE,
            "Gbit/s of every network link; the NIC's own if not given.",
            "GBPS",
            bounds=(0.001, 1e6),
            counts=False,
        ),
    )
    network_latency_us: float = field(
        default=2.0,
        metadata=option(
            MACHINE, "Latency from NIC to NIC, in us.", "US", bounds=(0, 1e6), counts=False
        ),
    )
    network_layout: str = field(
        default="rails",
        metadata=option(
            MACHINE,
            "rails: NIC i of every node on one switch; fabric: all on one.",
            "rails|fabric",
            counts=False,
        ),
    )
    node_gpus: str | None = field(
        default=None,
        metadata=option(
            MACHINE,
            "Number of GPUs that each of the --nodes has, as 8,8,4: its first ones; all if not "
            "given.",
            "N,...",
            counts=False,
        ),
    )
