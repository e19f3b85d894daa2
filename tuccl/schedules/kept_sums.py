"""Schedules of tables whose sums do not move: those that add every element in one known order."""

from __future__ import annotations

from lookup_tables.table import NcclProtocol, Shape
from synthesizer.programs.sum_order import (
    order_of_kernels,
    order_of_nodes,
    order_of_phases,
    order_text,
)
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.executor_schedules import pattern_of_candidate
from tuccl.search.trials.space import Space


def kept_order(shape: Shape) -> str | None:
    """Return the order in which such a table adds on a shape; None if it has none there."""
    tree = order_of_nodes(shape)
    return None if tree is None else order_text(tree)


def adds_in_order(candidate: Candidate, shape: Shape) -> bool:
    """Whether the executor adds up every element of a schedule in the order of a shape's tables."""
    tree = order_of_nodes(shape)
    if candidate.phased is not None:
        return tree is not None and order_of_phases(candidate.phased) == tree
    has_kernel = shape.nodes == 1 and bool(pattern_of_candidate(candidate))
    return has_kernel and order_of_kernels(shape.ranks) == tree


def run_by_kernels(space: Space) -> Space:
    """Return a space of schedules without those that the executor interprets.

    With Simple it interprets even schedules that have a kernel for LL and LL128.
    """
    families = tuple(f for f in space.families if f.protocol != NcclProtocol.SIMPLE)
    return Space(space.name, families)
