"""A user's own job without and with a table, in turn, and what the table gains it.

A round starts the job once without and once with the table; which comes first changes from round to
round, so that a drift of the machine affects both alike. The gain is the geometric mean of the
rounds' ratios, with Student's interval on their logarithms, as for a bench of keys.

What the table predicts is the time that a step's collectives take less, as if they ran one after
another, or no more than their exposed time where the workload's recording tells that. A job that
overlaps them with computation gains less than the former.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from tuccl.reports.documents.step import StepSummary
from tuccl.shipping.bench.job_figure import Figure
from tuccl.shipping.bench.ratios import Gain, gain_of_rounds

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


Start = Callable[[int, str], JobRun]
"""`start(number, variant)`: run the job `WITHOUT` or `WITH` the table in a round, from 1 on."""
Tell = Callable[[str], None]


def run_rounds(start: Start, rounds: int) -> tuple[JobRound, ...]:
    """Run the job in turn without and with the table.

    Args:
        start: Runs the job once.
        rounds: Number of rounds.
    """
    done = []
    for number in range(1, rounds + 1):
        order = (WITHOUT, WITH) if number % 2 else (WITH, WITHOUT)
        runs = {variant: start(number, variant) for variant in order}
        done.append(JobRound(runs[WITHOUT], runs[WITH]))
    return tuple(done)


@dataclass(frozen=True, slots=True)
class Saving:
    """Time of a step that a table saves, predicted and measured."""

    workload: str
    """16 hex digits over the workload that the table was tuned for."""
    predicted_us: float
    """The collectives' time without the table less that with it."""
    overlap_known: bool
    """Whether it counts exposed time alone; else it is as if nothing overlaps."""
    measured_us: float
    low_us: float
    high_us: float
    step_us: float
    """Time of a step without the table."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The gain of a table for a job."""

    rounds: tuple[JobRound, ...]
    gain: Gain
    """The speed with the table over that without."""
    load_seen: bool
    """Whether NCCL's log shows that the job loaded the table; else it is not known."""
    saving: Saving | None
    """None: the table was not tuned for a workload, or the figure is no time of a step."""

    @property
    def is_slower(self) -> bool:
        """Whether the job is slower with the table, beyond the noise."""
        return self.gain.high < 1.0


def job_outcome(
    rounds: Sequence[JobRound], figure: Figure, step: StepSummary | None, *, load_seen: bool
) -> JobOutcome:
    """Return the outcome of all rounds.

    Args:
        rounds: Two at least.
        figure: How the figure of a run is found.
        step: The step that the table states a gain of; None: it states none.
        load_seen: As in `JobOutcome`.
    """
    without = [each.without.figure for each in rounds]
    own = [each.with_table.figure for each in rounds]
    gain = gain_of_rounds(own, without) if figure.higher_is_better else gain_of_rounds(without, own)
    saving = None
    if step is not None and figure.unit is not None and not figure.higher_is_better:
        saving = _saving(step, geometric_mean(without) * figure.unit.us, gain)
    return JobOutcome(tuple(rounds), gain, load_seen, saving)


def _saving(step: StepSummary, step_us: float, gain: Gain) -> Saving:
    measured, low, high = (
        step_us * (1.0 - 1.0 / ratio) for ratio in (gain.ratio, gain.low, gain.high)
    )
    known = step.saved_us is not None
    predicted = step.stock_us - step.table_us if step.saved_us is None else step.saved_us
    return Saving(step.workload, predicted, known, measured, low, high, step_us)
