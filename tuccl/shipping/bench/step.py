"""The step of a workload in a bench: its keys, and its gain measured against what was predicted.

A round's step is the sum of its calls' times in that round, so that its ratio is of the same starts
as those of keys; the interval is Student's on the logarithms of the rounds' ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import UsageError
from tuccl.reports.json_form import member
from tuccl.reports.keys import Gain
from tuccl.reports.ratios import MeasuredGain, gain_of_rounds
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import shapes_dividing
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.manifest import read_manifest
from tuccl.workloads.machine_keys import Offer, step_calls
from tuccl.workloads.step_calls import LeftOut, StepCalls, times_per_step
from tuccl.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class BenchedStep:
    """The communication of a step of the workload, with stock NCCL and with the table."""

    workload: str
    """16 hex digits over the workload."""
    steps: float | None
    """Steps that the recording covers; None: unknown, and times are of the whole recording."""
    stock_us: tuple[float, ...]
    """Sum of the calls' times in each round, as if they ran one after another."""
    table_us: tuple[float, ...]
    gain: MeasuredGain
    predicted: Gain | None
    """The gain that the table states, without bounds if it is put together from those of single
    keys; None: it states none for these calls."""
    untuned_share: float
    """Share of the step's bytes that are of operations that TuCCL does not tune."""
    left_out_share: float
    """Share of the bytes of calls whose communicators are not there."""
    left_out: tuple[LeftOut, ...]

    @member
    def short(self) -> bool:
        """Whether the step gains less than predicted, beyond the noise of both."""
        return self.gain.falls_short(self.predicted)


def benched_calls(workload: Workload, whole: Shape, tables: Sequence[ShippedTable]) -> StepCalls:
    """Return the keys of a workload on the ranks of a bench.

    Raises:
        UsageError: No communicator of the workload is there.
    """
    tuned = {entry.key.operation for table in tables for entry in table.bundle.entries}

    def refusal(operation: Collective, _: Shape) -> str | None:
        if not operation.asks_tuner and operation not in tuned:
            return "no table here has entries for it, so that NCCL runs it as ever"
        return None

    calls = step_calls(workload, Offer(shapes_dividing(whole), refusal))
    if not calls.keys:
        raise UsageError(
            "--workload: none of its calls fits the ranks here; choose as many with --gpus, or "
            "bench on the machine that it is of"
        )
    return calls


def step_outcome(
    calls: StepCalls,
    table: ShippedTable,
    stock_us: Mapping[Task, Sequence[float]],
    own_us: Mapping[Task, Sequence[float]],
) -> BenchedStep:
    """Return the outcome of a step from the times of all rounds.

    Args:
        calls: The calls of a step.
        table: The table.
        stock_us: Stock NCCL's times by round.
        own_us: The table's, in the same rounds.
    """
    base, own = _rounds_us(calls, stock_us), _rounds_us(calls, own_us)
    return BenchedStep(
        workload=calls.digest,
        steps=calls.steps,
        stock_us=base,
        table_us=own,
        gain=gain_of_rounds(base, own),
        predicted=_predicted(calls, table, stock_us),
        untuned_share=calls.untuned_share,
        left_out_share=calls.left_out_share,
        left_out=calls.left_out,
    )


def _rounds_us(calls: StepCalls, times_us: Mapping[Task, Sequence[float]]) -> tuple[float, ...]:
    rounds = len(times_us[calls.keys[0].task])
    return tuple(
        _step_us(calls, {key.task: times_us[key.task][number] for key in calls.keys})
        for number in range(rounds)
    )


def _step_us(calls: StepCalls, time_us: Mapping[Task, float]) -> float:
    times = times_per_step(calls.keys, time_us)
    return sum(sum(of_sizes.values()) for of_sizes in times.values())


def _predicted(
    calls: StepCalls, table: ShippedTable, stock_us: Mapping[Task, Sequence[float]]
) -> Gain | None:
    """Return the manifest's prediction for this workload, or one by the gains of single keys."""
    if not table.timed_alike or table.is_baseline:
        return None
    manifest = read_manifest(table.directory)
    step = None if manifest is None else manifest.step
    if (
        manifest is not None
        and step is not None
        and (step.workload, manifest.executor) == (calls.digest, table.has_executor)
    ):
        return Gain(step.gain, step.low if step.low > 0.0 else None, step.high)
    stated = {key.task: table.stated(key.task) for key in calls.keys}
    if not any(stated.values()):
        return None
    times_us = {task: geometric_mean(stock_us[task]) for task in stated}
    faster_us = {
        task: times_us[task] / (found.gain.ratio if found else 1.0)
        for task, found in stated.items()
    }
    return Gain(_step_us(calls, times_us) / _step_us(calls, faster_us), None, None)
