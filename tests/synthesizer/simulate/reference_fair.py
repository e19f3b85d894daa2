"""Max-min fair sharing in plain Python, the reference for the loop in C.

All rates are filled anew at every event, and exact fractions of the ports leave no rounding to
tolerate. A trace of every interval lets tests look at the rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from heapq import heappop, heappush
from typing import NamedTuple

from synthesizer.ir.schedule_graph import Hop, ScheduleGraph
from synthesizer.native import Deadlock
from tests.synthesizer.simulate.reference_simulator import TiledGraph

_AT_ONCE = 1 + 1e-10
"""Events that differ by less are one event."""


class Interval(NamedTuple):
    """Rates in bytes per microsecond between two events, by the step that sends."""

    begin_us: float
    end_us: float
    rates: Mapping[int, float]


def fair_rates(
    routes: Mapping[int, tuple[Hop, ...]], most: float = float("inf")
) -> dict[int, float]:
    """Return max-min fair rates by progressive filling: all grow together until a port is full.

    Args:
        routes: Ports of each message.
        most: Rate that no message exceeds.
    """
    left = {hop.port: Fraction(1) for route in routes.values() for hop in route}
    width = {hop.port: 1 / Fraction(hop.us_per_byte) for route in routes.values() for hop in route}
    rates: dict[int, Fraction] = {}
    found: dict[int, float] = {}
    while len(found) < len(routes):
        users = {
            port: [m for m in routes if m not in found and port in {hop.port for hop in routes[m]}]
            for port in left
        }
        level, port = min(
            (left[port] * width[port] / len(open_ones), port)
            for port, open_ones in users.items()
            if open_ones
        )
        if level >= most:
            return found | {m: most for m in routes if m not in found}
        for m in users[port]:
            rates[m], found[m] = level, float(level)
            for hop in routes[m]:
                left[hop.port] -= level / width[hop.port]
    return found


def simulate_fair_us(
    graph: ScheduleGraph,
    tiled: TiledGraph,
    costs: tuple[float, float, float],
    trace: list[Interval] | None = None,
) -> float | Deadlock:
    """Run all tiles; return the time when the last step is done, or the deadlock.

    The trace takes the rates of every interval.
    """
    run = _Run(graph, tiled, *costs)
    while run.advance(trace):
        pass
    if run.unfinished:
        return Deadlock(run.unfinished, next(i for i, count in enumerate(run.waits) if count))
    return run.makespan_us


class _Run:
    def __init__(
        self,
        graph: ScheduleGraph,
        tiled: TiledGraph,
        handover_us: float,
        wire_bytes: float,
        copy_us: float,
    ) -> None:
        self.waits = tiled.pending.copy()
        self.unfinished = len(self.waits)
        self.makespan_us = 0.0
        self._graph, self._tiled = graph, tiled
        self._handover_us, self._wire_bytes, self._copy_us = handover_us, wire_bytes, copy_us
        self._most = wire_bytes / copy_us if copy_us else float("inf")
        self._ready = [handover_us] * len(self.waits)
        self._runnable = [number for number, count in enumerate(self.waits) if not count]
        self._starts: list[tuple[float, int]] = []
        self._left: dict[int, float] = {}
        self._rates: dict[int, float] = {}
        self._now = 0.0

    def advance(self, trace: list[Interval] | None) -> bool:
        """Run to the end of the next event; return whether there was one."""
        self._settle()
        ends = {m: self._now + left / self._rates[m] for m, left in self._left.items()}
        times = [*ends.values(), *(time for time, _ in self._starts[:1])]
        if not times:
            return False
        then = min(times)
        if trace is not None and self._rates:
            trace.append(Interval(self._now, then, self._rates))
        for m in self._left:
            self._left[m] -= self._rates[m] * (then - self._now)
        self._now = then
        for m in sorted(m for m, end in ends.items() if end <= then * _AT_ONCE):
            del self._left[m]
            self._finish(m, then)
        self._settle()
        while self._starts and self._starts[0][0] <= then * _AT_ONCE:
            self._start(heappop(self._starts)[1])
            self._settle()
        hops, steps = self._graph.hops, len(self._graph.names)
        self._rates = fair_rates({m: hops[m % steps] for m in self._left}, self._most)
        return True

    def _start(self, number: int) -> None:
        chunks = self._graph.chunks[number % len(self._graph.names)]
        if chunks * self._wire_bytes > 0:
            self._left[number] = chunks * self._wire_bytes
        else:
            self._finish(number, self._now + chunks * self._copy_us)

    def _settle(self) -> None:
        while self._runnable:
            number = self._runnable.pop()
            step = number % len(self._graph.names)
            if self._graph.hops[step]:
                heappush(self._starts, (self._ready[number], number))
            else:
                copied_us = self._graph.chunks[step] * self._copy_us
                self._finish(number, self._ready[number] + copied_us)

    def _finish(self, number: int, done_us: float) -> None:
        self.unfinished -= 1
        self.makespan_us = max(self.makespan_us, done_us)
        step = number % len(self._graph.names)
        if self._graph.hops[step]:
            self._release(self._tiled.receiver[number], done_us + self._graph.alpha_us[step])
        for follower in self._tiled.after[number]:
            self._release(follower, done_us + self._handover_us)
        if self._tiled.frees[number] >= 0:
            self._release(self._tiled.frees[number], done_us)

    def _release(self, number: int, time_us: float) -> None:
        self._ready[number] = max(self._ready[number], time_us)
        self.waits[number] -= 1
        if not self.waits[number]:
            self._runnable.append(number)
