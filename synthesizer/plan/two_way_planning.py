"""Planning of all_reduce over two-way trees, where ranks may sum up unequal shares of the buffer.

More and more chunks are tried while they pay: they follow the shares of the packing more closely
and fill the ports sooner, and cost steps.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from synthesizer.ir.msccl_limits import MAX_STEPS
from synthesizer.plan.port_queues import TimedTwoWays, Urgency, queued_two_ways
from synthesizer.plan.timetabling import (
    LEAST_LOAD_SHARE,
    LEAST_PIECE_BYTES,
    MOST_MISSES,
    PlanRequest,
    finer_pays,
    good_enough,
    more_chunks_pay,
    rehearsed_two_ways,
)
from synthesizer.solve.routes import resources
from synthesizer.solve.two_way_packing import TwoWayPacking

CHUNKS_PER_RANK = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of chunks to try, for each rank of the machine."""

_FEW_CHUNKS, _CHUNKS_OF_FEW_BYTES = (2, 4), (8, 12, 16)
"""The same where latencies count: few chunks, which do as well where links are alike, then, with
trees of their own, as many as fill the ports; more are too small for a FIFO."""

_BALANCES = (0.0, 0.3)
"""Weights of an even load by sums alone and by results alone."""

_BALANCES_OF_FEW_BYTES = (0.3, 1.0)
"""The same where latencies count: results cannot fill ports before sums are whole."""

_FAR = 1.05
"""Ratio to the bound from which twice as many transfers are tried."""

_NEVER_US = 1e12
"""Time of no plan."""


@dataclass(frozen=True)
class TwoWayPlan:
    """Timed two-way trees, and the worse of their rehearsed times."""

    timed: TimedTwoWays
    least_time_us: float
    """Time of the busiest port, and its last chunk's alpha."""
    end_us: float
    seconds: dict[str, float]


def plan_two_ways(request: PlanRequest, to_beat_us: float) -> TwoWayPlan | None:
    """Return the best plan if it pays beside a schedule that takes `to_beat_us`.

    Raises:
        ScheduleError: HiGHS fails on a linear program.
    """
    if good_enough(request, to_beat_us) or request.load_bound_us < LEAST_LOAD_SHARE * to_beat_us:
        return None
    search = _Search(request, to_beat_us)
    groups: tuple[tuple[int, ...], ...] = (_FEW_CHUNKS, _CHUNKS_OF_FEW_BYTES)
    balances = _BALANCES_OF_FEW_BYTES
    if request.bytes_decide:
        groups, balances = (CHUNKS_PER_RANK,), _BALANCES
    for counts in groups:
        search.begin(balances)
        misses = 0
        for count in counts:
            if request.counts and count not in request.counts:
                continue
            if misses == MOST_MISSES or not search.may_be_tried(count):
                break
            misses = 0 if search.improve(count) else misses + 1
            if good_enough(request, search.end_us):
                return search.best
    return search.best


class _Search:
    def __init__(self, request: PlanRequest, to_beat_us: float) -> None:
        self.best: TwoWayPlan | None = None
        self.end_us = to_beat_us
        self._fastest_us = _NEVER_US
        """Least rehearsed time so far, whether it beats the given one or not."""
        self._request = request
        self._ranks = request.sketch.ranks
        self._size_bytes = request.block_bytes * self._ranks
        self._packings: list[TwoWayPacking] = []
        self._seconds = {"greedy": 0.0, "routing": 0.0, "ordering": 0.0}

    def begin(self, balances: Sequence[float]) -> None:
        """Begin with new trees: those of few chunks stay in the packings of more."""
        self._packings = [
            TwoWayPacking(self._request.sketch, self._size_bytes, balance) for balance in balances
        ]

    def may_be_tried(self, count: int) -> bool:
        """Return whether chunks and transfers stay within their limits."""
        chunks = count * self._ranks
        request = self._request
        far = self.end_us > _FAR * max(request.load_bound_us, request.latency_bound_us)
        return self._size_bytes >= chunks * LEAST_PIECE_BYTES and 2 * chunks * (
            self._ranks - 1
        ) <= request.max_transfers * (2 if far else 1)

    def improve(self, count: int) -> bool:
        """Try a number of chunks per rank; return whether it pays, or twice as many may."""
        chunks = count * self._ranks
        chunk_bytes = self._size_bytes / chunks
        costs = resources(self._request.sketch, chunk_bytes)
        found = []
        for packing in self._packings:
            started = time.perf_counter()
            trees = packing.trees(chunks, self._request.time_limit_s)
            routed = time.perf_counter()
            for urgency in Urgency:
                timed = queued_two_ways(trees, costs, urgency)
                times = rehearsed_two_ways(timed, chunk_bytes, self._request.sketch)
                found.append((times.worse_us, timed))
            self._seconds["routing"] += routed - started
            self._seconds["ordering"] += time.perf_counter() - routed
        end_us, timed = min(found, key=lambda pair: pair[0])
        # More steps are spread over several channels, which keep no common order.
        if max(Counter(hop.hop for hop in timed.transfers).values()) > MAX_STEPS:
            return False
        least_us = costs.least_time_us(costs.loads_us(hop.hop for hop in timed.transfers))
        paid = more_chunks_pay(least_us, self._fastest_us, end_us)
        self._fastest_us = min(self._fastest_us, end_us)
        before = len(self.best.timed.trees) if self.best else chunks / 2
        if finer_pays(self.end_us, end_us, chunks / before):
            self.best = TwoWayPlan(timed, least_us, end_us, dict(self._seconds))
            self.end_us = end_us
        return paid
