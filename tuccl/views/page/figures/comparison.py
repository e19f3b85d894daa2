"""Two tables compared: what a job gets from each, for the keys that both have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lookup_tables.table import Operation, Shape
from tuccl.errors import UsageError
from tuccl.views.page.figures.key_figures import KeyFigures, Timed
from tuccl.views.page.figures.table_figures import TableFigures, geometric_mean
from tuccl.words.counts import count_of

_SAME_STOCK = 0.02
"""Mean difference of stock NCCL's times that is not worth a remark."""


@dataclass(frozen=True, slots=True)
class ComparedKey:
    """A key of both tables."""

    operation: Operation
    size_bytes: int
    shape: Shape
    first: KeyFigures
    second: KeyFigures
    ratio: float
    """A job's time with the first table over that with the second: above 1 the second is faster."""
    low: float | None
    """The ratio where each time is at the bound that is worse for the second; None: not known."""
    high: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two tables, key by key."""

    ratio: float
    """Geometric mean over the keys that both have."""
    keys: tuple[ComparedKey, ...]
    remarks: tuple[str, ...]
    """Reasons not to take the ratios at face value, and keys that only one table has."""


def compare(first: TableFigures, second: TableFigures) -> Comparison:
    """Compare two tables.

    Raises:
        UsageError: They have no key in common.
    """
    others = {_call(key): key for key in second.all_keys}
    keys = tuple(
        _compared(key, others[_call(key)]) for key in first.all_keys if _call(key) in others
    )
    if not keys:
        raise UsageError(
            f"{first.name} and {second.name} have no operation, size and communicator in common; "
            "name tables that do"
        )
    ratio = geometric_mean([key.ratio for key in keys])
    return Comparison(ratio, keys, tuple(_remarks(first, second, keys)))


def _call(key: KeyFigures) -> tuple[Operation, Shape, int, str]:
    return key.operation, key.shape, key.size_bytes, key.placement


def _compared(first: KeyFigures, second: KeyFigures) -> ComparedKey:
    a, b = first.job, second.job
    return ComparedKey(
        first.operation,
        first.size_bytes,
        first.shape,
        first,
        second,
        a.time_us / b.time_us,
        _quotient(a.low_us, b.high_us),
        _quotient(a.high_us, b.low_us),
    )


def _quotient(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else over / under


def _remarks(
    first: TableFigures, second: TableFigures, keys: tuple[ComparedKey, ...]
) -> Iterator[str]:
    if first.fingerprint != second.fingerprint:
        yield (
            f"the machines differ: {first.topology} ({first.fingerprint}) and {second.topology} "
            f"({second.fingerprint})"
        )
    if first.times is not second.times:
        yield f"times of the first are {first.times.value}, of the second {second.times.value}"
    elif first.times.caveat:
        yield first.times.caveat
    if first.nccl_version != second.nccl_version:
        named = [table.nccl_version or "not stated" for table in (first, second)]
        yield f"NCCL differs: {named[0]} and {named[1]}"
    stock = geometric_mean([_over(key.first.stock, key.second.stock) for key in keys])
    if abs(stock - 1.0) > _SAME_STOCK:
        yield (
            f"stock NCCL's own times differ: those of the first are {stock:.3f} times those of "
            "the second, on average, so that not all of a ratio is the tables'"
        )
    for table in (first, second):
        alone = len(table.all_keys) - len(keys)
        if alone:
            yield f"{count_of(alone, 'key')} of {table.name} not compared: the other has none such"


def _over(first: Timed, second: Timed) -> float:
    return first.time_us / second.time_us
