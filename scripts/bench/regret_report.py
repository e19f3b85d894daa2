"""Tabulate the outcomes of `bench_search.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles, stdev

GOOD = 0.01
"""Largest regret at which the best configuration counts as found."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One search at one budget."""

    strategy: str
    key: str
    seed: int
    share: float
    """Budget, as a share of the grid's seconds."""
    regret: float
    spent: float
    """Seconds spent, as a share of the grid's seconds."""
    tried: int


def table(outcomes: Sequence[Outcome], strategies: Sequence[str], shares: Sequence[float]) -> str:
    """Markdown table with a row per strategy and a column per budget.

    A cell has the share of searches within 1 % of the best with its standard error over keys, then
    median and 90th percentile of the regret in per cent.
    """
    head = " | ".join(f"{share:.1%}" for share in shares)
    lines = [f"| strategy | {head} |", "|---" * (len(shares) + 1) + "|"]
    for strategy in strategies:
        cells = [_cell(_of(outcomes, strategy, share)) for share in shares]
        lines.append(f"| {strategy} | {' | '.join(cells)} |")
    worst = max((outcome.spent - outcome.share for outcome in outcomes), default=0.0)
    lines.append(f"\nLargest overrun of a budget: {max(0.0, worst):.3%} of what the grid costs.")
    return "\n".join(lines)


def _found_by_key(found: Sequence[Outcome]) -> dict[str, float]:
    """Share of searches that found the best configuration, by key."""
    by_key: dict[str, list[bool]] = {}
    for outcome in found:
        by_key.setdefault(outcome.key, []).append(outcome.regret <= GOOD)
    return {key: fmean(good) for key, good in by_key.items()}


def _error(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _of(outcomes: Iterable[Outcome], strategy: str, share: float) -> list[Outcome]:
    return [found for found in outcomes if found.strategy == strategy and found.share == share]


def _cell(found: Sequence[Outcome]) -> str:
    good = list(_found_by_key(found).values())
    regrets = sorted(outcome.regret for outcome in found)
    high = quantiles(regrets, n=10)[-1] if len(regrets) > 1 else regrets[0]
    return f"{fmean(good):.1%} ± {_error(good):.1%}, {_percent(median(regrets))} / {_percent(high)}"


def _percent(regret: float) -> str:
    return f"{100 * regret:.2f}" if math.isfinite(regret) else "none"
