"""One way to print rows on standard output: a title, headings, and a blank line between groups.

A terminal that is too narrow breaks no cell: columns of words fold where they stay readable, and
otherwise stand below their row, each behind its heading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tuccl.views.terminal.display import plain_console, standard_output

_GAP = 2
"""Columns between two cells."""
_READABLE = 20
"""Least columns into which words fold."""
_INDENT = 3
"""Columns by which cells below their row are indented."""
_LEAST = 40
"""Columns for which a narrower terminal is laid out."""
_FOLDING = plain_console()
"""rich folds text by the rules of a console."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table."""

    heading: str
    cells: tuple[str, ...]
    right: bool
    folds: bool

    @property
    def natural(self) -> int:
        """Columns of the terminal in which nothing folds."""
        return max(map(cell_len, (self.heading, *self.cells)))

    @property
    def least(self) -> int:
        """Columns in which it stays readable: no word is broken."""
        if not self.folds:
            return self.natural
        words = (word for text in (self.heading, *self.cells) for word in text.split())
        return min(self.natural, max(_READABLE, *map(cell_len, words)))


def print_rows(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    group: int = 0,
    console: Console | None = None,
) -> None:
    """Print rows as a table that fits the terminal.

    Args:
        title: Line above the headings; empty: there is none.
        columns: Headings; `>size` is aligned to the right, and `~what runs` may fold.
        rows: A cell for each column.
        group: Number of first columns whose change begins a new section; 0: there are none.
        console: Where it is printed; None: on standard output.
    """
    console = console or standard_output()
    width = max(_LEAST, console.width)
    if title:
        console.print(title)
    found = list(rows)
    cells = list(zip(*found, strict=True)) if found else [()] * len(columns)
    table = [
        _Column(name.lstrip("~>"), own, name.startswith(">"), name.startswith("~"))
        for name, own in zip(columns, cells, strict=True)
    ]
    starts = {
        row for row, (a, b) in enumerate(pairwise(found), 1) if group and a[:group] != b[:group]
    }
    for line in _lines(table, len(found), starts, width):
        console.print(line, no_wrap=True, crop=False, overflow="ignore")


def _lines(
    table: Sequence[_Column], rows: int, starts: set[int], width: int
) -> Iterator[Text | str]:
    """Yield the lines below the title."""
    beside, below = _split(table, width)
    widths = _widths(beside, width)
    yield ""
    for line in _row([column.heading for column in beside], beside, widths):
        yield Text(line, "bold")
    yield " " + "─" * (sum(widths) + _GAP * (len(widths) - 1))
    for row in range(rows):
        if row in starts:
            yield ""
        yield from _row([column.cells[row] for column in beside], beside, widths)
        told = {column.heading: column.cells[row] for column in below}
        yield from _below([f"{name}: {cell}" for name, cell in told.items() if cell != "-"], width)
    yield ""


def _split(table: Sequence[_Column], width: int) -> tuple[list[_Column], list[_Column]]:
    """Return the columns that stand side by side, and those below their row."""

    def fits(columns: Sequence[_Column]) -> bool:
        return sum(column.least + _GAP for column in columns) <= width

    beside = list(table)
    if not fits(beside):
        beside = [column for column in table if not column.folds]
    while len(beside) > 1 and not fits(beside):
        beside.pop()
    return beside, [column for column in table if column not in beside]


def _widths(beside: Sequence[_Column], width: int) -> list[int]:
    """Return the width of each column: columns that fold share what the others leave."""
    widths = [column.least for column in beside]
    spare = width - sum(widths) - _GAP * len(widths)
    for number, column in enumerate(beside):
        more = max(0, min(spare, column.natural - widths[number]))
        widths[number] += more
        spare -= more
    return widths


def _row(cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row."""
    folded = [_fold(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for line in range(max(map(len, folded))):
        parts = []
        for column, own, width in zip(columns, folded, widths, strict=True):
            text = own[line] if line < len(own) else ""
            padding = " " * (width - cell_len(text))
            parts.append(padding + text if column.right else text + padding)
        yield f" {(' ' * _GAP).join(parts)}".rstrip()


def _below(told: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines below a row: one where all cells fit it, else one or more for each."""
    if not told:
        return
    together, room = "; ".join(told), width - _INDENT - 1
    for text in [together] if cell_len(together) <= room else told:
        for number, line in enumerate(_fold(text, room - _INDENT)):
            yield " " * (_INDENT if number == 0 else 2 * _INDENT) + line


def _fold(text: str, width: int) -> list[str]:
    """Return a cell in lines that are broken between words; a longer word is broken itself."""
    if cell_len(text) <= width:
        return [text]
    return [line.plain.rstrip() for line in Text(text).wrap(_FOLDING, width)]
