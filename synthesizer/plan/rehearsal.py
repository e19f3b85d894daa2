"""Rehearsal: how long a timetable takes once nobody keeps the time.

A timetable says when each transfer starts; a lowered schedule only keeps the order on each
connection. Ports then serve connections as their messages come, and what the timetable gave
precedence may have to queue. The rehearsal runs the simulator on the bare transfers, one
threadblock for each end of a connection, without lowering them first: it is what plans are judged
by.
"""

from __future__ import annotations

from collections import defaultdict

from sketches.sketch import Sketch
from synthesizer.ir.schedule_graph import Connection, ScheduleGraph, route_messages
from synthesizer.plan.composition import TimedTrees
from synthesizer.simulate.simulator import CompiledSchedule, ExecutionModel
from synthesizer.solve.resources import Hop

_WIRES = ExecutionModel()


def rehearsed_us(plan: TimedTrees, piece_bytes: float, sketch: Sketch, *, backwards: bool) -> float:
    """Simulated time of a plan's transfers in microseconds.

    Args:
        plan: Trees and timetable.
        piece_bytes: Size of a piece.
        sketch: Where the transfers run.
        backwards: Whether the trees are run against their direction, adding up at every meeting;
            then they were timed on the reversed sketch.
    """
    graph, sends = _graph(plan, backwards=backwards)
    route_messages(graph, sends, sketch)
    return CompiledSchedule(graph, 1).time_us(piece_bytes, _WIRES)


def _graph(
    plan: TimedTrees, *, backwards: bool
) -> tuple[ScheduleGraph, dict[Connection, list[int]]]:
    """Steps of all connections, and the sends among them."""
    order = plan.backwards() if backwards else plan.forwards()
    by_connection: dict[Hop, list[int]] = defaultdict(list)
    bringing: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for number, timed in enumerate(order):
        a, b = timed.hop[::-1] if backwards else timed.hop
        by_connection[a, b].append(number)
        bringing[timed.tree, timed.piece, b].append(number)
    graph = ScheduleGraph()
    send_of, receive_of = [0] * len(order), [0] * len(order)
    sends: dict[Connection, list[int]] = {}
    # By first transfer, as threadblocks are numbered: among equals the first one starts first.
    for (a, b), numbers in by_connection.items():
        out = _add_block(graph, a, numbers, send_of)
        into = _add_block(graph, b, numbers, receive_of)
        sends[a, b, 0] = list(out)
        graph.connections.append((list(out), list(into)))
    for number, timed in enumerate(order):
        sender = timed.hop[1] if backwards else timed.hop[0]
        graph.depends += [
            (receive_of[before], send_of[number])
            for before in bringing.get((timed.tree, timed.piece, sender), ())
        ]
    return graph, sends


def _add_block(graph: ScheduleGraph, rank: int, numbers: list[int], steps: list[int]) -> range:
    """A threadblock with a step for every given transfer."""
    first = len(graph.names)
    block = range(first, first + len(numbers))
    for step, number in zip(block, numbers, strict=True):
        steps[number] = step
        graph.names.append((rank, len(graph.blocks), step - first))
        graph.chunks.append(1)
    graph.blocks.append(block)
    return block
