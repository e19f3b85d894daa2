"""Rehearsal: the simulated time of a timetable's transfers without their start times.

A timetable has a start for each transfer; a lowered schedule keeps only the order on each
connection. Ports then serve messages as they arrive, or share themselves among all of them, and a
transfer with precedence in the timetable may have to queue. The rehearsal runs the simulator on the
transfers, with one threadblock for each end of a connection, without lowering them. Plans are
compared by the worse of its times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from sketches.sketch import Sketch
from synthesizer.ir.schedule_graph import Connection, ScheduleGraph, route_messages
from synthesizer.plan.composition import TimedTrees
from synthesizer.plan.port_queues import TimedTwoWays
from synthesizer.simulate.simulator import CompiledSchedule, ExecutionModel, Times
from synthesizer.solve.resources import Hop

_WIRES = ExecutionModel()


def rehearsed(plan: TimedTrees, piece_bytes: float, sketch: Sketch, *, backwards: bool) -> Times:
    """Return the simulated times of a plan's transfers.

    Args:
        plan: Trees and timetable.
        piece_bytes: Size of a piece.
        sketch: The sketch on which the transfers run.
        backwards: Whether the trees run in reverse, with sums; their timetable is then of the
            reversed sketch.
    """
    order = plan.backwards() if backwards else plan.forwards()
    hops = [timed.hop[::-1] if backwards else timed.hop for timed in order]
    arriving: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for number, (timed, (_, b)) in enumerate(zip(order, hops, strict=True)):
        arriving[timed.tree, timed.piece, b].append(number)
    awaited = [
        arriving.get((timed.tree, timed.piece, a), [])
        for timed, (a, _) in zip(order, hops, strict=True)
    ]
    # Sums of several branches are added to one chunk, in this order.
    sums = list(arriving.values()) if backwards else []
    return _times(hops, awaited, sums, piece_bytes, sketch)


def rehearsed_two_ways(plan: TimedTwoWays, chunk_bytes: float, sketch: Sketch) -> Times:
    """Return the simulated times of two-way trees."""
    arriving: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, timed in enumerate(plan.transfers):
        arriving[timed.tree, timed.hop[1]].append(number)
    awaited = []
    for timed in plan.transfers:
        chunk, rank = plan.chunk(timed), timed.hop[0]
        # A root spreads what the branches brought; every rank passes on what came to it.
        whole = not plan.carries_sum(timed) and rank == plan.trees[chunk].root
        awaited.append(arriving.get((chunk if whole else timed.tree, rank), []))
    sums = list(arriving.values())
    return _times([timed.hop for timed in plan.transfers], awaited, sums, chunk_bytes, sketch)


def _times(
    hops: Sequence[Hop],
    awaited: Sequence[Sequence[int]],
    sums: Sequence[Sequence[int]],
    piece_bytes: float,
    sketch: Sketch,
) -> Times:
    """Return the times of transfers in this order on each connection.

    Args:
        hops: The hop of every transfer.
        awaited: For every transfer, those into its sender that it waits for.
        sums: Transfers into one chunk, which is not written by two at a time.
        piece_bytes: Size of a transfer.
        sketch: The sketch on which the transfers run.
    """
    by_connection: dict[Hop, list[int]] = defaultdict(list)
    for number, hop in enumerate(hops):
        by_connection[hop].append(number)
    graph = ScheduleGraph()
    send_of, receive_of = [0] * len(hops), [0] * len(hops)
    sends: dict[Connection, list[int]] = {}
    # Threadblocks are numbered by their first transfer; among equals the lowest starts first.
    for (a, b), numbers in by_connection.items():
        sends_range = _add_block(graph, a, numbers, send_of)
        receives_range = _add_block(graph, b, numbers, receive_of)
        sends[a, b, 0] = list(sends_range)
        graph.connections.append((list(sends_range), list(receives_range)))
    for number, before in enumerate(awaited):
        graph.depends += [(receive_of[arrival], send_of[number]) for arrival in before]
    for arrivals in sums:
        graph.depends += [(receive_of[a], receive_of[b]) for a, b in pairwise(arrivals)]
    route_messages(graph, sends, sketch)
    return CompiledSchedule(graph, 1).times(piece_bytes, _WIRES)


def _add_block(graph: ScheduleGraph, rank: int, numbers: list[int], steps: list[int]) -> range:
    """Append a threadblock with a step for every given transfer."""
    first = len(graph.names)
    block = range(first, first + len(numbers))
    for step, number in zip(block, numbers, strict=True):
        steps[number] = step
        graph.names.append((rank, len(graph.blocks), step - first))
        graph.chunks.append(1)
    graph.blocks.append(block)
    return block
