"""The gain of a workload's step in JSON documents and in the manifest of a shipped directory."""

from __future__ import annotations

import math

from lookup_tables.table import Operation, Shape
from tuccl.reports.documents.document import Document
from tuccl.reports.step_gain import CONFIDENCE, StepGain
from tuccl.workloads.step_calls import LeftOut


class StepSummary(Document):
    """The communication of a step of a workload, with stock NCCL and with a table."""

    workload: str
    """16 hex digits over the workload."""
    steps: float | None
    """Steps that the recording covers; None: unknown, and times are of the whole recording."""
    stock_us: float
    """Sum of the tuned calls' times, as if they ran one after another."""
    table_us: float
    gain: float
    low: float
    high: float | None
    """Upper bound of the gain; None: unknown."""
    confidence: float
    """Confidence of both bounds together."""
    untuned_share: float
    """Share of the step's bytes that are of operations that TuCCL does not tune."""
    left_out_share: float
    """Share of the bytes of calls that are left out here: this machine has no such communicators,
    or a record no size near."""
    saved_us: float | None = None
    """Time by which the step itself is shorter; None: the recording has no exposed times."""
    beside_computation: bool = False
    """Whether a call's time is that until it and the computation beside it have ended."""


class StepKey(Document):
    """The calls of a step that one key stands for."""

    operation: Operation
    size_bytes: int
    shape: Shape
    calls_per_step: float
    """Calls of one rank, of all sizes that the key stands for."""
    stock_us: float
    """Time of these calls in a step."""
    table_us: float


class StepDocument(StepSummary):
    """The gain of a step, with the keys that it is the sum of."""

    keys: list[StepKey]
    """Those that take longest with stock NCCL first; empty where a manifest has the sums alone."""
    left_out: list[LeftOut]
    """Calls that are not tuned, and why; empty as `keys`."""


def step_summary(step: StepGain) -> StepSummary:
    """Return the sums alone."""
    return StepSummary(
        workload=step.calls.digest,
        steps=step.calls.steps,
        stock_us=step.stock_us,
        table_us=step.table_us,
        gain=step.gain,
        low=step.interval.low,
        high=step.interval.high if math.isfinite(step.interval.high) else None,
        confidence=CONFIDENCE,
        untuned_share=step.calls.untuned_share,
        left_out_share=step.calls.left_out_share,
        saved_us=step.saved_us,
        beside_computation=step.beside_computation,
    )


def step_document(step: StepGain) -> StepDocument:
    """Return the sums and all keys."""
    return StepDocument(
        **step_summary(step).model_dump(),
        keys=[
            StepKey(
                operation=key.task.operation,
                size_bytes=key.task.size_bytes,
                shape=key.task.shape,
                calls_per_step=key.calls_per_step,
                stock_us=key.stock_us,
                table_us=key.table_us,
            )
            for key in step.keys
        ],
        left_out=list(step.calls.left_out),
    )
