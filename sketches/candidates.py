"""Candidate sketches, generated from a topology.

Inside one node there are few alternatives. Across nodes TuCCL's three stages give the pruned
sketch; further candidates have fewer connections (relays) or the full mesh, because operation and
size decide which sketch leads to the best schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import permutations

from probes.topology.graph import Topology
from sketches.binding import bind_gpus, borrowed_nics
from sketches.chunking import NCCL_CHUNKING
from sketches.congestion import prune_congested
from sketches.equal_nodes import FoldedSketch, sample_of
from sketches.grouping import NicGroup, group_nics
from sketches.intra_node import intra_node_wires
from sketches.nic_pools import bundle_nics, pool_wires
from sketches.sketch import Binding, DroppedEdge, PruningStage, Sketch
from sketches.symmetry import find_symmetries
from sketches.transformation import (
    dropped_pairs,
    every_connection,
    group_connections,
    network_wires,
)
from sketches.wires import Wire, assemble
from tuccl.errors import MachineError

MOST_FULL_MESH_EDGES = 20_000
"""Most edges of a full mesh; larger ones are left out, as no synthesizer can handle them."""


def sketch_candidates(topology: Topology) -> tuple[Sketch, ...]:
    """Return the candidate sketches of a machine, the default first.

    One node: `direct`, and `direct+pcie` where NVLink does not connect every pair. Several nodes:
    `pruned`, and `uncongested`, `borrowed`, `relay`, `one_nic` and `full_mesh` where they differ
    from it.

    Raises:
        MachineError: The topology has fewer than two GPUs, or no path between two ranks.
    """
    _require_two_gpus(topology)
    topology, notes = bundle_nics(topology)
    found = _one_node(topology) if topology.node_count == 1 else _several_nodes(topology)
    distinct: dict[tuple[object, ...], Sketch] = {}
    for sketch in _connected(topology, found):
        distinct.setdefault(sketch.edges, sketch)
    return tuple(
        replace(
            sketch,
            symmetries=find_symmetries(sketch),
            chunking=NCCL_CHUNKING,
            notes=notes,
        )
        for sketch in distinct.values()
    )


def whole_machine(topology: Topology) -> Sketch:
    """Return the sketch of everything that schedules can use, for lower bounds on time.

    Between nodes every GPU uses all usable NICs of its node (see `sketches.nic_pools`).
    Inside a node a pair of GPUs uses NVLink if it has it, else PCIe, never both: neither NCCL nor a
    schedule splits a transfer between them.

    On machines with more than `MOST_FULL_MESH_EDGES` connections between nodes the network is
    pruned; bounds then hold only for pruned sketches, and a note says so. Of equal nodes these are
    made from three (see `sketches.equal_nodes`).

    Raises:
        MachineError: As `sketch_candidates`.
    """
    _require_two_gpus(topology)
    if _mesh_size(topology) > MOST_FULL_MESH_EDGES:
        sample = sample_of(topology)
        if sample is None:
            return _pruned_machine(topology)
        return FoldedSketch.of(
            _pruned_machine(sample), topology.node_count, partial(_pruned_edges, topology)
        )
    local, dropped = intra_node_wires(topology, every_pcie_pair=True)
    why = "all links between GPUs and all usable NICs, for lower bounds"
    wires = (*local, *pool_wires(topology))
    whole = _sketch(topology, "whole_machine", why, wires, dropped, ())
    _connected(topology, [whole])
    return replace(whole, symmetries=find_symmetries(whole))


def _pruned_machine(topology: Topology) -> Sketch:
    whole = _pruned_edges(topology)
    _connected(topology, [whole])
    return replace(whole, symmetries=find_symmetries(whole))


def _pruned_edges(topology: Topology) -> Sketch:
    """Return the whole machine with a pruned network, without its symmetries."""
    local, dropped = intra_node_wires(topology, every_pcie_pair=True)
    bundled, notes = bundle_nics(topology)
    bindings, _ = bind_gpus(bundled)
    groups = group_nics(bundled, [binding.nic for binding in bindings])
    across = network_wires(bundled, bindings, group_connections(groups))
    why = "all links between GPUs and the pruned network, for lower bounds on pruned sketches"
    left_out = "the full mesh would have too many edges, so the network part is pruned"
    notes += (f"{left_out}: bounds hold for pruned sketches, not for the whole machine",)
    whole = _sketch(topology, "whole_machine", why, (*local, *across), dropped, ())
    return replace(whole, notes=notes)


def _require_two_gpus(topology: Topology) -> None:
    if len(topology.gpus) < 2:
        raise MachineError(
            f"topology {topology.name} has {len(topology.gpus)} GPU(s): collectives need two or "
            f"more; describe a machine with several GPUs, or replicate it to several nodes"
        )


def _one_node(topology: Topology) -> list[Sketch]:
    bindings, unused = bind_gpus(topology)
    wires, dropped = intra_node_wires(topology)
    pcie, pcie_dropped = intra_node_wires(topology, every_pcie_pair=True)
    return [
        _sketch(
            topology,
            "direct",
            "the links between the GPUs of the node, without PCIe where NVLink relays",
            wires,
            (*unused, *dropped),
            bindings,
        ),
        _sketch(
            topology,
            "direct+pcie",
            "as direct, with PCIe between GPUs that have no link of their own: fewer hops",
            pcie,
            (*unused, *pcie_dropped),
            bindings,
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Selection:
    name: str
    why: str
    connections: tuple[tuple[str, str], ...]
    bindings: tuple[Binding, ...]
    stage: PruningStage
    """Stage that left the other GPU pairs out."""
    reason: str
    congested: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Reasons of the connections that congestion scores removed."""


def _several_nodes(topology: Topology) -> list[Sketch]:
    bindings, unused = bind_gpus(topology)
    local, local_dropped = intra_node_wires(topology)
    sketches = []
    seen: set[tuple[object, ...]] = set()
    for choice in _selections(topology, bindings):
        selected = (choice.bindings, choice.connections)
        if selected in seen:
            continue
        seen.add(selected)
        across = network_wires(topology, choice.bindings, choice.connections)
        congested = {
            (a.rank, b.rank): choice.congested[a.nic, b.nic]
            for a, b in permutations(choice.bindings, 2)
            if (a.nic, b.nic) in choice.congested
        }
        unconnected = dropped_pairs(topology, across, choice.stage, choice.reason, congested)
        dropped = (*unused, *local_dropped, *unconnected)
        sketches.append(
            _sketch(topology, choice.name, choice.why, (*local, *across), dropped, bindings)
        )
    return sketches


def _selections(topology: Topology, bindings: tuple[Binding, ...]) -> list[_Selection]:
    nics = [binding.nic for binding in bindings]
    groups = group_nics(topology, nics)
    pruned = group_connections(groups)
    first_of = _first_ranks(bindings)
    flowing, congested = prune_congested(topology, pruned)
    selections = [
        _Selection(
            "pruned",
            "TuCCL's three stages: each GPU through its NIC to the matching NICs of other nodes",
            pruned,
            bindings,
            PruningStage.GROUPING,
            "their NICs are in different bandwidth groups",
        ),
        _Selection(
            "uncongested",
            "as pruned, without the connections that the links between racks cannot carry at once",
            flowing,
            bindings,
            PruningStage.GROUPING,
            "their NICs are in different bandwidth groups",
            congested,
        ),
        _Selection(
            "relay",
            "one GPU per NIC carries all traffic between nodes: all bandwidth, few connections",
            pruned,
            first_of,
            PruningStage.TRANSFORMATION,
            "only the first GPU of each NIC of a group relays between nodes",
        ),
        _Selection(
            "one_nic",
            "one GPU and NIC per node carries all traffic between nodes: fewest connections",
            group_connections(_spanning(topology, groups)),
            first_of,
            PruningStage.TRANSFORMATION,
            "only one NIC per node is used",
        ),
    ]
    if _mesh_size(topology) <= MOST_FULL_MESH_EDGES:
        borrowed = borrowed_nics(topology)
        selections.append(
            _Selection(
                "borrowed",
                "as pruned, with the NICs of all its neighbours for a GPU that has lost its own",
                (*pruned, *_to_borrowed(topology, groups, borrowed)),
                _with_borrowed(bindings, borrowed),
                PruningStage.GROUPING,
                "their NICs are in different bandwidth groups",
            )
        )
        selections.append(
            _Selection(
                "full_mesh",
                "every GPU to every GPU of other nodes through their NICs, nothing pruned",
                every_connection(topology, nics),
                bindings,
                PruningStage.TRANSFORMATION,
                "the network does not connect their NICs",
            )
        )
    return selections


def _to_borrowed(
    topology: Topology, groups: Sequence[NicGroup], borrowed: Iterable[Binding]
) -> tuple[tuple[str, str], ...]:
    """Return connections of the NICs that lack a peer on a node to those NICs that it lends."""
    lent: dict[int, dict[str, None]] = {}
    for binding in borrowed:
        lent.setdefault(topology.device[binding.nic].node, {})[binding.nic] = None
    found = []
    for group in groups:
        nodes = {topology.device[nic].node for nic in group.nics}
        for node, nics in lent.items():
            if node not in nodes:
                found += [
                    pair for own in group.nics for nic in nics for pair in ((own, nic), (nic, own))
                ]
    return tuple(found)


def _with_borrowed(
    bindings: tuple[Binding, ...], borrowed: tuple[Binding, ...]
) -> tuple[Binding, ...]:
    ranks = {binding.rank for binding in borrowed}
    return (*(binding for binding in bindings if binding.rank not in ranks), *borrowed)


def _first_ranks(bindings: Iterable[Binding]) -> tuple[Binding, ...]:
    first: dict[str, Binding] = {}
    for binding in bindings:
        first.setdefault(binding.nic, binding)
    return tuple(first.values())


def _spanning(topology: Topology, groups: Sequence[NicGroup]) -> tuple[NicGroup, ...]:
    """Return the first group that reaches every node; all groups if none does."""
    for group in groups:
        if len(group.nics) == topology.node_count:
            return (group,)
    return tuple(groups)


def _mesh_size(topology: Topology) -> int:
    ranks = len(topology.gpus)
    return ranks * ranks - sum(count**2 for count in Counter(topology.node_of_rank).values())


def _sketch(
    topology: Topology,
    name: str,
    why: str,
    wires: Iterable[Wire],
    dropped: Iterable[DroppedEdge],
    bindings: tuple[Binding, ...],
) -> Sketch:
    edges, ports = assemble(wires)
    return Sketch(
        name=name,
        why=why,
        node_of_rank=topology.node_of_rank,
        edges=edges,
        ports=ports,
        bindings=bindings,
        dropped=tuple(dropped),
    )


def _gap(sketch: Sketch) -> tuple[int, int] | None:
    """Return two ranks without a path from the first to the second; None if all are connected."""
    for outward in (True, False):
        following: dict[int, list[int]] = {}
        for edge in sketch.edges:
            src, dst = (edge.src, edge.dst) if outward else (edge.dst, edge.src)
            following.setdefault(src, []).append(dst)
        reached, waiting = {0}, [0]
        while waiting:
            new = [rank for rank in following.get(waiting.pop(), ()) if rank not in reached]
            reached.update(new)
            waiting += new
        if len(reached) < sketch.ranks:
            unreached = min(set(range(sketch.ranks)) - reached)
            return (0, unreached) if outward else (unreached, 0)
    return None


def _connected(topology: Topology, sketches: Iterable[Sketch]) -> list[Sketch]:
    """Return the sketches in which every rank reaches every other.

    Raises:
        MachineError: No sketch is connected.
    """
    gaps = [(sketch, _gap(sketch)) for sketch in sketches]
    connected = [sketch for sketch, gap in gaps if gap is None]
    if not connected:
        src, dst = gaps[-1][1] or (0, 0)
        raise MachineError(
            f"topology {topology.name}: no path from rank {src} ({topology.gpus[src].name}) to "
            f"rank {dst} ({topology.gpus[dst].name}): describe the missing link, NIC or network"
        )
    return connected
