"""Expert algorithms: known constructions over the edges that a sketch offers.

`expert_algorithms` returns every one that fits a collective and a sketch; each module of this
package builds one family, as programs.

A search and most of them write out the steps of every rank for every block, which grow with the
square of the ranks. On large machines whose nodes are connected by rails, rail exchanges, whose
steps are computed once for all nodes, and trees of nodes take their place.
"""

from __future__ import annotations

from collections.abc import Iterator

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.experts import (
    all_pairs,
    gateways,
    halving_doubling,
    hierarchical,
    rail_exchange,
    rail_trees,
    ring,
    tree,
)
from synthesizer.experts.ring import ring_orders
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.program import Program
from synthesizer.lower.lowering import lower
from tuccl.errors import InfeasibleError

MOST_RANKS_WRITTEN_OUT = 128
"""Most ranks for a search or eight rings, about a minute at this limit; 1,024 ranks take hours."""

LEAST_BYTES_OF_RAILS_ALONE = 4 << 20
"""Size from which no search found a schedule faster than the rail exchanges of many equal nodes: of
9 and 16 nodes of 8 A100, by 0 to 8 % slower. At 1 MiB it saves up to 2 %."""


def beyond_search(sketch: Sketch) -> bool:
    """Return whether a search on this sketch takes too long."""
    return sketch.ranks > MOST_RANKS_WRITTEN_OUT


def rails_suffice(collective: Collective, sketch: Sketch, size_bytes: int) -> bool:
    """Return whether `expert_algorithms` has what a search for this size would find."""
    if collective.has_root or size_bytes < LEAST_BYTES_OF_RAILS_ALONE:
        return False
    return takes_rails_alone(collective, sketch)


def beyond_experts(collective: Collective, sketch: Sketch) -> bool:
    """Return whether `expert_algorithms` takes too long on this sketch."""
    if sketch.ranks <= MOST_RANKS_WRITTEN_OUT or takes_rails_alone(collective, sketch):
        return False
    if not collective.has_root:
        return True
    return _takes_gateways_alone(collective, sketch) and gateways.gateways_of(sketch) is None


def _takes_gateways_alone(collective: Collective, sketch: Sketch) -> bool:
    many = sketch.ranks > MOST_RANKS_WRITTEN_OUT and len(sketch.edges) > MOST_EDGES_OF_ROOTED
    return collective.has_root and many


PIPELINE_CHUNKS = (1, 8)
"""Chunks of trees and of rooted rings: one for latency, several for bandwidth."""

HIERARCHICAL_CHUNKS = (1, 4)
"""Chunks per block of hierarchical algorithms: one for latency, several to overlap the phases."""

EXCHANGE_PIECES = (8, 16)
"""Pieces of a share that two nodes exchange, where the three steps of all_reduce overlap: several
for about a megabyte."""

RAIL_GROUPS = (2, 16)
"""Groups of chunks of broadcast and reduce over rails: few for medium sizes, many for large."""

MOST_RANKS_IN_DETAIL = 64
"""Most ranks for algorithms with few steps: their statements grow with the square of the ranks."""

MOST_EDGES_OF_ROOTED = 32_000
"""Most edges for rings and trees of broadcast and reduce, whose construction visits every edge."""

_Named = tuple[str, Program]


def expert_algorithms(
    collective: Collective, sketch: Sketch, root: int = 0
) -> tuple[Algorithm, ...]:
    """Return the expert algorithms that fit this sketch, in a fixed order with fixed names.

    Raises:
        InfeasibleError: `root` is not a rank, or the sketch has only one rank.
    """
    if sketch.ranks < 2:
        raise InfeasibleError(f"{collective}: one rank alone has nothing to exchange")
    if not 0 <= root < sketch.ranks:
        raise InfeasibleError(
            f"{collective}: root {root} is not one of ranks 0 to {sketch.ranks - 1}"
        )
    rails = _rails_alone(collective, sketch, root)
    if rails:
        return rails
    families: tuple[Iterator[_Named], ...] = (
        _rings(collective, sketch, root),
        _all_pairs(collective, sketch),
        _trees(collective, sketch, root),
        _halving_doubling(collective, sketch),
        _hierarchical(collective, sketch),
        _rooted_rails(collective, sketch, root),
        _few_steps(collective, sketch),
        _gateways(collective, sketch, root),
    )
    if _takes_gateways_alone(collective, sketch):
        families = families[-1:]
    return tuple(lower(program, name) for family in families for name, program in family)


def fewest_steps(collective: Collective, sketch: Sketch) -> int:
    """Return a lower bound on the steps of what `expert_algorithms` returns.

    In a rail exchange each rank sends and receives one block of each other rank at least.
    """
    exchanges = collective in rail_exchange.COLLECTIVES and takes_rails_alone(collective, sketch)
    return 2 * sketch.ranks * (sketch.ranks - 1) if exchanges else 0


def takes_rails_alone(collective: Collective, sketch: Sketch) -> bool:
    """Return whether `expert_algorithms` returns rail algorithms, with those over homes, alone."""
    return _large_grid(collective, sketch) is not None


def _large_grid(collective: Collective, sketch: Sketch) -> hierarchical.Grid | None:
    """Return the grid of a machine on which only those stay small enough, or None."""
    if collective in rail_exchange.COLLECTIVES:
        many = sketch.ranks > MOST_RANKS_IN_DETAIL
    else:
        many = collective in rail_trees.BUILDERS and len(sketch.edges) > MOST_EDGES_OF_ROOTED
    return hierarchical.rail_grid(sketch) if many else None


def _rails_alone(collective: Collective, sketch: Sketch, root: int) -> tuple[Algorithm, ...]:
    grid = _large_grid(collective, sketch)
    if grid is None:
        return ()
    if collective in rail_trees.BUILDERS:
        families = _rail_trees(collective, grid, root), _gateways(collective, sketch, root)
        return tuple(lower(program, name) for family in families for name, program in family)
    pieces = dict.fromkeys((1, rail_exchange.chosen_pieces(len(grid))))
    return tuple(rail_exchange.rail_exchange(collective, grid, count) for count in pieces)


def _rings(collective: Collective, sketch: Sketch, root: int) -> Iterator[_Named]:
    rings = ring_orders(sketch)
    if not rings:
        return
    name = f"{collective}_ring_{len(rings)}x"
    if collective in ring.BUILDERS:
        yield name, ring.BUILDERS[collective](rings)
    elif collective in ring.ROOTED_BUILDERS:
        for chunks in PIPELINE_CHUNKS:
            yield f"{name}_{chunks}c", ring.ROOTED_BUILDERS[collective](rings, root, chunks)


def _all_pairs(collective: Collective, sketch: Sketch) -> Iterator[_Named]:
    if len(sketch.edge) >= sketch.ranks * (sketch.ranks - 1):
        for name, build in all_pairs.BUILDERS.get(collective, {}).items():
            yield f"{collective}_{name}", build(sketch.ranks)


def _trees(collective: Collective, sketch: Sketch, root: int) -> Iterator[_Named]:
    if collective is Collective.ALL_REDUCE:
        yield from _all_reduce_trees(sketch, root)
        return
    builders = tree.ROOTED_BUILDERS
    spanning = tree.binary_tree(sketch, root) if collective in builders else None
    if spanning:
        for chunks in PIPELINE_CHUNKS:
            yield f"{collective}_tree_{chunks}c", builders[collective](spanning, chunks)


def _all_reduce_trees(sketch: Sketch, root: int) -> Iterator[_Named]:
    first = tree.binary_tree(sketch, root)
    second = tree.binary_tree(sketch, sketch.ranks - 1 - root, backwards=True)
    if first and second:
        for name, trees in (("tree", (first,)), ("double_tree", (first, second))):
            for chunks in PIPELINE_CHUNKS:
                yield f"all_reduce_{name}_{chunks}c", tree.tree_all_reduce(trees, chunks)


def _halving_doubling(collective: Collective, sketch: Sketch) -> Iterator[_Named]:
    builders = halving_doubling.BUILDERS
    small = sketch.ranks <= MOST_RANKS_IN_DETAIL and collective in builders
    grid = halving_doubling.exchange_grid(sketch) if small else None
    if grid:
        for name, build in builders[collective].items():
            yield f"{collective}_recursive_{name}", build(grid)


def _few_steps(collective: Collective, sketch: Sketch) -> Iterator[_Named]:
    """Yield all-pairs algorithms inside nodes and along rails."""
    builders = hierarchical.FEW_STEPS
    small = sketch.ranks <= MOST_RANKS_IN_DETAIL and collective in builders
    grid = hierarchical.rail_grid(sketch) if small else None
    if grid and len(grid[0]) > 1:
        for name, build in builders[collective].items():
            yield f"{collective}_{name}", build(grid)
    if collective is Collective.ALL_REDUCE:
        yield from _exchanges_of_two_nodes(sketch)


def _exchanges_of_two_nodes(sketch: Sketch) -> Iterator[_Named]:
    """Yield exchanges of no more bytes than must be, which cross the network once.

    Rails may be missing, as where a NIC is.
    """
    grid = hierarchical.node_grid(sketch)
    rails = hierarchical.linked_rails(sketch, grid) if grid and len(grid) == 2 else ()
    if grid and len(rails) > 1 and sketch.ranks <= MOST_RANKS_IN_DETAIL:
        for pieces in EXCHANGE_PIECES:
            program = hierarchical.three_step_all_reduce(grid, pieces, rails)
            yield f"all_reduce_three_step_{pieces}c", program


def _gateways(collective: Collective, sketch: Sketch, root: int) -> Iterator[_Named]:
    if collective.has_root or sketch.ranks <= MOST_RANKS_IN_DETAIL:
        yield from gateways.gateway_programs(collective, sketch, root)


def _hierarchical(collective: Collective, sketch: Sketch) -> Iterator[_Named]:
    builders = hierarchical.BUILDERS
    grid = hierarchical.rail_grid(sketch) if collective in builders else None
    if grid:
        for chunks in HIERARCHICAL_CHUNKS:
            yield f"{collective}_hierarchical_{chunks}c", builders[collective](grid, chunks)


def _rooted_rails(collective: Collective, sketch: Sketch, root: int) -> Iterator[_Named]:
    grid = hierarchical.rail_grid(sketch) if collective in rail_trees.BUILDERS else None
    if grid:
        yield from _rail_trees(collective, grid, root)


def _rail_trees(collective: Collective, grid: hierarchical.Grid, root: int) -> Iterator[_Named]:
    for groups in RAIL_GROUPS:
        yield f"{collective}_rails_{groups}g", rail_trees.BUILDERS[collective](grid, root, groups)
