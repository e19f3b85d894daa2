"""The figure by which a user's own job is judged, read from its output.

A training prints the time of each step or tokens per second; the figure of one run is the median of
these after the first steps, which allocate and connect. A job that prints nothing is judged by the
time from its start to its end, which its start and its imports are part of.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from tuccl.errors import MeasurementError, UsageError


class TimeUnit(StrEnum):
    """Unit of a figure that is a time."""

    US = "us"
    MS = "ms"
    S = "s"

    @property
    def us(self) -> float:
        """The unit in microseconds."""
        return {TimeUnit.US: 1.0, TimeUnit.MS: 1e3, TimeUnit.S: 1e6}[self]


@dataclass(frozen=True, slots=True)
class RunFigure:
    """How a run's figure is found in its output."""

    pattern: re.Pattern[str] | None = None
    """One group, which holds a number; None: the figure is the run's time in seconds."""
    skip: int = 0
    """Numbers at the beginning that do not count."""
    higher_is_better: bool = False
    """Whether it is a throughput."""
    unit: TimeUnit | None = None
    """Unit of a time of one step; None: it is none, or its unit is unknown."""

    def of_run(self, output: str, seconds: float) -> float:
        """Return the figure of a run.

        Args:
            output: What the job printed.
            seconds: Time from its start to its end.

        Raises:
            MeasurementError: The output has too few numbers, or one that is no positive number.
        """
        if self.pattern is None:
            return seconds
        found = self.pattern.findall(output)
        option = f"--metric {self.pattern.pattern!a:.80}"
        if not found:
            raise MeasurementError(f"{option} matches nothing in the job's output")
        if len(found) <= self.skip:
            raise MeasurementError(
                f"{option} matches {len(found)} times in the job's output, of which --skip "
                f"{self.skip} leaves none"
            )
        return median(_number(text, option) for text in found[self.skip :])


def figure_text(figure: float) -> str:
    """Return a run's figure for people."""
    return f"{figure:,.4g}" if figure < 1e4 else f"{figure:,.0f}"


def parse_pattern(text: str) -> re.Pattern[str]:
    r"""Parse a regular expression whose one group is a number, such as `step time (\S+) ms`.

    Raises:
        UsageError: It is none, or has not one group.
    """
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(f"--metric {text!a:.80} is not a regular expression: {error}") from error
    if pattern.groups != 1:
        raise UsageError(
            f"--metric {text!a:.80} has {pattern.groups} groups: put brackets around the number, "
            r"and none else, as in 'step time (\S+) ms'"
        )
    return pattern


def _number(text: str, option: str) -> float:
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise MeasurementError(f"{option} finds {text!a:.40}, which is not a number above 0")
    return number
