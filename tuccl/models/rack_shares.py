"""`RackShares`: what the links between racks leave of the NICs.

Leaf switches of racks may have less bandwidth to the spine than their NICs have together. How much
then crosses depends on who sends to whom: a ring over nodes in the order of racks leaves a rack
once, alltoall from every node. NCCL knows nothing of racks.

All rails work alike: a node sends from NIC i to NIC i of another node, as much on each. So a
pattern puts on each link of the spine what its pairs of nodes send over it, and runs at the share
of the NICs' bandwidth at which the busiest link is full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Topology
from probes.topology.paths import network_path

_Amounts = Mapping[tuple[int, int], float]
"""What each node sends to which other, over what a NIC sends in the same time."""


@dataclass(frozen=True, slots=True)
class RackShares:
    """Shares of the NICs' bandwidth that patterns between nodes get; 1 without racks."""

    ring: float = 1.0
    tree: float = 1.0
    pat: float = 1.0
    pairs: float = 1.0
    """Every node sends to every other node at once."""

    def of(self, operation: Collective, algorithm: NcclAlgorithm) -> float:
        """Return the share of a call of NCCL's."""
        if operation.is_paired:
            return self.pairs
        if algorithm in {NcclAlgorithm.TREE, NcclAlgorithm.NVLS_TREE}:
            return self.tree
        return self.pat if algorithm is NcclAlgorithm.PAT else self.ring

    def best(self, operation: Collective) -> float:
        """Return the largest share that any algorithm of NCCL's gets."""
        return max(self.of(operation, algorithm) for algorithm in NcclAlgorithm)


NO_RACKS = RackShares()


def links_between_leaves(topology: Topology, nics: Iterable[Device]) -> dict[str, tuple[Link, ...]]:
    """Return the links between network switches that NICs of one index use, as `leaf>leaf`.

    Switches that are not connected, or are one, have no entry.
    """
    nic_at: dict[int, dict[str, str]] = {}
    for nic in nics:
        if leaf := leaf_of(topology, nic.name):
            nic_at.setdefault(nic.index, {}).setdefault(leaf, nic.name)
    found: dict[str, tuple[Link, ...]] = {}
    for leaves in nic_at.values():
        for src, near in leaves.items():
            for dst, far in leaves.items():
                if src == dst or f"{src}>{dst}" in found:
                    continue
                path = network_path(topology, near, far)
                if path is not None:
                    found[f"{src}>{dst}"] = path.links[1:-1]
    return found


def leaf_of(topology: Topology, nic: str) -> str:
    """Return the network switch that a NIC sends to; empty if there is none."""
    switch = DeviceKind.NETWORK_SWITCH
    return next(
        (
            link.dst
            for link in topology.links_from[nic]
            if link.kind is LinkKind.NETWORK and topology.device[link.dst].kind is switch
        ),
        "",
    )


def rack_shares(topology: Topology, nic_gb_per_s: float) -> RackShares:
    """Return the shares of a machine of several nodes, whose slowest NIC has this bandwidth."""
    between = links_between_leaves(topology, topology.nics)
    if not between:
        return NO_RACKS
    nodes = sorted({gpu.node for gpu in topology.gpus})
    leaves: list[dict[int, str]] = [{} for _ in nodes]
    """Leaf by node and index of its NIC."""
    for nic in topology.nics:
        if nic.node in nodes:
            leaves[nodes.index(nic.node)].setdefault(nic.index, leaf_of(topology, nic.name))

    def share(amounts: _Amounts) -> float:
        on_link: defaultdict[Link, float] = defaultdict(float)
        for (src, dst), amount in amounts.items():
            for index, leaf in leaves[src].items():
                for link in between.get(f"{leaf}>{leaves[dst].get(index)}", ()):
                    on_link[link] += amount
        return min(
            [1.0] + [link.bandwidth_gb_per_s / (on_link[link] * nic_gb_per_s) for link in on_link]
        )

    count = len(nodes)
    return RackShares(*map(share, (_ring(count), _trees(count), _pat(count), _pairs(count))))


def _ring(nodes: int) -> _Amounts:
    return {(node, (node + 1) % nodes): 1.0 for node in range(nodes)}


def _trees(nodes: int) -> _Amounts:
    """Each of both trees carries half of the data up, and down; an inner node sends twice of it."""
    # Machines of one node and `tuccl table` need no synthesizer.
    from synthesizer.experts.nccl_trees import node_trees  # noqa: PLC0415 - late

    amounts: defaultdict[tuple[int, int], float] = defaultdict(float)
    sent = 1.0 if nodes == 2 else 2.0
    for parents in node_trees(nodes):
        for node, parent in enumerate(parents):
            if parent >= 0:
                amounts[node, parent] += 0.5 / sent
                amounts[parent, node] += 0.5 / sent
    return amounts


def _pat(nodes: int) -> _Amounts:
    """Distances are powers of two; the far ones carry few pieces (NCCL 2.30 src/device, PAT)."""
    amounts: defaultdict[tuple[int, int], float] = defaultdict(float)
    distance = 1
    while distance < nodes:
        pieces = len(range(distance, nodes, 2 * distance))
        for node in range(nodes):
            amounts[node, (node + distance) % nodes] += pieces / (nodes - 1)
        distance *= 2
    return amounts


def _pairs(nodes: int) -> _Amounts:
    return {
        (src, dst): 1.0 / (nodes - 1) for src in range(nodes) for dst in range(nodes) if src != dst
    }
