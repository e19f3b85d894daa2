"""Schedules as flat graphs for simulation, and the folding of equivalent ranks onto one.

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
from itertools import pairwise

import numpy as np

from sketches.sketch import Edge, Sketch
from sketches.symmetry import least_of_classes
from synthesizer.ir.algorithm import Algorithm, StepType
from synthesizer.ir.schedule_graph import Connection, ScheduleGraph, route_messages
from synthesizer.prove.step_table import Ints, StepTable, starts, step_table
from synthesizer.prove.structure import program_defects
from synthesizer.prove.waves import Connections, connect
from tuccl.errors import ScheduleError

_Pair = tuple[int, int]


def schedule_graph(algorithm: Algorithm, sketch: Sketch) -> ScheduleGraph:
    """Return the graph of all steps.

    Raises:
        InfeasibleError: The sketch does not connect the ranks of a message.
        ScheduleError: Sends and receives of a connection differ, or steps make no sense.
    """
    table, connections = _connected(algorithm)
    graph, sends = _graph(table, connections, np.arange(algorithm.ranks))
    route_messages(graph, sends, sketch)
    return graph


def _connected(algorithm: Algorithm) -> tuple[StepTable, Connections]:
    try:
        table = step_table(algorithm)
    except OverflowError as error:
        raise ScheduleError(f"schedule {algorithm.name}: {error}") from error
    found = list(program_defects(algorithm, table, nops_report=True)) or connect(table)
    if isinstance(found, list):
        raise ScheduleError(f"schedule {algorithm.name}: {found[0].describe()}")
    return table, found


def _graph(
    table: StepTable, connections: Connections, leader: Ints
) -> tuple[ScheduleGraph, dict[Connection, list[int]]]:
    """Return the graph of the ranks that lead, without routes, and the sends of each connection.

    Messages from a rank come from its leader instead.
    """
    leads = leader == np.arange(len(leader))
    step = np.flatnonzero(leads[table.rank])
    number = np.full(table.steps, -1)
    number[step] = np.arange(len(step))
    lengths = np.diff(table.first)[leads[table.block_rank]]
    places = (table.rank[step], table.block_id[table.block[step]], table.position[step])
    waiting = step[table.depends[step]]
    graph = ScheduleGraph(
        names=list(zip(*(column.tolist() for column in places), strict=True)),
        chunks=np.where(table.are(StepType.NOP), 0, table.count)[step].tolist(),
        blocks=[range(first, end) for first, end in pairwise(starts(lengths).tolist())],
        depends=list(
            zip(number[table.awaited(waiting)].tolist(), number[waiting].tolist(), strict=True)
        ),
    )
    sender = table.block[connections.sends]
    home = table.first_block[leader[table.block_rank[sender]]] + table.block_id[sender]
    sent, received = (
        _by_key(block[kept], number[steps[kept]])
        for block, steps in ((sender, connections.sends), (home, connections.receives))
        for kept in [leads[table.rank[steps]]]
    )
    graph.connections = list(zip(sent.values(), received.values(), strict=True))
    blocks = list(sent)
    ends = (table.block_rank, table.send_peer, table.channel)
    keys = zip(*(column[blocks].tolist() for column in ends), strict=True)
    return graph, dict(zip(keys, sent.values(), strict=True))


def _by_key(keys: Ints, steps: Ints) -> dict[int, list[int]]:
    """Return the steps of each key in their order, by key."""
    found: dict[int, list[int]] = {}
    order = np.argsort(keys, kind="stable")
    for key, step in zip(keys[order].tolist(), steps[order].tolist(), strict=True):
        found.setdefault(key, []).append(step)
    return found


def folded_graph(algorithm: Algorithm, sketch: Sketch) -> ScheduleGraph | None:
    """Return the graph of one rank per orbit; None if nothing folds or the schedule is unsound."""
    try:
        table, connections = _connected(algorithm)
    except ScheduleError:
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
    graph, sends = _graph(table, connections, np.array(rank_leader))
    folded = tuple(
        replace(edge, ports=tuple(port_leader[port] for port in edge.ports))
        for edge in (edges[src, dst] for src, dst, _ in sends)
    )
    route_messages(graph, sends, replace(sketch, edges=folded))
    return graph


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
