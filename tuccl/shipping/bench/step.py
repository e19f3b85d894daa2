"""The step of a workload in a bench: its keys, and its gain measured against what was predicted.

A round's step is the sum of its calls' times in that round, so that its ratio is of the same starts
as those of keys; the interval is Student's on the logarithms of the rounds' ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from lookup_tables.table import Operation, Shape
from tuccl.errors import UsageError
from tuccl.search.statistics.intervals import UNKNOWN, Interval
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import shapes_of_machine
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.ratios import Gain, falls_short, gain_of_rounds
from tuccl.shipping.manifest import MANIFEST_NAME, read_manifest
from tuccl.workloads.machine_keys import Offer, step_calls
from tuccl.workloads.step_calls import StepCalls, times_per_step
from tuccl.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class Prediction:
    """The gain of a step that a table states."""

    gain: float
    bounds: Interval | None
    """None: it is put together from the gains that the table states for single keys."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A step of the workload under a table."""

    calls: StepCalls
    stock_us: tuple[float, ...]
    """Communication of a step in each round, as `table_us` is."""
    table_us: tuple[float, ...]
    gain: Gain
    predicted: Prediction | None
    """None: the table states nothing about these calls."""

    @property
    def is_short(self) -> bool:
        """Whether the step gains less than predicted, beyond the noise of both."""
        predicted = self.predicted
        return predicted is not None and falls_short(self.gain, predicted.gain, predicted.bounds)


def benched_calls(workload: Workload, whole: Shape, tables: Sequence[ShippedTable]) -> StepCalls:
    """Return the keys of a workload on the ranks of a bench.

    Raises:
        UsageError: No communicator of the workload is there.
    """
    tuned = {entry.key.operation for table in tables for entry in table.bundle.entries}

    def refusal(operation: Operation, _: Shape) -> str | None:
        if operation is Operation.ALLTOALL and operation not in tuned:
            return "no table here has entries for it, so that NCCL runs it as ever"
        return None

    calls = step_calls(workload, Offer(shapes_of_machine(whole), refusal))
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
) -> StepOutcome:
    """Return the outcome of a step from the times of all rounds.

    Args:
        calls: The calls of a step.
        table: The table.
        stock_us: Stock NCCL's times by round.
        own_us: The table's, in the same rounds.
    """
    base, own = _rounds_us(calls, stock_us), _rounds_us(calls, own_us)
    return StepOutcome(
        calls, base, own, gain_of_rounds(base, own), _predicted(calls, table, stock_us)
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
) -> Prediction | None:
    """Return the manifest's prediction for this workload, or one by the gains of single keys."""
    if not table.timed_alike:
        return None
    manifest, _ = read_manifest(table.directory / MANIFEST_NAME)
    step = None if manifest is None else manifest.step
    if (
        manifest is not None
        and step is not None
        and (step.workload, manifest.executor) == (calls.digest, table.has_executor)
    ):
        high = UNKNOWN.high if step.high is None else step.high
        return Prediction(step.gain, Interval(step.low, high) if step.low > 0.0 else None)
    promised = {key.task: table.promised(key.task) for key in calls.keys}
    if not any(promised.values()):
        return None
    times_us = {task: geometric_mean(stock_us[task]) for task in promised}
    faster_us = {task: times_us[task] / (gain or 1.0) for task, gain in promised.items()}
    return Prediction(_step_us(calls, times_us) / _step_us(calls, faster_us), None)
