"""Packing: spanning trees that together minimise the load of the busiest resource.

For large sizes only the loads matter: every rank receives every chunk once, over edges that remain
to be chosen. This is a packing of arborescences with a small integer number of trees per source
(ForestColl, section 4, packs as many as the exact optimum needs; threadblocks can run few). Trees
grow one after another, each hop where a sum of high powers of the loads grows least; then single
ranks are re-parented, with a little annealing, while the load of the busiest resource can decrease.

Resources that every possible hop, with its images, loads equally form one class, so the cost
depends on the kinds of ports of a machine, not on the number of its GPUs.

Re-parenting leads to long paths: on machines without symmetry a chunk may cross the network three
times instead of once, and all ranks wait for it. Shallow trees have an even load and short paths.
They grow together, always by the hop with the earliest end, within a capacity per resource: the
load of the bound, in whole chunks. A tree enters each node once, as its chunk has faster paths
inside. When no hop fits, every capacity grows by one chunk.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil, exp

import numpy as np

from synthesizer.solve.routes import Family, Hop, Orbit, Resources, RouteTree, tree_from_hops

_MOVES_PER_RANK = 40
_FEWEST_MOVES = 20_000
_MOST_MOVES = 100_000
"""Tried moves of ranks to other parents: per rank of every tree, within these limits."""

_POWER = 40
"""Exponent of loads relative to the target: a load 1 % higher weighs 1.5 times as much."""

_HEAT = 0.02
"""Initial annealing temperature, in powers of loads relative to the target; falls to 0."""

_DEPTH_WEIGHT = 1e-3
"""Cost of a level of depth, which prefers shallow trees among equal loads."""

_LOOK_EVERY = 100
"""Moves after which the busiest class is determined again."""

_CLOSE_ENOUGH = 1.002
_ROUNDING = 1e-9
_EQUAL = 9
"""Decimals to which growths of the sum of powers are compared."""

_SEED = 1

Load = tuple[tuple[int, float], ...]
"""(class, time) of a hop and its images on a resource of each class."""


def packed_trees(
    costs: Resources,
    families: Sequence[Family],
    ranks: int,
    target_us: float,
) -> dict[Family, RouteTree]:
    """Return a spanning tree for every family; every source must reach every rank.

    `costs` are for the size of a chunk, `target_us` is a lower bound on the load of the busiest
    resource.
    """
    wanted = _MOVES_PER_RANK * len(families) * ranks
    packing = Packing(costs, families, ranks, target_us)
    for f in range(len(families)):
        packing.grow(f)
    packing.improve(min(max(wanted, _FEWEST_MOVES), _MOST_MOVES))
    return packing.trees()


class Packing:
    """Trees as lists of parents, and the load of every class of resources."""

    def __init__(
        self, costs: Resources, families: Sequence[Family], ranks: int, target_us: float
    ) -> None:
        usage, classes = _usage_by_class(costs, {family.orbit for family in families})
        self.sources = [family.orbit.representative for family in families]
        self.usage: list[Mapping[Hop, Load]] = [usage[source] for source in self.sources]
        self.parents = [[-1] * ranks for _ in families]
        self.load = [0.0] * classes
        self._families = families
        self._used: set[Hop] = set()
        """Connections in use; fewer need fewer threadblocks and keep their messages in order."""
        self._ranks = ranks
        self._costs = costs
        self._target = target_us
        self._onward: dict[int, list[int]] = defaultdict(list)
        self._into: dict[int, list[int]] = defaultdict(list)
        for a, b in costs.of_edge:
            self._onward[a].append(b)
            self._into[b].append(a)

    def grow(self, f: int) -> None:
        """Grow one tree, each hop where the sum of powers of the loads grows least."""
        source, parent, usage = self.sources[f], self.parents[f], self.usage[f]
        latency_us = self._costs.latency_us
        arrival = {source: 0.0}
        frontier = {(source, b) for b in self._onward[source]}
        while frontier:
            a, b = min(
                frontier,
                key=lambda hop: (
                    round(self._growth(usage[hop]), _EQUAL),
                    arrival[hop[0]] + latency_us[hop],
                    hop not in self._used,
                    hop,
                ),
            )
            self._add(usage[a, b], 1)
            self._used.update(self._families[f].image_hops((a, b)))
            parent[b] = a
            arrival[b] = arrival[a] + latency_us[a, b]
            frontier |= {(b, c) for c in self._onward[b]}
            frontier = {hop for hop in frontier if hop[1] not in arrival}

    def trees(self) -> dict[Family, RouteTree]:
        """Return the current trees."""
        return {
            family: tree_from_hops(source, ((a, b) for b, a in enumerate(parent) if b != source))
            for family, source, parent in zip(
                self._families, self.sources, self.parents, strict=True
            )
        }

    def improve(self, moves: int) -> None:
        """Re-parent single ranks by annealing, and keep the best trees."""
        best_us, best = max(self.load), self._snapshot()
        rng = np.random.default_rng(_SEED)
        draws = zip(
            rng.integers(len(self.parents), size=moves).tolist(),
            rng.integers(self._ranks, size=moves).tolist(),
            rng.random(moves).tolist(),
            rng.random(moves).tolist(),
            strict=True,
        )
        hot: list[tuple[int, int]] = []
        for number, (any_f, any_rank, which, luck) in enumerate(draws):
            if best_us <= self._target * _CLOSE_ENOUGH:
                break
            if number % _LOOK_EVERY == 0:
                hot = self._busiest_hops()
            # Every second move concerns the busiest class, the rest any tree and rank.
            f, rank = hot[any_f * any_rank % len(hot)] if number % 2 else (any_f, any_rank)
            choices = self._into[rank]
            if not choices:  # A source that no link leads to.
                continue
            sender = choices[int(which * len(choices))]
            heat = _HEAT * (1 - number / moves)
            if self._reparented(f, rank, sender, luck, heat) and max(self.load) < best_us:
                best_us, best = max(self.load), self._snapshot()
        self.parents, self.load = best
        self._flatten(best_us)

    def _snapshot(self) -> tuple[list[list[int]], list[float]]:
        return [parent.copy() for parent in self.parents], self.load.copy()

    def _flatten(self, limit_us: float) -> None:
        """Re-parent ranks nearer to their source where loads stay within the limit."""
        for f, parent in enumerate(self.parents):
            for rank in range(self._ranks):
                if parent[rank] < 0:
                    continue
                for depth, sender in sorted(
                    (self._depth(parent, sender, rank), sender) for sender in self._into[rank]
                ):
                    if depth >= self._depth(parent, parent[rank], rank):
                        break
                    if depth >= 0 and self._reparented_within(f, rank, sender, limit_us):
                        break

    def _reparented_within(self, f: int, rank: int, sender: int, limit_us: float) -> bool:
        """Re-parent `rank` to `sender` if loads stay within the limit; return whether it moved."""
        parent = self.parents[f]
        old, new = self.usage[f][parent[rank], rank], self.usage[f][sender, rank]
        self._add(old, -1)
        self._add(new, 1)
        if any(self.load[c] > limit_us * (1 + _ROUNDING) for c, _ in new):
            self._add(new, -1)
            self._add(old, 1)
            return False
        parent[rank] = sender
        return True

    def _busiest_hops(self) -> list[tuple[int, int]]:
        """Return the trees and ranks whose hop loads the busiest class."""
        busiest = max(range(len(self.load)), key=self.load.__getitem__)
        return [
            (f, rank)
            for f, parent in enumerate(self.parents)
            for rank, sender in enumerate(parent)
            if sender >= 0 and any(c == busiest for c, _ in self.usage[f][sender, rank])
        ]

    def _reparented(self, f: int, rank: int, sender: int, luck: float, heat: float) -> bool:
        """Re-parent `rank` to `sender` as annealing decides; return whether it moved."""
        parent = self.parents[f]
        before = parent[rank]
        if before in {-1, sender}:
            return False
        depth = self._depth(parent, sender, rank)
        if depth < 0:
            return False
        old, new = self.usage[f][before, rank], self.usage[f][sender, rank]
        saved = -self._growth(old, -1)
        self._add(old, -1)
        worse = self._growth(new) - saved
        worse += _DEPTH_WEIGHT * (depth - self._depth(parent, before, rank))
        if worse > 0 and luck >= exp(-worse / heat):
            self._add(old, 1)
            return False
        self._add(new, 1)
        parent[rank] = sender
        return True

    @staticmethod
    def _depth(parent: list[int], rank: int, forbidden: int) -> int:
        """Return the hops from the source to a rank; -1 if the path leads through `forbidden`."""
        depth = 0
        while rank != forbidden:
            rank = parent[rank]
            if rank < 0:
                return depth
            depth += 1
        return -1

    def _growth(self, usage: Load, sign: int = 1) -> float:
        """Return the change of the sum of powers when a hop is added (or removed)."""
        load, target = self.load, self._target
        return float(
            sum(
                ((load[c] + sign * busy) / target) ** _POWER - (load[c] / target) ** _POWER
                for c, busy in usage
            )
        )

    def _add(self, usage: Load, sign: int) -> None:
        for c, busy in usage:
            self.load[c] += sign * busy


def _usage_by_class(costs: Resources, orbits: set[Orbit]) -> tuple[dict[int, dict[Hop, Load]], int]:
    """Return the load of each hop of each representative's tree, and the number of classes."""
    usage: dict[int, dict[Hop, dict[int, float]]] = {}
    signature: dict[int, list[tuple[int, Hop, float]]] = defaultdict(list)
    for orbit in sorted(orbits, key=lambda orbit: orbit.representative):
        source = orbit.representative
        usage[source] = {hop: _usage(costs, orbit, hop) for hop in costs.of_edge}
        for hop, loads in usage[source].items():
            for resource, busy in loads.items():
                signature[resource].append((source, hop, round(busy, _EQUAL)))
    numbers: dict[tuple[tuple[int, Hop, float], ...], int] = {}
    class_of = {
        resource: numbers.setdefault(tuple(uses), len(numbers))
        for resource, uses in sorted(signature.items())
    }
    return {
        source: {
            hop: tuple(
                sorted({class_of[resource]: busy for resource, busy in loads.items()}.items())
            )
            for hop, loads in of_hop.items()
        }
        for source, of_hop in usage.items()
    }, len(numbers)


def _usage(costs: Resources, orbit: Orbit, hop: Hop) -> dict[int, float]:
    """Return the time that all images of a hop occupy, by resource."""
    total: dict[int, float] = defaultdict(float)
    for image in orbit.images:
        for resource in costs.of_edge[image[hop[0]], image[hop[1]]]:
            total[resource] += costs.busy_us[resource]
    return total


_Offer = tuple[float, float, int, Hop]
"""A possible hop: its end, the load of its busiest resource, family, hop."""


def shallow_trees(
    costs: Resources, families: Sequence[Family], node_of_rank: Sequence[int], target_us: float
) -> dict[Family, RouteTree]:
    """Return a spanning tree for every family; every source must reach every rank.

    Costs and target are as in `packed_trees`.
    """
    packing = _ParallelGrowth(costs, families, node_of_rank, target_us)
    packing.grow_all()
    return packing.trees()


class _ParallelGrowth(Packing):
    def __init__(
        self,
        costs: Resources,
        families: Sequence[Family],
        node_of_rank: Sequence[int],
        target_us: float,
    ) -> None:
        super().__init__(costs, families, len(node_of_rank), target_us)
        self._node = node_of_rank
        self._chunk_us = [min(busy) for busy in self._busy_by_class()]
        self._capacity = [ceil(target_us / busy - _ROUNDING) * busy for busy in self._chunk_us]
        self._arrival = [{source: 0.0} for source in self.sources]
        self._entered = [{node_of_rank[source]} for source in self.sources]
        self._offers: list[_Offer] = []
        self._full: list[_Offer] = []
        """Hops beyond the capacity of a resource."""
        self._reentries: list[_Offer] = []
        """Hops into nodes that have the chunk already."""

    def grow_all(self) -> None:
        """Grow all trees."""
        for f, source in enumerate(self.sources):
            self._offer(f, source)
        while self._offers or self._full or self._reentries:
            while self._offers:
                self._try(heapq.heappop(self._offers))
            if self._full:
                pairs = zip(self._capacity, self._chunk_us, strict=True)
                self._capacity = [capacity + busy for capacity, busy in pairs]
                self._offers, self._full = self._still_open(self._full), []
            else:
                # Some nodes have parts that are connected only through other nodes.
                self._entered = [set() for _ in self.sources]
                self._offers, self._reentries = self._still_open(self._reentries), []

    def _busy_by_class(self) -> list[set[float]]:
        found: list[set[float]] = [set() for _ in self.load]
        for of_hop in self.usage:
            for loads in of_hop.values():
                for c, busy in loads:
                    found[c].add(busy)
        return [busy or {1.0} for busy in found]

    def _still_open(self, offers: list[_Offer]) -> list[_Offer]:
        left = [offer for offer in offers if offer[3][1] not in self._arrival[offer[2]]]
        heapq.heapify(left)
        return left

    def _offer(self, f: int, rank: int) -> None:
        for peer in self._onward[rank]:
            if peer not in self._arrival[f]:
                end = self._arrival[f][rank] + self._costs.latency_us[rank, peer]
                loaded = self._loaded(self.usage[f][rank, peer])
                heapq.heappush(self._offers, (end, loaded, f, (rank, peer)))

    def _try(self, offer: _Offer) -> None:
        end, loaded, f, (a, b) = offer
        if b in self._arrival[f]:
            return
        if self._node[a] != self._node[b] and self._node[b] in self._entered[f]:
            self._reentries.append(offer)
            return
        usage = self.usage[f][a, b]
        now = self._loaded(usage)
        if now > loaded + _ROUNDING:
            heapq.heappush(self._offers, (end, now, f, (a, b)))
        elif any(self.load[c] + busy > self._capacity[c] * (1 + _ROUNDING) for c, busy in usage):
            self._full.append(offer)
        else:
            self._add(usage, 1)
            self.parents[f][b] = a
            self._arrival[f][b] = end
            self._entered[f].add(self._node[b])
            self._offer(f, b)

    def _loaded(self, usage: Load) -> float:
        return max(self.load[c] for c, _ in usage)
