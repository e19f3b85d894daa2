"""Resources of a sketch: everything that serves one transfer at a time, with its cost per byte.

Every port is one, and every edge that is narrower than its ports (on the others the port is always
busier). A transfer over an edge occupies all of the edge's resources, each for bytes / bandwidth; a
NIC shared by several edges is thus divided among them in time (TuCCL section III-B).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sketches.sketch import Sketch
from synthesizer.errors import InfeasibleError

Hop = tuple[int, int]
"""Sender and receiver of a transfer."""

_BYTES_PER_US = 1e3
"""Bytes per microsecond in one GB/s."""


@dataclass(frozen=True)
class Resources:
    """Costs of a sketch's edges in microseconds, for chunks of a given size."""

    names: tuple[str, ...]
    busy_us: tuple[float, ...]
    """Per resource: how long one chunk occupies it."""
    least_alpha_us: tuple[float, ...]
    """Per resource: the least alpha of the edges that use it."""
    of_edge: dict[Hop, tuple[int, ...]]
    latency_us: dict[Hop, float]
    """Alpha plus the chunk's time on the narrowest part of the edge."""

    def loads_us(self, hops: Iterable[Hop]) -> list[float]:
        """Time for which each resource is occupied by the given hops."""
        loads = [0.0] * len(self.names)
        for hop in hops:
            for resource in self.of_edge[hop]:
                loads[resource] += self.busy_us[resource]
        return loads

    def least_time_us(self, loads: Iterable[float]) -> float:
        """No schedule with these loads ends sooner: the last chunk still has an alpha to go."""
        pairs = zip(loads, self.least_alpha_us, strict=True)
        return max((load + alpha for load, alpha in pairs if load > 0), default=0.0)


def resources(sketch: Sketch, chunk_bytes: float) -> Resources:
    """The resources of a sketch with their costs for one chunk."""
    names = [port.name for port in sketch.ports]
    widths = [port.bandwidth_gb_per_s for port in sketch.ports]
    number = {name: i for i, name in enumerate(names)}
    of_edge: dict[Hop, tuple[int, ...]] = {}
    alphas: list[list[float]] = [[] for _ in names]
    for key, edge in sorted(sketch.edge.items()):
        used = [number[port] for port in dict.fromkeys(edge.ports)]
        if all(edge.bandwidth_gb_per_s < widths[port] for port in used):
            used.append(len(names))
            names.append(f"{edge.src}->{edge.dst}")
            widths.append(edge.bandwidth_gb_per_s)
            alphas.append([])
        for resource in used:
            alphas[resource].append(edge.alpha_us)
        of_edge[key] = tuple(used)
    busy = tuple(chunk_bytes / (width * _BYTES_PER_US) for width in widths)
    return Resources(
        tuple(names),
        busy,
        tuple(min(found, default=0.0) for found in alphas),
        of_edge,
        {
            key: sketch.edge[key].alpha_us + max(busy[resource] for resource in used)
            for key, used in of_edge.items()
        },
    )


def require_connected(sketch: Sketch, ends: Iterable[int], *, towards: bool = False) -> None:
    """Checks that every rank is reached from each of `ends`, or reaches it (`towards`).

    Raises:
        InfeasibleError: Names the first two ranks without a way between them.
    """
    onward: dict[int, list[int]] = {}
    for a, b in sketch.edge:
        first, then = (b, a) if towards else (a, b)
        onward.setdefault(first, []).append(then)
    for end in ends:
        reached = {end}
        queue = [end]
        for rank in queue:
            new = [other for other in onward.get(rank, ()) if other not in reached]
            reached.update(new)
            queue += new
        missing = [rank for rank in range(sketch.ranks) if rank not in reached]
        if missing:
            a, b = (missing[0], end) if towards else (end, missing[0])
            raise InfeasibleError(
                f"sketch {sketch.name} has no way from rank {a} to rank {b};"
                " use a sketch with an edge between their parts"
            )


def reversed_sketch(sketch: Sketch) -> Sketch:
    """The same with every edge turned round, ports included."""
    turned = (
        replace(edge, src=edge.dst, dst=edge.src, ports=edge.ports[::-1]) for edge in sketch.edges
    )
    return replace(sketch, edges=tuple(sorted(turned, key=lambda edge: (edge.src, edge.dst))))
