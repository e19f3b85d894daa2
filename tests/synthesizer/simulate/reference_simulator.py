"""The simulator's loop in plain Python, the reference for the loop in C.

All waits are made explicit for every tile before the loop begins, unlike in the C code.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from synthesizer.ir.schedule_graph import ScheduleGraph
from synthesizer.native import Deadlock


class TiledGraph(NamedTuple):
    """A `ScheduleGraph` repeated for every tile, with explicit waits.

    Step `s` of tile `t` has the number `t * steps + s`.
    """

    pending: list[int]
    """Number of events that a step waits for."""
    after: list[tuple[int, ...]]
    """Steps that can start a handover after this step ends."""
    frees: list[int]
    """The send that reuses the FIFO slot of this receive; -1 for none."""
    receiver: list[int]
    """The step that receives this step's message; -1 for none."""


def tiled_graph(graph: ScheduleGraph, tiles: int, fifo_slots: int) -> TiledGraph:
    """Repeat the schedule: threadblocks run tile after tile, FIFO slots carry over."""
    steps = len(graph.names)
    pending = [0] * (steps * tiles)
    after: list[list[int]] = [[] for _ in range(steps * tiles)]
    frees = [-1] * (steps * tiles)
    receiver = [-1] * (steps * tiles)
    for first in range(0, steps * tiles, steps):
        for awaited, waiting in graph.depends:
            after[first + awaited].append(first + waiting)
    for block in graph.blocks:
        order = [tile * steps + step for tile in range(tiles) for step in block]
        for earlier, later in pairwise(order):
            after[earlier].append(later)
    for sent, received in graph.connections:
        sends = [tile * steps + step for tile in range(tiles) for step in sent]
        receives = [tile * steps + step for tile in range(tiles) for step in received]
        for send, receive in zip(sends, receives, strict=True):
            receiver[send] = receive
            pending[receive] += 1
        for receive, send in zip(receives, sends[fifo_slots:], strict=False):
            frees[receive] = send
            pending[send] += 1
    for followers in after:
        for step in followers:
            pending[step] += 1
    return TiledGraph(pending, [tuple(followers) for followers in after], frees, receiver)


def simulate_us(  # noqa: PLR0912
    graph: ScheduleGraph, tiled: TiledGraph, costs: tuple[float, float, float]
) -> float | Deadlock:
    """Run all tiles; return the time when the last step is done, or the deadlock."""
    handover, wire_bytes, copy = costs
    hops, alpha_us = graph.hops, graph.alpha_us
    after, frees, receiver = tiled.after, tiled.frees, tiled.receiver
    steps = len(graph.names)
    bytes_of = [chunks * wire_bytes for chunks in graph.chunks]
    copy_of = [chunks * copy for chunks in graph.chunks]
    last_hop = [len(path) - 1 for path in hops]
    waits = tiled.pending.copy()
    ready = [handover] * len(waits)
    passed_by = [0.0] * len(waits)
    free = [0.0] * graph.port_count
    runnable = [number for number, count in enumerate(waits) if not count]
    events: list[tuple[float, int, int]] = []
    makespan, unfinished = 0.0, len(waits)
    while runnable or events:
        if runnable:
            number = runnable.pop()
            step = number % steps
            if hops[step]:
                heappush(events, (ready[number], number, 0))
                continue
            block_done = ready[number] + copy_of[step]
        else:
            start, number, hop = heappop(events)
            step = number % steps
            port, us_per_byte = hops[step][hop]
            start = max(start, free[port])
            passed = free[port] = start + bytes_of[step] * us_per_byte
            passed = max(passed, passed_by[number])
            passed = max(passed, start + copy_of[step])
            passed_by[number] = passed
            if hop < last_hop[step]:
                heappush(events, (start, number, hop + 1))
            else:
                arrival = passed + alpha_us[step]
                receive = receiver[number]
                ready[receive] = max(ready[receive], arrival)
                waits[receive] -= 1
                if not waits[receive]:
                    runnable.append(receive)
            if hop:
                continue
            block_done = passed
        unfinished -= 1
        makespan = max(makespan, block_done)
        begins = block_done + handover
        for follower in after[number]:
            ready[follower] = max(ready[follower], begins)
            waits[follower] -= 1
            if not waits[follower]:
                runnable.append(follower)
        freed = frees[number]
        if freed >= 0:
            ready[freed] = max(ready[freed], block_done)
            waits[freed] -= 1
            if not waits[freed]:
                runnable.append(freed)
    if unfinished:
        return Deadlock(unfinished, next(number for number, count in enumerate(waits) if count))
    return makespan
