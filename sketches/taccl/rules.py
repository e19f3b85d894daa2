"""A `Sketch` from the rules of TACCL's sketch file and a machine, from TACCL's file or any other.

The rules select links and NICs of the machine. A NIC stays one port whose time its connections
share as they use it, whereas TACCL gives each a fixed share (TuCCL section III-B). Rules that leave
a GPU unreachable are refused, and the rule is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import isclose

import networkx as nx

from probes.topology.graph import Topology
from sketches.binding import bind_gpus
from sketches.intra_node import intra_node_wires
from sketches.nic_pools import bundle_nics
from sketches.sketch import Binding, Port, PruningStage, Sketch
from sketches.symmetry import EQUAL_WITHIN, is_symmetry
from sketches.taccl.sketch_file import TacclRules
from sketches.transformation import dropped_pairs, every_connection, network_wires
from sketches.wires import Wire, assemble
from tuccl.errors import MachineError

MOST_CONNECTIONS = 200_000
"""Most connections between nodes, a limit of memory; no synthesizer can handle more."""

_Connections = Mapping[int, Sequence[int]]


def taccl_sketch(rules: TacclRules, topology: Topology, name: str) -> Sketch:
    """Return the sketch that a sketch file allows on a machine.

    The machine has the rules' number of nodes, all equal; the name is usually the file's stem.

    Raises:
        MachineError: The machine differs from the rules in nodes or GPUs, a rule contradicts the
            machine, a symmetry does not hold, or a GPU is unreachable; file and rule are named.
    """
    gpus = _gpus_per_node(rules, topology)
    connections = _connections(rules, gpus)
    machine, bundle_notes = bundle_nics(topology)
    bindings, unused = bind_gpus(machine)
    local, local_dropped = intra_node_wires(machine)
    across = _relay_wires(rules, machine, connections, bindings)
    reason = "internode_conn of the sketch file does not connect them"
    unconnected = dropped_pairs(machine, across, PruningStage.TRANSFORMATION, reason)
    edges, ports = assemble((*_behind_switches(rules, machine, local), *across))
    sketch = Sketch(
        name=name,
        why=f"TACCL's sketch {rules.source}",
        node_of_rank=machine.node_of_rank,
        edges=edges,
        ports=ports,
        chunks_per_rank=rules.chunks_per_rank,
        bindings=bindings,
        dropped=(*unused, *local_dropped, *unconnected),
        notes=(*rules.notes, *bundle_notes, *_sharing_notes(rules, machine, connections, bindings)),
    )
    _require_paths(rules, sketch, connections)
    return replace(sketch, symmetries=_symmetries(rules, sketch))


def _gpus_per_node(rules: TacclRules, topology: Topology) -> int:
    if topology.node_count != rules.nodes:
        raise MachineError(
            f"{rules.source}: nnodes: {rules.nodes}, but topology {topology.name} has "
            f"{topology.node_count} node(s); give a machine with {rules.nodes}"
        )
    gpus = topology.ranks_per_node
    if not gpus:
        raise MachineError(
            f"{rules.source}: TACCL's sketches are for nodes alike, and those of topology "
            f"{topology.name} have different numbers of GPUs; leave the sketch out"
        )
    if len(topology.gpus) < 2:
        raise MachineError(
            f"{rules.source}: topology {topology.name} has one GPU, which has nothing to exchange"
        )
    return gpus


def _connections(rules: TacclRules, gpus: int) -> _Connections:
    """Return the receivers by sender, after a check of every number."""
    chosen = rules.connections
    if chosen == "fully-connected":
        chosen = {src: tuple(range(gpus)) for src in range(gpus)}
    elif chosen == "direct-map":
        chosen = {src: (src,) for src in range(gpus)}
    named = [
        *((f"intranode_sketch.switches ({members})", members) for members in rules.switches),
        *((f"internode_sketch.internode_conn.{src}", (src, *dsts)) for src, dsts in chosen.items()),
        *(
            (f"internode_sketch.gpus_to_sender_rev_map.{src}", (src, *owners))
            for src, owners in rules.sent_by.items()
        ),
    ]
    for field, numbers in named:
        if max(numbers) >= gpus:
            raise MachineError(
                f"{rules.source}: {field}: GPU {max(numbers)}, but a node has GPUs 0 to {gpus - 1}"
            )
    return chosen


def _relay_wires(
    rules: TacclRules,
    machine: Topology,
    connections: _Connections,
    bindings: Sequence[Binding],
) -> list[Wire]:
    count = sum(map(len, connections.values())) * rules.nodes * (rules.nodes - 1)
    if count > MOST_CONNECTIONS:
        raise MachineError(
            f"{rules.source}: internode_sketch.internode_conn: {count:,} connections between "
            f"nodes, at most {MOST_CONNECTIONS:,} are supported; let fewer GPUs relay"
        )
    gpus = machine.ranks_per_node
    relays = set(connections).union(*connections.values())
    used = [binding for binding in bindings if binding.rank % gpus in relays]
    nics = dict.fromkeys(binding.nic for binding in used)
    wires = network_wires(machine, used, every_connection(machine, nics))
    return [
        wire for wire in wires if wire.edge.dst % gpus in connections.get(wire.edge.src % gpus, ())
    ]


def _behind_switches(rules: TacclRules, machine: Topology, wires: Sequence[Wire]) -> Iterator[Wire]:
    """Yield the wires inside a node; behind a switch of the file a GPU's links share two ports."""
    gpus = machine.ranks_per_node
    switch_of = {gpu: members for members in rules.switches for gpu in members}
    widths: dict[tuple[int, ...], float] = {}
    for members in rules.switches:
        linked = {
            (wire.edge.src, wire.edge.dst): wire.edge.bandwidth_gb_per_s
            for wire in wires
            if wire.edge.src < gpus and {wire.edge.src, wire.edge.dst} <= set(members)
        }
        missing = next((pair for pair in permutations(members, 2) if pair not in linked), None)
        widths[members] = max(linked.values(), default=0.0)
        if missing is not None or min(linked.values()) < widths[members]:
            what = f"no link {missing[0]} -> {missing[1]}" if missing else "links of several speeds"
            raise MachineError(
                f"{rules.source}: intranode_sketch.switches: the machine has {what} among GPUs "
                f"{', '.join(map(str, members))}; a switch needs one speed between all of them"
            )
    for wire in wires:
        src, dst = wire.edge.src, wire.edge.dst
        members = switch_of.get(src % gpus, ())
        if wire.ports or dst % gpus not in members:
            yield wire  # It has ports of a switch of the machine, or no switch of the sketch.
            continue
        ports = tuple(
            Port(f"{way}:{machine.gpus[rank].name}", widths[members])
            for way, rank in (("out", src), ("in", dst))
        )
        yield Wire(replace(wire.edge, ports=tuple(port.name for port in ports)), ports)


def _sharing_notes(
    rules: TacclRules,
    machine: Topology,
    connections: _Connections,
    bindings: Sequence[Binding],
) -> Iterator[str]:
    if rules.nodes == 1:
        return
    nics = len(machine.nics) // rules.nodes
    count = sum(map(len, connections.values()))
    if count != nics:
        yield (
            f"TACCL would give each of the {count} connections from a node to another "
            f"{nics}/{count} of a NIC for good (beta_split); here a NIC is one port, and its time "
            f"is divided among its connections as they use it"
        )
    sending = {b.nic for b in bindings if b.rank % machine.ranks_per_node in connections}
    if sending and len(sending) < len(machine.nics):
        yield (
            f"{len(sending)} of {len(machine.nics)} NICs send: the others are not nearest to any "
            f"sender of internode_conn"
        )
    if rules.sent_by:
        yield (
            "gpus_to_sender_rev_map is checked but does not bind: data may leave through any "
            "sender, which includes all that TACCL would allow"
        )


def _require_paths(rules: TacclRules, sketch: Sketch, connections: _Connections) -> None:
    """Check that every GPU reaches every other, and its sender.

    Raises:
        MachineError: There is no path; the rule that prevents it is named.
    """
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(sketch.ranks))
    graph.add_edges_from(sketch.edge)
    node = sketch.node_of_rank
    local = nx.DiGraph((a, b) for a, b in graph.edges if node[a] == node[b])
    local.add_nodes_from(graph)
    _require_senders(rules, sketch, connections, local)
    all_ranks = set(graph)
    for reached, outward in ((nx.descendants(graph, 0), True), (nx.ancestors(graph, 0), False)):
        missing = all_ranks - reached - {0}
        if missing:
            src, dst = (0, min(missing)) if outward else (min(missing), 0)
            raise MachineError(
                f"{rules.source}: {_preventing_rule(sketch, connections, local, src, dst)}, so "
                f"GPU {src} of the {sketch.ranks} has no path to GPU {dst}"
            )


def _require_senders(
    rules: TacclRules, sketch: Sketch, connections: _Connections, local: nx.DiGraph[int]
) -> None:
    field = f"{rules.source}: internode_sketch.gpus_to_sender_rev_map"
    served = {gpu for owners in rules.sent_by.values() for gpu in owners}
    for sender, owners in rules.sent_by.items():
        if not connections.get(sender):
            raise MachineError(
                f"{field}.{sender}: internode_conn gives GPU {sender} no connection; add one, or "
                f"name a sender"
            )
        for gpu in owners:
            if not nx.has_path(local, gpu, sender):
                raise MachineError(
                    f"{field}.{sender}: GPU {gpu} has no path to GPU {sender} inside the node"
                )
    for gpu in range(sketch.ranks // rules.nodes if served else 0):
        if gpu not in served:
            raise MachineError(
                f"{field}: GPU {gpu} has no sender, so its data can't leave the node; list it"
            )


def _preventing_rule(
    sketch: Sketch, connections: _Connections, local: nx.DiGraph[int], src: int, dst: int
) -> str:
    """Return the rule that prevents a path between two GPUs."""
    per_node = sketch.ranks // (max(sketch.node_of_rank) + 1)
    if per_node == sketch.ranks:
        return "the machine's links inside the node do not join all GPUs"
    field = "internode_sketch.internode_conn"
    senders = {sender for sender, receivers in connections.items() if receivers}
    receivers = {receiver for each in connections.values() for receiver in each}
    leaving = {rank % per_node for rank in nx.descendants(local, src) | {src}}
    arriving = {rank % per_node for rank in nx.ancestors(local, dst) | {dst}}
    if not leaving & senders:
        named = ", ".join(map(str, sorted(senders))) or "none"
        return f"{field}: GPU {src % per_node} of a node reaches no sender ({named})"
    if not arriving & receivers:
        named = ", ".join(map(str, sorted(receivers))) or "none"
        return f"{field}: GPU {dst % per_node} of a node is reached from no receiver ({named})"
    return f"{field}: its connections and the machine's network do not join all parts"


def _symmetries(rules: TacclRules, sketch: Sketch) -> tuple[tuple[int, ...], ...]:
    """Return the rank permutations of `symmetry_offsets`, after a check of each.

    [o, s] moves rank r to (r mod s + o) mod s in its block of s ranks.
    """
    found = []
    for number, (offset, block) in enumerate(rules.symmetry_offsets):
        moved = tuple(
            (rank % block + offset) % block + rank // block * block for rank in range(sketch.ranks)
        )
        if not is_symmetry(sketch, moved):
            raise MachineError(
                f"{rules.source}: symmetry_offsets.{number}: [{offset}, {block}] "
                f"{_asymmetry(sketch, moved)}; correct it or leave it out"
            )
        found.append(moved)
    return tuple(found)


def _asymmetry(sketch: Sketch, moved: tuple[int, ...]) -> str:
    if sorted(moved) != list(range(sketch.ranks)):
        return f"moves GPUs beyond the {sketch.ranks} there are"
    for edge in sketch.edges:
        image = sketch.edge.get((moved[edge.src], moved[edge.dst]))
        way = f"takes {edge.src} -> {edge.dst} to {moved[edge.src]} -> {moved[edge.dst]}"
        if image is None:
            return f"{way}, where there is no connection"
        rates = (edge.bandwidth_gb_per_s, image.bandwidth_gb_per_s)
        if not isclose(*rates, rel_tol=EQUAL_WITHIN):
            return f"{way}, from {rates[0]:.4g} GB/s to {rates[1]:.4g}"
    return "takes connections to others of another alpha, or that share NICs and switches otherwise"
