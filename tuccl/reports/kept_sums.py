"""Sentences on tables whose sums do not move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lookup_tables.table import Shape, SumOrder
from tuccl.quantities import count_of

_LONGEST_ORDER = 60


def kept_sums_lines(sums: Iterable[SumOrder]) -> Iterator[str]:
    """Yield a line for each shape: in which order its sums are added, whatever the call."""
    found: dict[tuple[Shape, str], list[str]] = {}
    for own in sums:
        found.setdefault((own.shape, own.order), []).append(own.operation.value)
    for (shape, order), names in found.items():
        yield (
            f"sums do not move: {' and '.join(names)} on {count_of(shape.ranks, 'rank')} of "
            f"{count_of(shape.nodes, 'node')} add{'s' if len(names) == 1 else ''} "
            f"{short_order(order)} at every size"
        )


def short_order(order: str) -> str:
    """Return an order without the middle of a long one."""
    if len(order) <= _LONGEST_ORDER:
        return order
    half = _LONGEST_ORDER // 2
    return f"{order[:half]}...{order[-half:]}"
