"""A trimmed table on standard output: what its parts do to the job, and what the rest gains it."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.options.workload_bench_command import WorkloadTrimCommand
from tuccl.reports.documents.bench import BenchedGain
from tuccl.reports.documents.job_trim import JobPartFigures, JobPartRound, JobTrimDocument
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.job_parts import PartEffect, PartRound, Trimming
from tuccl.views.terminal.job_bench_display import (
    figure_words,
    job_words,
    round_figures,
    run_figures,
    verdict,
)

_HEAD = "part of the table"


def job_trim_lines(
    command: WorkloadTrimCommand, table: ShippedTable, trimming: Trimming
) -> Iterator[str]:
    """Return the whole output."""
    yield job_words(command)
    yield f"{table.name}: {figure_words(command)}"
    yield ""
    width = max(len(_HEAD), *(len(str(each.part)) for each in trimming.parts))
    yield f"{_HEAD:<{width}} {'with it':>8}   interval"
    for each in trimming.parts:
        bounds = each.effect.bounds
        yield (
            f"{each.part!s:<{width}} {each.effect.ratio:>7.3f}x   {bounds.low:.3f} to "
            f"{bounds.high:.3f}{'   left out' if each.is_slower else ''}"
        )
    yield ""
    yield _result_line(trimming)
    yield _next_line(trimming)


def _result_line(trimming: Trimming) -> str:
    gain = trimming.outcome.gain
    rest = "the rest" if trimming.is_part else "the table"
    return (
        f"the job is {gain.ratio:.3f} times as fast with {rest} "
        f"(95 % interval {gain.low:.3f} to {gain.high:.3f}): {verdict(trimming.outcome)}"
    )


def _next_line(trimming: Trimming) -> str:
    shipped = "" if trimming.shipped is None else f" is shipped: . {trimming.shipped}/tuccl.env"
    if not trimming.left_out:
        whole = f"; the table{shipped}" if shipped else ""
        return f"no part slows the job down beyond the noise: there is nothing to leave out{whole}"
    if shipped:
        return f"the rest{shipped}"
    if trimming.is_nothing_left:
        return "every part slows the job down: leave this job to stock NCCL"
    if trimming.outcome.is_slower:
        return "nothing is shipped: leave this job to stock NCCL"
    return "nothing is shipped: name a directory with --output"


def job_trim_document(
    command: WorkloadTrimCommand, table: ShippedTable, trimming: Trimming
) -> JobTrimDocument:
    """Return the result as JSON."""
    outcome = trimming.outcome
    gain = outcome.gain
    return JobTrimDocument(
        job=list(command.job),
        place=table.name,
        bundle_crc=f"{table.bundle.crc:08x}",
        metric=command.metric,
        skip=command.skip,
        higher_is_better=command.higher_is_better,
        parts=[_part(each) for each in trimming.parts],
        part_rounds=[_round(each) for each in trimming.rounds],
        rounds=round_figures(outcome),
        gain=BenchedGain(ratio=gain.ratio, low=gain.low, high=gain.high),
        load_seen=outcome.load_seen,
        slower=outcome.is_slower,
        shipped=None if trimming.shipped is None else str(trimming.shipped),
    )


def _part(each: PartEffect) -> JobPartFigures:
    return JobPartFigures(
        shape=each.part.shape,
        operation=each.part.operation,
        ratio=each.effect.ratio,
        low=each.effect.bounds.low,
        high=each.effect.bounds.high,
        left_out=each.is_slower,
    )


def _round(each: PartRound) -> JobPartRound:
    return JobPartRound(
        parts=[number for number, sign in enumerate(each.signs) if sign == 1],
        first=run_figures(each.first),
        second=run_figures(each.second),
    )
