"""The gain of a workload's step as a line for people."""

from __future__ import annotations

import math

from tuccl.reports.evidence import Evidence
from tuccl.reports.step_gain import CONFIDENCE, StepGain
from tuccl.workloads.step_calls import StepCalls, Why


def step_line(step: StepGain, evidence: Evidence) -> str:
    """Return the gain of a step with its interval, and the share of the bytes that have none."""
    interval = step.interval
    bounds = f"{interval.low:.3f} to {interval.high:.3f}"
    if math.isinf(interval.high):
        bounds = f"above {interval.low:.3f}"
    return (
        f"{step_words(step.calls)}: {step.stock_us:.1f} us of communication with stock NCCL, "
        f"{step.table_us:.1f} us with the table (gain {step.gain:.3f}x, "
        f"{100.0 * CONFIDENCE:.0f} % interval {bounds}, {evidence.value}); "
        f"{untuned_words(step.calls)}"
    )


def step_words(calls: StepCalls) -> str:
    """Return `a step of this workload`, or the recording where its steps are unknown."""
    if calls.steps is None:
        return "the recording of this workload, whose number of steps is unknown"
    return "a step of this workload"


def untuned_words(calls: StepCalls) -> str:
    """Return the shares of the bytes that are not tuned at all, and not here."""
    untuned = calls.share_left_out(Why.OPERATION)
    words = f"{100.0 * untuned:.1f} % of its bytes are of operations that TuCCL does not tune"
    left_out = calls.share_left_out(Why.COMMUNICATOR, Why.SIZE)
    if left_out:
        words += f", and {100.0 * left_out:.1f} % of calls that are left out here"
    return words
