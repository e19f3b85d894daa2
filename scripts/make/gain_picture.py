"""Draw gain by size, and bus bandwidth of large messages, from the table of docs/lab/executor.md.

    python scripts/make/gain_picture.py

A test compares docs/pictures/gain-by-size.svg and large-messages.svg with this script.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from math import log10
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOTES = DOCS / "lab" / "executor.md"
PICTURE = DOCS / "pictures" / "gain-by-size.svg"
LARGE_PICTURE = DOCS / "pictures" / "large-messages.svg"
_ROW = re.compile(r"^\| (\d+ [KMG]B) \|((?: [^|]+\|){4})$", re.MULTILINE)
_CELL = re.compile(r"([\d.]+) → ([\d.]+) \(([\d.]+)\)")
INK, QUIET, LINE = "#1e293b", "#64748b", "#94a3b8"
TEAL, AMBER, VIOLET, RED = "#0d9488", "#d97706", "#7c3aed", "#dc2626"
_STYLE = (
    "text{font-family:Inter,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;font-size:13px;"
    f"fill:{INK}}}.quiet{{fill:{QUIET};font-size:12px}}.strong{{font-weight:600}}"
)
OPERATIONS = {"all_reduce": TEAL, "all_gather": AMBER, "reduce_scatter": VIOLET}
_RANKS = 4
_LEAST_LARGE_BYTES = 16 << 20
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@dataclass(slots=True)
class Drawing:
    """An SVG picture that grows from the back to the front."""

    width: int
    height: int
    title: str
    """Description for readers who cannot see it."""
    _parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "", at: str = "middle") -> None:
        """Write a line with its base at y."""
        self._parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{at}">{escape(words)}</text>'
        )

    def line(
        self,
        points: Iterable[tuple[float, float]],
        colour: str,
        *,
        width: float,
        dashes: str = "",
    ) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="{width:g}"{dashed}/>'
        )

    def bar(self, x: float, y: float, size: tuple[float, float], colour: str) -> None:
        """Draw a filled bar."""
        width, height = size
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{colour}"/>'
        )

    def dot(self, x: float, y: float, colour: str, radius: float) -> None:
        """Draw a dot."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{colour}"/>')

    def svg(self) -> str:
        """The picture as a file's text."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'role="img"><title>{escape(self.title)}</title><style>{_STYLE}</style>'
            f'<rect width="{self.width}" height="{self.height}" rx="10" fill="#ffffff"/>'
        )
        return "\n".join([head, *self._parts, "</svg>"]) + "\n"


def gains(notes: str) -> dict[str, list[tuple[str, float]]]:
    """Speedups over stock NCCL by operation, with their sizes in order."""
    found: dict[str, list[tuple[str, float]]] = {operation: [] for operation in OPERATIONS}
    for size, cells in _ROW.findall(notes):
        for operation, (_, _, gain) in zip(OPERATIONS, _CELL.findall(cells), strict=False):
            found[operation].append((size, float(gain)))
    return found


def large_messages(notes: str) -> dict[str, list[tuple[str, float, float]]]:
    """Size and bus bandwidth of stock NCCL and with the table, in GB/s, by operation.

    Bus bandwidth as nccl-tests counts it: size over time, times 2 (n - 1) / n for all_reduce and
    (n - 1) / n for the others (nccl-tests, doc/PERFORMANCE.md).
    """
    found: dict[str, list[tuple[str, float, float]]] = {operation: [] for operation in OPERATIONS}
    for size, cells in _ROW.findall(notes):
        number, unit = size.split()
        size_bytes = int(number) * _UNITS[unit]
        if size_bytes < _LEAST_LARGE_BYTES:
            continue
        for operation, (stock_us, table_us, _) in zip(
            OPERATIONS, _CELL.findall(cells), strict=False
        ):
            passes = 2 if operation == "all_reduce" else 1
            kilobytes = passes * (_RANKS - 1) / _RANKS * size_bytes / 1e3
            both = (kilobytes / float(time_us) for time_us in (stock_us, table_us))
            found[operation].append((size, *both))
    return found


def bandwidth_of_large_messages() -> Drawing:
    """A pair of bars for each operation and size, on a linear axis."""
    drawing = Drawing(860, 330, "Bus bandwidth of large messages on four H200")
    found = large_messages(NOTES.read_text(encoding="utf-8"))
    highest, left, top, bottom, width = 400.0, 60.0, 40.0, 260.0, 19.0
    drawing.text(20, 24, "Bus bandwidth from 16 MB up, four H200, GB/s, linear", "strong", "start")

    def height(gb_per_s: float) -> float:
        return (bottom - top) * gb_per_s / highest

    for mark in (0, 100, 200, 300, 400):
        y = bottom - height(mark)
        drawing.line([(left, y), (840.0, y)], LINE, width=0.8)
        drawing.text(left - 8, y + 4, str(mark), "quiet", "end")
    for place, (operation, bars) in enumerate(found.items()):
        start = left + 14 + 260 * place
        for number, (size, stock, table) in enumerate(bars):
            x = start + 60 * number
            for at, (gb_per_s, colour) in enumerate(((stock, LINE), (table, TEAL))):
                high = round(height(gb_per_s), 1)
                drawing.bar(x + width * at, bottom - high, (width, high), colour)
            drawing.text(x + width, bottom + 18, size, "quiet")
        drawing.text(start + 110, bottom + 38, operation)
    for number, (words, colour) in enumerate((("stock NCCL", LINE), ("with the table", TEAL))):
        drawing.bar(left + 130 * number, 308.0, (12, 12), colour)
        drawing.text(left + 18 + 130 * number, 318, words, "quiet", "start")
    return drawing


def gain_by_size() -> Drawing:
    """A curve for each operation."""
    drawing = Drawing(860, 330, "Speedup over stock NCCL by message size on four H200")
    found = gains(NOTES.read_text(encoding="utf-8"))
    sizes = [size for size, _ in found["all_reduce"]]
    highest, left, right, top, bottom = 4.0, 60.0, 720.0, 40.0, 270.0

    def height(gain: float) -> float:
        return bottom - (bottom - top) * log10(gain) / log10(highest)

    def across(place: int) -> float:
        return left + (right - left) * place / (len(sizes) - 1)

    drawing.text(20, 24, "Speedup over stock NCCL, four H200, by message size", "strong", "start")
    for gain in (1.0, 1.5, 2.0, 3.0, 4.0):
        dashes = "" if gain > 1 else "5 4"
        drawing.line([(left, height(gain)), (right, height(gain))], LINE, dashes=dashes, width=0.8)
        drawing.text(left - 8, height(gain) + 4, f"{gain:g}x", "quiet", "end")
    for place, size in enumerate(sizes):
        drawing.text(across(place), bottom + 22, size, "quiet")
    for number, (operation, colour) in enumerate(OPERATIONS.items()):
        points = [(across(at), height(gain)) for at, (_, gain) in enumerate(found[operation])]
        drawing.line(points, colour, width=2.4)
        for x, y in points:
            drawing.dot(x, y, colour, 3.2)
        drawing.bar(740, 60.0 + 24 * number, (12, 12), colour)
        drawing.text(758, 71 + 24 * number, operation, "", "start")
    note = "NCCL 2.28.9, float16, CUDA graphs; table and executor in new processes"
    drawing.text(left, 318, note, "quiet", "start")
    drawing.line([(left, bottom), (right, bottom)], INK, width=1)
    return drawing


def main() -> None:
    """Write the pictures."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    for path, drawing in (
        (PICTURE, gain_by_size()),
        (LARGE_PICTURE, bandwidth_of_large_messages()),
    ):
        path.write_text(drawing.svg(), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
