"""The gain of a step as a line."""

from __future__ import annotations

import pytest

from tuccl.reports.evidence import Evidence
from tuccl.reports.step_gain import StepSummary
from tuccl.views.terminal.step_display import step_line


@pytest.mark.parametrize(
    ("saved_us", "words"),
    [
        (None, "measured); 0.0 % of its bytes"),
        (12.34, "measured); the step itself is 12.3 us shorter; 0.0 % of its bytes"),
        (-4.1, "measured); the step itself is 4.1 us longer; 0.0 % of its bytes"),
    ],
)
def test_the_change_of_the_step_itself_is_told_where_it_is_known(
    saved_us: float | None, words: str
) -> None:
    step = StepSummary(
        workload="0123456789abcdef", steps=4.0, stock_us=200.0, table_us=100.0,
        gain=2.0, low=1.9, high=2.1, confidence=0.95, untuned_share=0.0, left_out_share=0.0,
        saved_us=saved_us,
    )  # fmt: skip
    line = step_line(step, Evidence.MEASURED)
    assert line.startswith("a step of this workload: 200.0 us of communication with stock NCCL")
    assert words in line
