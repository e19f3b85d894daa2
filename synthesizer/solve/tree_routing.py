"""The routing program: one spanning tree per chunk, which together balance the loads.

For each family of trees (a representative source and its images), x[e] is 1 if hop e is in the
tree, and a[v] is the time when rank v has the chunk. Every rank but the source has exactly one
incoming hop; a[v] >= a[u] + latency if (u, v) is in the tree, which also excludes cycles; every
node but the source's is entered at least once, a cut that the relaxation would miss. The end T is
at least every a[v], and at least the load of every resource plus an alpha. This is TACCL's stage A
(section 4.1) with relays anywhere, ports shared in time, big-M constants from a greedy schedule's
end instead of 1e7, and symmetry substituted.

`list_schedule` decides the order: T is a lower bound on every schedule along such trees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulp

from sketches.sketch import Sketch
from synthesizer.solve.routes import (
    Family,
    Hop,
    Resources,
    RouteTree,
    expand,
    least_time_us,
    tree_from_hops,
)
from synthesizer.solve.solver import (
    SolveOutcome,
    SolveStatus,
    add_binary,
    add_variable,
    solve,
)

MAX_BINARIES = 400
"""Most binaries for which all families are solved together; above it they are solved in turn."""

_SHALLOW = 0.01
"""Weight of the mean arrival relative to T, which prefers shallow trees among equal ends."""

_HORIZON_SLACK = 1 + 1e-6

_MAX_SWEEPS = 1
"""Further sweeps gained nothing on irregular meshes of 8 and 16 GPUs, at the same cost each."""

_PRICE_EXPONENT = 8
"""Exponent of a resource's relative load in the price of time on it: even a tree that cannot lower
T alone then avoids the busiest resources."""


@dataclass(frozen=True)
class Routing:
    """Trees of all sources, and the evidence of their quality."""

    trees: tuple[RouteTree, ...]
    least_time_us: float
    """Lower bound on a schedule along these trees."""
    bound_us: float
    """Lower bound for equally many trees under these symmetries; 0 if nothing is proved."""
    status: SolveStatus | None
    """Outcome of the solve; None if the solver did not solve the whole problem."""
    limit_hit: bool
    """Whether a limit of work ended the search."""
    cut_by_clock: bool = False
    """Whether the clock ended a solve; another run may then give other trees."""


def route_trees(
    sketch: Sketch,
    costs: Resources,
    start: Mapping[Family, RouteTree],
    time_limit_s: float,
    gap: float,
) -> Routing:
    """Improve a set of trees; never return a worse one.

    `start` has one tree per family, for instance of a greedy schedule. The limit of the work of all
    solver runs together is in seconds of an idle core; the solver may stop at the relative `gap`.

    Raises:
        ScheduleError: No solver works.
    """
    if not solved_together(costs, start):
        return _one_by_one(sketch, costs, start, time_limit_s, gap)
    outcome, trees = _solve_families(sketch, costs, start, {}, time_limit_s, gap)
    bound = 0.0
    if outcome.bound == outcome.bound:
        # Arrivals are at most T, so this bounds T alone.
        bound = max(0.0, outcome.bound / (1 + _SHALLOW))
    found = expand(trees)
    least_us = least_time_us(found, costs)
    return Routing(found, least_us, bound, outcome.status, _limited(outcome), outcome.cut_by_clock)


def solved_together(costs: Resources, start: Mapping[Family, RouteTree]) -> bool:
    """Whether one program routes all trees; else each is routed with all others fixed."""
    return len(start) * len(costs.of_edge) <= MAX_BINARIES


def _limited(outcome: SolveOutcome) -> bool:
    return outcome.status in {SolveStatus.FEASIBLE, SolveStatus.NO_SOLUTION}


def _one_by_one(
    sketch: Sketch,
    costs: Resources,
    start: Mapping[Family, RouteTree],
    time_limit_s: float,
    gap: float,
) -> Routing:
    """Re-optimise each family's tree with all others fixed, in turn, until none changes."""
    left, limited, cut = time_limit_s, False, False
    current = dict(start)
    best, best_us = dict(start), least_time_us(expand(current), costs)
    for _ in range(_MAX_SWEEPS):
        before = dict(current)
        for family in start:
            if left <= 0:
                limited = True
                break
            others = {key: tree for key, tree in current.items() if key != family}
            mine = {family: current[family]}
            share = min(left, 2 * time_limit_s / len(start))
            outcome, mine = _solve_families(sketch, costs, mine, others, share, gap)
            left -= outcome.work_s
            limited = limited or _limited(outcome)
            cut = cut or outcome.cut_by_clock
            current |= mine
        now_us = least_time_us(expand(current), costs)
        if now_us < best_us:
            best, best_us = dict(current), now_us
        if current == before:
            break
    found = expand(best)
    return Routing(found, least_time_us(found, costs), 0.0, None, limited, cut)


def _solve_families(
    sketch: Sketch,
    costs: Resources,
    start: Mapping[Family, RouteTree],
    fixed: Mapping[Family, RouteTree],
    time_limit_s: float,
    gap: float,
) -> tuple[SolveOutcome, dict[Family, RouteTree]]:
    """Re-optimise the trees of `start` with the `fixed` ones, or keep them."""
    before = least_time_us(expand({**start, **fixed}), costs)
    base = costs.loads_us(hop for tree in expand(dict(fixed)) for hop in tree.hops)
    model = _Model(sketch, costs, tuple(start), base, before * _HORIZON_SLACK)
    outcome = solve(model.problem, time_limit_s, gap)
    if not outcome.solved:
        return outcome, dict(start)
    trees = model.trees()
    after = least_time_us(expand({**trees, **fixed}), costs)
    return outcome, trees if after <= before * _HORIZON_SLACK else dict(start)


class _Model:
    """The integer program over some families, with the load of the others given."""

    def __init__(
        self,
        sketch: Sketch,
        costs: Resources,
        families: Sequence[Family],
        base_us: Sequence[float],
        horizon_us: float,
    ) -> None:
        self.problem = pulp.LpProblem("routing", pulp.LpMinimize)
        self.families = families
        self._sketch, self._costs, self._horizon = sketch, costs, horizon_us
        self._end = add_variable(self.problem, "T", 0.0, horizon_us)
        self._taken: dict[tuple[int, Hop], pulp.LpVariable] = {}
        arrivals = []
        for f, family in enumerate(families):
            arrivals += self._add_tree(f, family)
        self._add_loads(base_us)
        mean = pulp.lpSum(arrivals) * (_SHALLOW / max(1, len(arrivals)))
        self.problem.setObjective(self._end + mean + self._charges(base_us))

    def trees(self) -> dict[Family, RouteTree]:
        """Return the trees of the solution."""
        hops: dict[int, list[Hop]] = defaultdict(list)
        for (f, hop), taken in self._taken.items():
            if taken.varValue > 0.5:
                hops[f].append(hop)
        return {
            family: tree_from_hops(family.orbit.representative, hops[f])
            for f, family in enumerate(self.families)
        }

    def _charges(self, base_us: Sequence[float]) -> pulp.LpAffineExpression:
        """Return the price of hops on resources that fixed trees load; 0 without fixed trees."""
        busiest = max(base_us)
        if busiest <= 0:
            return pulp.lpSum([])
        busy = self._costs.busy_us
        charge = [
            busy[r] * min(1.0, (load + busy[r]) / busiest) ** _PRICE_EXPONENT
            for r, load in enumerate(base_us)
        ]
        return pulp.lpSum(
            sum(charge[r] for r in self._costs.of_edge[hop]) * taken
            for (_, hop), taken in self._taken.items()
        )

    def _add_tree(self, f: int, family: Family) -> list[pulp.LpVariable]:
        source, ranks = family.orbit.representative, range(self._sketch.ranks)
        soonest = _soonest_us(self._costs, source)
        arrival = {
            rank: add_variable(
                self.problem,
                f"a_{f}_{rank}",
                soonest[rank],
                self._horizon if rank != source else 0.0,
            )
            for rank in ranks
        }
        incoming: dict[int, list[pulp.LpVariable]] = defaultdict(list)
        entering: dict[int, list[pulp.LpVariable]] = defaultdict(list)
        node = self._sketch.node_of_rank
        for (a, b), latency in self._costs.latency_us.items():
            if b == source or soonest[a] + latency > self._horizon:
                continue
            taken = add_binary(self.problem, f"x_{f}_{a}_{b}")
            self._taken[f, (a, b)] = taken
            incoming[b].append(taken)
            if node[a] != node[b] != node[source]:
                entering[node[b]].append(taken)
            # The tightest big-M: a[u] + latency - a[v] never exceeds it.
            slack = self._horizon + latency - soonest[b]
            self.problem += arrival[b] >= arrival[a] + latency - slack * (1 - taken)
        for rank in ranks:
            if rank != source:
                self.problem += pulp.lpSum(incoming[rank]) == 1
                self.problem += self._end >= arrival[rank]
        for crossings in entering.values():
            self.problem += pulp.lpSum(crossings) >= 1
        return [arrival[rank] for rank in ranks if rank != source]

    def _add_loads(self, base_us: Sequence[float]) -> None:
        terms: dict[int, dict[tuple[int, Hop], float]] = defaultdict(lambda: defaultdict(float))
        for f, hop in self._taken:
            for image in self.families[f].image_hops(hop):
                for resource in self._costs.of_edge[image]:
                    terms[resource][f, hop] += self._costs.busy_us[resource]
        rows = set()
        for resource, uses in sorted(terms.items()):
            constant = base_us[resource] + self._costs.least_alpha_us[resource]
            row = (constant, tuple(uses.items()))
            # Resources that are equivalent by symmetry give one row.
            if row not in rows:
                rows.add(row)
                load = pulp.lpSum(busy * self._taken[key] for key, busy in uses.items())
                self.problem += self._end >= load + constant


def _soonest_us(costs: Resources, source: int) -> dict[int, float]:
    """Return the shortest latency from the source to every rank (Bellman-Ford)."""
    soonest: dict[int, float] = defaultdict(lambda: float("inf"), {source: 0.0})
    changed = True
    while changed:
        changed = False
        for (a, b), latency in costs.latency_us.items():
            if soonest[a] + latency < soonest[b]:
                soonest[b] = soonest[a] + latency
                changed = True
    return soonest
