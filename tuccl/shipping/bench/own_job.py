"""A user's own job without and with a table, in turn, and what the table gains it.

A round starts the job once without and once with the table (`job_runs.bench_rounds`). The gain is
the geometric mean of the rounds' ratios, with Student's interval on their logarithms, as for a
bench of keys.

What the table predicts is the time that a step's collectives take less, as if they ran one after
another, or no more than their exposed time where the workload's recording tells that. A job that
overlaps them with computation gains less than the former.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from tuccl.reports.json_form import member
from tuccl.reports.ratios import MeasuredGain, gain_of_rounds
from tuccl.reports.step_gain import StepSummary
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.job_figure import RunFigure, TimeUnit

WITHOUT, WITH = "without the table", "with the table"


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run of the job."""

    figure: float
    seconds: float
    """Time from its start to its end."""


@dataclass(frozen=True, slots=True)
class JobRound:
    """The job without and with the table."""

    without: JobRun
    with_table: JobRun


@dataclass(frozen=True, slots=True)
class StepSaving:
    """Time of a step that a table saves, predicted and measured."""

    workload: str
    """16 hex digits over the workload that the table was tuned for."""
    predicted_us: float
    """The collectives' time with stock NCCL less that with the table."""
    overlap_known: bool
    """Whether that counts exposed time alone; else it is as if nothing overlaps."""
    measured_us: float
    low_us: float
    high_us: float
    step_us: float
    """Time of a step without the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBenchResult:
    """`workload bench`: a job without and with a table, in turn."""

    job: tuple[str, ...]
    """The command and its arguments."""
    place: str
    bundle_crc: str
    executor: bool
    """Whether the table loads the executor."""
    metric: str | None
    """Regular expression of the figure; None: the figure is the run's time in seconds."""
    skip: int
    """Numbers at the beginning of each run that do not count."""
    higher_is_better: bool
    unit: TimeUnit | None
    """Unit of a figure that is the time of a step; None: it is none, or its unit is unknown."""
    rounds: tuple[JobRound, ...]
    gain: MeasuredGain
    """The job's speed with the table over that without."""
    load_seen: bool
    """Whether NCCL's log shows that the job loaded the table; false: there is no such log."""
    saving: StepSaving | None
    """None: the table was tuned for no workload, or the figure is no time of a step with a unit."""

    @member
    def slower(self) -> bool:
        """Whether the job is slower with the table, beyond the noise."""
        return self.gain.high < 1.0


def job_bench_result(
    job: Sequence[str],
    table: ShippedTable,
    figure: RunFigure,
    rounds: Sequence[JobRound],
    step: StepSummary | None,
    *,
    load_seen: bool,
) -> JobBenchResult:
    """Return the result of all rounds.

    Args:
        job: The command and its arguments.
        table: The table.
        figure: How the figure of a run is found.
        rounds: Two at least.
        step: The step that the table states a gain of; None: it states none.
        load_seen: As in `JobBenchResult`.
    """
    without = [each.without.figure for each in rounds]
    own = [each.with_table.figure for each in rounds]
    gain = gain_of_rounds(own, without) if figure.higher_is_better else gain_of_rounds(without, own)
    saving = None
    if step is not None and figure.unit is not None and not figure.higher_is_better:
        saving = _saving(step, geometric_mean(without) * figure.unit.us, gain)
    return JobBenchResult(
        job=tuple(job),
        place=table.name,
        bundle_crc=f"{table.bundle.crc:08x}",
        executor=table.has_executor,
        metric=None if figure.pattern is None else figure.pattern.pattern,
        skip=figure.skip,
        higher_is_better=figure.higher_is_better,
        unit=figure.unit,
        rounds=tuple(rounds),
        gain=gain,
        load_seen=load_seen,
        saving=saving,
    )


def _saving(step: StepSummary, step_us: float, gain: MeasuredGain) -> StepSaving:
    measured, low, high = (
        step_us * (1.0 - 1.0 / ratio) for ratio in (gain.ratio, gain.low, gain.high)
    )
    known = step.saved_us is not None
    predicted = step.stock_us - step.table_us if step.saved_us is None else step.saved_us
    return StepSaving(step.workload, predicted, known, measured, low, high, step_us)
