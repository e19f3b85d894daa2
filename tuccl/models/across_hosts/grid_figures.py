"""`GridFigures`: the figures of a machine that phases need, for its nodes and for its rails.

A rail's communicator has one rank of each node. NCCL sees it as a machine of its own (`rail`), and
chooses as if nothing else used the network. All rails work at once, though, and share NICs, PCIe
switches and switches of the network. So each link of the ways along the rails, and of the ways
between all GPUs of a node, carries as many transfers as pass it. What passes the links between
racks depends on the operation (`tuccl.models.rack_shares`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from probes.topology.graph import DeviceKind, Topology
from sketches.intra_node import intra_node_wires
from sketches.wires import Wire
from tuccl.models.across_hosts.gpu_ways import gpu_ways
from tuccl.models.figures import Generation, MachineFigures, figures_of, machine_figures
from tuccl.models.rack_shares import rack_shares

_MEMORY_GB_PER_S = {
    Generation.VOLTA: 900.0,
    Generation.AMPERE: 1555.0,
    Generation.HOPPER: 3350.0,
    Generation.BLACKWELL: 8000.0,
}
"""Nominal bandwidth of a GPU's memory (data sheets: V100, A100 of 40 GB, H100 SXM, B200)."""


@dataclass(frozen=True, slots=True)
class GridFigures:
    """A machine of equal nodes."""

    machine: MachineFigures
    rail: MachineFigures
    """Communicator of a rail as NCCL sees it."""
    rail_gb_per_s: float
    """Bandwidth of each of the rail's NICs while all rails work, inside a rack."""
    node_gb_per_s: float
    """Bandwidth of a GPU to all others of its node together while all of them send; infinite on
    nodes of one GPU."""
    memory_gb_per_s: float
    """Nominal bandwidth of a GPU's memory."""

    @property
    def shared_rail(self) -> MachineFigures:
        """Communicator of a rail with what the other rails leave of the network."""
        return replace(self.rail, nic_gb_per_s=self.rail_gb_per_s)


@lru_cache(maxsize=8)
def grid_figures(topology: Topology) -> GridFigures:
    """Return the figures of several nodes of equal size, computed once for a machine."""
    machine = machine_figures(topology)
    nodes, local_ranks = machine.shape.nodes, topology.ranks_per_node
    alone_gb_per_s, shared_gb_per_s = _rail_gb_per_s(_without_racks(topology), machine)
    rail = figures_of(
        replace(machine.shape, ranks=nodes, ranks_per_node=1),
        machine.fabric,
        machine.generation,
        math.inf,
        max(1, machine.nics_per_node // local_ranks),
        alone_gb_per_s,
        machine.network_latency_us,
        sockets=machine.sockets,
    )
    return GridFigures(
        machine,
        replace(rail, racks=rack_shares(topology, shared_gb_per_s)),
        shared_gb_per_s,
        _node_gb_per_s(topology, local_ranks),
        _MEMORY_GB_PER_S[machine.generation],
    )


def _without_racks(topology: Topology) -> Topology:
    """Return the machine with links between network switches that never limit anything."""
    return replace(
        topology,
        links=tuple(
            replace(link, bandwidth_gb_per_s=math.inf)
            if topology.device[link.src].kind
            is topology.device[link.dst].kind
            is DeviceKind.NETWORK_SWITCH
            else link
            for link in topology.links
        ),
    )


def _rail_gb_per_s(topology: Topology, machine: MachineFigures) -> tuple[float, float]:
    """Bandwidth of each NIC of the slowest rail while it works alone, and while all of them do."""
    ways, rails = gpu_ways(topology), _following_ranks(topology).items()
    together = ways.across_us_per_byte(dict.fromkeys(rails, 1))
    alone = max(ways.across_us_per_byte({pair: 1}) for pair in rails)
    nics = max(1, machine.nics_per_node // topology.ranks_per_node)
    return 1e-3 / (alone * nics), 1e-3 / (together * nics)


def _following_ranks(topology: Topology) -> dict[int, int]:
    """For each rank the next one of its rail, around all nodes."""
    places: list[list[int]] = [[] for _ in range(topology.node_count)]
    for rank, node in enumerate(topology.node_of_rank):
        places[node].append(rank)
    return {
        rank: after
        for node, ranks in enumerate(places)
        for rank, after in zip(ranks, places[(node + 1) % len(places)], strict=True)
    }


def _node_gb_per_s(topology: Topology, local_ranks: int) -> float:
    if local_ranks == 1:
        return math.inf
    wires, _ = intra_node_wires(topology, every_pcie_pair=True)
    return (local_ranks - 1) / max(_loaded(wires), default=math.inf)


def _loaded(wires: Sequence[Wire]) -> list[float]:
    """Time of a unit of data on each wire, in its own time per GB/s, while all carry as much."""
    load = Counter(port for wire in wires for port in wire.ports)
    return [
        max(
            [1.0 / wire.edge.bandwidth_gb_per_s]
            + [load[port] / port.bandwidth_gb_per_s for port in wire.ports]
        )
        for wire in wires
    ]
