"""The progress of a command as lines on standard error every 30 s.

Long work reports to a `Progress`. A thread prints the lines, so that they come
during one long step, too. Commands and stages that take a second or two get no line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tuccl.crew.interrupts import interrupts_held, raise_if_interrupted
from tuccl.quantities import format_about, format_elapsed, parse_seconds
from tuccl.search.trials.events import AtMost, Progress, Total
from tuccl.views.terminal.display import say

EVERY_VARIABLE = "TUCCL_PROGRESS_EVERY"
"""Environment variable with the longest time between two lines, as `30s`."""
_LEAST_SHARE = 0.03
_LAST_LINE_S = 1.0
"""Time limit of the last line, where standard error does not take it."""
_LEAST_ELAPSED_S = 5.0
"""Elapsed time of a stage that an estimate of the time left needs."""


@dataclass(frozen=True, slots=True)
class RunningStage:
    """Progress of one stage."""

    name: str
    done: int
    total: Total
    began_s: float
    share: float | None = None
    first_share: float = 0.0
    """Share at the beginning, above 0 in a run that continues."""

    @property
    def is_over(self) -> bool:
        """Whether the stage is done."""
        return self.done == self.total

    def left_s(self, now_s: float) -> float | None:
        """Return the seconds left, by the share that is done; None while it is too early."""
        elapsed_s = now_s - self.began_s
        if self.share is None or self.is_over or elapsed_s < _LEAST_ELAPSED_S:
            return None
        over = self.share - self.first_share
        return None if over < _LEAST_SHARE else elapsed_s * (1.0 - self.share) / over

    def count(self) -> str:
        """Return `12 of 33 (36 %)`, `14 so far, at most 20` or `14 so far`."""
        if isinstance(self.total, int):
            percent = f" ({100 * self.done // self.total} %)" if self.total else ""
            return f"{self.done} of {self.total}{percent}"
        bound = "" if self.total is None else f", at most {self.total.bound}"
        return f"{self.done} so far{bound}"

    def line(self, now_s: float) -> str:
        """Return the line `schedules: 12 of 33 (36 %), 70 s, about 2 min left`."""
        elapsed_s = now_s - self.began_s
        parts = [f"{self.name}: {self.count()}"]
        if elapsed_s >= 1.0:
            parts.append(format_elapsed(elapsed_s))
        if (left_s := self.left_s(now_s)) is not None:
            parts.append(f"about {format_about(left_s)} left")
        return ", ".join(parts)


def advanced(
    before: RunningStage | None,
    name: str,
    done: int,
    total: Total,
    share: float | None,
    now_s: float,
) -> RunningStage:
    """Return the stage after a report, which must not contradict earlier ones.

    Raises:
        ValueError: See `Progress`.
    """
    bound = total.bound if isinstance(total, AtMost) else total
    if done < 0 or (bound is not None and done > bound):
        raise ValueError(f"{name}: {done} done of {total}")
    if share is not None and not 0.0 <= share <= 1.0:
        raise ValueError(f"{name}: share {share} is not from 0 to 1")
    if before is None or before.name != name or (before.is_over and done < before.done):
        return RunningStage(name, done, total, now_s, share, share or 0.0)
    if done < before.done or not _may_follow(before.total, total):
        raise ValueError(f"{name}: {done} of {total} after {before.done} of {before.total}")
    return replace(before, done=done, total=total, share=share)


def _may_follow(before: Total, now: Total) -> bool:
    """Whether a total may follow another: a known one stays, a bound only falls."""
    if isinstance(before, int):
        return now == before
    if before is None:
        return True
    return now is not None and (now if isinstance(now, int) else now.bound) <= before.bound


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of lines, in seconds."""

    quiet_s: float = 2.0
    """Time of a stage before its first line."""
    every_s: float = 30.0
    """Longest time between two lines."""
    worth_s: float = 5.0
    """Least time of a stage that gets a line at its end, after earlier ones."""

    def scaled_to(self, every_s: float) -> Pace:
        """Return the pace with another time between lines, and all other times in proportion."""
        factor = every_s / self.every_s
        return Pace(factor * self.quiet_s, every_s, factor * self.worth_s)


class Lines:
    """Decides which lines are due, and writes them."""

    def __init__(self, write: Callable[[str], None], pace: Pace, began_s: float) -> None:
        """Begin without a report.

        Args:
            write: Writes a line.
            pace: Times of lines.
            began_s: Beginning of the command, on the clock of all other times.
        """
        self._write = write
        self._pace = pace
        self._stage: RunningStage | None = None
        self._over_s = began_s
        """End of the last stage, or beginning of the command."""
        self._wrote_s = began_s
        self._is_told = False
        """Whether the stage had a line."""

    def report(self, name: str, done: int, total: Total, share: float | None, now_s: float) -> None:
        """Take a report, and write the line at the end of a stage.

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
        """Return the time at which `tick` has a line to write, without further reports."""
        regular_s = self._wrote_s + self._pace.every_s
        if self._stage is None or self._stage.is_over or self._is_told:
            return regular_s
        return min(regular_s, self._stage.began_s + self._pace.quiet_s)

    def tick(self, now_s: float) -> None:
        """Write the line that is due."""
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
def plain_progress(environment: Mapping[str, str] = os.environ) -> Iterator[Progress]:
    """Open a `Progress` that prints lines, on a terminal, too.

    Raises:
        UsageError: `TUCCL_PROGRESS_EVERY` is no duration.
    """
    with printed_lines(_pace(environment)) as progress:
        yield surviving(progress)


def is_terminal(environment: Mapping[str, str]) -> bool:
    """Whether standard error is a terminal that a person looks at."""
    # Open MPI may give its first rank a terminal, wherever its output goes.
    return sys.stderr.isatty() and "OMPI_COMM_WORLD_RANK" not in environment


def _pace(environment: Mapping[str, str]) -> Pace:
    text = environment.get(EVERY_VARIABLE)
    return Pace().scaled_to(parse_seconds(text, EVERY_VARIABLE)) if text else Pace()


def surviving(progress: Progress) -> Progress:
    """Return the `Progress`, with a line for contradictory counts instead of an error."""
    told: set[str] = set()

    def report(stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        try:
            progress(stage, done, total, share=share)
        except ValueError as error:
            if stage not in told:
                told.add(stage)
                say(f"note: the progress cannot be shown, please report it: {error}")

    return report


@contextmanager
def printed_lines(pace: Pace) -> Iterator[Progress]:
    """Open a `Progress` whose lines a thread of this process prints on standard error."""
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
