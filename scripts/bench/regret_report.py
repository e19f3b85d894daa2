"""Tabulate the outcomes of `bench_search.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, quantiles, stdev

import pandas as pd

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


def table(
    outcomes: Sequence[Outcome],
    strategies: Sequence[str],
    shares: Sequence[float],
    good: float = GOOD,
) -> str:
    """Markdown table with a row per strategy and a column per budget.

    A cell has the share of searches that found the best, with its standard error over keys, then
    median and 90th percentile of the regret in per cent. The best counts as found at a regret of
    `good` or less.
    """
    frame = pd.DataFrame(map(asdict, outcomes))
    cells = {place: _cell(found, good) for place, found in frame.groupby(["strategy", "share"])}
    lines = [f"| strategy | {' | '.join(f'{share:.1%}' for share in shares)} |"]
    lines += ["|---" * (len(shares) + 1) + "|"]
    for strategy in strategies:
        lines.append(f"| {' | '.join([strategy, *(cells[strategy, share] for share in shares)])} |")
    worst = (frame["spent"] - frame["share"]).max()
    lines.append(f"\nLargest overrun of a budget: {max(0.0, worst):.3%} of what the grid costs.")
    return "\n".join(lines)


def _cell(found: pd.DataFrame, limit: float) -> str:
    good = (found["regret"] <= limit).groupby(found["key"]).mean().tolist()
    error = stdev(good) / math.sqrt(len(good)) if len(good) > 1 else 0.0
    regrets = found["regret"].tolist()
    high = quantiles(regrets, n=10)[-1] if len(regrets) > 1 else regrets[0]
    return f"{fmean(good):.1%} ± {error:.1%}, {_percent(median(regrets))} / {_percent(high)}"


def _percent(regret: float) -> str:
    return f"{100 * regret:.2f}" if math.isfinite(regret) else "none"
