"""A job without and with a table, or parts of it, on standard output."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from probes.inputs.messages import printable
from tuccl.shipping.bench.job_figure import figure_text
from tuccl.shipping.bench.job_parts import TrimResult
from tuccl.shipping.bench.own_job import JobBenchResult, StepSaving

_LONGEST_JOB = 200
"""Characters of a command that are shown."""
_HEAD = "part of the table"


def job_bench_lines(result: JobBenchResult) -> Iterator[str]:
    """Yield the rounds, and what the table gains the job."""
    yield from _head(result)
    yield f"{'round':>5} {'without':>12} {'with the table':>15} {'ratio':>7}"
    for number, each in enumerate(result.rounds, 1):
        without, own = each.without.figure, each.with_table.figure
        ratio = own / without if result.higher_is_better else without / own
        yield f"{number:>5} {figure_text(without):>12} {figure_text(own):>15} {ratio:>7.3f}"
    yield ""
    yield _result_line(result, "the table")
    if result.saving is not None:
        yield _saving_line(result.saving)


def job_trim_lines(result: TrimResult) -> Iterator[str]:
    """Yield what the parts of the table do to the job, and what the rest gains it."""
    yield from _head(result)
    width = max(len(_HEAD), *(len(str(each.part)) for each in result.parts))
    yield f"{_HEAD:<{width}} {'with it':>8}   interval"
    for each in result.parts:
        yield (
            f"{each.part!s:<{width}} {each.gain.ratio:>7.3f}x   {each.gain.low:.3f} to "
            f"{each.gain.high:.3f}{'   left out' if each.left_out else ''}"
        )
    yield ""
    yield _result_line(result, "the rest" if result.is_part else "the table")
    yield _next_line(result)


def _head(result: JobBenchResult) -> Iterator[str]:
    words = printable(" ".join(shlex.join(result.job).split()))
    yield words if len(words) <= _LONGEST_JOB else f"{words[:_LONGEST_JOB]} ..."
    figure = "seconds of a whole run, its start among them"
    if result.metric is not None:
        after = f" after the first {result.skip}" if result.skip else ""
        unit = "" if result.unit is None else f", in {result.unit}"
        figure = f"a run's median of {result.metric!r}{after}{unit}"
    yield f"{result.place}: {figure}"
    yield ""


def _result_line(result: JobBenchResult, what: str) -> str:
    gain = result.gain
    if not result.slower and gain.low <= 1.0:
        return (
            f"no difference beyond the noise: with {what} the job is between {gain.low:.3f} and "
            f"{gain.high:.3f} times as fast (95 % interval around {gain.ratio:.3f}); more rounds "
            "narrow it"
        )
    verdict = "slower" if result.slower else "faster"
    return (
        f"the job is {gain.ratio:.3f} times as fast with {what} "
        f"(95 % interval {gain.low:.3f} to {gain.high:.3f}): {verdict}, beyond the noise"
    )


def _next_line(result: TrimResult) -> str:
    shipped = "" if result.shipped is None else f" is shipped: . {result.shipped}/tuccl.env"
    if not result.left_out:
        whole = f"; the table{shipped}" if shipped else ""
        return f"no part slows the job down beyond the noise: there is nothing to leave out{whole}"
    if shipped:
        return f"the rest{shipped}"
    if result.is_nothing_left:
        return "every part slows the job down: leave this job to stock NCCL"
    if result.slower:
        return "nothing is shipped: leave this job to stock NCCL"
    return "nothing is shipped: name a directory with --output"


def _saving_line(saving: StepSaving) -> str:
    share = 100.0 / saving.step_us
    overlap = "" if saving.overlap_known else ", if nothing overlaps"
    measured = (
        f"{saving.measured_us:.0f} us measured ({saving.low_us:.0f} to {saving.high_us:.0f}; "
        f"{saving.measured_us * share:.1f} %)"
    )
    if saving.low_us <= 0.0 <= saving.high_us:
        measured = (
            f"nothing beyond the noise measured ({saving.low_us:.0f} to {saving.high_us:.0f} us)"
        )
    return (
        f"saved of a step of {saving.step_us:.0f} us: {measured}, "
        f"{saving.predicted_us:.0f} us ({saving.predicted_us * share:.1f} %) predicted{overlap} "
        f"(workload {saving.workload})"
    )
