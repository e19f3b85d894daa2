"""Planning: trees and their timetable for one direction of a collective and one size.

The size decides between latency and bandwidth. Every number of trees is tried with two kinds of
routes, those with the earliest arrival and those with the most even load, each cut into as many
pieces as pay. Where the best plan misses the bound, the integer program looks for better routes,
and for those of more trees if it stays far from the bound. The final plan is also timed with
connections in turn.

Where packed trees stay below the bound, blocks are shared out over the trees of a linear program.
More chunks per source follow its shares more closely and fill the ports sooner, but cost steps, so
their number grows while that pays. Where one rank has all that is spread, few even trees with few
hops are tried as well, which an integer program finds on machines of few links.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

from sketches.sketch import Sketch
from sketches.symmetry import evened, symmetric_part
from synthesizer.plan.composition import TimedTrees
from synthesizer.plan.port_queues import Urgency
from synthesizer.plan.timetabling import (
    LEAST_LOAD_SHARE,
    LEAST_PIECE_BYTES,
    MOST_COMPARED,
    MOST_MISSES,
    PlanRequest,
    Rehearsed,
    finer_pays,
    good_enough,
    in_turn,
    load_matters,
    more_chunks_pay,
    rehearse,
    rehearse_from_root,
)
from synthesizer.solve.block_packing import BlockPacking
from synthesizer.solve.greedy import FIFO_SLOTS, soonest_trees
from synthesizer.solve.layered_trees import layered_trees
from synthesizer.solve.node_chain import chain_of_nodes, over_each_nic
from synthesizer.solve.packing import packed_trees, shallow_trees
from synthesizer.solve.routes import (
    Family,
    Hop,
    Resources,
    RouteTree,
    expand,
    least_time_us,
    rank_orbits,
    resources,
)
from synthesizer.solve.solver import CUT_BY_CLOCK, SolveStatus
from synthesizer.solve.tree_routing import Routing, route_trees, solved_together

CHUNKS = (4, 8, 16, 32, 64)
"""Numbers of chunks per source to try, of one piece each."""

CHUNKS_OF_ROOT = (*CHUNKS, 128, 256, 512, 1024)
"""Numbers of chunks to try if the root is the only source."""

_NEAR = (3 / 4, 7 / 8, 7 / 4)
"""Further numbers of chunks, as shares of the best one: links or NICs that are three or seven
divide no power of two."""

_LAST_SHARES = (1 / 16, 1 / 8, 5 / 32)
"""Shares of the chunks that may go down lower trees at last: ports are free then that a whole block
down such trees would load too much."""

_LEAST_SHARE_OF_ROOT = 0.1
"""Share of the time from which loads matter if the root is the only source: pieces that follow each
other hide most latencies."""

_HOP_WEIGHTS = (0.02, 0.1)
"""Weights of the latencies of hops; either may be the better one for the order of transfers."""


def plan_blocks(request: PlanRequest, to_beat_us: float = inf) -> RoutedTrees | None:
    """Return the best plan if it pays beside one that takes `to_beat_us`; infinite: there is none.

    Raises:
        ScheduleError: HiGHS fails on a linear program.
    """
    least_share = _LEAST_SHARE_OF_ROOT if request.pipelined else LEAST_LOAD_SHARE
    slow = isfinite(to_beat_us) and request.load_bound_us < least_share * to_beat_us
    if slow or good_enough(request, to_beat_us):
        return None
    packings = _packings(request)
    best: RoutedTrees | None = None
    fastest_us, misses = float("inf"), 0
    for chunks, pieces in _cuts(request):
        if misses == MOST_MISSES or not _within_limits(request, chunks * pieces):
            break
        plan = _shared(request, packings, chunks, pieces)
        end_us = plan.rehearsed.end_us
        costs = resources(request.sketch, request.block_bytes / chunks)
        load_us = max(costs.loads_us(hop for tree in expand(plan.trees) for hop in tree.hops))
        paid = more_chunks_pay(load_us, fastest_us, end_us)
        misses = 0 if paid else misses + 1
        fastest_us = min(fastest_us, end_us)
        if finer_pays(best.rehearsed.end_us if best else to_beat_us, end_us):
            best = plan
        if good_enough(request, fastest_us):
            break
    rooted = request.pipelined and not _is_asked(request)
    if best and rooted and not request.bytes_decide:
        best = _lower_at_last(request, packings, _refined(request, packings, best))
    best = best and replace(best, rehearsed=in_turn(request, best.rehearsed))
    return _over_each_nic(request, best) if best and rooted and request.bytes_decide else best


def _packings(request: PlanRequest) -> list[BlockPacking]:
    """Return the packings to try: of all trees, and of those along a chain of nodes."""
    found = [
        BlockPacking(
            *(request.sketch, request.orbits, request.block_bytes, weight),
            latencies_count=not request.bytes_decide,
        )
        for weight in _HOP_WEIGHTS
    ]
    if request.pipelined and request.bytes_decide:
        chain = chain_of_nodes(request.sketch, request.orbits[0].representative)
        if chain:
            # The chain is long, so the trees should be low inside nodes.
            of_chain = (chain, request.orbits, request.block_bytes, _HOP_WEIGHTS[-1])
            found.append(BlockPacking(*of_chain, latencies_count=True))
    return found


def _shared(
    request: PlanRequest, packings: Sequence[BlockPacking], chunks: int, pieces: int
) -> RoutedTrees:
    """Return the best plan of blocks that are shared out in so many chunks."""
    of_count = replace(request, pieces=pieces)
    found = []
    for packing in packings:
        trees = packing.trees(chunks)
        found.append(RoutedTrees(trees, rehearse(of_count, chunks, expand(trees))))
    return min(found, key=lambda plan: plan.rehearsed.end_us)


def _refined(
    request: PlanRequest, packings: Sequence[BlockPacking], best: RoutedTrees
) -> RoutedTrees:
    """Return the best plan of some numbers of chunks near those of a plan."""
    chunks = best.rehearsed.timed.per_source
    for share in _NEAR:
        count = int(chunks * share)
        if good_enough(request, best.rehearsed.end_us) or not _within_limits(request, count):
            break
        best = min(
            *(best, _shared(request, packings, count, 1)), key=lambda plan: plan.rehearsed.end_us
        )
    return best


def _over_each_nic(request: PlanRequest, best: RoutedTrees) -> RoutedTrees:
    """Return the best plan, or one with as many chunks over each NIC if that ends sooner."""
    sketch, root = request.sketch, request.orbits[0].representative
    chain = chain_of_nodes(sketch, root)
    parts = over_each_nic(chain, root) if chain else ()
    if not parts or good_enough(request, best.rehearsed.end_us):
        return best
    chunks = best.rehearsed.timed.per_source // len(parts)
    if not chunks:
        return best
    used = {edge for part in parts for edge in part.edges}
    thinned = replace(sketch, edges=tuple(edge for edge in sketch.edges if edge in used))
    packing = BlockPacking(
        *(thinned, request.orbits, request.block_bytes, _HOP_WEIGHTS[-1]),
        latencies_count=True,
        parts=parts,
    )
    trees = packing.trees(chunks)
    rehearsed = rehearse_from_root(request, len(trees), expand(trees), Urgency.CHUNK_BY_CHUNK)
    return min(best, RoutedTrees(trees, rehearsed), key=lambda plan: plan.rehearsed.end_us)


def _lower_at_last(
    request: PlanRequest, packings: Sequence[BlockPacking], best: RoutedTrees
) -> RoutedTrees:
    """Return the best plan whose last chunks go down trees of their own, if those are lower."""
    chunks = best.rehearsed.timed.per_source
    costs = resources(request.sketch, request.block_bytes / chunks)
    height_us = _height_us(best.trees.values(), costs)
    many = chunks * (request.sketch.ranks - 1) > MOST_COMPARED
    for share in _LAST_SHARES:
        last = int(chunks * share)
        if not last or good_enough(request, best.rehearsed.end_us):
            break
        lower = BlockPacking(
            *(request.sketch, request.orbits, request.block_bytes * share, _HOP_WEIGHTS[-1]),
            latencies_count=True,
        ).trees(last)
        if _height_us(lower.values(), costs) >= height_us:
            break
        for packing in packings[: 1 if many else None]:
            in_order = [*packing.trees(chunks - last).values(), *lower.values()]
            trees = {Family(request.orbits[0], i): tree for i, tree in enumerate(in_order)}
            found = RoutedTrees(trees, rehearse_from_root(request, chunks, expand(trees)))
            best = min(best, found, key=lambda plan: plan.rehearsed.end_us)
    return best


def _height_us(trees: Iterable[RouteTree], costs: Resources) -> float:
    """Return the latest arrival down the highest tree."""
    return max(max(tree.arrivals_us(costs).values()) for tree in trees)


def _plan_layers(request: PlanRequest, to_beat_us: float) -> Rehearsed | None:
    """Return the best plan of few even trees if it is faster than one that takes `to_beat_us`."""
    if good_enough(request, to_beat_us):
        return None
    root, hops = request.orbits[0].representative, len(request.sketch.edges)
    least = _most_hops(request.sketch, root)
    best: Rehearsed | None = None
    for count in request.trees:
        costs = resources(request.sketch, request.block_bytes / count)
        for layers in range(least, least + _MORE_LAYERS):
            if count * hops * layers > _MOST_LAYERED or not _within_limits(request, count):
                break
            trees = layered_trees(
                *(costs, root, count, layers),
                most_us=request.load_bound_us * _EVEN,
                time_limit_s=request.time_limit_s,
            )
            if trees:
                found = rehearse(request, count, trees)
                if found.end_us < (best.end_us if best else to_beat_us):
                    best = found
                break
    return best


def _most_hops(sketch: Sketch, root: int) -> int:
    """Return the number of hops from the root to the rank that is the most hops away."""
    reached, hops = {root}, 0
    while len(reached) < sketch.ranks:
        reached |= {edge.dst for edge in sketch.edges if edge.src in reached}
        hops += 1
    return hops


def _cuts(request: PlanRequest) -> list[tuple[int, int]]:
    """Return the numbers of chunks to try, each with its number of pieces."""
    if request.pieces:
        return [(chunks, request.pieces) for chunks in request.trees]
    if request.counts:
        return [(chunks, 1) for chunks in request.counts if CHUNKS[0] <= chunks <= CHUNKS[-1]]
    usual = CHUNKS_OF_ROOT if request.pipelined else CHUNKS
    return [(chunks, 1) for chunks in (request.trees if _is_asked(request) else usual)]


def _is_asked(request: PlanRequest) -> bool:
    """Return whether the options name numbers of chunks."""
    return bool(request.pieces or request.counts) or len(request.trees) == 1


_EVEN = 1.01
"""Ratio to the bound up to which the busiest port of few trees may be loaded."""

_MORE_LAYERS = 4
"""Numbers of layers to try, from the fewest that reach every rank on."""

_MOST_LAYERED = 2_000
"""Most hops in all layers of all trees, about as many as there are binaries."""

_NEAR_ENOUGH = 1.02
"""Ratio to the bound of shares of trees below which nothing else is tried."""

_MOST_ORBITS = 4
"""Most kinds of ranks of a machine whose trees are searched by symmetry."""

_MANY_ORBITS = 16
"""Kinds of ranks above which trees are also sought as if links of a kind were equal."""

_FAR = 1.15
"""Ratio to the bounds from which more trees are tried."""

_TREES_TO_SOLVE = 6
"""Trees of each source that are tried then: two, three and four are more often slower."""

_SOME_LOAD = 0.25
"""Share of the time from which the load counts beside latencies."""

_SETTLED = 1.004
"""Ratio to the bound below which no more trees are tried; packing alone may leave 0.2 %."""

_SAME = 1 + 1e-9

_FEWER_LOADS = 0.995
"""Ratio to the least load so far that further packed trees must reach."""

_SHARED_OUT = "trees of a linear program, their shares rounded to chunks"

_AS_IF_EVEN = "trees of a machine of fewer kinds of ranks"

_MOST_FAMILIES = 256
"""Most trees that are searched together; for 32 ranks without symmetry they take seconds."""


@dataclass(frozen=True)
class Plan:
    """Timed trees, and the evidence of their quality."""

    timed: TimedTrees
    routing: Routing
    fallback: str | None
    """Why the routes are not the solution of the whole integer program; None if they are."""
    seconds: dict[str, float]
    end_us: float
    """Rehearsed time."""


@dataclass(frozen=True)
class RoutedTrees:
    """Trees found without an integer program, with their timetable."""

    trees: dict[Family, RouteTree]
    rehearsed: Rehearsed


def make_plan(request: PlanRequest) -> Plan:
    """Return the best plan within the limits.

    Raises:
        ScheduleError: No solver works.
    """
    alike = _plan_as_if_even(request)
    if alike and good_enough(request, alike.end_us):
        return alike
    plan = _plan_as_it_is(request)
    return alike if alike and finer_pays(plan.end_us, alike.end_us) else plan


def _plan_as_if_even(request: PlanRequest) -> Plan | None:
    """Return the plan of a machine of few kinds of ranks, to which this one is changed a little.

    Links of a kind are taken as equal; if ranks differ even then, edges that others do not have are
    left out. None if ranks still differ. Trees of few ranks are searched, and their images serve
    the others.
    """
    if len(request.orbits) <= _MANY_ORBITS:
        return None
    sketch = evened(request.sketch)
    if len(rank_orbits(sketch)) > _MOST_ORBITS:
        part = symmetric_part(sketch, _MOST_ORBITS)
        if part is None:
            return None
        sketch = part
    orbits = rank_orbits(sketch)
    plan = _plan_as_it_is(replace(request, sketch=sketch, orbits=orbits))
    same = replace(request, pieces=plan.timed.pieces)
    found = rehearse(same, plan.timed.per_source, plan.timed.trees)
    return _unsolved(request, in_turn(request, found), _AS_IF_EVEN, plan.seconds)


def _plan_as_it_is(request: PlanRequest) -> Plan:
    seconds = dict.fromkeys(("greedy", "routing", "ordering"), 0.0)
    started = time.perf_counter()
    blocks = None
    first = _is_for_blocks(request)
    if first:
        blocks = plan_blocks(request)
        seconds["routing"] += time.perf_counter() - started
        if blocks and blocks.rehearsed.end_us <= request.load_bound_us * _NEAR_ENOUGH:
            return _shared_out(request, blocks.rehearsed, seconds)
        started = time.perf_counter()
    start = _best_start(request)
    seconds["greedy"] += time.perf_counter() - started
    if good_enough(request, start.rehearsed.end_us):
        # The request's bounds prove optimality.
        return _unsolved(request, start.rehearsed, None, seconds)
    # Where chunks follow each other down the trees, shares of trees come first: the integer program
    # knows no pipelines. So they do if bytes decide and the program takes one tree at a time.
    costs = _costs(request, start.rehearsed.timed)
    alone = not solved_together(costs, start.trees)
    waits = request.pipelined or (request.bytes_decide and alone)
    plan = None if waits else _solved(request, start)
    if plan:
        seconds["ordering"] += plan.seconds["ordering"]
        seconds["routing"] += plan.seconds["routing"]
    began = time.perf_counter()
    to_beat_us = plan.end_us if plan else start.rehearsed.end_us
    if not first:
        blocks = plan_blocks(request, to_beat_us)
    elif blocks and not finer_pays(to_beat_us, blocks.rehearsed.end_us):
        blocks = None
    best = blocks.rehearsed if blocks else None
    if request.pipelined:
        best = _plan_layers(request, best.end_us if best else to_beat_us) or best
    seconds["routing"] += time.perf_counter() - began
    if best:
        return _shared_out(request, best, seconds)
    if plan is None:
        plan = _solved(request, start)
        seconds["ordering"] += plan.seconds["ordering"]
        seconds["routing"] += plan.seconds["routing"]
    began = time.perf_counter()
    plan = _with_trees_to_solve(request, plan)
    seconds["routing"] += time.perf_counter() - began
    return replace(plan, seconds=seconds)


def _with_trees_to_solve(request: PlanRequest, plan: Plan) -> Plan:
    """Return the best plan, or one of more trees if that ends sooner.

    Where loads and latencies both count and ranks differ, several trees may end much sooner once
    the solver has routed them, and seldom look so before.
    """
    bound_us = max(request.load_bound_us, request.latency_bound_us)
    far = plan.end_us > _FAR * bound_us and request.load_bound_us > _SOME_LOAD * plan.end_us
    tried = plan.timed.per_source == _TREES_TO_SOLVE
    if request.pipelined or _is_asked(request) or tried or not far:
        return plan
    few = _TREES_TO_SOLVE * len(request.orbits) <= _MOST_FAMILIES
    if not (few and _within_limits(request, _TREES_TO_SOLVE)):
        return plan
    more = replace(request, trees=(_TREES_TO_SOLVE,))
    return min(plan, _solved(more, _best_start(more)), key=lambda each: each.end_us)


def _is_for_blocks(request: PlanRequest) -> bool:
    """Return whether shares of trees are tried first.

    Bytes take most of the time, and ranks differ. Even trees of such a machine need a long search,
    and seldom reach what shares reach.
    """
    uneven = len(request.orbits) > _MOST_ORBITS
    return uneven and request.bytes_decide


def _shared_out(request: PlanRequest, best: Rehearsed, seconds: dict[str, float]) -> Plan:
    fallback = None if good_enough(request, best.end_us) else _SHARED_OUT
    return _unsolved(request, best, fallback, seconds)


def _unsolved(
    request: PlanRequest, best: Rehearsed, fallback: str | None, seconds: dict[str, float]
) -> Plan:
    least_us = least_time_us(best.timed.trees, _costs(request, best.timed))
    routing = Routing(tuple(best.timed.trees), least_us, 0.0, SolveStatus.OPTIMAL, False)
    return Plan(best.timed, routing, fallback, seconds, best.end_us)


def _best_start(request: PlanRequest) -> RoutedTrees:
    """Return the start with the earliest end; add trees while they lower the load or the time."""
    best: RoutedTrees | None = None
    least_load_us, misses = float("inf"), 0
    for trees in request.trees:
        searchable = trees * len(request.orbits) <= _MOST_FAMILIES
        if best and not (searchable and _within_limits(request, trees)):
            break
        families = tuple(Family(orbit, i) for orbit in request.orbits for i in range(trees))
        whole = resources(request.sketch, request.block_bytes / trees)
        least_load_us, even = _even_trees(request, whole, families, least_load_us, best)
        routes = {_hops(candidate): candidate for candidate in even}
        for slots in _slots(request, trees, least_load_us, best):
            soonest = soonest_trees(whole, families, request.sketch.ranks, slots)
            routes.setdefault(_hops(soonest), soonest)
        before = best
        for candidate in routes.values():
            if best and _load_us(whole, candidate) >= best.rehearsed.end_us:
                continue
            rehearsed = rehearse(request, trees, expand(candidate))
            if best is None or rehearsed.end_us < best.rehearsed.end_us:
                best = RoutedTrees(candidate, rehearsed)
        if routes:
            misses = 0 if best is not before else misses + 1
        if best and not _worth_more(request, least_load_us, best.rehearsed.end_us, misses):
            break
    if best is None:
        msg = "a plan needs a number of trees to try"
        raise ValueError(msg)
    return replace(best, rehearsed=in_turn(request, best.rehearsed))


def _even_trees(
    request: PlanRequest,
    whole: Resources,
    families: Sequence[Family],
    least_load_us: float,
    best: RoutedTrees | None,
) -> tuple[float, list[dict[Family, RouteTree]]]:
    """Return the least load so far, and trees with an even load that may end sooner than the best.

    Packed trees may have long paths; unless they lower the load, they end no sooner than those of
    fewer trees. Shallow trees end soon after their load, and are tried where that saves time.
    """
    packed = packed_trees(whole, families, request.sketch.ranks, request.load_bound_us)
    packed_us = _load_us(whole, packed)
    found = [packed] if packed_us < least_load_us * _FEWER_LOADS else []
    shallow = shallow_trees(whole, families, request.sketch.node_of_rank, request.load_bound_us)
    shallow_us = _load_us(whole, shallow)
    if best is None or finer_pays(best.rehearsed.end_us, shallow_us):
        found.append(shallow)
    return min(least_load_us, packed_us, shallow_us), found


def _hops(trees: dict[Family, RouteTree]) -> frozenset[tuple[Family, Hop]]:
    """Return the trees' identity, which does not depend on the order of their construction."""
    return frozenset((family, hop) for family, tree in trees.items() for hop in tree.hops)


def _within_limits(request: PlanRequest, chunks: int) -> bool:
    """Return whether the size of chunks and the number of transfers stay within their limits."""
    sources = sum(len(orbit.images) for orbit in request.orbits)
    transfers = chunks * sources * (request.sketch.ranks - 1)
    enough = request.block_bytes >= chunks * LEAST_PIECE_BYTES
    # Chunks that follow each other fill the trees sooner if they are smaller.
    longer = request.pipelined and request.bytes_decide
    return enough and transfers <= request.max_transfers * (2 if longer else 1)


def _slots(
    request: PlanRequest, trees: int, least_load_us: float, best: RoutedTrees | None
) -> tuple[int, ...]:
    """Return the slots per connection with which to try earliest-arrival trees.

    More slots interleave messages more finely, which closes gaps where loads are even. One slot
    spreads blocks over more connections and leaves slots for pieces.
    """
    if best is None:
        return FIFO_SLOTS, 1
    end_us = best.rehearsed.end_us
    if load_matters(request, least_load_us, end_us):
        return ()
    if request.load_bound_us < LEAST_LOAD_SHARE * end_us:
        return (1,)
    return (FIFO_SLOTS,) if trees.bit_count() == 1 else ()


def _worth_more(request: PlanRequest, load_us: float, end_us: float, misses: int) -> bool:
    if end_us <= max(request.load_bound_us, request.latency_bound_us) * _SETTLED:
        return False
    return load_matters(request, load_us, end_us) or misses < MOST_MISSES


def _load_us(costs: Resources, trees: dict[Family, RouteTree]) -> float:
    """Return the time for which the busiest resource is occupied."""
    return max(costs.loads_us(hop for tree in expand(trees) for hop in tree.hops))


def _solved(request: PlanRequest, start: RoutedTrees) -> Plan:
    """Return the integer program's improvement of a start, or the start if that ends sooner."""
    started = time.perf_counter()
    best = start.rehearsed
    costs = _costs(request, best.timed)
    routing = route_trees(request.sketch, costs, start.trees, request.time_limit_s, request.gap)
    routed = time.perf_counter()
    same = replace(request, pieces=best.timed.pieces)
    solved = in_turn(request, rehearse(same, best.timed.per_source, routing.trees))
    fallback = _fallback(routing)
    if solved.end_us <= best.end_us:
        best = solved
    else:
        found = tuple(best.timed.trees)
        least_us = least_time_us(found, costs)
        if least_us > routing.least_time_us * _SAME:
            fallback = fallback or "greedy trees: they take less time than the solver's"
        routing = replace(routing, trees=found, least_time_us=least_us)
    seconds = {"routing": routed - started, "ordering": time.perf_counter() - routed}
    return Plan(best.timed, routing, fallback, seconds, best.end_us)


def _fallback(routing: Routing) -> str | None:
    """Return why the routes are no proved optimum, and whether another run may give others."""
    reason = _reason(routing)
    return f"{reason}; {CUT_BY_CLOCK}" if reason and routing.cut_by_clock else reason


def _reason(routing: Routing) -> str | None:
    if routing.status is None:
        until = ", until the limit of work" if routing.limit_hit else ""
        return f"routed one tree after another{until}: too many variables to solve together"
    if routing.status is SolveStatus.OPTIMAL:
        return None
    if routing.status is SolveStatus.FEASIBLE:
        return "solver stopped at its limit"
    return "greedy trees: the solver found nothing better before its limit"


def _costs(request: PlanRequest, timed: TimedTrees) -> Resources:
    """Return the latencies of one piece and the loads of all pieces, by which routes compare."""
    chunk_bytes = request.block_bytes / timed.per_source
    whole = resources(request.sketch, chunk_bytes)
    piece = resources(request.sketch, chunk_bytes / timed.pieces)
    return replace(whole, latency_us=piece.latency_us)
