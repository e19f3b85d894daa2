"""The picture of gain by size, from the table of docs/lab/executor.md."""

from __future__ import annotations

import re
from math import log10
from pathlib import Path

from svg_drawing import AMBER, INK, LINE, TEAL, VIOLET, Drawing

NOTES = Path(__file__).resolve().parents[2] / "docs" / "lab" / "executor.md"
_ROW = re.compile(r"^\| (\d+ [KMG]B) \|((?: [^|]+\|){4})$", re.MULTILINE)
_CELL = re.compile(r"([\d.]+) → ([\d.]+) \(([\d.]+)\)")
OPERATIONS = {"all_reduce": TEAL, "all_gather": AMBER, "reduce_scatter": VIOLET}


def gains(notes: str) -> dict[str, list[tuple[str, float]]]:
    """Speedups over stock NCCL by operation, with their sizes in order."""
    found: dict[str, list[tuple[str, float]]] = {operation: [] for operation in OPERATIONS}
    for size, cells in _ROW.findall(notes):
        for operation, (_, _, gain) in zip(OPERATIONS, _CELL.findall(cells), strict=False):
            found[operation].append((size, float(gain)))
    return found


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
