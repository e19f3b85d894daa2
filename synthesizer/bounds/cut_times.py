"""Lower bounds on time from cuts: the bytes that cross a cut, and the hops before and after.

Take a set S of ranks, sources A in S and targets B outside, and D bytes that B needs from A. Each
of these bytes crosses an edge out of S. It crosses no earlier than `head` after the start, the
least sum of alphas from any rank of A to any rank that such an edge leaves; and no later than
`alpha + tail` before the end: the least alpha of such an edge, then the least sum of alphas from
any rank that such an edge enters to any rank of B. Between these two times the edges and their
ports carry no more than the capacity C of the cut. So

    T >= head + alpha + tail + D / C.

D is a part for each rank of A if outputs join parts, of B if inputs are split, of each pair if
both, else the whole buffer: the contribution of a rank of A to each element must cross to reach a
rank of B. A is the set of all ranks whose head is at least some
value, B the set of those whose tail is at least another, for each pair of values. No other A and B
give a higher bound of this kind: in scheduling theory, the makespan of one machine with release and
delivery times (preemptive 1|r_j,q_j|Cmax) is that of such a set.

Near the start and the end less than C is of use. A copy that arrives w before the end serves only
the targets that its receiver reaches in w, at most a share f(w) of B, and each byte must cross
until these shares add up to 1. Sums are the same backwards: what leaves a rank at time t contains
the contributions of those sources alone that reach it until then, at most a share g(t) of A. And
a root that is the only source crosses by the edges of the ranks that it reaches until then, which
carry a share of C. A crossing serves as many pairs of a source and a target as both shares allow:

    D / C <= integral of g(t) f(T - alpha - t) over t.

All_reduce over n nodes takes 2 (n - 1) messages from node to node for each element: n - 1 until a
first node has all contributions, as those of the other nodes have left them, then one into each of
the others. The former are worth g(t), the latter f(w), of the ranks of one node. Let each message
count H = 2 / (1 / g(t) + 1 / f(w)). If G is g when the last of the former is sent, and F is f then,
the former count (n - 1) 2 / (1 + G / F) at least and the latter (n - 1) 2 / (1 + F / G), together
2 (n - 1). So H takes the place of the product, and C is what all nodes send, over 2 (n - 1).

Assumed as in `synthesizer.bounds.time_bounds`: only ranks store, copy and reduce.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lookup_tables.collective import Collective
from sketches.sketch import Edge, Sketch
from synthesizer.bounds.edge_orbits import FlowProgram, edge_orbits

_Distances = NDArray[np.float64]
"""Least sums of alphas in microseconds, from each row's rank to each column's."""


class CutTime(NamedTuple):
    """A lower bound on a call's time: `alphas_us`, and the time in which its bytes cross."""

    alphas_us: float
    us_per_byte: float
    uses: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    """Shares of the cut that are of use in turn, each with the microseconds that are lost until
    then; no schedule is faster than the fastest of them."""

    def time_us(self, size_bytes: float) -> float:
        """Return the bound at one size."""
        bytes_us = size_bytes * self.us_per_byte
        return self.alphas_us + min((bytes_us + lost_us) / share for share, lost_us in self.uses)


class _Step(NamedTuple):
    """A time from the start, or before the end, from which more of a cut is of use."""

    time_us: float
    more: float


class _Side(NamedTuple):
    """Sources or targets of a cut, and the shares of it that are of use near the start or end."""

    ranks: int
    steps: tuple[_Step, ...]


def cut_times(
    collective: Collective, sketch: Sketch, sets: Iterable[frozenset[int]], root: int = 0
) -> tuple[CutTime, ...]:
    """Return the bounds of the given sets of ranks; a set that no edge leaves gives none.

    Raises:
        ScheduleError: HiGHS fails to compute the capacity of a cut.
    """
    distance_us = _distances_us(sketch)
    found: dict[CutTime, None] = {}
    for members in sets:
        edges = [e for e in sketch.edges if e.src in members and e.dst not in members]
        if not edges:
            continue
        gb_per_s = _capacity_gb_per_s(sketch, edges)
        alpha_us = min(edge.alpha_us for edge in edges)
        sources, targets = sorted(members), sorted(set(range(sketch.ranks)) - members)
        exits, entries = sorted({edge.src for edge in edges}), sorted({edge.dst for edge in edges})
        if collective.from_root:
            since_us = {edge: float(distance_us[root, edge.src]) for edge in edges}
            starts = [_side_of_root(sketch, since_us, gb_per_s)] if root in sources else []
        else:
            starts = list(_sides(distance_us[np.ix_(sources, exits)], apart=collective.joins))
        if collective.to_root:
            until_us = {edge: float(distance_us[edge.dst, root]) for edge in edges}
            ends = [_side_of_root(sketch, until_us, gb_per_s)] if root in targets else []
        else:
            ends = list(_sides(distance_us[np.ix_(entries, targets)].T, apart=collective.splits))
        for start, end in product(starts, ends):
            share = _share(collective, start.ranks, end.ranks, sketch.ranks)
            first_us, uses = _uses(start.steps, end.steps)
            us_per_byte = share * 1e-3 / gb_per_s
            found[CutTime(first_us + alpha_us, us_per_byte, uses)] = None
    return tuple(found)


def time_between_nodes(sketch: Sketch) -> CutTime | None:
    """Return the bound of all_reduce from all messages between nodes; None for a single node.

    Raises:
        ScheduleError: HiGHS fails to compute what all nodes send at once.
    """
    node = sketch.node_of_rank
    edges = [edge for edge in sketch.edges if node[edge.src] != node[edge.dst]]
    if not edges:
        return None
    alphas_us = {edge.alpha_us for edge in edges}
    us_per_byte = 2 * (len(set(node)) - 1) * 1e-3 / _capacity_gb_per_s(sketch, edges)
    if len(alphas_us) > 1:
        # Messages that are sent in one order would arrive in another.
        return CutTime(min(alphas_us), us_per_byte)
    distance_us = _distances_us(sketch)
    before, after = [], []
    for each in set(node):
        ranks = [rank for rank, of in enumerate(node) if of == each]
        exits = sorted({edge.src for edge in edges if node[edge.src] == each})
        entries = sorted({edge.dst for edge in edges if node[edge.dst] == each})
        before.append(distance_us[np.ix_(ranks, exits)])
        after.append(distance_us[np.ix_(entries, ranks)].T)
    lost_us, most = 0.0, 0.0
    for steps in (_steps(before), _steps(after)):
        share = 0.0
        for step, following in pairwise(steps):
            share += step.more
            lost_us += (following.time_us - step.time_us) * (1 - share) / (1 + share)
        if len(steps) > 1:
            most = max(most, 2 * share / (1 + share))
    # A call so short that it has nothing but a start and an end sends messages worth `most`.
    uses = ((most, 0.0), (1.0, lost_us)) if lost_us else ((1.0, 0.0),)
    return CutTime(min(alphas_us), us_per_byte, uses)


def _sides(distance_us: _Distances, *, apart: bool) -> Iterator[_Side]:
    """Yield the ranks at each distance or farther from the cut.

    Rows are their distances to the ends of the edges that cross. If they are `apart`, each byte is
    from or for one of them.
    """
    nearest = distance_us.min(axis=1)
    for least_us in np.unique(nearest[np.isfinite(nearest)]):
        group = distance_us[(nearest >= least_us) & np.isfinite(nearest)]
        steps = (_Step(float(least_us), 1.0),) if apart else _steps([group])
        yield _Side(len(group), steps)


def _steps(groups: Sequence[_Distances]) -> tuple[_Step, ...]:
    """Return the growth of the largest share of a group within a distance of one end of an edge."""
    steps, share = [], 0.0
    known = np.concatenate([group.ravel() for group in groups])
    for time_us in np.unique(known[np.isfinite(known)]):
        larger = max(float((group <= time_us).mean(axis=0).max()) for group in groups)
        if larger > share:
            steps.append(_Step(float(time_us), larger - share))
            share = larger
    return tuple(steps)


def _side_of_root(sketch: Sketch, reached_us: dict[Edge, float], whole_gb_per_s: float) -> _Side:
    """Return the root as all sources or targets, which uses the edges that it has reached."""
    steps, share = [], 0.0
    for time_us in sorted({time_us for time_us in reached_us.values() if isfinite(time_us)}):
        edges = [edge for edge, since_us in reached_us.items() if since_us <= time_us]
        everywhere = len(edges) == len(reached_us)
        larger = 1.0 if everywhere else _capacity_gb_per_s(sketch, edges) / whole_gb_per_s
        steps.append(_Step(time_us, larger - share))
        share = larger
    return _Side(1, tuple(steps))


def _uses(
    start: Sequence[_Step], end: Sequence[_Step]
) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return when the cut is of use at first, and the shares that are from then on."""
    steps = sorted((a.time_us + b.time_us, a.more * b.more) for a, b in product(start, end))
    first_us = steps[0][0]
    uses, share, lost_us = [], 0.0, 0.0
    for time_us, more in steps:
        share += more
        lost_us += more * (time_us - first_us)
        uses.append((share, lost_us))
    return first_us, tuple(uses)


def _share(collective: Collective, sources: int, targets: int, ranks: int) -> float:
    """Return the data that the targets need from the sources, in units of the call's size."""
    blocks = (sources if collective.joins else 1) * (targets if collective.splits else 1)
    return blocks / collective.parts(ranks)


def _capacity_gb_per_s(sketch: Sketch, edges: list[Edge]) -> float:
    """Return the most that these edges carry at once.

    Symmetries are left out: a flow across a single cut need not respect them.
    """
    orbits = edge_orbits(replace(sketch, edges=tuple(edges)), symmetric=False)
    program = FlowProgram(orbits)
    program.require(1.0, dict(enumerate(orbits.sizes)))
    return program.solve()[0]


def _distances_us(sketch: Sketch) -> _Distances:
    """Return the least sum of alphas between every two ranks (Floyd-Warshall)."""
    least = np.full((sketch.ranks, sketch.ranks), np.inf)
    np.fill_diagonal(least, 0.0)
    for edge in sketch.edges:
        least[edge.src, edge.dst] = edge.alpha_us
    for via in range(sketch.ranks):
        np.minimum(least, least[:, via, None] + least[None, via, :], out=least)
    return least
