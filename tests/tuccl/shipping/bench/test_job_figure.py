"""A job's figure in its output."""

from __future__ import annotations

import pytest

from tuccl.errors import MeasurementError, UsageError
from tuccl.shipping.bench.job_figure import RunFigure, TimeUnit, parse_pattern

OUTPUT = """\
warming up
step 1 took 900.0 ms
step 2 took 12.5 ms
step 3 took 11.5 ms
step 4 took 1,200 ms
"""


def test_the_median_after_the_first_steps_counts() -> None:
    steps = parse_pattern(r"took (\S+) ms")
    assert RunFigure(steps, skip=1).of_run(OUTPUT, 60.0) == 12.5
    assert RunFigure(steps).of_run(OUTPUT, 60.0) == (900.0 + 12.5) / 2
    assert RunFigure(steps, skip=3).of_run(OUTPUT, 60.0) == 1200.0


def test_without_a_pattern_the_whole_run_counts() -> None:
    assert RunFigure().of_run(OUTPUT, 60.0) == 60.0


@pytest.mark.parametrize(
    ("text", "skip", "reason"),
    [
        ("tokens (.*)", 0, "matches nothing in the job's output"),
        (r"took (\S+) ms", 4, "matches 4 times in the job's output, of which --skip 4 leaves none"),
        ("(warming)", 0, "finds 'warming', which is not a number above 0"),
        (r"step 1 took \d+\.(\d) ms", 0, "finds '0', which is not a number above 0"),
    ],
)
def test_an_output_without_the_figure(text: str, skip: int, reason: str) -> None:
    with pytest.raises(MeasurementError, match=reason):
        RunFigure(parse_pattern(text), skip).of_run(OUTPUT, 60.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("took (", "is not a regular expression"),
        ("took", "has 0 groups"),
        ("(step) (.*)", "has 2 groups: put brackets around the number"),
    ],
)
def test_a_pattern_that_is_none(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_pattern(text)


def test_units_in_microseconds() -> None:
    assert [unit.us for unit in TimeUnit] == [1.0, 1e3, 1e6]
