"""A schedule on a sketch as a flat graph over step numbers, the simulator's input.

Peers become routes over numbered ports, connections become pairs of send and receive steps, and
threadblocks become ranges of step numbers. Ports that serve the same edges of the schedule are one
queue, so they become one port with the bandwidth of the slowest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sketches.sketch import Edge, Sketch
from tuccl.errors import InfeasibleError

Connection = tuple[int, int, int]
"""Source rank, destination rank, channel."""


class Hop(NamedTuple):
    """One port on the route of a message."""

    port: int
    us_per_byte: float


@dataclass(slots=True)
class ScheduleGraph:
    """Steps with numbers over all ranks and threadblocks, in program order."""

    names: list[tuple[int, int, int]] = field(default_factory=list)
    """(rank, threadblock, step) of every step number."""
    chunks: list[int] = field(default_factory=list)
    """Chunks that the step moves; 0 for nop."""
    hops: list[tuple[Hop, ...]] = field(default_factory=list)
    """Ports that the step's message passes; empty if it sends nothing."""
    alpha_us: list[float] = field(default_factory=list)
    blocks: list[range] = field(default_factory=list)
    """Step numbers of every threadblock."""
    depends: list[tuple[int, int]] = field(default_factory=list)
    """(awaited step, waiting step) within a rank."""
    connections: list[tuple[list[int], list[int]]] = field(default_factory=list)
    """Matching sends and receives of every connection."""
    port_count: int = 0


def route_messages(
    graph: ScheduleGraph, sends: dict[Connection, list[int]], sketch: Sketch
) -> None:
    """Set ports and alphas of the given sends.

    Raises:
        InfeasibleError: The sketch does not connect the ranks of a message.
    """
    edges: dict[tuple[int, int], Edge] = {}
    for src, dst, _ in sorted(sends):
        edge = sketch.edge.get((src, dst))
        if edge is None:
            raise InfeasibleError(
                f"the schedule sends from rank {src} to rank {dst}, which sketch "
                f"{sketch.name} does not connect: use a sketch that has this edge"
            )
        edges[src, dst] = edge
    routes, graph.port_count = _queues(edges, sketch)
    graph.hops = [()] * len(graph.names)
    graph.alpha_us = [0.0] * len(graph.names)
    for (src, dst, _), steps in sends.items():
        for step in steps:
            graph.hops[step] = routes[src, dst]
            graph.alpha_us[step] = edges[src, dst].alpha_us


def _queues(
    edges: dict[tuple[int, int], Edge], sketch: Sketch
) -> tuple[dict[tuple[int, int], tuple[Hop, ...]], int]:
    """Return the ports of every used edge as numbered queues, and the number of queues."""
    users: dict[str, list[tuple[int, int]]] = {}
    for pair, edge in edges.items():
        for port in edge.ports:
            users.setdefault(port, []).append(pair)
    number: dict[tuple[tuple[int, int], ...], int] = {}
    bandwidth: list[float] = []
    queues_of: dict[tuple[int, int], list[int]] = {}
    for pair, edge in edges.items():
        route = [(tuple(users[port]), sketch.port[port].bandwidth_gb_per_s) for port in edge.ports]
        if edge.bandwidth_gb_per_s < min((rate for _, rate in route), default=float("inf")):
            route.insert(0, ((pair,), edge.bandwidth_gb_per_s))
        queues: list[int] = []
        for served, rate in route:
            queue = number.setdefault(served, len(bandwidth))
            if queue == len(bandwidth):
                bandwidth.append(rate)
            bandwidth[queue] = min(bandwidth[queue], rate)
            if queue not in queues:
                queues.append(queue)
        queues_of[pair] = queues
    return {
        pair: tuple(Hop(queue, 1e-3 / bandwidth[queue]) for queue in queues)
        for pair, queues in queues_of.items()
    }, len(bandwidth)
