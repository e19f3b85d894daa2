"""The live view of a command that takes long, redrawn on the terminal of standard error.

A thread draws it every second, so that a measurement never waits for the terminal. The cursor
stays visible and no mode of the terminal changes: a process that is killed leaves nothing to mend.
Lines that are printed meanwhile stand above the view.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from tuccl.crew.interrupts import interrupts_held, raise_if_interrupted
from tuccl.search.trials.events import Event, Progress, Total
from tuccl.views.terminal.display import lines_above, plain_console
from tuccl.views.terminal.progress import is_terminal, plain_progress, surviving
from tuccl.views.terminal.run_frame import LEAST_COLUMNS, LEAST_ROWS, closing_frame, frame
from tuccl.views.terminal.run_state import RunState

EVERY_S = 1.0
"""Seconds between two drawings."""
_MOST_WAITING = 10_000
"""Most events that wait for a drawing."""
_LAST_DRAWING_S = 1.0
"""Time limit of a drawing at the end, where the terminal does not take it."""
_WITHOUT_CURSOR = ("", "dumb", "unknown")
"""Values of TERM for terminals whose cursor does not move."""


def progress_of(*, plain: bool) -> Callable[[], AbstractContextManager[Progress]]:
    """Return what opens a `Progress`.

    Args:
        plain: Whether lines are printed on a terminal, too, instead of the view.
    """
    return plain_progress if plain else shown_progress


@contextmanager
def shown_progress(environment: Mapping[str, str] = os.environ) -> Iterator[Progress]:
    """Open a `Progress` that draws the live view where it fits, and prints lines elsewhere.

    Raises:
        UsageError: `TUCCL_PROGRESS_EVERY` is no duration.
    """
    size = _size()
    if not (is_terminal(environment) and _fits(size) and _can_draw(environment)):
        with plain_progress(environment) as progress:
            yield progress
        return
    with LiveView(size).drawn() as view:
        yield view


def _size() -> os.terminal_size:
    """Return the size of the terminal; nothing where it is not known."""
    with suppress(OSError):
        return os.get_terminal_size(sys.stderr.fileno())
    return os.terminal_size((0, 0))


def _fits(size: os.terminal_size) -> bool:
    return size.columns >= LEAST_COLUMNS and size.lines >= LEAST_ROWS


def _can_draw(environment: Mapping[str, str]) -> bool:
    """Whether the terminal moves its cursor, and shows the bar's characters."""
    moves = environment.get("TERM", "").lower() not in _WITHOUT_CURSOR
    return moves and sys.stderr.encoding.lower().startswith("utf")


class LiveView:
    """A `Progress` and `Watcher` that keeps the state of the run, and draws it."""

    def __init__(self, size: os.terminal_size) -> None:
        """Begin with a terminal of this size; nothing is drawn."""
        self._size = size
        self._console = plain_console(file=sys.stderr, force_terminal=True)
        self._console.size = size
        self._state = RunState(time.monotonic())
        self._waiting: deque[Event] = deque()
        self._changes = threading.Lock()
        """Held while the state changes or is read, but not while it is written."""
        self._ended = threading.Event()
        self._live = self._new_live()
        self._drawn: Sequence[Text] = ()
        self._report = surviving(self._take)

    def __call__(self, stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        """See `Progress`."""
        raise_if_interrupted()
        self._report(stage, done, total, share=share)

    def note(self, event: Event) -> None:
        """See `Watcher`; the thread that draws takes it into the state."""
        self._waiting.append(event)
        if len(self._waiting) > _MOST_WAITING:  # The terminal takes no drawing.
            with self._changes:
                self._take_events()

    def _take_events(self) -> None:
        with suppress(IndexError):
            while True:
                self._state.note(self._waiting.popleft())

    def _take(self, stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        with self._changes:
            self._take_events()
            self._state.report(stage, done, total, share, time.monotonic())

    @contextmanager
    def drawn(self) -> Iterator[LiveView]:
        """Draw the view until the block ends; its last state stays on the terminal."""
        thread = threading.Thread(target=self._keep_drawing, daemon=True)
        with lines_above(self._console):
            self._start()
            with interrupts_held():  # Signals are for the main thread.
                thread.start()
            try:
                yield self
            finally:
                self._ended.set()
                thread.join(_LAST_DRAWING_S)
                with suppress(OSError):  # The terminal has gone.
                    self._close()

    def _new_live(self) -> Live:
        return Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            vertical_overflow="crop",
        )

    def _start(self) -> None:
        self._live.start()
        self._console.show_cursor(True)  # rich hides it.

    def _keep_drawing(self) -> None:
        with suppress(OSError):  # The terminal has gone; the run goes on.
            while not self._ended.wait(EVERY_S):
                self.draw()

    def draw(self) -> None:
        """Draw the state of the run, at the terminal's size now."""
        size = _size()
        if size.columns and size != self._size:
            self._resize(size)
        with self._changes:
            self._take_events()
            lines = frame(self._state, time.monotonic(), *self._size)
        self._live.update(Text("\n", no_wrap=True).join(lines), refresh=True)
        self._drawn = lines

    def _resize(self, size: os.terminal_size) -> None:
        """Erase what was drawn for another width: most terminals fold its lines."""
        folded = sum(max(0, line.cell_len - 1) // size.columns for line in self._drawn)
        self._size = self._console.size = size
        self._live.stop()
        _erase_above(self._console, folded)
        self._live = self._new_live()
        self._start()

    def _close(self) -> None:
        self._live.stop()
        with self._changes:
            self._take_events()
            lines = closing_frame(self._state, time.monotonic(), *self._size)
        for line in lines:
            self._console.print(line, no_wrap=True)


def _erase_above(console: Console, count: int) -> None:
    up = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))
    console.control(Control(*(code for _ in range(count) for code in up)))
