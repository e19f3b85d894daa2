"""One way to print rows on standard output: a title, headings, and rules between groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from tuccl.views.terminal.display import standard_output


def print_rows(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, group: int = 0
) -> None:
    """Print rows; a terminal that is narrower folds them. See `text_table`."""
    standard_output().print(text_table(title, columns, rows, group=group), crop=False)


def text_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, group: int = 0
) -> RichTable:
    """Return rows as a table of rich.

    Args:
        title: Line above the headings.
        columns: Headings; `>size` is aligned to the right, and `~what runs` may fold.
        rows: A cell for each column.
        group: Number of first columns whose change begins a new section; 0: there are none.
    """
    table = RichTable(
        title=Text(title) if title else None,
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for column in columns:
        folds, right = column.startswith("~"), column.startswith(">")
        table.add_column(
            column.lstrip("~>"),
            justify="right" if right else "left",
            no_wrap=not folds,
            overflow="fold" if folds else "ellipsis",
        )
    before: Sequence[str] = ()
    for row in rows:
        if group and before and row[:group] != before:
            table.add_section()
        before = row[:group]
        table.add_row(*row)
    return table
