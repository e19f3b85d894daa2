"""Heat maps of gains: a row for each operation and shape, a column for each size.

They are tables of their own, not charts: each cell can be read, focused and printed as text, and
its details show on hover and on focus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2, sqrt

from tuccl.reports.job_gains import Runner
from tuccl.views.page.curves import keys_by_curve, shape_text
from tuccl.views.page.elements import Markup, element
from tuccl.views.page.figures.key_figures import KeyFigures
from tuccl.views.page.figures.table_figures import TableFigures
from tuccl.words.sizes import format_size

_FULL_GAIN = 1.0
"""Binary logarithm of the gain from which on the colour is the strongest."""
_STRONGEST = 60.0
"""Share of the strongest colour in per cent, at which texts keep their contrast."""
_SIGNS = {Runner.EXECUTOR: "schedule", Runner.PLUGIN: "setting", Runner.PROFILE: "profile"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a heat map."""

    ratio: float
    below: str
    """Short text below the ratio."""
    details: str


def job_heat_map(figures: TableFigures, details: str) -> Markup:
    """Return the gains of a job here; `details` names the element that shows a cell's."""
    return _grid(figures, {id(key): _job_cell(key) for key in figures.all_keys}, details)


def apart_heat_map(figures: TableFigures, details: str) -> Markup | None:
    """Return the gains of schedules that no job here runs; None where there are none."""
    cells = {
        id(key): Cell(
            key.schedule_speedup,
            "schedule",
            f"{key.name}: {key.schedule_runs}, {key.schedule_speedup:.3f}x stock NCCL; "
            f"{key.evidence}. Not run here: {key.obstacle.sentence}",
        )
        for key in figures.all_keys
        if key.obstacle is not None and key.schedule_speedup is not None
    }
    return _grid(figures, cells, details) if cells else None


def cell_element(cell: Cell, class_: str, details: str) -> Markup:
    """Return a cell that shows its details in the element named `details`."""
    away = abs(log2(cell.ratio)) if f"{cell.ratio:.2f}" != "1.00" else 0.0
    share = min(1.0, sqrt(away / _FULL_GAIN)) * _STRONGEST
    side = "gain" if cell.ratio >= 1.0 else "loss"
    return element(
        "td",
        element("b", f"{cell.ratio:.2f}x"),
        element("small", cell.below),
        class_=f"cell {side} {class_}",
        style=f"--share:{share:.0f}%",
        tabindex=0,
        title=cell.details,
        data_show=details,
    )


def grid(
    sizes: Sequence[int],
    groups: Mapping[str, Sequence[tuple[str, Sequence[Cell | None]]]],
    class_: str,
    details: str,
) -> Markup:
    """Return a heat map with the line that shows details.

    Args:
        sizes: Sizes of its columns.
        groups: Names and cells of its rows, by a heading, which may be empty.
        class_: Class of its cells.
        details: Identity of the line.
    """
    heads = [element("th", format_size(size), scope="col") for size in sizes]
    body: list[Markup] = []
    for heading, rows in groups.items():
        if heading:
            across = element("th", heading, colspan=len(sizes) + 1, scope="rowgroup")
            body.append(element("tr", across, class_="group"))
        body += [
            element(
                "tr",
                element("th", name, scope="row"),
                *(
                    element("td", "-", class_="empty")
                    if cell is None
                    else cell_element(cell, class_, details)
                    for cell in cells
                ),
            )
            for name, cells in rows
        ]
    head = element("thead", element("tr", element("td", ""), *heads))
    table = element("table", head, element("tbody", *body), class_="heat")
    hint = "Point at a cell, or move with Tab and the arrow keys, to read what runs there and why."
    return element(
        "div",
        element("div", table, class_="wide", tabindex=0, role="group", aria_label="Heat map"),
        element("p", hint, class_="details", id=details),
    )


def _grid(figures: TableFigures, cells: dict[int, Cell], details: str) -> Markup:
    sizes = sorted({key.size_bytes for key in figures.all_keys})
    groups: dict[str, list[tuple[str, list[Cell | None]]]] = {}
    for keys in keys_by_curve(figures.all_keys):
        found = {key.size_bytes: cells.get(id(key)) for key in keys}
        heading = shape_text(replace(keys[0], placement="")) if figures.shapes else ""
        row = (keys[0].curve, [found.get(size) for size in sizes])
        groups.setdefault(heading, []).append(row)
    return grid(sizes, groups, figures.times.value, details)


def _job_cell(key: KeyFigures) -> Cell:
    details = (
        f"{key.name}: {key.runs}, {key.speedup:.3f}x stock NCCL, {key.job.time_us:.2f} µs "
        f"instead of {key.stock.time_us:.2f} µs; {key.evidence}"
    )
    return Cell(key.speedup, _SIGNS.get(key.runner, "NCCL"), details)
