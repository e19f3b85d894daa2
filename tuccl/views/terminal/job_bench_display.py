"""A job without and with a table on standard output: its rounds, and what the table gains it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from probes.inputs.printable import printable
from tuccl.options.workload_bench_command import WorkloadBenchCommand
from tuccl.reports.documents.bench import BenchedGain
from tuccl.reports.documents.job_bench import (
    JobBenchDocument,
    JobRoundFigures,
    JobRunFigures,
    StepSaving,
)
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.job_figure import Figure
from tuccl.shipping.bench.own_job import JobOutcome, JobRun, Saving
from tuccl.words.durations import format_elapsed

_LONGEST_JOB = 200
"""Characters of a command that are shown."""


def run_line(place: str, variant: str, run: JobRun, figure: Figure) -> str:
    """Return the line of a run that has ended, `place` as in `round 2 of 5`."""
    shown = "" if figure.pattern is None else f"{_number(run.figure)}{_unit(figure)}, "
    return f"{place}, {variant}: {shown}{format_elapsed(run.seconds)}"


def job_words(command: WorkloadBenchCommand) -> str:
    """Return the job's command in one line, shortened."""
    words = printable(" ".join(shlex.join(command.job).split()))
    return words if len(words) <= _LONGEST_JOB else f"{words[:_LONGEST_JOB]} ..."


def job_bench_lines(
    command: WorkloadBenchCommand, table: ShippedTable, outcome: JobOutcome
) -> Iterator[str]:
    """Return the whole output."""
    yield job_words(command)
    yield f"{table.name}: {figure_words(command)}"
    yield ""
    yield f"{'round':>5} {'without':>12} {'with the table':>15} {'ratio':>7}"
    for number, each in enumerate(outcome.rounds, 1):
        without, own = each.without.figure, each.with_table.figure
        ratio = own / without if command.higher_is_better else without / own
        yield f"{number:>5} {_number(without):>12} {_number(own):>15} {ratio:>7.3f}"
    yield ""
    gain = outcome.gain
    yield (
        f"the job is {gain.ratio:.3f} times as fast with the table "
        f"(95 % interval {gain.low:.3f} to {gain.high:.3f}): {verdict(outcome)}"
    )
    if outcome.saving is not None:
        yield _saving_line(outcome.saving)


def job_bench_document(
    command: WorkloadBenchCommand, table: ShippedTable, outcome: JobOutcome
) -> JobBenchDocument:
    """Return the outcome as JSON."""
    saving = outcome.saving
    return JobBenchDocument(
        job=list(command.job),
        place=table.name,
        bundle_crc=f"{table.bundle.crc:08x}",
        executor=table.has_executor,
        metric=command.metric,
        skip=command.skip,
        higher_is_better=command.higher_is_better,
        rounds=round_figures(outcome),
        gain=BenchedGain(ratio=outcome.gain.ratio, low=outcome.gain.low, high=outcome.gain.high),
        load_seen=outcome.load_seen,
        saving=None
        if saving is None
        else StepSaving(
            workload=saving.workload,
            predicted_us=saving.predicted_us,
            overlap_known=saving.overlap_known,
            measured_us=saving.measured_us,
            low_us=saving.low_us,
            high_us=saving.high_us,
            step_us=saving.step_us,
        ),
        slower=outcome.is_slower,
    )


def round_figures(outcome: JobOutcome) -> list[JobRoundFigures]:
    """Return the rounds as JSON."""
    return [
        JobRoundFigures(without=run_figures(each.without), with_table=run_figures(each.with_table))
        for each in outcome.rounds
    ]


def run_figures(run: JobRun) -> JobRunFigures:
    """Return a run as JSON."""
    return JobRunFigures(figure=run.figure, seconds=run.seconds)


def figure_words(command: WorkloadBenchCommand) -> str:
    """Describe the figure of a run for people."""
    if command.metric is None:
        return "seconds of a whole run, its start among them"
    after = f" after the first {command.skip}" if command.skip else ""
    unit = "" if command.unit is None else f", in {command.unit}"
    return f"a run's median of {command.metric!r}{after}{unit}"


def verdict(outcome: JobOutcome) -> str:
    """Say whether the job is faster."""
    if outcome.is_slower:
        return "slower, beyond the noise"
    return (
        "faster, beyond the noise" if outcome.gain.low > 1.0 else "no difference beyond the noise"
    )


def _saving_line(saving: Saving) -> str:
    share = 100.0 / saving.step_us
    overlap = "" if saving.overlap_known else ", if nothing overlaps"
    return (
        f"saved of a step of {saving.step_us:.0f} us: {saving.measured_us:.0f} us measured "
        f"({saving.low_us:.0f} to {saving.high_us:.0f}; {saving.measured_us * share:.1f} %), "
        f"{saving.predicted_us:.0f} us ({saving.predicted_us * share:.1f} %) predicted{overlap} "
        f"(workload {saving.workload})"
    )


def _number(figure: float) -> str:
    return f"{figure:,.4g}" if figure < 1e4 else f"{figure:,.0f}"


def _unit(figure: Figure) -> str:
    return "" if figure.unit is None else f" {figure.unit}"
