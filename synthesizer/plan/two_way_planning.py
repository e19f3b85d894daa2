"""Planning of all_reduce over two-way trees, where ranks may sum up unequal shares of the buffer.

The trees of reduce_scatter and all_gather are tried first, joined at their sources: sums and
results share the ports as they come, and roots that load the busiest port have fewer chunks.

Then more and more chunks are tried over trees of a packing while they pay: they follow its shares
more closely and fill the ports sooner, and cost steps.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from synthesizer.ir.msccl_limits import MAX_STEPS
from synthesizer.plan.composition import TimedTrees
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
from synthesizer.solve.two_way_packing import TwoWayPacking, without_busiest
from synthesizer.solve.two_way_trees import TwoWayTree

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


def joined_trees(scatter: TimedTrees, gather: TimedTrees) -> tuple[TwoWayTree, ...]:
    """Return the two-way trees of both halves, which have equally many; each piece has its own.

    Pieces of a tree lie evenly among the rest. Trees of sums are those of the reversed sketch.
    """
    pairs = zip(scatter.trees, gather.trees, strict=True)
    trees = [
        TwoWayTree(down.source, tuple(hop[::-1] for hop in reversed(up.hops)), down.hops)
        for up, down in pairs
    ]
    return tuple(trees * gather.pieces)


def plan_two_ways(
    request: PlanRequest, to_beat_us: float, known: Sequence[TwoWayTree]
) -> TwoWayPlan | None:
    """Return the best plan if it pays beside a schedule that takes `to_beat_us`.

    `known` are trees of equal shares.

    Raises:
        ScheduleError: HiGHS fails on a linear program.
    """
    if good_enough(request, to_beat_us) or request.load_bound_us < LEAST_LOAD_SHARE * to_beat_us:
        return None
    search = _Search(request, to_beat_us)
    joined = search.joined(known)
    if joined and good_enough(request, joined.end_us):
        return joined
    search.pack()
    if joined is None:
        return search.best
    before = len(search.best.timed.trees if search.best else known)
    as_many = max(1.0, len(joined.timed.trees) / before)
    if finer_pays(search.end_us, joined.end_us, as_many):
        return replace(joined, seconds=search.seconds)
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
        self.seconds = {"greedy": 0.0, "routing": 0.0, "ordering": 0.0}

    def joined(self, known: Sequence[TwoWayTree]) -> TwoWayPlan | None:
        """Return the plan of given trees; None if it has not the chunks or steps asked for."""
        trees = without_busiest(known, self._request.sketch)
        count, uneven = divmod(len(trees), self._ranks)
        if self._request.counts and (uneven or count not in self._request.counts):
            return None
        started = time.perf_counter()
        plan = self._timed(trees, Urgency.LONGEST_PATH)
        self.seconds["ordering"] += time.perf_counter() - started
        return replace(plan, seconds=dict(self.seconds)) if _in_order(plan) else None

    def pack(self) -> None:
        """Try trees of packings, with more and more chunks while they pay."""
        groups: tuple[tuple[int, ...], ...] = (_FEW_CHUNKS, _CHUNKS_OF_FEW_BYTES)
        balances = _BALANCES_OF_FEW_BYTES
        if self._request.bytes_decide:
            groups, balances = (CHUNKS_PER_RANK,), _BALANCES
        for counts in groups:
            # Trees of few chunks stay in the packings of more.
            self._packings = [
                TwoWayPacking(self._request.sketch, self._size_bytes, balance)
                for balance in balances
            ]
            misses = 0
            for count in counts:
                if self._request.counts and count not in self._request.counts:
                    continue
                if misses == MOST_MISSES or not self._may_be_tried(count):
                    break
                misses = 0 if self._improve(count) else misses + 1
                if good_enough(self._request, self.end_us):
                    return

    def _may_be_tried(self, count: int) -> bool:
        """Return whether chunks and transfers stay within their limits."""
        chunks = count * self._ranks
        request = self._request
        far = self.end_us > _FAR * max(request.load_bound_us, request.latency_bound_us)
        return self._size_bytes >= chunks * LEAST_PIECE_BYTES and 2 * chunks * (
            self._ranks - 1
        ) <= request.max_transfers * (2 if far else 1)

    def _improve(self, count: int) -> bool:
        """Try a number of chunks per rank; return whether it pays, or twice as many may."""
        chunks = count * self._ranks
        found = []
        for packing in self._packings:
            started = time.perf_counter()
            trees = packing.trees(chunks, self._request.time_limit_s)
            routed = time.perf_counter()
            found += [self._timed(trees, urgency) for urgency in Urgency]
            self.seconds["routing"] += routed - started
            self.seconds["ordering"] += time.perf_counter() - routed
        plan = min(found, key=lambda plan: plan.end_us)
        if not _in_order(plan):
            return False
        paid = more_chunks_pay(plan.least_time_us, self._fastest_us, plan.end_us)
        self._fastest_us = min(self._fastest_us, plan.end_us)
        before = len(self.best.timed.trees) if self.best else chunks / 2
        if finer_pays(self.end_us, plan.end_us, chunks / before):
            self.best = replace(plan, seconds=dict(self.seconds))
            self.end_us = plan.end_us
        return paid

    def _timed(self, trees: Sequence[TwoWayTree], urgency: Urgency) -> TwoWayPlan:
        chunk_bytes = self._size_bytes / len(trees)
        costs = resources(self._request.sketch, chunk_bytes)
        timed = queued_two_ways(trees, costs, urgency)
        times = rehearsed_two_ways(timed, chunk_bytes, self._request.sketch)
        least_us = costs.least_time_us(costs.loads_us(hop.hop for hop in timed.transfers))
        return TwoWayPlan(timed, least_us, times.worse_us, {})


def _in_order(plan: TwoWayPlan) -> bool:
    """Return whether one channel has room for all; several would keep no common order."""
    steps = Counter(hop.hop for hop in plan.timed.transfers)
    return max(steps.values()) <= MAX_STEPS
