"""What every view of a run's progress has to do: `Progress` as lines and as live view."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest

from tests.tuccl.views.terminal.test_live_view import TERM, stderr_on_a_terminal
from tuccl.search.trials.events import AtMost, Progress
from tuccl.views.terminal.live_view import shown_progress
from tuccl.views.terminal.progress import plain_progress

Opened = tuple[Progress, Callable[[], str]]
View = Callable[[], AbstractContextManager[Opened]]


class Stream(io.StringIO):
    """Standard error, which is a terminal or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@contextmanager
def live() -> Iterator[Opened]:
    with stderr_on_a_terminal() as opened, shown_progress(TERM) as progress:
        yield progress, lambda: opened.text


def on_a_stream(terminal: bool, plain: bool = False) -> Callable[[], Iterator[Opened]]:
    def opened() -> Iterator[Opened]:
        stream = Stream(terminal=terminal)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            with plain_progress({}) if plain else shown_progress({}) as progress:
                yield progress, stream.getvalue

    return opened


VIEWS: dict[str, View] = {
    "lines": contextmanager(on_a_stream(terminal=False)),
    "plain on a terminal": contextmanager(on_a_stream(terminal=True, plain=True)),
    "live view": live,
}
every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())


def ended(before: set[threading.Thread]) -> bool:
    """Whether no thread but these goes on."""
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)
    return set(threading.enumerate()) <= before


@every_view
def test_it_takes_what_stages_report_and_leaves_no_thread(view: View) -> None:
    before = set(threading.enumerate())
    with view() as (progress, _):
        for total in (None, AtMost(9), AtMost(6), 5):
            progress("profiles", 4, total)
        progress("profiles", 5, 5, share=1.0)
        progress("keys", 0, 3, share=0.0)
        progress("profiles", 0, 2)
    assert ended(before)


@every_view
def test_a_count_that_cannot_be_true_costs_a_note_and_not_the_run(
    view: View,
) -> None:
    with view() as (progress, text):
        for done in (14, 15):
            progress("process profiles", done, 1)
        progress("process profiles", 1, 1)
        assert text().count("14 done of 1") <= 1
        assert "15 done of 1" not in text()


@every_view
def test_it_ends_with_a_run_that_fails(view: View) -> None:
    before = set(threading.enumerate())
    with suppress(KeyboardInterrupt), view() as (progress, _):
        progress("keys", 1, 3)
        raise KeyboardInterrupt
    assert ended(before)
