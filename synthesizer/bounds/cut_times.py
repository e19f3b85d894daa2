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
give a higher bound: in scheduling theory, the makespan of one machine with release and delivery
times (preemptive 1|r_j,q_j|Cmax) is that of such a set.

Near the start and the end less than C is of use. A copy that crosses so late that its receiver has
no time to pass it on serves one target alone, so within the least alphas between two targets each
byte that has not crossed before crosses once for each of them. Sums are the same backwards: what
crosses before one source has heard from another is a contribution of one rank. And a root that is
the only source crosses by its own edges until it has reached another rank with an edge over the
cut. In such a window of w microseconds, 1/k of C is of use, so it adds w (1 - 1/k) to the time; a
call so short that it consists of windows takes at least k D / C.

Assumed as in `synthesizer.bounds.time_bounds`: only ranks store, copy and reduce.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from math import isfinite
from typing import NamedTuple

import numpy as np

from lookup_tables.collective import Collective
from sketches.sketch import Edge, Sketch
from synthesizer.bounds.edge_orbits import FlowProgram, edge_orbits


class CutTime(NamedTuple):
    """A lower bound on a call's time: `alphas_us`, plus `us_per_byte` times its size.

    Windows with little use of the cut add up to `windows_us`, but no more than what a call takes
    `repeats` times as long for.
    """

    alphas_us: float
    us_per_byte: float
    windows_us: float = 0.0
    repeats: float = 1.0

    def time_us(self, size_bytes: float) -> float:
        """Return the bound at one size."""
        bytes_us = size_bytes * self.us_per_byte
        return self.alphas_us + min(self.repeats * bytes_us, bytes_us + self.windows_us)


class _Window(NamedTuple):
    """A time near the start or the end in which one of `repeats` parts of a cut is of use."""

    length_us: float
    repeats: float


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
        sources, targets = members, frozenset(range(sketch.ranks)) - members
        if collective.from_root:
            sources &= {root}
        if collective.to_root:
            targets &= {root}
        us_per_gigabyte = 1e6 / _capacity_gb_per_s(sketch, edges)
        exits, entries = {edge.src for edge in edges}, {edge.dst for edge in edges}
        heads = {s: min(distance_us[s][rank] for rank in exits) for s in sources}
        tails = {t: min(distance_us[rank][t] for rank in entries) for t in targets}
        alpha_us = min(edge.alpha_us for edge in edges)
        cut = _Cut(collective, sketch, tuple(edges), distance_us)
        at_start, at_end = cut.at_start(heads, root), cut.at_end(tails, root)
        for (head, n_sources), (tail, n_targets) in product(_at_least(heads), _at_least(tails)):
            share = _share(collective, n_sources, n_targets, sketch.ranks)
            windows = [
                window
                for window, distance in ((at_start, head), (at_end, tail))
                if window.repeats > 1 and not distance
            ]
            repeats = min((window.repeats for window in windows), default=1.0)
            if collective.passes > 1:
                # A sum may cross partly in the first window and partly in the last.
                windows = [_Window(window.length_us, repeats) for window in windows]
            lost_us = sum(window.length_us * (1 - 1 / window.repeats) for window in windows)
            us_per_byte = share * us_per_gigabyte * 1e-9
            found[CutTime(head + alpha_us + tail, us_per_byte, lost_us, repeats)] = None
    return tuple(found)


class _Cut(NamedTuple):
    collective: Collective
    sketch: Sketch
    edges: tuple[Edge, ...]
    distance_us: list[list[float]]

    def at_start(self, heads: dict[int, float], root: int) -> _Window:
        """Return the window in which sources have not heard from each other."""
        exits = {edge.src for edge in self.edges}
        if self.collective.from_root:
            length_us = min((self.distance_us[root][rank] for rank in exits - {root}), default=0.0)
            return self._of_root(length_us, [edge for edge in self.edges if edge.src == root])
        pairs = ((source, rank) for source in heads for rank in exits if source != rank)
        length_us = min((self.distance_us[source][rank] for source, rank in pairs), default=0.0)
        return _Window(length_us, 1.0 if self.collective.joins else len(heads))

    def at_end(self, tails: dict[int, float], root: int) -> _Window:
        """Return the window in which targets cannot pass on what arrives."""
        entries = {edge.dst for edge in self.edges}
        if self.collective.to_root:
            length_us = min(
                (self.distance_us[rank][root] for rank in entries - {root}), default=0.0
            )
            return self._of_root(length_us, [edge for edge in self.edges if edge.dst == root])
        pairs = ((rank, target) for rank in entries for target in tails if target != rank)
        length_us = min((self.distance_us[rank][target] for rank, target in pairs), default=0.0)
        return _Window(length_us, 1.0 if self.collective.splits else len(tails))

    def _of_root(self, length_us: float, edges: list[Edge]) -> _Window:
        if not edges or len(edges) == len(self.edges):
            return _Window(length_us, 1.0)
        whole = _capacity_gb_per_s(self.sketch, list(self.edges))
        return _Window(length_us, whole / _capacity_gb_per_s(self.sketch, edges))


def _at_least(distances: dict[int, float]) -> list[tuple[float, int]]:
    """Return each distinct distance with the number of ranks at that distance or farther."""
    values = [value for value in distances.values() if isfinite(value)]
    return [(least, sum(value >= least for value in values)) for least in sorted(set(values))]


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


def _distances_us(sketch: Sketch) -> list[list[float]]:
    """Return the least sum of alphas between every two ranks (Floyd-Warshall)."""
    least = np.full((sketch.ranks, sketch.ranks), np.inf)
    np.fill_diagonal(least, 0.0)
    for edge in sketch.edges:
        least[edge.src, edge.dst] = edge.alpha_us
    for via in range(sketch.ranks):
        np.minimum(least, least[:, via, None] + least[None, via, :], out=least)
    distances: list[list[float]] = least.tolist()
    return distances
