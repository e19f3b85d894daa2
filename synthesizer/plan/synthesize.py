"""`synthesize`: a proved schedule for one collective, sketch and size.

Routes come from packing, from a greedy search and from integer programs
(`tree_planning`), their order from list scheduling, and their steps from lowering. A rehearsal
chooses between plans, and the verifier proves the result. Reduce_scatter and reduce are found on
the reversed sketch and run in reverse; all_reduce is reduce_scatter followed by all_gather, or goes
over two-way trees (`two_way_planning`) where that is faster.

Where pairs of ranks exchange parts, paths of all pairs and their timetable are planned. More paths
per pair balance the load better and cost steps, so they are tried only if fewer paths miss the
bound and the loads matter.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s, latency_bound_us
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.program import Program
from synthesizer.lower.lowering import lower
from synthesizer.plan.composition import (
    all_reduce_program,
    collect_program,
    pairs_program,
    spread_program,
    two_way_program,
)
from synthesizer.plan.timetabling import (
    LEAST_PIECE_BYTES,
    MAX_TRANSFERS,
    PlanRequest,
    Rehearsed,
    finer_pays,
    good_enough,
    load_matters,
    rehearse,
)
from synthesizer.plan.tree_planning import Plan, make_plan
from synthesizer.plan.two_way_planning import TwoWayPlan, joined_trees, plan_two_ways
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from synthesizer.solve.path_routing import (
    PairRouting,
    evened_pairs,
    pairs_of,
    route_pairs,
)
from synthesizer.solve.routes import (
    Orbit,
    rank_orbits,
    require_connected,
    resources,
    reversed_sketch,
    single,
)
from synthesizer.solve.solver import CUT_BY_CLOCK, SolveStatus
from tuccl.errors import InfeasibleError, ScheduleError


def _plan_pairs(
    request: PlanRequest, pairs: Sequence[tuple[Orbit, int]]
) -> tuple[Plan, PairRouting]:
    """Return the best plan of parts that pairs of ranks exchange, and its paths.

    `request.trees` are the numbers of paths per pair to try.

    Raises:
        ScheduleError: No solver works.
    """
    best: tuple[Rehearsed, PairRouting] | None = None
    seconds = {"greedy": 0.0, "routing": 0.0, "ordering": 0.0}
    for paths_per_pair in request.trees:
        if best and request.block_bytes < paths_per_pair * LEAST_PIECE_BYTES:
            break
        started = time.perf_counter()
        costs = resources(request.sketch, request.block_bytes / paths_per_pair)
        limit_s = request.time_limit_s / len(request.trees)
        found = route_pairs(pairs, costs, limit_s, request.gap, paths_per_pair)
        routed = time.perf_counter()
        load_us = max(costs.loads_us(hop for path in found.routing.trees for hop in path.hops))
        if best is None or load_us < best[0].end_us:
            routings = [found]
            if request.bytes_decide:
                routings.append(evened_pairs(pairs, costs, found))
            plans = [
                (rehearse(request, paths_per_pair, each.routing.trees), each)
                for each in dict.fromkeys(routings)
            ]
            best = min([best, *plans] if best else plans, key=lambda plan: plan[0].end_us)
        seconds["routing"] += routed - started
        seconds["ordering"] += time.perf_counter() - routed
        end_us = best[0].end_us
        if good_enough(request, end_us) or not load_matters(request, load_us, end_us):
            break
    if best is None:
        msg = "a plan needs a number of ways to try"
        raise ValueError(msg)
    rehearsed, found = best
    optimal = found.routing.status is SolveStatus.OPTIMAL
    fallback = None if optimal else "the solver stopped at its limit"
    if fallback and found.routing.cut_by_clock:
        fallback = f"{fallback}; {CUT_BY_CLOCK}"
    plan = Plan(rehearsed.timed, found.routing, fallback, seconds, rehearsed.end_us)
    return plan, found


TREES = (1, 2, 3, 4, 6, 8, 16)
"""Numbers of trees per source to try if every rank is a source."""

MOST_FITTING_TREES = 8
"""Most trees per source, or paths per pair, if the options name chunk counts."""

TREES_OF_ROOT = (1, 2, 4, 8, 3, 6, 7)
"""Numbers of trees to try if the root is the only source; the last ones where a root has as many
links, or peers."""

_FAR = 1.03
"""Ratio to the bound from which the halves of all_reduce may have twice as many transfers."""

PATHS_PER_PAIR = (1, 2, 3, 4)
"""Numbers of paths per pair of ranks to try."""


@dataclass(frozen=True, slots=True)
class SynthesisOptions:
    """Limits of a synthesis, and the granularity of its chunks."""

    time_limit_s: float = 5.0
    """Limit of the work of all solver runs for a number of trees together, and of each packing of
    two-way trees, in estimated seconds of an idle core, so the load of the machine does not change
    the result. The clock ends only solves that take many times as long, and `fallback` then says
    so."""
    gap: float = 0.01
    """Relative gap at which the solver stops."""
    trees_per_rank: int = 0
    """Trees of each source; 0: automatic."""
    pieces_per_tree: int = 0
    """Consecutive pieces along a tree; 0: automatic."""
    counts: tuple[int, ...] = ()
    """Allowed chunks per source, trees times pieces, in ascending order; empty: any."""

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid limit or chunk count."""
        if self.trees_per_rank < 0 or self.pieces_per_tree < 0:
            raise ValueError("trees_per_rank and pieces_per_tree must be 0 (chosen) or more")
        if any(count < 1 for count in self.counts):
            raise ValueError("counts must be 1 or more")
        if not self.time_limit_s > 0 or not self.gap >= 0:
            raise ValueError("time_limit_s must be above 0 and gap at least 0")


@dataclass(frozen=True)
class SynthesisResult:
    """A proved schedule, and the evidence of its quality."""

    algorithm: Algorithm
    solver_gap: float
    """(least time of the chosen routes - bound) / least time."""
    routing_bound_us: float
    """Lower bound for routes of this kind; for all_reduce the sum of both halves."""
    timetable_us: float
    """Rehearsed time of the transfers under the sketch's alphas and bandwidths."""
    fallback: str | None
    """Why the routes are not the integer program's proved optimum; None if they are."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by stage: greedy, routing, ordering, lowering, verifying."""


def synthesize(
    collective: Collective,
    sketch: Sketch,
    size_bytes: int,
    options: SynthesisOptions | None = None,
    root: int = 0,
) -> SynthesisResult:
    """Find a schedule for one size.

    The size is as in nccl-tests; only broadcast and reduce use `root`.

    Raises:
        InfeasibleError: The sketch does not connect all ranks, the root is no rank, or the size is
            less than a byte per chunk.
        ScheduleError: No solver works, or the verifier found a defect of the synthesizer.
    """
    options = options or SynthesisOptions()
    _check(collective, sketch, size_bytes, options, root)
    if collective.is_paired:
        return _synthesize_pairs(collective, sketch, size_bytes, options, root)
    if collective is Collective.ALL_REDUCE:
        return _synthesize_all_reduce(sketch, size_bytes, options)
    plan = _planned(request_of(collective, sketch, size_bytes, options, root))
    build = collect_program if collective.reduces else spread_program
    program = build(collective, sketch.ranks, plan.timed, root)
    return _finish(program, size_bytes, (plan,))


def _check(
    collective: Collective, sketch: Sketch, size_bytes: int, options: SynthesisOptions, root: int
) -> None:
    if collective is Collective.CUSTOM:
        raise InfeasibleError("a custom collective has no post-condition to synthesize for")
    if sketch.ranks < 2:
        raise InfeasibleError(f"{collective}: one rank alone has nothing to exchange")
    if not 0 <= root < sketch.ranks:
        raise InfeasibleError(
            f"{collective}: root {root} is not one of ranks 0 to {sketch.ranks - 1}"
        )
    ends = [root] if collective.has_root else range(sketch.ranks)
    require_connected(sketch, ends, towards=collective.to_root)
    chunks = max(1, options.trees_per_rank) * max(1, options.pieces_per_tree)
    least = chunks * (1 if _is_whole(collective) else sketch.ranks)
    if size_bytes < least:
        raise InfeasibleError(
            f"{collective}: {size_bytes} bytes are less than one byte for each of {least} chunks;"
            f" ask for a size of {least} bytes or more"
        )


def _is_whole(collective: Collective) -> bool:
    """Return whether trees carry the whole buffer, not a part of it for each rank."""
    return collective.has_root and not collective.divides


def _planned(request: PlanRequest) -> Plan:
    return _bounded(make_plan(request), request)


def request_of(
    collective: Collective,
    sketch: Sketch,
    size_bytes: int,
    options: SynthesisOptions,
    root: int = 0,
    max_transfers: int = MAX_TRANSFERS,
) -> PlanRequest:
    """Return what to plan: the sketch, reversed for sums alone, with sources, limits and bounds."""
    rooted, backwards = collective.has_root, collective.reduces and collective.passes == 1
    return PlanRequest(
        sketch=reversed_sketch(sketch) if backwards else sketch,
        backwards=backwards,
        orbits=(single(root, sketch.ranks),) if rooted else rank_orbits(sketch),
        block_bytes=size_bytes if _is_whole(collective) else size_bytes / sketch.ranks,
        time_limit_s=options.time_limit_s,
        gap=options.gap,
        trees=_trees(collective, options),
        load_bound_us=size_bytes * 1e-3 / algbw_bound_gb_per_s(collective, sketch, root),
        latency_bound_us=latency_bound_us(collective, sketch, root),
        pieces=options.pieces_per_tree,
        counts=options.counts,
        max_transfers=max_transfers,
    )


def _trees(collective: Collective, options: SynthesisOptions) -> tuple[int, ...]:
    if options.trees_per_rank:
        return (options.trees_per_rank,)
    if options.counts:
        fitting = tuple(count for count in options.counts if count <= MOST_FITTING_TREES)
        return fitting or options.counts[:1]
    if collective.is_paired:
        return PATHS_PER_PAIR
    return TREES_OF_ROOT if collective.has_root else TREES


def _bounded(plan: Plan, request: PlanRequest) -> Plan:
    """Raise the routing's bound to the bound of any schedule, which may be tighter."""
    proved = max(plan.routing.bound_us, request.load_bound_us, request.latency_bound_us)
    return replace(plan, routing=replace(plan.routing, bound_us=proved))


def _synthesize_all_reduce(
    sketch: Sketch, size_bytes: int, options: SynthesisOptions
) -> SynthesisResult:
    """Plan all_gather and reduce_scatter with equal chunks, and two-way trees where those pay."""
    half = replace(options, time_limit_s=options.time_limit_s / 2)
    most = MAX_TRANSFERS // 2
    gathering = request_of(Collective.ALL_GATHER, sketch, size_bytes, half, max_transfers=most)
    gather = _planned(gathering)
    same = replace(
        half, trees_per_rank=gather.timed.per_source, pieces_per_tree=gather.timed.pieces
    )
    scattering = request_of(Collective.REDUCE_SCATTER, sketch, size_bytes, same)
    scatter = _planned(scattering)
    gather, scatter = finer_halves(gathering, gather, scattering, scatter)
    program = all_reduce_program(sketch.ranks, scatter.timed, gather.timed)
    halves = _finish(program, size_bytes, (scatter, gather))
    if options.trees_per_rank or options.pieces_per_tree:
        return halves
    halves_us = compile_schedule(halves.algorithm, sketch).time_us(size_bytes, ExecutionModel())
    request = request_of(Collective.ALL_REDUCE, sketch, size_bytes, options)
    plan = plan_two_ways(request, halves_us, joined_trees(scatter.timed, gather.timed))
    if plan is None:
        return halves
    found = _finish_two_ways(plan, request, size_bytes)
    found_us = compile_schedule(found.algorithm, sketch).time_us(size_bytes, ExecutionModel())
    return found if finer_pays(halves_us, found_us) else halves


def finer_halves(
    gathering: PlanRequest, gather: Plan, scattering: PlanRequest, scatter: Plan
) -> tuple[Plan, Plan]:
    """Return both halves with twice as many pieces, where bytes decide and those pay.

    Halves have half the transfers each. Where that keeps even trees far from the bound, as many as
    all_gather alone may have are worth their steps.
    """
    pieces = 2 * gather.timed.pieces
    halves = ((gathering, gather), (scattering, scatter))
    fits = pieces * sum(len(tree.hops) for tree in gather.timed.trees) <= MAX_TRANSFERS
    far = any(plan.end_us > _FAR * request.load_bound_us for request, plan in halves)
    if gathering.pieces or gathering.counts or not (gathering.bytes_decide and fits and far):
        return gather, scatter
    found = [
        rehearse(replace(request, pieces=pieces), plan.timed.per_source, plan.timed.trees)
        for request, plan in halves
    ]
    if not finer_pays(gather.end_us + scatter.end_us, sum(half.end_us for half in found)):
        return gather, scatter
    finer = [
        replace(plan, timed=half.timed, end_us=half.end_us)
        for (_, plan), half in zip(halves, found, strict=True)
    ]
    return finer[0], finer[1]


def _synthesize_pairs(
    collective: Collective, sketch: Sketch, size_bytes: int, options: SynthesisOptions, root: int
) -> SynthesisResult:
    request = request_of(collective, sketch, size_bytes, options, root)
    plan, pairs = _plan_pairs(request, pairs_of(collective, sketch, root))
    program = pairs_program(
        collective, sketch.ranks, plan.timed, pairs.targets, pairs.paths_per_pair, root
    )
    return _finish(program, size_bytes, (_bounded(plan, request),))


def _finish(program: Program, size_bytes: int, plans: tuple[Plan, ...]) -> SynthesisResult:
    algorithm, proving = _proved(program, size_bytes)
    seconds = {
        stage: sum(plan.seconds[stage] for plan in plans)
        for stage in ("greedy", "routing", "ordering")
    }
    least = sum(plan.routing.least_time_us for plan in plans)
    bound = sum(plan.routing.bound_us for plan in plans)
    reasons = [plan.fallback for plan in plans if plan.fallback]
    return SynthesisResult(
        algorithm=algorithm,
        solver_gap=max(0.0, (least - bound) / least),
        routing_bound_us=bound,
        timetable_us=sum(plan.end_us for plan in plans),
        fallback="; ".join(dict.fromkeys(reasons)) or None,
        seconds=seconds | proving,
    )


def _finish_two_ways(plan: TwoWayPlan, request: PlanRequest, size_bytes: int) -> SynthesisResult:
    program = two_way_program(request.sketch.ranks, plan.timed)
    algorithm, proving = _proved(program, size_bytes)
    bound_us = max(request.load_bound_us, request.latency_bound_us)
    return SynthesisResult(
        algorithm=algorithm,
        solver_gap=max(0.0, (plan.least_time_us - bound_us) / plan.least_time_us),
        routing_bound_us=bound_us,
        timetable_us=plan.end_us,
        fallback=None,
        seconds=plan.seconds | proving,
    )


def _proved(program: Program, size_bytes: int) -> tuple[Algorithm, dict[str, float]]:
    """Return a lowered program that the verifier proved, and the seconds of both stages."""
    started = time.perf_counter()
    name = f"{program.collective}_routed_{size_bytes}"
    # Plans are rehearsed with a threadblock for each end of a connection.
    algorithm = lower(program, name, fuse_forks=False)
    lowered = time.perf_counter()
    verdict = verify(algorithm, slots=1)
    if not verdict.proved:
        raise ScheduleError(f"{name}: {verdict.defects[0].describe()}; please report this sketch")
    verified = time.perf_counter()
    return algorithm, {"lowering": lowered - started, "verifying": verified - lowered}
