"""Many equal nodes by a sketch of three of them.

Where every node has the same devices and links, and the same switches of the network, any exchange
of nodes is a symmetry. A rail of n nodes is then a clique, all of whose edges are alike, and three
nodes say everything about all of them: what a node has inside, and what one has with two others.
Sketches of thousands of nodes are kept as that; n^2 edges are written out only where somebody asks
for them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from probes.topology.graph import NETWORK_NODE, Link, PairLimit, Topology
from sketches.sketch import Edge, Port, Sketch

SAMPLED = 3
"""Nodes of a sample: with fewer, links that several edges pass would look like those of one."""


class FoldedSketch(Sketch):
    """A sketch of many equal nodes; its edges and ports are made when they are first asked for.

    A copy by `dataclasses.replace` is written out, and has no sample.
    """

    sample: Sketch | None = None
    """The sketch of three of the nodes."""
    nodes: int = 0
    """Number of nodes, if it has a sample."""
    _written_out: Callable[[], Sketch]

    @classmethod
    def of(cls, sample: Sketch, nodes: int, written_out: Callable[[], Sketch]) -> FoldedSketch:
        """Return the sketch of `nodes` nodes like those of the sample.

        `written_out` returns it with all edges and ports; it is called at most once.
        """
        local = sample.ranks // SAMPLED
        fields = replace(
            sample,
            node_of_rank=tuple(rank // local for rank in range(nodes * local)),
            symmetries=tuple(_extended(each, local, nodes) for each in sample.symmetries),
        )
        folded = cls.__new__(cls)
        kept = {name: value for name, value in vars(fields).items() if name not in _MADE_LATE}
        vars(folded).update(kept, sample=sample, nodes=nodes, _written_out=written_out)
        return folded

    def are_linked(self, ranks: Sequence[int]) -> bool:
        """See `Sketch`; if nodes have the same places among these ranks, three say it of all."""
        if self.sample is None:
            return super().are_linked(ranks)
        local = self.sample.ranks // SAMPLED
        places: dict[int, list[int]] = {}
        for rank in ranks:
            places.setdefault(rank // local, []).append(rank % local)
        if len({frozenset(of_node) for of_node in places.values()}) > 1:
            return super().are_linked(ranks)
        some = list(places.values())[:SAMPLED]
        return self.sample.are_linked(
            [node * local + place for node, of_node in enumerate(some) for place in of_node]
        )

    def __getattr__(self, name: str) -> tuple[Edge, ...] | tuple[Port, ...]:
        """Make edges and ports."""
        if name not in _MADE_LATE:
            raise AttributeError(name)
        whole = self._written_out()
        vars(self).update(edges=whole.edges, ports=whole.ports)
        return whole.edges if name == "edges" else whole.ports


_MADE_LATE = frozenset({"edges", "ports"})


def sample_of(topology: Topology) -> Topology | None:
    """Return three nodes of a machine of equal ones; None if they differ, or are too few.

    Devices of a node have its own prefix to names that are the same on all nodes, since paths
    depend on the order of names.
    """
    nodes = sorted({gpu.node for gpu in topology.gpus})
    sampled = {nodes[0], nodes[len(nodes) // 2], nodes[-1]}
    if len(sampled) < SAMPLED or not _are_equal(topology):
        return None
    devices = tuple(each for each in topology.devices if each.node in {*sampled, NETWORK_NODE})
    names = {device.name for device in devices}
    return replace(
        topology,
        devices=devices,
        links=tuple(each for each in topology.links if {each.src, each.dst} <= names),
        limits=tuple(each for each in topology.limits if {each.src, each.dst} <= names),
    )


def _are_equal(topology: Topology) -> bool:
    """Whether any exchange of nodes is a symmetry, and ranks are numbered node by node."""
    local = topology.ranks_per_node
    if not local or any(node != rank // local for rank, node in enumerate(topology.node_of_rank)):
        return False
    place: dict[str, tuple[int, str]] = {}
    listed: dict[int, list[Hashable]] = {}
    prefixes: dict[int, str] = {}
    for device in topology.devices:
        if device.node == NETWORK_NODE:
            place[device.name] = NETWORK_NODE, device.name
            continue
        prefix, _, name = device.name.rpartition("/")
        if prefixes.setdefault(device.node, prefix) != prefix:
            return False
        place[device.name] = device.node, name
        alike = replace(device, name=name, node=0, bus_id="", os_name="", memory_bytes=0)
        listed.setdefault(device.node, []).append(alike)
    pairs: tuple[Link | PairLimit, ...] = (*topology.links, *topology.limits)
    for pair in pairs:
        (source, src), (target, dst) = place[pair.src], place[pair.dst]
        inside = {source, target} - {NETWORK_NODE}
        if len(inside) != 1:
            return False  # Between two nodes, or two switches of the network.
        alike_pair = replace(pair, src=src, dst=dst)
        listed[inside.pop()].append((source == NETWORK_NODE, target == NETWORK_NODE, alike_pair))
    first, *others = listed.values()
    return all(other == first for other in others)


def _extended(permutation: tuple[int, ...], local: int, nodes: int) -> tuple[int, ...]:
    """Return a symmetry of the sample for all nodes: of nodes, or of the ranks in all of them."""
    turn, ranks = permutation[0] // local, range(local)
    inside = [permutation[rank] % local for rank in ranks]
    return tuple(
        (node + turn) % nodes * local + inside[rank] for node in range(nodes) for rank in ranks
    )
