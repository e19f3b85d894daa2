"""Packing: spanning trees chosen together so that the busiest resource is as little busy as can be.

For large sizes only the loads matter: every rank receives every chunk once, and the question is
over which edges. That is a packing of arborescences with a small integer number of trees per
source (ForestColl, section 4, packs as many as the exact optimum asks for; a threadblock program
can run few). Trees are grown one after another, each hop where the sum of steep powers of the loads
grows least; then single ranks are hung up elsewhere, with a little annealing, for as long as the
busiest resource can still be relieved.

Resources that every possible hop, with its images, loads alike are one class, so a machine of
many equal GPUs costs no more than its few kinds of ports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp

import numpy as np

from synthesizer.solve.orbits import Orbit
from synthesizer.solve.resources import Hop, Resources
from synthesizer.solve.routes import Family, RouteTree, tree_from_hops

_MOVES_PER_RANK = 40
_FEWEST_MOVES = 20_000
_MOST_MOVES = 100_000
"""Ranks that are tried elsewhere: so many for every rank of every tree, within these limits."""

_POWER = 40
"""Of a load relative to the target: high enough that a load 1 % above weighs half as much again."""

_HEAT = 0.02
"""Chance of a worse move at first, in powers of loads relative to the target; cools to none."""

_DEPTH_WEIGHT = 1e-3
"""What a level of depth costs beside the loads: among equal loads, shallow trees."""

_LOOK_EVERY = 100
"""Moves after which the busiest class is looked for again."""

_CLOSE_ENOUGH = 1.002
_ROUNDING = 1e-9
_EQUAL = 9
"""Decimals to which growths of the powers are compared."""

_SEED = 1

Load = tuple[tuple[int, float], ...]
"""(class, time) that a hop and its images put on a resource of each class."""


def packed_trees(
    costs: Resources,
    families: Sequence[Family],
    ranks: int,
    target_us: float,
    moves: int = 0,
) -> dict[Family, RouteTree]:
    """A spanning tree for every family; every source must reach every rank.

    Args:
        costs: Resources for the size of a chunk.
        families: Trees to be found.
        ranks: Number of ranks.
        target_us: Load of the busiest resource that no choice can undercut.
        moves: Limit of the search after the trees have been laid; 0: chosen.
    """
    wanted = _MOVES_PER_RANK * len(families) * ranks
    moves = moves or min(max(wanted, _FEWEST_MOVES), _MOST_MOVES)
    packing = Packing(costs, families, ranks, target_us)
    for f in range(len(families)):
        packing.grow(f)
    packing.improve(moves)
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
        """Fewer connections need fewer threadblocks, and keep their messages in order."""
        self._ranks = ranks
        self._costs = costs
        self._target = target_us
        self._onward: dict[int, list[int]] = defaultdict(list)
        self._into: dict[int, list[int]] = defaultdict(list)
        for a, b in costs.of_edge:
            self._onward[a].append(b)
            self._into[b].append(a)

    def grow(self, f: int) -> None:
        """Lays one tree over the loads so far, each hop where they grow least."""
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
        """The trees as they are."""
        return {
            family: tree_from_hops(source, ((a, b) for b, a in enumerate(parent) if b != source))
            for family, source, parent in zip(
                self._families, self.sources, self.parents, strict=True
            )
        }

    def improve(self, moves: int) -> None:
        """Keeps the best trees met while single ranks are hung up elsewhere."""
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
                hot = self._on_the_busiest()
            # Every other move relieves the busiest class, the others make room elsewhere.
            f, rank = hot[any_f * any_rank % len(hot)] if number % 2 else (any_f, any_rank)
            choices = self._into[rank]
            sender = choices[int(which * len(choices))]
            heat = _HEAT * (1 - number / moves)
            if self._moved(f, rank, sender, luck, heat) and max(self.load) < best_us:
                best_us, best = max(self.load), self._snapshot()
        self.parents, self.load = best
        self._flatten(best_us)

    def _snapshot(self) -> tuple[list[list[int]], list[float]]:
        return [parent.copy() for parent in self.parents], self.load.copy()

    def _flatten(self, limit_us: float) -> None:
        """Hangs ranks up nearer to their source where no load exceeds the limit by it."""
        for f, parent in enumerate(self.parents):
            for rank in range(self._ranks):
                if parent[rank] < 0:
                    continue
                for depth, sender in sorted(
                    (self._depth(parent, sender, rank), sender) for sender in self._into[rank]
                ):
                    if depth >= self._depth(parent, parent[rank], rank):
                        break
                    if depth >= 0 and self._swapped(f, rank, sender, limit_us):
                        break

    def _swapped(self, f: int, rank: int, sender: int, limit_us: float) -> bool:
        """Whether `rank` now gets its chunk from `sender`, the loads allowing it."""
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

    def _on_the_busiest(self) -> list[tuple[int, int]]:
        """Trees and ranks whose hop loads the busiest class."""
        busiest = max(range(len(self.load)), key=self.load.__getitem__)
        return [
            (f, rank)
            for f, parent in enumerate(self.parents)
            for rank, sender in enumerate(parent)
            if sender >= 0 and any(c == busiest for c, _ in self.usage[f][sender, rank])
        ]

    def _moved(self, f: int, rank: int, sender: int, luck: float, heat: float) -> bool:
        """Whether `rank` now gets its chunk from `sender`."""
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
        """Hops from the source to a rank; -1 when the way leads through `forbidden`."""
        depth = 0
        while rank != forbidden:
            rank = parent[rank]
            if rank < 0:
                return depth
            depth += 1
        return -1

    def _growth(self, usage: Load, sign: int = 1) -> float:
        """By how much the sum of powers changes when a hop comes (or goes)."""
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
    """What each hop of each representative's tree loads, and the number of classes."""
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
    """Time that all images of a hop occupy, by resource."""
    total: dict[int, float] = defaultdict(float)
    for image in orbit.images:
        for resource in costs.of_edge[image[hop[0]], image[hop[1]]]:
            total[resource] += costs.busy_us[resource]
    return total
