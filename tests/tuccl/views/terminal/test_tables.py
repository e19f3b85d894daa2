"""Rows on terminals of any width: no cell is cut, no word is broken, no line is too long."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.views.terminal.display import plain_console
from tuccl.views.terminal.tables import print_rows

COLUMNS = ("operation", ">size", "~what runs", "~why")
ROWS = (
    ("all_reduce", "1K", "exchange_full@ring-LL-1 LL ch8 th512 buf1G", "faster beyond the noise"),
    ("all_gather", "512M", "-", "no setting of NCCL was faster"),
)


def shown(width: int, rows: tuple[tuple[str, ...], ...] = ROWS) -> list[str]:
    written = io.StringIO()
    console = plain_console(file=written, width=width, force_terminal=True, color_system=None)
    print_rows("A title", COLUMNS, rows, group=1, console=console)
    return written.getvalue().splitlines()


def test_a_wide_terminal_has_a_line_for_each_row() -> None:
    assert shown(140) == [
        "A title",
        "",
        " operation   size  what runs                                   why",
        f" {'─' * (10 + 2 + 4 + 2 + 42 + 2 + 29)}",
        " all_reduce    1K  exchange_full@ring-LL-1 LL ch8 th512 buf1G  faster beyond the noise",
        "",
        f" all_gather  512M  -{' ' * 43}no setting of NCCL was faster",
        "",
    ]


def test_words_fold_where_they_stay_readable() -> None:
    assert shown(70)[4:8] == [
        " all_reduce    1K  exchange_full@ring-LL-1 LL    faster beyond the",
        "                   ch8 th512 buf1G               noise",
        "",
        " all_gather  512M  -                             no setting of NCCL",
    ]


def test_words_that_find_no_room_stand_below_their_row() -> None:
    assert shown(60)[2:] == [
        " operation   size",
        " ────────────────",
        " all_reduce    1K",
        "   what runs: exchange_full@ring-LL-1 LL ch8 th512 buf1G",
        "   why: faster beyond the noise",
        "",
        " all_gather  512M",
        "   why: no setting of NCCL was faster",
        "",
    ]


@pytest.mark.parametrize("width", [40, 80, 100, 140, 10_000])
@given(cells=st.lists(st.text("ab c", max_size=60).map(str.strip), min_size=4, max_size=4))
def test_every_word_is_shown_and_no_line_is_too_long(width: int, cells: list[str]) -> None:
    words = ["-".join(cell.split())[:30] if at < 2 else cell for at, cell in enumerate(cells)]
    lines = shown(width, (tuple(words),))
    assert max(map(len, lines)) <= width or len(words[0]) >= width
    found = " ".join(lines).replace(";", "").split()
    for word in " ".join(words).split():
        assert len(word) > 15 or word in found


def test_columns_that_find_no_room_stand_below_from_the_last_on() -> None:
    written = io.StringIO()
    console = plain_console(file=written, width=40, force_terminal=True, color_system=None)
    rows = [("all_reduce", "x" * 21, "12.5")]
    print_rows("", ("operation", "name", ">us"), rows, console=console)
    assert written.getvalue().splitlines()[3:] == [
        f" all_reduce  {'x' * 21}", "   us: 12.5", ""
    ]  # fmt: skip
