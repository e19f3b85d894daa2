"""The gain of a workload's step as a line for people."""

from __future__ import annotations

from tuccl.reports.evidence import Evidence
from tuccl.reports.step_gain import StepSummary


def step_line(step: StepSummary, evidence: Evidence | None) -> str:
    """Return the gain of a step with its interval, and the share of the bytes that have none."""
    times = "" if evidence is None else f", {evidence.value}"
    what = "communication"
    if step.beside_computation:
        what += " and the computation beside it"
    return (
        f"{step_words(step.steps)}: {step.stock_us:.1f} us of {what} with stock NCCL, "
        f"{step.table_us:.1f} us with the table (gain {gain_words(step)}{times}); "
        f"{_saved_words(step)}{untuned_words(step.untuned_share, step.left_out_share)}"
    )


def _saved_words(step: StepSummary) -> str:
    if step.saved_us is None:
        return ""
    change = "longer" if step.saved_us < 0.0 else "shorter"
    return f"the step itself is {abs(step.saved_us):.1f} us {change}; "


def step_words(steps: float | None) -> str:
    """Return `a step of this workload`, or the recording where its steps are unknown."""
    if steps is None:
        return "the recording of this workload, whose number of steps is unknown"
    return "a step of this workload"


def gain_words(step: StepSummary) -> str:
    """Return `1.080x, 95 % interval 1.070 to 1.091`."""
    bounds = f"above {step.low:.3f}" if step.high is None else f"{step.low:.3f} to {step.high:.3f}"
    return f"{step.gain:.3f}x, {100.0 * step.confidence:.0f} % interval {bounds}"


def untuned_words(untuned_share: float, left_out_share: float) -> str:
    """Return the shares of the bytes that are not tuned at all, and not here."""
    words = f"{_percent(untuned_share)} of its bytes are of operations that TuCCL does not tune"
    if left_out_share:
        words += f", and {_percent(left_out_share)} of calls that are left out here"
    return words


def _percent(share: float) -> str:
    return "less than 0.1 %" if 0.0 < share < 0.001 else f"{100.0 * share:.1f} %"
