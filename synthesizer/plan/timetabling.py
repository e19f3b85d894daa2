"""Timetabling: pieces and order of transfers along given trees, chosen by rehearsal.

A schedule fixes only the order within each connection; a port serves messages as they arrive, or
all of them at once. A timetable that assumes another order at the ports leaves them idle. So beside
two orders of list scheduling a timetable is tried in which transfers queue at the ports.

A lowered schedule keeps only the order on each connection, so a transfer with precedence in the
timetable may have to queue. The rehearsal runs the simulator on the transfers, with one threadblock
for each end of a connection, without lowering them; plans compare by the worse of its times. If
a threadblock would have too many steps, chunks are spread over channels as lowering spreads them,
and nothing orders the messages of two channels on a port.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import log2

from sketches.sketch import Sketch
from synthesizer.ir.msccl_limits import MAX_CHANNELS, MAX_STEPS
from synthesizer.ir.schedule_graph import Connection, ScheduleGraph, route_messages
from synthesizer.plan.composition import TimedTrees
from synthesizer.plan.list_schedule import Precedence, Timetable, list_schedule
from synthesizer.plan.port_queues import TimedTwoWays, Urgency, queued_timetable
from synthesizer.simulate.simulator import CompiledSchedule, ExecutionModel, Times
from synthesizer.solve.routes import Hop, Orbit, Resources, RouteTree, resources, reversed_sketch

_WIRES = ExecutionModel()


def rehearsed(plan: TimedTrees, piece_bytes: float, sketch: Sketch, *, backwards: bool) -> Times:
    """Return the simulated times of a plan's transfers.

    If the trees run `backwards`, with sums, their timetable is of the reversed sketch.
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
    chunks = [plan.trees[timed.tree].source * plan.chunks + plan.place(timed) for timed in order]
    return _times(hops, chunks, awaited, sums, piece_bytes, sketch)


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
    hops = [timed.hop for timed in plan.transfers]
    chunks = [plan.chunk(timed) for timed in plan.transfers]
    return _times(hops, chunks, awaited, sums, chunk_bytes, sketch)


def _times(
    hops: Sequence[Hop],
    chunks: Sequence[int],
    awaited: Sequence[Sequence[int]],
    sums: Sequence[Sequence[int]],
    piece_bytes: float,
    sketch: Sketch,
) -> Times:
    """Return the times of transfers of these chunks in this order on each connection.

    Each transfer waits for the `awaited` ones into its sender. `sums` are transfers into one chunk,
    which is not written by two at a time.
    """
    by_connection = _connections(hops, chunks)
    graph = ScheduleGraph()
    send_of, receive_of = [0] * len(hops), [0] * len(hops)
    sends: dict[Connection, list[int]] = {}
    # Threadblocks are numbered by their first transfer; among equals the lowest starts first.
    for (a, b, channel), numbers in by_connection.items():
        sends_range = _add_block(graph, a, numbers, send_of)
        receives_range = _add_block(graph, b, numbers, receive_of)
        sends[a, b, channel] = list(sends_range)
        graph.connections.append((list(sends_range), list(receives_range)))
    for number, before in enumerate(awaited):
        graph.depends += [(receive_of[arrival], send_of[number]) for arrival in before]
    for arrivals in sums:
        graph.depends += [(receive_of[a], receive_of[b]) for a, b in pairwise(arrivals)]
    route_messages(graph, sends, sketch)
    return CompiledSchedule(graph, 1).times(piece_bytes, _WIRES)


def _connections(hops: Sequence[Hop], chunks: Sequence[int]) -> dict[Connection, list[int]]:
    """Return the transfers of each connection, on as few channels as their steps need."""
    channels = 1
    while True:
        found: dict[Connection, list[int]] = defaultdict(list)
        for number, ((a, b), chunk) in enumerate(zip(hops, chunks, strict=True)):
            found[a, b, chunk % channels].append(number)
        if max(map(len, found.values())) <= MAX_STEPS or channels == MAX_CHANNELS:
            return found
        channels *= 2


def _add_block(graph: ScheduleGraph, rank: int, numbers: list[int], steps: list[int]) -> range:
    first = len(graph.names)
    block = range(first, first + len(numbers))
    for step, number in zip(block, numbers, strict=True):
        steps[number] = step
        graph.names.append((rank, len(graph.blocks), step - first))
        graph.chunks.append(1)
    graph.blocks.append(block)
    return block


MAX_TRANSFERS = 16_000
"""Most transfers of a timetable; more take minutes to lower and prove."""

_CLOSE_ENOUGH = 1.01
"""Ratio to the bound below which neither more trees nor the solver are tried."""

LEAST_LOAD_SHARE = 0.5
"""Share of the time below which loads do not matter."""


@dataclass(frozen=True)
class PlanRequest:
    """Sketch, sources, size, limits and bounds of a plan."""

    sketch: Sketch
    """The sketch, reversed if `backwards`."""
    backwards: bool
    """Whether the plan will run in reverse."""
    orbits: tuple[Orbit, ...]
    """Orbits of the sources."""
    block_bytes: float
    """Bytes that each source spreads."""
    time_limit_s: float
    """Limit of the solver's work, in seconds of an idle core."""
    gap: float
    trees: tuple[int, ...]
    """Numbers of trees per source to try, in this order."""
    load_bound_us: float
    """Lower bound on the load of the busiest resource."""
    latency_bound_us: float
    """Lower bound on the latency of the routes."""
    pieces: int = 0
    """Pieces per tree; 0: depends on the size."""
    counts: tuple[int, ...] = ()
    """Allowed values of trees x pieces; empty: any."""
    max_transfers: int = MAX_TRANSFERS
    """Most transfers of a timetable."""

    @property
    def pipelined(self) -> bool:
        """Whether one rank has all that is spread, so that chunks follow each other."""
        return len(self.orbits) == len(self.orbits[0].images) == 1

    @property
    def bytes_decide(self) -> bool:
        """Whether bytes take most of the time, so that latencies do not count."""
        return self.load_bound_us > _MANY_LATENCIES * self.latency_bound_us


def load_matters(request: PlanRequest, load_us: float, end_us: float) -> bool:
    """Return whether a lower load of the busiest resource is possible and would save time."""
    return load_us > max(request.load_bound_us * _CLOSE_ENOUGH, LEAST_LOAD_SHARE * end_us)


def good_enough(request: PlanRequest, end_us: float) -> bool:
    """Return whether the time is so close to the bounds that no plan saves much."""
    return end_us <= max(request.load_bound_us, request.latency_bound_us) * _CLOSE_ENOUGH


PIECES = (1, 2, 4, 8, 16, 32)
"""Numbers of pieces per chunk to try."""

_PIPELINED_PIECES = (1, 2, 4, 8, 16, 32, 42)
"""Numbers to try where pieces follow each other: the FIFO of a connection does not cover the
latency of small ones, and the best size lies between."""

_MORE_PIECES = (64, 128, 256)
"""Numbers to try as well where the trees load ports as the bound allows, so that only the time in
which the first pieces fill the trees is left to gain."""

_MANY_LATENCIES = 100
"""Ratio of the busiest port's load to the latency from which bytes take most of the time."""

LEAST_PIECE_BYTES = 512
"""Bytes that a warp moves with one load of 16 bytes per thread; smaller pieces only cost steps."""

MOST_COMPARED = 2000
"""Most transfers of a timetable that is made in several orders; longer ones are made in the order
that was the fastest with fewer pieces."""

_Timetabler = Callable[[Sequence[RouteTree], int, Resources], Timetable]
"""Function of trees, pieces and the costs of a piece."""

MOST_MISSES = 2
"""Consecutive numbers of trees, or of chunks, that do not pay after which no more are tried."""

_AT_THE_LOAD = 1.05
"""Ratio to the busiest port's load below which only the rounding of shares keeps the time up."""

_AT_THE_BOUND = 1.0001
"""Ratio to the bound below which nothing is left to gain."""


@dataclass(frozen=True)
class Rehearsed:
    """Trees with a timetable, and the worse of its rehearsed times."""

    timed: TimedTrees
    end_us: float


def rehearse(request: PlanRequest, per_source: int, trees: Sequence[RouteTree]) -> Rehearsed:
    """Return the best timetable with the requested number of pieces, or with the best number."""
    chunk_bytes = request.block_bytes / per_source
    counts = (request.pieces,) if request.pieces else _piece_counts(request, per_source, trees)
    hops = sum(len(tree.hops) for tree in trees)

    timetablers = _timetablers(request, hops * counts[0])

    def cut(pieces: int) -> tuple[Rehearsed, _Timetabler]:
        found = [(_timed(request, per_source, trees, pieces, by), by) for by in timetablers]
        return min(found, key=lambda made: made[0].end_us)

    best, fastest = cut(counts[0])
    misses = 0
    for pieces in counts[1:]:
        if good_enough(request, best.end_us):
            break
        if chunk_bytes < pieces * LEAST_PIECE_BYTES or hops * pieces > request.max_transfers:
            break
        if hops * pieces > MOST_COMPARED:
            timetablers = (fastest,)
        finer, fastest = cut(pieces)
        if finer_pays(best.end_us, finer.end_us, pieces / best.timed.pieces):
            best, misses = finer, 0
        elif misses:
            break
        else:
            misses = 1
    return best


def rehearse_from_root(
    request: PlanRequest,
    per_source: int,
    trees: Sequence[RouteTree],
    urgency: Urgency = Urgency.LONGEST_PATH,
) -> Rehearsed:
    """Return a timetable of chunks in the order of their trees; sums run it back."""
    queued = partial(queued_timetable, urgency=urgency, backwards=False)
    return _timed(request, per_source, trees, 1, queued)


def _timetablers(request: PlanRequest, transfers: int) -> Sequence[_Timetabler]:
    """Return the orders to try."""
    by_chunk = partial(
        queued_timetable, urgency=Urgency.CHUNK_BY_CHUNK, backwards=request.backwards
    )
    if request.pipelined and transfers > MOST_COMPARED:
        return (by_chunk,)
    found = (
        _listed(Precedence.LONGEST_PATH),
        _listed(Precedence.LONGEST_WAIT),
        partial(queued_timetable, backwards=request.backwards),
    )
    if request.pipelined:
        return (*found, by_chunk)
    # Sums that run a queue of results back keep its order where links are shared fairly, too.
    return (*found, partial(queued_timetable, backwards=False)) if request.backwards else found


def in_turn(request: PlanRequest, best: Rehearsed) -> Rehearsed:
    """Return the same transfers with connections in turn, if that is faster.

    Reversed plans are left as they are: lowering fuses steps that the rehearsal runs separately,
    and a predicted gain of 0.2 % was a loss of 8 % on 2x8 H100 with a missing NIC.
    """
    bound_us = max(request.load_bound_us, request.latency_bound_us)
    if request.backwards or best.end_us <= bound_us * _AT_THE_BOUND:
        return best
    timed = best.timed
    timetabler = _listed(Precedence.IN_TURN)
    found = _timed(request, timed.per_source, timed.trees, timed.pieces, timetabler)
    return min(best, found, key=lambda rehearsed: rehearsed.end_us)


def _listed(precedence: Precedence) -> _Timetabler:
    return partial(list_schedule, precedence=precedence)


def _timed(
    request: PlanRequest,
    per_source: int,
    trees: Sequence[RouteTree],
    pieces: int,
    timetabler: _Timetabler,
) -> Rehearsed:
    piece_bytes = request.block_bytes / per_source / pieces
    timetable = timetabler(trees, pieces, resources(request.sketch, piece_bytes))
    timed = TimedTrees(trees, per_source, pieces, timetable)
    sketch = reversed_sketch(request.sketch) if request.backwards else request.sketch
    times = rehearsed(timed, piece_bytes, sketch, backwards=request.backwards)
    return Rehearsed(timed, times.worse_us)


def _piece_counts(
    request: PlanRequest, per_source: int, trees: Sequence[RouteTree]
) -> Sequence[int]:
    if not request.counts:
        costs = resources(request.sketch, request.block_bytes / per_source)
        load_us = max(costs.loads_us(hop for tree in trees for hop in tree.hops))
        even = load_us <= request.load_bound_us * _AT_THE_LOAD
        usual = _PIPELINED_PIECES if request.pipelined else PIECES
        return (*usual, *_MORE_PIECES) if even else usual
    return [pieces for pieces in PIECES if per_source * pieces in request.counts] or PIECES[:1]


def finer_pays(coarse_us: float, fine_us: float, times_as_many: float = 2.0) -> bool:
    """Return whether more pieces pay for their steps.

    Twice as many must save 2 %, fewer more pieces less, or the larger of 0.2 % and 10 us if that
    is less, because the handover of a step is negligible in a long schedule.
    """
    share = 0.02 * min(1.0, log2(times_as_many))
    least_us = min(share * coarse_us, max(0.002 * coarse_us, 10.0))
    return coarse_us - fine_us >= least_us


def more_chunks_pay(load_us: float, fastest_us: float, end_us: float) -> bool:
    """Return whether a number of chunks paid, or only the rounding of shares keeps the time up."""
    return end_us <= load_us * _AT_THE_LOAD or finer_pays(fastest_us, end_us)
