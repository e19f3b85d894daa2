"""Tables and the plot of `bench_search.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles, stdev

GOOD = 0.01
"""Regret up to which a choice counts as found."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One search at one budget."""

    strategy: str
    key: str
    seed: int
    share: float
    """Budget, of the grid's seconds."""
    regret: float
    spent: float
    """Of the grid's seconds."""
    tried: int


def table(outcomes: Sequence[Outcome], strategies: Sequence[str], shares: Sequence[float]) -> str:
    """Markdown: a row per strategy, a column per budget.

    A cell: share of searches within 1 % of the best with its standard error over keys, then median
    and 90th percentile of the regret in per cent.
    """
    head = " | ".join(f"{share:.1%}" for share in shares)
    lines = [f"| strategy | {head} |", "|---" * (len(shares) + 1) + "|"]
    for strategy in strategies:
        cells = [_cell(_of(outcomes, strategy, share)) for share in shares]
        lines.append(f"| {strategy} | {' | '.join(cells)} |")
    worst = max((outcome.spent - outcome.share for outcome in outcomes), default=0.0)
    lines += ["", *_ahead_of_first(outcomes, strategies, shares)]
    lines.append(f"\nLargest overrun of a budget: {max(0.0, worst):.3%} of what the grid costs.")
    return "\n".join(lines)


def _ahead_of_first(
    outcomes: Sequence[Outcome], strategies: Sequence[str], shares: Sequence[float]
) -> Iterator[str]:
    """Where a strategy finds more than the first one does, with the error of the difference."""
    first, *others = strategies
    ahead = 0
    for share in shares:
        own = _found_by_key(_of(outcomes, first, share))
        for other in others:
            found = _found_by_key(_of(outcomes, other, share))
            differences = [found[key] - own[key] for key in own]
            if fmean(differences) > 1e-9:
                ahead += 1
                yield (
                    f"At {share:.1%} {other} is ahead of {first} by {fmean(differences):.1%} "
                    f"± {_error(differences):.1%}."
                )
    if not ahead and others:
        yield f"No strategy finds more than {first} at any of these budgets."


def _found_by_key(found: Sequence[Outcome]) -> dict[str, float]:
    """Share of a key's searches whose choice is good."""
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


_COLOURS = ("#be123c", "#0369a1", "#4d8f0c", "#7c3aed", "#c2410c", "#0f766e", "#64748b", "#a16207")
_WIDTH, _HEIGHT = 720.0, 420.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 64.0, 24.0, 190.0, 48.0
_STYLE = """text{font-family:Inter,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;fill:#1e293b;
font-size:12px}.axis{stroke:#94a3b8}.grid{stroke:#e2e8f0}.line{fill:none;stroke-width:2}"""
_FLOOR = 1e-4
"""Mean regrets below are drawn here: a logarithm has no zero."""


def draw(outcomes: Sequence[Outcome], strategies: Sequence[str], shares: Sequence[float]) -> str:
    """SVG: mean regret against the budget, both logarithmic, a line per strategy."""
    curves = {
        name: [fmean(o.regret for o in _of(outcomes, name, share)) for share in shares]
        for name in strategies
    }
    values = [v for curve in curves.values() for v in curve if math.isfinite(v)]
    low = 10.0 ** math.floor(math.log10(max(_FLOOR, min(values))))
    high = 10.0 ** math.ceil(math.log10(max(values)))

    def x(share: float) -> float:
        across = math.log(share / shares[0]) / math.log(shares[-1] / shares[0])
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT)

    def y(regret: float) -> float:
        up = math.log(max(regret, low) / low) / math.log(high / low)
        return _HEIGHT - _BOTTOM - min(up, 1.0) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [*_axes(shares, low, high, x, y)]
    for index, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        dashes = ' stroke-dasharray="6 4"' if index >= len(_COLOURS) else ""
        path = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(shares, curve, strict=True))
        parts.append(f'<polyline class="line" stroke="{colour}"{dashes} points="{path}"/>')
        row = _TOP + 20 * index + 8
        parts.append(
            f'<line class="line" stroke="{colour}"{dashes} x1="{_WIDTH - _RIGHT + 16:.0f}" '
            f'x2="{_WIDTH - _RIGHT + 44:.0f}" y1="{row:.0f}" y2="{row:.0f}"/>'
            f'<text x="{_WIDTH - _RIGHT + 52:.0f}" y="{row + 4:.0f}">{name}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}">\n'
        f'<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _axes(
    shares: Sequence[float],
    low: float,
    high: float,
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> Iterator[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        height = y(10.0**power)
        yield (
            f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{height:.1f}" y2="{height:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">'
            f"{100 * 10.0**power:g}%</text>"
        )
    for share in shares:
        yield (
            f'<line class="grid" x1="{x(share):.1f}" x2="{x(share):.1f}" y1="{_TOP}" '
            f'y2="{bottom}"/><text x="{x(share):.1f}" y="{bottom + 18}" '
            f'text-anchor="middle">{share:.1%}</text>'
        )
    yield f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
    yield (
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">'
        "budget, of what the whole grid costs</text>"
        f'<text x="14" y="{(_TOP + bottom) / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(_TOP + bottom) / 2:.0f})">mean regret</text>'
    )
