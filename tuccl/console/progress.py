"""How far a command is: a bar on a terminal, else lines on standard error at least every 30 s.

What takes long reports to a `tuccl.words.progress.Progress`. The lines also come while nothing is
reported for long, as during one long step: a thread prints them. Commands and stages that take a
second or two get no line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from tuccl.console.display import plain_console, say
from tuccl.processes.interrupts import interrupts_held, raise_if_interrupted
from tuccl.words.durations import format_about, format_elapsed, parse_seconds
from tuccl.words.progress import AtMost, Progress, Total

EVERY_VARIABLE = "TUCCL_PROGRESS_EVERY"
"""Names the environment variable that holds the longest time between two lines, as `30s`."""
_LEAST_SHARE = 0.03
_LAST_LINE_S = 1.0
"""How long the end waits for a line that standard error does not take."""
_LEAST_ELAPSED_S = 5.0
"""From this share of a stage and this time on it is said what is left."""


@dataclass(frozen=True, slots=True)
class Stage:
    """How far one stage is."""

    name: str
    done: int
    total: Total
    began_s: float
    share: float | None = None
    first_share: float = 0.0
    """Where it began, as a run that continues does not begin at 0."""

    @property
    def is_over(self) -> bool:
        """Whether all of it is done."""
        return self.done == self.total

    def left_s(self, now_s: float) -> float | None:
        """Seconds left, by the part that is over; None where that cannot be told yet."""
        elapsed_s = now_s - self.began_s
        if self.share is None or self.is_over or elapsed_s < _LEAST_ELAPSED_S:
            return None
        over = self.share - self.first_share
        return None if over < _LEAST_SHARE else elapsed_s * (1.0 - self.share) / over

    def count(self) -> str:
        """`12 of 33 (36 %)`, `14 so far, at most 20`, `14 so far`."""
        if isinstance(self.total, int):
            percent = f" ({100 * self.done // self.total} %)" if self.total else ""
            return f"{self.done} of {self.total}{percent}"
        bound = "" if self.total is None else f", at most {self.total.bound}"
        return f"{self.done} so far{bound}"

    def line(self, now_s: float) -> str:
        """For people: `schedules: 12 of 33 (36 %), 70 s, about 2 min left`."""
        elapsed_s = now_s - self.began_s
        parts = [f"{self.name}: {self.count()}"]
        if elapsed_s >= 1.0:
            parts.append(format_elapsed(elapsed_s))
        if (left_s := self.left_s(now_s)) is not None:
            parts.append(f"about {format_about(left_s)} left")
        return ", ".join(parts)


def advanced(
    before: Stage | None, name: str, done: int, total: Total, share: float | None, now_s: float
) -> Stage:
    """The stage after a report, which has to be honest.

    Raises:
        ValueError: See `Progress`.
    """
    bound = total.bound if isinstance(total, AtMost) else total
    if done < 0 or (bound is not None and done > bound):
        raise ValueError(f"{name}: {done} done of {total}")
    if share is not None and not 0.0 <= share <= 1.0:
        raise ValueError(f"{name}: share {share} is not from 0 to 1")
    if before is None or before.name != name or (before.is_over and done < before.done):
        return Stage(name, done, total, now_s, share, share or 0.0)
    if done < before.done or not _may_follow(before.total, total):
        raise ValueError(f"{name}: {done} of {total} after {before.done} of {before.total}")
    return replace(before, done=done, total=total, share=share)


def _may_follow(before: Total, now: Total) -> bool:
    """Whether a total says no less than the one before: what is known stays, bounds only fall."""
    if isinstance(before, int):
        return now == before
    if before is None:
        return True
    return now is not None and (now if isinstance(now, int) else now.bound) <= before.bound


@dataclass(frozen=True, slots=True)
class Pace:
    """When lines come, in seconds."""

    quiet_s: float = 2.0
    """A stage has to run that long for its first line."""
    every_s: float = 30.0
    """From line to line at most."""
    worth_s: float = 5.0
    """A stage that took that long gets a line at its end, if it had one before."""

    def scaled_to(self, every_s: float) -> Pace:
        """The same with other times between lines: all is sooner, or later."""
        factor = every_s / self.every_s
        return Pace(factor * self.quiet_s, every_s, factor * self.worth_s)


class Lines:
    """Which lines are due; pure but for what `write` does."""

    def __init__(self, write: Callable[[str], None], pace: Pace, began_s: float) -> None:
        """Nothing is reported yet.

        Args:
            write: Takes a line.
            pace: When they come.
            began_s: When the command began, on the clock of all other times.
        """
        self._write = write
        self._pace = pace
        self._stage: Stage | None = None
        self._over_s = began_s
        """When the last stage was over, or the command began."""
        self._wrote_s = began_s
        self._is_told = False
        """Whether the stage had a line."""

    def report(self, name: str, done: int, total: Total, share: float | None, now_s: float) -> None:
        """Take a report; the line at the end of a stage comes with it.

        Raises:
            ValueError: See `Progress`.
        """
        before = self._stage
        self._stage = advanced(before, name, done, total, share, now_s)
        if before is None or self._stage.began_s != before.began_s or name != before.name:
            self._is_told = False
        elif before.is_over:
            return
        if self._stage.is_over:
            self._over_s = now_s
            took_s = now_s - self._stage.began_s
            if self._is_told and took_s >= self._pace.worth_s:
                self._say(f"{name}: {done} of {total} done in {format_elapsed(took_s)}", now_s)

    def due_s(self) -> float:
        """When `tick` has something to write, unless there are reports before."""
        regular_s = self._wrote_s + self._pace.every_s
        if self._stage is None or self._stage.is_over or self._is_told:
            return regular_s
        return min(regular_s, self._stage.began_s + self._pace.quiet_s)

    def tick(self, now_s: float) -> None:
        """Write what is due."""
        if now_s < self.due_s():
            return
        stage = self._stage
        if stage is None:
            self._say(f"still running, {format_elapsed(now_s - self._over_s)}", now_s)
        elif stage.is_over:
            since = format_elapsed(now_s - self._over_s)
            self._say(f"still running, {since} after {stage.name}", now_s)
        else:
            self._say(stage.line(now_s), now_s)
            self._is_told = True

    def _say(self, line: str, now_s: float) -> None:
        self._write(line)
        self._wrote_s = now_s


@contextmanager
def shown_progress(environment: Mapping[str, str] = os.environ) -> Iterator[Progress]:
    """A `Progress` that draws bars on a terminal, and prints lines elsewhere.

    Raises:
        UsageError: `TUCCL_PROGRESS_EVERY` is no duration.
    """
    pace = Pace()
    if text := environment.get(EVERY_VARIABLE):
        pace = pace.scaled_to(parse_seconds(text, EVERY_VARIABLE))
    # Open MPI may give its first rank a terminal, whoever reads what it writes.
    is_terminal = sys.stderr.isatty() and "OMPI_COMM_WORLD_RANK" not in environment
    with _bars() if is_terminal else printed_lines(pace) as progress:
        yield surviving(progress)


def surviving(progress: Progress) -> Progress:
    """The same, where counts that contradict each other cost a line, and not the run."""
    told: set[str] = set()

    def report(stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        try:
            progress(stage, done, total, share=share)
        except ValueError as error:
            if stage not in told:
                told.add(stage)
                say(f"note: how far it is cannot be told, please report it: {error}")

    return report


@contextmanager
def printed_lines(pace: Pace) -> Iterator[Progress]:
    """A `Progress` whose lines a thread of this process prints on standard error."""
    lines = Lines(_print_line, pace, time.monotonic())
    changed = threading.Condition()
    ended = False

    def report(stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        raise_if_interrupted()
        with changed:
            lines.report(stage, done, total, share, time.monotonic())
            changed.notify()

    def keep_printing() -> None:
        with changed:
            while not ended:
                lines.tick(time.monotonic())
                changed.wait(max(0.0, lines.due_s() - time.monotonic()))

    thread = threading.Thread(target=keep_printing, daemon=True)
    with interrupts_held():  # Signals are for the main thread.
        thread.start()
    try:
        yield report
    finally:
        with changed:
            ended = True
            changed.notify()
        thread.join(_LAST_LINE_S)


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def _bars() -> Iterator[Progress]:
    """A bar for each stage, on standard error."""
    columns = (
        TextColumn("{task.description}", justify="left", markup=False),
        BarColumn(),
        _Beside(),
    )
    bars = Bars(*columns, console=plain_console(stderr=True))
    shown: Stage | None = None
    bar = TaskID(0)

    def report(name: str, done: int, total: Total, /, share: float | None = None) -> None:
        nonlocal shown, bar
        raise_if_interrupted()
        now_s = time.monotonic()
        stage = advanced(shown, name, done, total, share, now_s)
        if shown is None or (stage.name, stage.began_s) != (shown.name, shown.began_s):
            if shown is not None and not shown.is_over:
                bars.update(bar, ended_s=now_s)
            bar = bars.add_task(f"{name:<22}", total=None, stage=stage, ended_s=None)
        elif shown.is_over:
            return
        shown = stage
        known = total if isinstance(total, int) else None
        ended_s = now_s if stage.is_over else None
        bars.update(bar, completed=done, total=known, stage=stage, ended_s=ended_s)

    with interrupts_held():  # Its thread takes no signals: they are for the main thread.
        bars.start()
    try:
        yield report
    finally:
        bars.stop()


class _Beside(ProgressColumn):
    """Count, time and time left of a stage, as they are when they are drawn."""

    def render(self, task: Task) -> Text:
        """See `ProgressColumn`."""
        stage: Stage = task.fields["stage"]
        ended_s: float | None = task.fields["ended_s"]
        now_s = time.monotonic() if ended_s is None else ended_s
        return Text(stage.line(now_s).removeprefix(f"{stage.name}: "))
