"""Figures of scripts/bench_runtime.py, what they come to, and the targets that they are held to.

The targets are for 4 H200 behind NVSwitch, float16, calls in CUDA graphs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuccl.words.sizes import format_size

GRAPH, PLAIN = "graph", "plain"
K, M = 1 << 10, 1 << 20
ALL_REDUCE_US = {1 * K: 3.2, 16 * K: 3.8, 64 * K: 5.0, 256 * K: 7.2, 1 * M: 12.5, 4 * M: 29.0}
COUNTED = ("all_reduce", "all_gather", "reduce_scatter")
"""What the geometric mean is over; alltoall is reported beside."""
SMALL_SPEEDUP = 1.6
SMALL_BYTES = 256 * K
LARGE_SPEEDUP = 0.99
LARGE_BYTES = 64 * M
WORST_SPEEDUP = 0.98
GEOMEAN = 1.5


@dataclass(frozen=True)
class Row:
    """Times of a key in one mode, by round."""

    mode: str
    operation: str
    size_bytes: int
    stock_us: tuple[float, ...]
    executor_us: tuple[float, ...]
    by_executor: bool
    """Whether the executor ran it, rather than leave it to NCCL."""

    @property
    def speedup(self) -> float:
        """Median of the rounds' ratios."""
        pairs = zip(self.stock_us, self.executor_us, strict=True)
        return statistics.median(stock / own for stock, own in pairs)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.operation} {format_size(self.size_bytes)}"

    def as_json(self) -> dict[str, Any]:
        """With what follows from it."""
        return asdict(self) | {
            "stock_median_us": statistics.median(self.stock_us),
            "executor_median_us": statistics.median(self.executor_us),
            "speedup": self.speedup,
        }


def totals(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Geometric mean, worst and best key: of what counts and of each operation, by mode."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.operation in COUNTED:
            groups.setdefault(row.mode, []).append(row)
        groups.setdefault(f"{row.mode} {row.operation}", []).append(row)
    return {name: _total(group) for name, group in groups.items()}


def _total(rows: Sequence[Row]) -> dict[str, Any]:
    worst = min(rows, key=lambda row: row.speedup)
    best = max(rows, key=lambda row: row.speedup)
    return {
        "geomean": statistics.geometric_mean(row.speedup for row in rows),
        "worst": {"key": worst.name, "speedup": worst.speedup},
        "best": {"key": best.name, "speedup": best.speedup},
        "by_executor": sum(row.by_executor for row in rows),
        "keys": len(rows),
    }


def judge(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Each target that the rows say something about: what is wanted, what is there."""
    return [
        {"target": text, "wanted": wanted, "found": found, "holds": holds}
        for text, wanted, found, holds in _targets([row for row in rows if row.mode == GRAPH])
    ]


def _targets(rows: Sequence[Row]) -> Iterator[tuple[str, float, float, bool]]:
    for row in rows:
        if row.operation == "all_reduce" and row.size_bytes in ALL_REDUCE_US:
            wanted_us = ALL_REDUCE_US[row.size_bytes]
            found_us = statistics.median(row.executor_us)
            yield f"{row.name}, us at most", wanted_us, found_us, found_us <= wanted_us
    counted = [row for row in rows if row.operation in COUNTED]
    small = [r for r in counted if r.operation != "all_reduce" and r.size_bytes <= SMALL_BYTES]
    large = [row for row in counted if row.size_bytes >= LARGE_BYTES]
    for text, group, wanted in (
        ("all_gather and reduce_scatter to 256K, least speedup", small, SMALL_SPEEDUP),
        ("64M and more, least speedup", large, LARGE_SPEEDUP),
        ("all sizes, least speedup", counted, WORST_SPEEDUP),
    ):
        if group:
            found = min(row.speedup for row in group)
            yield text, wanted, found, found >= wanted
    if counted:
        mean = statistics.geometric_mean(row.speedup for row in counted)
        yield "geometric mean of the speedups", GEOMEAN, mean, mean >= GEOMEAN


def tell(
    rows: Sequence[Row], sums: Mapping[str, Mapping[str, Any]], targets: Sequence[Mapping[str, Any]]
) -> None:
    """All of it for people; a star marks what the executor left to NCCL."""
    print(f"{'mode':<6} {'key':<22}{'stock us':>12}{'executor us':>13}{'speedup':>9}")
    for row in rows:
        stock_us, own_us = map(statistics.median, (row.stock_us, row.executor_us))
        mark = "" if row.by_executor else " *"
        print(
            f"{row.mode:<6} {row.name:<22}{stock_us:>12.2f}{own_us:>13.2f}{row.speedup:>9.3f}{mark}"
        )
    for name, total in sums.items():
        worst, best = total["worst"], total["best"]
        print(
            f"{name}: geomean {total['geomean']:.4f}, worst {worst['speedup']:.3f} "
            f"({worst['key']}), best {best['speedup']:.3f} ({best['key']}), "
            f"{total['by_executor']} of {total['keys']} keys by the executor"
        )
    for target in targets:
        word = "reached" if target["holds"] else "MISSED"
        print(f"{word}: {target['target']} {target['wanted']:g}: {target['found']:.3f}")
