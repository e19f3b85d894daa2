"""Notes for people on standard error, and the console of standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

_UNBOUNDED = 10_000
"""Columns where standard output is no terminal: no line is folded, no table needs as many."""


_drawing: Console | None = None
"""Console of a view that is redrawn on standard error; None: there is none."""


def say(text: str) -> None:
    """Print a line on standard error, above a view that is drawn there."""
    (_drawing or plain_console(stderr=True)).print(text, soft_wrap=True)


@contextmanager
def lines_above(console: Console) -> Iterator[None]:
    """Have lines printed by the console that draws a view, which then stays below them."""
    global _drawing  # noqa: PLW0603 - a process has one standard error
    before, _drawing = _drawing, console
    try:
        yield
    finally:
        _drawing = before


def say_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, a line each."""
    for note in notes:
        say(f"note: {note}")


def standard_output() -> Console:
    """Return the console for results: as wide as the terminal, without bounds where there is none.

    Open MPI gives its first rank a terminal of 80 columns, wherever its output goes.
    """
    if not sys.stdout.isatty():
        return plain_console(width=_UNBOUNDED)
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return plain_console(width=_UNBOUNDED, force_terminal=False)
    return plain_console()


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on standard output, folded between words on a terminal and whole elsewhere."""
    console = standard_output()
    for line in lines:
        console.print(line, soft_wrap=not console.is_terminal)


def plain_console(**options: Any) -> Console:
    """Return a console that prints text as it is; every console is made here.

    rich would take `:ab:` in a bus id for an emoji, and `[red]` for a colour.

    Args:
        options: Options of `rich.console.Console`.
    """
    return Console(emoji=False, markup=False, highlight=False, **options)
