"""The routing program: one spanning tree per chunk, chosen together so that no resource is overrun.

For each family of trees (a representative source, its images elsewhere): x[e] says whether hop e is
in the tree, a[v] when rank v has the chunk. Every rank but the source has exactly one incoming hop;
a[v] >= a[u] + latency where (u, v) is taken, which also rules out circles; every host that the
source is not on is entered at least once, a cut that the relaxation would miss. The end T is at
least every a[v], and at least the load of every resource plus an alpha. This is TACCL's stage A
(section 4.1) with relays anywhere, ports shared in time, big-M constants from a greedy schedule's
end instead of 1e7, and symmetry substituted.

Ordering is left to `list_schedule`: T bounds every schedule along such trees from below.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulp

from sketches.sketch import Sketch
from synthesizer.solve.resources import Hop, Resources
from synthesizer.solve.routes import Family, RouteTree, expand, least_time_us, tree_from_hops
from synthesizer.solve.solver import SolveOutcome, SolveStatus, add_binary, add_variable, solve

MAX_BINARIES = 400
"""Above it the trees are chosen one family after another instead of together."""

_SHALLOW = 0.01
"""Weight of the mean arrival beside T: among equal ends, shallow trees."""

_HORIZON_SLACK = 1 + 1e-6

_MAX_SWEEPS = 1
"""More gained nothing on 8 and 16 GPUs in irregular meshes, and cost as much again each."""

_PRICE_EXPONENT = 8
"""Time on a resource is charged by what its load becomes relative to the busiest, to this power: a
tree that can't shorten T alone still leaves the places where T is made."""


@dataclass(frozen=True)
class Routing:
    """Trees of all sources and what is known about them."""

    trees: tuple[RouteTree, ...]
    least_time_us: float
    """No schedule along these trees ends sooner."""
    bound_us: float
    """No choice of as many trees under these symmetries ends sooner; 0 when nothing is proved."""
    status: SolveStatus | None
    """None when the solver was asked for less than the whole problem."""
    limit_hit: bool
    """Whether a limit of time or nodes ended the search; then the result may vary with speed."""


def route_trees(
    sketch: Sketch,
    costs: Resources,
    start: Mapping[Family, RouteTree],
    time_limit_s: float,
    gap: float,
) -> Routing:
    """Improves a set of trees; never gives back a worse one.

    Args:
        sketch: Where the trees run.
        costs: Its resources for the size of a chunk.
        start: One tree per family, for instance a greedy schedule's.
        time_limit_s: For all solving together.
        gap: Relative gap at which the solver may stop.

    Raises:
        SolverError: No solver works.
    """
    if len(start) * len(costs.of_edge) > MAX_BINARIES:
        trees, limit_hit = _one_by_one(sketch, costs, start, time_limit_s, gap)
        found = expand(trees)
        return Routing(found, least_time_us(found, costs), 0.0, None, limit_hit)
    outcome, trees = _solve_families(sketch, costs, start, {}, time_limit_s, gap)
    bound = 0.0
    if outcome.bound == outcome.bound:
        # Arrivals are at most T, so T alone is at least this.
        bound = max(0.0, outcome.bound / (1 + _SHALLOW))
    found = expand(trees)
    limit_hit = outcome.status in {SolveStatus.FEASIBLE, SolveStatus.NO_SOLUTION}
    return Routing(found, least_time_us(found, costs), bound, outcome.status, limit_hit)


def _one_by_one(
    sketch: Sketch,
    costs: Resources,
    start: Mapping[Family, RouteTree],
    time_limit_s: float,
    gap: float,
) -> tuple[dict[Family, RouteTree], bool]:
    """Chooses each family's tree anew beside all others, in turn, until none changes any more.

    Gives the best trees met and whether the time limit cut the search short.
    """
    left = time_limit_s
    laid = dict(start)
    best, best_us = dict(start), least_time_us(expand(laid), costs)
    for _ in range(_MAX_SWEEPS):
        before = dict(laid)
        for family in start:
            if left <= 0:
                return best, True
            others = {other: tree for other, tree in laid.items() if other != family}
            mine = {family: laid[family]}
            share = min(left, 2 * time_limit_s / len(start))
            outcome, mine = _solve_families(sketch, costs, mine, others, share, gap)
            left -= outcome.seconds
            laid |= mine
        now_us = least_time_us(expand(laid), costs)
        if now_us < best_us:
            best, best_us = dict(laid), now_us
        if laid == before:
            break
    return best, False


def _solve_families(
    sketch: Sketch,
    costs: Resources,
    start: Mapping[Family, RouteTree],
    fixed: Mapping[Family, RouteTree],
    time_limit_s: float,
    gap: float,
) -> tuple[SolveOutcome, dict[Family, RouteTree]]:
    """Chooses the trees of `start` anew beside the `fixed` ones, or keeps them."""
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
    """The integer program over some families, the load of others given."""

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
        """The trees of the solution."""
        hops: dict[int, list[Hop]] = defaultdict(list)
        for (f, hop), taken in self._taken.items():
            if taken.varValue > 0.5:
                hops[f].append(hop)
        return {
            family: tree_from_hops(family.orbit.representative, hops[f])
            for f, family in enumerate(self.families)
        }

    def _charges(self, base_us: Sequence[float]) -> pulp.LpAffineExpression:
        """What the hops cost on resources that fixed trees load already; nothing without those."""
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
            # Tight: a[u] + latency - a[v] is never more than this.
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
            for other in self.families[f].image_hops(hop):
                for resource in self._costs.of_edge[other]:
                    terms[resource][f, hop] += self._costs.busy_us[resource]
        rows = set()
        for resource, uses in sorted(terms.items()):
            constant = base_us[resource] + self._costs.least_alpha_us[resource]
            row = (constant, tuple(uses.items()))
            # Resources that symmetry makes alike give one row.
            if row not in rows:
                rows.add(row)
                load = pulp.lpSum(busy * self._taken[key] for key, busy in uses.items())
                self.problem += self._end >= load + constant


def _soonest_us(costs: Resources, source: int) -> dict[int, float]:
    """Shortest way from the source to every rank, by latency (Bellman and Ford)."""
    soonest: dict[int, float] = defaultdict(lambda: float("inf"), {source: 0.0})
    changed = True
    while changed:
        changed = False
        for (a, b), latency in costs.latency_us.items():
            if soonest[a] + latency < soonest[b]:
                soonest[b] = soonest[a] + latency
                changed = True
    return soonest
