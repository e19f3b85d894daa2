"""The plot of scripts/bench_runtime.py: speedup over stock NCCL by size, a panel per operation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from runtime_targets import GRAPH, PLAIN, Row

from tuccl.words.sizes import format_size

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 230, 60, 130, 34, 40
_COLOURS = {GRAPH: "#1b6ca8", PLAIN: "#c8651b"}
_NAMES = {GRAPH: "in CUDA graphs", PLAIN: "one by one"}
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.grid{stroke:#ddd}"
    ".even{stroke:#888;stroke-dasharray:5 4}.line{fill:none;stroke-width:2}"
)
_TICKS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)


def draw(rows: Sequence[Row]) -> str:
    """SVG text. Hollow points are calls that the executor left to NCCL."""
    operations = list(dict.fromkeys(row.operation for row in rows))
    sizes = sorted({row.size_bytes for row in rows})
    high = max(1.5, *(row.speedup for row in rows)) * 1.05
    height = _PANEL * len(operations)
    parts = [
        part
        for number, operation in enumerate(operations)
        for part in _panel(
            operation, [r for r in rows if r.operation == operation], sizes, high, number * _PANEL
        )
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}">\n'
        f'<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _panel(
    operation: str, rows: Sequence[Row], sizes: Sequence[int], high: float, top: int
) -> Iterator[str]:
    bottom, right = top + _PANEL - _BOTTOM, _WIDTH - _RIGHT
    low_log, span = math.log2(sizes[0]), max(1.0, math.log2(sizes[-1] / sizes[0]))

    def x(size_bytes: int) -> float:
        return _LEFT + (math.log2(size_bytes) - low_log) / span * (right - _LEFT)

    def y(speedup: float) -> float:
        return bottom - speedup / high * (bottom - top - _TOP)

    yield f'<text class="title" x="{_LEFT}" y="{top + 20}">{operation}: speedup over stock</text>'
    for tick in (tick for tick in _TICKS if tick <= high):
        kind = "even" if tick == 1.0 else "grid"
        yield (
            f'<line class="{kind}" x1="{_LEFT}" x2="{right}" y1="{y(tick):.1f}" '
            f'y2="{y(tick):.1f}"/><text x="{_LEFT - 8}" y="{y(tick) + 4:.1f}" '
            f'text-anchor="end">{tick:g}</text>'
        )
    for size_bytes in sizes[::2]:
        yield (
            f'<text x="{x(size_bytes):.1f}" y="{bottom + 18}" text-anchor="middle">'
            f"{format_size(size_bytes)}</text>"
        )
    for number, mode in enumerate(dict.fromkeys(row.mode for row in rows)):
        own = [row for row in rows if row.mode == mode]
        points = " ".join(f"{x(row.size_bytes):.1f},{y(row.speedup):.1f}" for row in own)
        colour = _COLOURS[mode]
        yield f'<polyline class="line" stroke="{colour}" points="{points}"/>'
        for row in own:
            fill = colour if row.by_executor else "#ffffff"
            yield (
                f'<circle cx="{x(row.size_bytes):.1f}" cy="{y(row.speedup):.1f}" r="3" '
                f'fill="{fill}" stroke="{colour}"/>'
            )
        yield (
            f'<text x="{right + 10}" y="{top + _TOP + 10 + 18 * number}" '
            f'style="fill:{colour}">{_NAMES[mode]}</text>'
        )
