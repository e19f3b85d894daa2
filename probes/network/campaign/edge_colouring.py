"""Rounds of pairs that use no device twice: a proper edge colouring of a graph.

Devices are vertices, pairs to be measured are edges, and pairs of one colour can run at once. By
Vizing's theorem a simple graph needs as many colours as its largest degree, or one more.
`colour_edges` never needs more than that: an edge takes a colour that both ends have free; else an
alternating path is flipped (which always suffices in a bipartite graph, so there the number is the
largest degree); else the fan of Misra and Gries (Information Processing Letters 41, 1992) makes
room. A complete graph is coloured by the circle method, which is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Edge = tuple[int, int]


def round_robin(count: int) -> list[list[Edge]]:
    """Return all pairs of `count` members in rounds, by the circle method.

    An even count takes count - 1 rounds; an odd count takes count rounds, each without one member.
    """
    slots = count + count % 2
    rounds = []
    for turn in range(slots - 1):
        circle = [0, *(1 + (turn + i) % (slots - 1) for i in range(slots - 1))]
        pairs = ((circle[i], circle[-1 - i]) for i in range(slots // 2))
        rounds.append([(min(a, b), max(a, b)) for a, b in pairs if max(a, b) < count])
    return rounds if count > 1 else []


def colour_edges(count: int, edges: Sequence[Edge]) -> list[list[Edge]]:
    """Distribute the edges of a simple graph over rounds that use every vertex at most once.

    Vertices are 0 to count - 1; an edge keeps its direction. There are at most as many rounds as
    the largest degree + 1, none is empty, and equal input gives equal rounds.

    Raises:
        ValueError: a repeated edge, a loop, or a vertex out of range.
    """
    given = _checked(count, edges)
    degree = [0] * count
    for a, b in given:
        degree[a] += 1
        degree[b] += 1
    if len(edges) == count * (count - 1) // 2:
        return [[given[pair] for pair in pairs] for pairs in round_robin(count)]
    colouring = _Colouring(count, max(degree, default=0))
    for a, b in given:
        colouring.add(a, b)
    rounds: list[list[Edge]] = [[] for _ in range(colouring.degree + 1)]
    for pair, edge in given.items():
        rounds[colouring.colour[pair]].append(edge)
    return [members for members in rounds if members]


def _checked(count: int, edges: Sequence[Edge]) -> dict[Edge, Edge]:
    """Return the edges as given, by their ends in ascending order."""
    given: dict[Edge, Edge] = {}
    for a, b in edges:
        if not (0 <= a < count and 0 <= b < count) or a == b:
            raise ValueError(
                f"edge ({a}, {b}): it takes two different vertices of 0 to {count - 1}"
            )
        if (min(a, b), max(a, b)) in given:
            raise ValueError(f"edge ({a}, {b}) is given twice; colour the second in another call")
        given[min(a, b), max(a, b)] = (a, b)
    return given


class _Colouring:
    """A proper colouring that grows edge by edge, with the colours 0 to `degree`."""

    def __init__(self, count: int, degree: int) -> None:
        self.degree = degree
        self.colour: dict[Edge, int] = {}
        self.neighbour: list[dict[int, int]] = [{} for _ in range(count)]
        """Neighbours by vertex, then by colour of the edge."""
        self.free = [(1 << (degree + 1)) - 1] * count
        """Colours that none of the vertex's edges has, as bits, by vertex."""
        self.preferred = (1 << degree) - 1
        """All colours but the last, as bits."""

    def add(self, u: int, v: int) -> None:
        common = self.free[u] & self.free[v]
        if common & self.preferred:
            self._paint(u, v, _lowest(common))
        elif not self._add_by_flip(u, v) and not self._add_by_flip(v, u):
            if common:
                self._paint(u, v, _lowest(common))
            else:
                self._add_by_fan(u, v)

    def _paint(self, u: int, v: int, colour: int) -> None:
        self.colour[min(u, v), max(u, v)] = colour
        for near, far in ((u, v), (v, u)):
            self.neighbour[near][colour] = far
            self.free[near] &= ~(1 << colour)

    def _unpaint(self, u: int, v: int) -> int:
        colour = self.colour.pop((min(u, v), max(u, v)))
        for vertex in (u, v):
            del self.neighbour[vertex][colour]
            self.free[vertex] |= 1 << colour
        return colour

    def _path(self, start: int, first: int, second: int) -> list[Edge]:
        """Edges from `start` (which lacks `second`) by the colours `first`, `second`, `first`..."""
        path = []
        vertex, colour, next_colour = start, first, second
        while colour in self.neighbour[vertex]:
            neighbour = self.neighbour[vertex][colour]
            path.append((vertex, neighbour))
            vertex, colour, next_colour = neighbour, next_colour, colour
        return path

    def _flip(self, path: Sequence[Edge], first: int, second: int) -> None:
        for edge in path:
            self._unpaint(*edge)
        for step, edge in enumerate(path):
            self._paint(*edge, first if step % 2 else second)

    def _add_by_flip(self, u: int, v: int) -> bool:
        """Free a colour of u at v by flipping a path; fails if the path ends in u."""
        free_u = _lowest(self.free[u] & self.preferred)
        free_v = _lowest(self.free[v] & self.preferred)
        path = self._path(v, free_u, free_v)
        if path and path[-1][1] == u:
            return False
        self._flip(path, free_u, free_v)
        self._paint(u, v, free_u)
        return True

    def _add_by_fan(self, u: int, v: int) -> None:
        fan = self._fan(u, v)
        free_u, free_last = _lowest(self.free[u]), _lowest(self.free[fan[-1]])
        self._flip(self._path(u, free_last, free_u), free_last, free_u)
        # The flip may have cut the fan; Misra and Gries prove that a vertex of the rest ends it.
        rotated = [fan[0]]
        for previous, spoke in itertools.pairwise(fan):
            if self.free[rotated[-1]] >> free_last & 1:
                break
            if not self.free[previous] >> self.colour[min(u, spoke), max(u, spoke)] & 1:
                break
            rotated.append(spoke)
        colours = [self._unpaint(u, spoke) for spoke in rotated[1:]]
        for spoke, colour in zip(rotated, [*colours, free_last], strict=True):
            self._paint(u, spoke, colour)

    def _fan(self, u: int, v: int) -> list[int]:
        """Neighbours of u from v on, each joined to u by a colour that is free at the previous."""
        fan, members = [v], {v}
        while True:
            offered = self.free[fan[-1]] & ~self.free[u]
            while offered:
                colour = _lowest(offered)
                offered &= offered - 1
                if (spoke := self.neighbour[u][colour]) not in members:
                    fan.append(spoke)
                    members.add(spoke)
                    break
            else:
                return fan


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
