"""Steps are found where calls repeat, and nowhere else."""

from __future__ import annotations

import random
import time

import pytest

from tuccl.workloads.recordings.assembling import steps_by_period


@pytest.mark.parametrize(
    ("calls", "steps"),
    [
        ([], None),
        ([1, 2] * 3, None),
        ([1, 2] * 4, 4),
        ([9, 8, 7] + [1, 2, 3] * 20, 20),
        ([9] * 30 + [1, 2, 3] * 20, None),
        ([1, 2, 3] * 20 + [9], 20),
        ([1, 2] * 8 + [9], 8),
        ([1, 2] * 8 + [9] * 6, None),
        ([1, 2, 3] * 20 + [1], 61 / 3),
        ([1, 2, 3] * 10 + [7] + [1, 2, 3] * 10, None),
        ([5] * 1000, None),
        ([5] * 160 + [6], None),
        (([5] * 160 + [6]) * 5, 5),
    ],
)
def test_steps(calls: list[int], steps: float | None) -> None:
    assert steps_by_period(calls) == steps


def test_random_calls_have_no_steps() -> None:
    draw = random.Random(7)
    assert steps_by_period([draw.randrange(3) for _ in range(500)]) is None


def test_long_rows_take_little_time() -> None:
    began_s = time.process_time()
    assert steps_by_period([9, 9] + [1, 2, 3, 4] * 100_000) == 100_000
    assert time.process_time() - began_s < 3
