"""A schedule on a sketch as a flat graph over step numbers, the simulator's input.

Peers become routes over numbered ports, connections become pairs of send and receive steps, and
threadblocks become ranges of step numbers. Ports that serve the same edges of the schedule are one
queue, so they become one port with the bandwidth of the slowest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sketches.sketch import Edge, Sketch
from synthesizer.ir.algorithm import Algorithm, StepType, Threadblock
from tuccl.errors import InfeasibleError, ScheduleError

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


def schedule_graph(algorithm: Algorithm, sketch: Sketch) -> ScheduleGraph:
    """Flatten a schedule; raises as `synthesizer.simulate.simulator.compile_schedule`."""
    graph = ScheduleGraph()
    first_step: dict[tuple[int, int], int] = {}
    sends: dict[Connection, list[int]] = {}
    receives: dict[Connection, list[int]] = {}
    for rank, block in _threadblocks(algorithm):
        first = len(graph.names)
        first_step[rank, block.id] = first
        graph.blocks.append(range(first, first + len(block.steps)))
        for position, step in enumerate(block.steps):
            graph.names.append((rank, block.id, position))
            graph.chunks.append(0 if step.type is StepType.NOP else step.count)
            if step.type.sends:
                key = (rank, block.send_peer, block.channel)
                sends.setdefault(key, []).append(first + position)
            if step.type.receives:
                key = (block.recv_peer, rank, block.channel)
                receives.setdefault(key, []).append(first + position)
    graph.depends = list(_dependences(algorithm, first_step))
    graph.connections = list(_connections(graph.chunks, sends, receives))
    route_messages(graph, sends, sketch)
    return graph


def _threadblocks(algorithm: Algorithm) -> Iterator[tuple[int, Threadblock]]:
    return ((gpu.rank, block) for gpu in algorithm.programs for block in gpu.threadblocks)


def _dependences(
    algorithm: Algorithm, first_step: dict[tuple[int, int], int]
) -> Iterator[tuple[int, int]]:
    lengths = {(rank, block.id): len(block.steps) for rank, block in _threadblocks(algorithm)}
    for rank, block in _threadblocks(algorithm):
        for position, step in enumerate(block.steps):
            if step.depends is None:
                continue
            awaited = (rank, step.depends.threadblock)
            if not 0 <= step.depends.step < lengths.get(awaited, 0):
                raise ScheduleError(
                    f"schedule {algorithm.name}: step {position} of rank {rank} threadblock "
                    f"{block.id} waits for step {step.depends.step} of threadblock "
                    f"{step.depends.threadblock}, which does not exist"
                )
            yield first_step[awaited] + step.depends.step, first_step[rank, block.id] + position


def _connections(
    chunks: list[int], sends: dict[Connection, list[int]], receives: dict[Connection, list[int]]
) -> Iterator[tuple[list[int], list[int]]]:
    for key in sorted(sends.keys() | receives.keys()):
        sent, received = sends.get(key, []), receives.get(key, [])
        if [chunks[step] for step in sent] != [chunks[step] for step in received]:
            src, dst, channel = key
            raise ScheduleError(
                f"connection {src} -> {dst} on channel {channel}: its {len(sent)} sends and "
                f"{len(received)} receives differ in number or in chunk counts"
            )
        yield sent, received


def route_messages(
    graph: ScheduleGraph, sends: dict[Connection, list[int]], sketch: Sketch
) -> None:
    """Set ports and alphas of the given sends; raises as `schedule_graph`."""
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
