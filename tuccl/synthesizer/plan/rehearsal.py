"""Rehearsal: the simulated time of a timetable's transfers without their start times.

A timetable has a start for each transfer; a lowered schedule keeps only the order on each
connection. Ports then serve messages as they arrive, or share themselves among all of them, and a
transfer with precedence in the timetable may have to queue. The rehearsal runs the simulator on the
transfers, with one threadblock for each end of a connection, without lowering them. Plans are
compared by the worse of its times.
"""

from __future__ import annotations

from collections import defaultdict

from tuccl.sketches.sketch import Sketch
from tuccl.synthesizer.ir.schedule_graph import Connection, ScheduleGraph, route_messages
from tuccl.synthesizer.plan.composition import TimedTrees
from tuccl.synthesizer.simulate.simulator import CompiledSchedule, ExecutionModel, Times
from tuccl.synthesizer.solve.resources import Hop

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
    graph, sends = _graph(plan, backwards=backwards)
    route_messages(graph, sends, sketch)
    return CompiledSchedule(graph, 1).times(piece_bytes, _WIRES)


def _graph(
    plan: TimedTrees, *, backwards: bool
) -> tuple[ScheduleGraph, dict[Connection, list[int]]]:
    """Return the steps of all connections, and the sends among them."""
    order = plan.backwards() if backwards else plan.forwards()
    by_connection: dict[Hop, list[int]] = defaultdict(list)
    arriving: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for number, timed in enumerate(order):
        a, b = timed.hop[::-1] if backwards else timed.hop
        by_connection[a, b].append(number)
        arriving[timed.tree, timed.piece, b].append(number)
    graph = ScheduleGraph()
    send_of, receive_of = [0] * len(order), [0] * len(order)
    sends: dict[Connection, list[int]] = {}
    # Threadblocks are numbered by their first transfer; among equals the lowest starts first.
    for (a, b), numbers in by_connection.items():
        sends_range = _add_block(graph, a, numbers, send_of)
        receives_range = _add_block(graph, b, numbers, receive_of)
        sends[a, b, 0] = list(sends_range)
        graph.connections.append((list(sends_range), list(receives_range)))
    for number, timed in enumerate(order):
        sender = timed.hop[1] if backwards else timed.hop[0]
        graph.depends += [
            (receive_of[before], send_of[number])
            for before in arriving.get((timed.tree, timed.piece, sender), ())
        ]
    return graph, sends


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
