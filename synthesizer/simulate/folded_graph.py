"""Folding of equivalent ranks onto one representative for simulation.

Take a rank permutation that maps the schedule onto itself, threadblock by threadblock and step by
step (whichever chunks a step moves), and the sketch's edges and ports in use onto edges and ports
with equal latencies and bandwidths. Then the ranks of an orbit wait, send and receive at the same
times, so it is enough to simulate one representative of each orbit, with messages to a rank
delivered to its representative. The only difference: where messages reach a port at the same
instant, all ranks of an orbit resolve the tie equally, which a full simulation need not do.

The permutations come from the sketch and are checked here against the schedule, and against the
sketch for exact equality, because a sketch's symmetries tolerate small differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import numpy as np

from sketches.sketch import Edge, Sketch
from sketches.symmetry import least_of_classes
from synthesizer.ir.algorithm import Algorithm, GpuProgram, StepType
from synthesizer.ir.schedule_graph import Connection, ScheduleGraph, route_messages
from synthesizer.prove.step_table import Ints, StepTable, step_table
from synthesizer.prove.structure import program_defects
from synthesizer.prove.waves import connect

_Pair = tuple[int, int]


def folded_graph(algorithm: Algorithm, sketch: Sketch) -> ScheduleGraph | None:
    """Return the graph of one rank per orbit; None if nothing folds or the schedule is unsound."""
    try:
        table = step_table(algorithm)
    except OverflowError:
        return None
    if any(program_defects(algorithm, table)) or isinstance(connect(table), list):
        return None
    edges = _edges_in_use(table, sketch)
    if edges is None:
        return None
    rank_leader = list(range(sketch.ranks))
    port_leader = {port: port for edge in edges.values() for port in edge.ports}
    for permutation in sketch.symmetries:
        image = np.array(permutation)
        ports = _port_images(edges, sketch, permutation)
        if ports is not None and _maps_onto_itself(table, image):
            alike = [*enumerate(rank_leader), *enumerate(permutation)]
            rank_leader = least_of_classes(sketch.ranks, alike)
            port_leader = _joined_ports(port_leader, ports)
    if rank_leader == list(range(sketch.ranks)):
        return None
    if not _users_differ(table, edges, np.array(rank_leader)):
        return None
    return _fold(algorithm, sketch, edges, rank_leader, port_leader)


def _edges_in_use(table: StepTable, sketch: Sketch) -> dict[_Pair, Edge] | None:
    """Return the edges that messages use; None if one is missing."""
    senders = table.send_peer >= 0
    pairs = zip(table.block_rank[senders].tolist(), table.send_peer[senders].tolist(), strict=True)
    found = {pair: sketch.edge.get(pair) for pair in dict.fromkeys(pairs)}
    edges = {pair: edge for pair, edge in found.items() if edge is not None}
    return edges if len(edges) == len(found) else None


def _maps_onto_itself(table: StepTable, image: Ints) -> bool:
    """Return whether every rank's image runs the same steps with the images of its peers."""
    widths = np.diff(table.first_block)
    if (widths[image] != widths).any():
        return False
    inside = np.arange(len(table.block_rank)) - table.first_block[table.block_rank]
    block = table.first_block[image[table.block_rank]] + inside
    lengths = np.diff(table.first)
    peers = np.append(image, -1)
    same = (
        (lengths[block] == lengths)
        & (table.channel[block] == table.channel)
        & (table.send_peer[block] == peers[table.send_peer])
        & (table.recv_peer[block] == peers[table.recv_peer])
    )
    if not same.all():
        return False
    step = table.first[block[table.block]] + table.position
    return all(
        bool((column[step] == column).all())
        for column in (
            table.kind,
            table.count,
            table.depends,
            table.awaited_block,
            table.awaited_step,
        )
    )


def _port_images(
    edges: Mapping[_Pair, Edge], sketch: Sketch, permutation: tuple[int, ...]
) -> dict[str, str] | None:
    """Return the images of the ports in use; None if an edge's image differs from the edge."""
    ports: dict[str, str] = {}
    for (src, dst), edge in edges.items():
        image = edges.get((permutation[src], permutation[dst]))
        if image is None or len(image.ports) != len(edge.ports):
            return None
        if (image.alpha_us, image.bandwidth_gb_per_s) != (edge.alpha_us, edge.bandwidth_gb_per_s):
            return None
        for port, port_image in zip(edge.ports, image.ports, strict=True):
            if ports.setdefault(port, port_image) != port_image:
                return None
    widths = {name: sketch.port[name].bandwidth_gb_per_s for name in ports}
    kept = all(widths[port] == widths.get(port_image) for port, port_image in ports.items())
    return ports if kept and len(set(ports.values())) == len(ports) else None


def _joined_ports(leader: dict[str, str], image: Mapping[str, str]) -> dict[str, str]:
    names = sorted(leader)
    number = {name: i for i, name in enumerate(names)}
    alike = [(number[a], number[b]) for pairs in (leader, image) for a, b in pairs.items()]
    least = least_of_classes(len(names), alike)
    return {name: names[first] for name, first in zip(names, least, strict=True)}


def _users_differ(table: StepTable, edges: Mapping[_Pair, Edge], leader: Ints) -> bool:
    """Return whether no port serves two threadblocks that fold onto one, which would lose load."""
    seen: set[tuple[str, int, int]] = set()
    for block in np.flatnonzero(table.send_peer >= 0).tolist():
        rank = int(table.block_rank[block])
        user = (int(leader[rank]), int(table.block_id[block]))
        for port in dict.fromkeys(edges[rank, int(table.send_peer[block])].ports):
            if (port, *user) in seen:
                return False
            seen.add((port, *user))
    return True


def _fold(
    algorithm: Algorithm,
    sketch: Sketch,
    edges: Mapping[_Pair, Edge],
    leader: list[int],
    port_leader: Mapping[str, str],
) -> ScheduleGraph:
    sender = {
        (gpu.rank, block.send_peer, block.channel): block.id
        for gpu in algorithm.programs
        for block in gpu.threadblocks
        if block.send_peer >= 0
    }
    graph = ScheduleGraph()
    # Both by the rank and the threadblock that send.
    sends: dict[_Pair, list[int]] = {}
    receives: dict[_Pair, list[int]] = {}
    used: dict[Connection, list[int]] = {}
    for gpu in algorithm.programs:
        if leader[gpu.rank] != gpu.rank:
            continue
        for block, (sent, received) in zip(gpu.threadblocks, _append(graph, gpu), strict=True):
            if sent:
                sends[gpu.rank, block.id] = sent
                used[gpu.rank, block.send_peer, block.channel] = sent
            if received:
                sender_block = sender[block.recv_peer, gpu.rank, block.channel]
                receives[leader[block.recv_peer], sender_block] = received
    graph.connections = [(sends[key], receives[key]) for key in sorted(sends)]
    folded = tuple(
        replace(edge, ports=tuple(port_leader[port] for port in edge.ports))
        for edge in (edges[src, dst] for src, dst, _ in used)
    )
    route_messages(graph, used, replace(sketch, edges=folded))
    return graph


def _append(graph: ScheduleGraph, gpu: GpuProgram) -> list[tuple[list[int], list[int]]]:
    """Append the steps of a rank; return each threadblock's sends and receives."""
    sizes = (len(block.steps) for block in gpu.threadblocks)
    first = list(accumulate(sizes, initial=len(graph.names)))
    messages = []
    for block, start in zip(gpu.threadblocks, first, strict=False):
        graph.blocks.append(range(start, start + len(block.steps)))
        for position, step in enumerate(block.steps):
            graph.names.append((gpu.rank, block.id, position))
            graph.chunks.append(0 if step.type is StepType.NOP else step.count)
            if step.depends is not None:
                awaited = first[step.depends.threadblock] + step.depends.step
                graph.depends.append((awaited, start + position))
        numbered = list(enumerate(block.steps, start))
        sent = [number for number, step in numbered if step.type.sends]
        messages.append((sent, [number for number, step in numbered if step.type.receives]))
    return messages
