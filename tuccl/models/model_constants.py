"""`ModelConstants`: the fitted constants of the model of NCCL's kernels.

`tuccl calibrate` fits them to measured times; those of phases it leaves as they are. They hold at
Hopper's clock; other GPUs scale with theirs. `SHIPPED` was fitted by this project to
a grid of four H200 and to published runs of nccl-tests (`scripts/bench/bench_model.py` prints it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Lt

from lookup_tables.table import NcclProtocol

Positive = Annotated[float, Gt(0.0), Lt(1e9)]
"""A constant, as a file of them is checked."""


@dataclass(frozen=True, slots=True)
class ProtocolCosts:
    """Constants of one protocol."""

    base_us: Positive
    """Kernel launch, argument fetch and the last flag, where calls follow each other in a graph."""
    hop_us: Positive
    """Latency from a GPU to its neighbour over NVLink, without the data."""
    tree_hop_us: Positive
    """The same in a tree, where a rank passes on what it has at once."""
    sync_us: Positive
    """Synchronisation for each slice of the buffer after the first."""
    ring_gb_per_s: Positive
    """Bandwidth of a ring's channel in the limit of many threads."""
    half_threads: Positive
    """Threads that reach half of it; LL128 does not depend on their number."""
    tree_gb_per_s: Positive
    """Bandwidth of a tree's channel each way, with NCCL's 640 threads."""
    wire_efficiency: Positive
    """Share of the link's nominal bandwidth that payload reaches."""


@dataclass(frozen=True, slots=True)
class ModelConstants:
    """All constants of the model."""

    ll: ProtocolCosts
    ll128: ProtocolCosts
    simple: ProtocolCosts
    pci_hop_share: Positive
    """Latency of a hop over PCIe or shared memory, as a multiple of one over NVLink."""
    network_hop_us: Positive
    """Latency that proxies and flags add to a hop over the network."""
    network_latencies: Positive
    """Number of times that a hop over the network waits for the network's latency."""
    network_efficiency: Positive
    """Share of a NIC's rate that the payload of Simple reaches; above 1 where NCCL's figure for the
    PCIe way to the NIC is too cautious."""
    launch_us: Positive
    """Time of a host thread per GPU and call where no graph launches the kernels."""
    socket_gb_per_s: Positive = 3.2
    """Bandwidth of a thread of NCCL that moves data over TCP: one for each rank and communicator.
    Two faked nodes of two H200 carried all_gather of 64 MB at 6.2 to 6.5 GB/s with two such
    threads, by one call of NCCL as by two along rails."""
    phase_launch_us: Positive = 2.5
    """Launch of a kernel of the executor between other kernels of a CUDA graph: it costs 2 to 5 us
    on two H200, and 1.9 where one kernel follows itself."""
    memory_efficiency: Positive = 0.8
    """Share of the memory's nominal bandwidth that a sum of chunks reaches; not measured."""

    def of(self, protocol: NcclProtocol) -> ProtocolCosts:
        """Costs of one protocol."""
        if protocol is NcclProtocol.LL:
            return self.ll
        return self.ll128 if protocol is NcclProtocol.LL128 else self.simple


MOST_CHANNELS = 32
"""Most channels that the constants were fitted to; the model holds no further."""
SHIPPED = ModelConstants(
    ll=ProtocolCosts(4.65, 0.409, 0.374, 0.803, 20.8, 807.0, 4.23, 0.436),
    ll128=ProtocolCosts(8.18, 2.13, 0.771, 1.03, 19.1, 1.0, 11.0, 0.803),
    simple=ProtocolCosts(13.7, 2.86, 2.75, 2.44, 39.9, 295.0, 20.8, 0.955),
    pci_hop_share=1.5,
    network_hop_us=6.18,
    network_latencies=3.68,
    network_efficiency=1.07,
    launch_us=4.57,
)
