"""An explanation of a call on standard output: what a job runs for it, and why."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.quantities import count_of, format_size
from tuccl.reports.choice_text import OWN_CHOICE, UNDER_PROFILE, profile_text, untuned_text
from tuccl.reports.decision_sentence import ratio_text
from tuccl.reports.explanation import ExplainedCall
from tuccl.reports.kept_sums import short_order
from tuccl.reports.keys import Runner
from tuccl.reports.report import KeyReport, Report
from tuccl.search.trials.shapes import shape_text


def explanation_lines(call: ExplainedCall, report: Report) -> Iterator[str]:
    """Yield lines on what a job here runs for the call, why, and what it does not run.

    Args:
        call: The call.
        report: Report of the run whose table it was looked up in.
    """
    heading = f"{call.described}, {shape_text(call.shape)}".replace(" ", " of ", 1)
    first, last = call.tuned_from_bytes or 0, call.tuned_to_bytes or 0
    is_between = report.workload is None and first < call.size_bytes < last
    if call.decision is None and (call.entry is not None or is_between):
        yield f"{heading}: {call.runs}"
        yield f"  {call.why}"
        if call.entry is not None:
            yield from (f"  {line}" for line in _provenance_lines(call, report))
        return
    if call.decision is None:
        yield f"{heading}: no entry, {untuned_text(call.profile)}"
        yield (
            "  this size was not tuned: the table reaches from "
            f"{call.tuned_from_bytes} to {call.tuned_to_bytes} bytes"
        )
        return
    yield f"{heading}: {call.runs}"
    yield from (
        f"  {report.readable(line)}" for line in _decision_lines(call, call.decision, report)
    )


def _decision_lines(call: ExplainedCall, key: KeyReport, report: Report) -> Iterator[str]:
    for own in call.placed:
        if own.gain is not None:
            yield (
                f"where NCCL's estimate is that of {own.placement}: {own.runs}, "
                f"{own.table_us:.2f} us ({own.gain.ratio:.3f}x)"
            )
    if call.runner in {Runner.EXECUTOR, Runner.PLUGIN} and call.entry is not None:
        yield f"its entry is for calls of {call.entry.min_bytes} to {call.entry.max_bytes} bytes"
    if call.times is not None and call.gain is not None:
        yield (
            f"{call.times.seen} at {format_size(key.size_bytes)}: stock NCCL "
            f"{call.stock_us:.2f} us, a job here {call.table_us:.2f} us ({call.gain.ratio:.3f}x)"
        )
    if key.computation_us:
        yield (
            f"each call was timed beside {key.computation_us:.1f} us of computation, until both "
            "had ended"
        )
    yield from _sums_lines(key, report)
    yield from _variables_lines(call, key, report)
    yield from _in_turn_lines(key)
    if call.runner is Runner.EXECUTOR and call.without_executor is not None:
        alone = call.without_executor
        setting = UNDER_PROFILE if call.profile else OWN_CHOICE
        if alone.runner is Runner.PLUGIN and call.entry is not None:
            setting = call.entry.builtin
        yield f"without the executor: {setting}, {alone.time_us:.2f} us"
    yield call.why
    if key.added:
        yield f"size added because NCCL's own choice changes {key.added}"
    yield from _provenance_lines(call, report)
    yield from _apart_lines(call, key)
    yield f"searched: {key.configs_tried} configurations, {key.repeats_measured} samples"
    for name, share in report.own_schedules(key):
        yield f"own schedule searched: {name}, {share:.1%} of the bound on the wires alone"
    for finalist in key.rejected:
        yield f"rejected: {finalist.config}, {finalist.time_us:.2f} us, {ratio_text(finalist)}"


def _sums_lines(key: KeyReport, report: Report) -> Iterator[str]:
    """Yield a line on the order of a call's sums, if they do not move."""
    for own in report.sums:
        if (own.operation, own.shape) == (key.operation, key.shape):
            yield f"its sums do not move: {short_order(own.order)} at every size"


def _in_turn_lines(key: KeyReport) -> Iterator[str]:
    """Yield lines on what was started in turn with stock NCCL: the profile, the whole table."""
    if (in_turn := key.profile_ratio) is not None:
        yield (
            f"started in turn with stock NCCL, {UNDER_PROFILE} is {in_turn.ratio:.3f}x "
            f"({in_turn.low:.3f} to {in_turn.high:.3f}, {in_turn.starts} starts of each)"
        )
    if (seen := key.whole) is not None:
        yield (
            f"with the whole table loaded: {seen.ratio:.3f}x ({seen.low:.3f} to {seen.high:.3f}, "
            f"{count_of(seen.rounds, 'round')} of new processes, in turn with stock NCCL)"
        )
        if (beside := seen.beside) is not None:
            yield (
                f"the same beside computation of twice stock NCCL's time: {beside.ratio:.3f}x "
                f"({beside.low:.3f} to {beside.high:.3f}), until both have ended"
            )
        if (ratio := seen.in_windows) is not None:
            whose = "its schedule's, too" if ratio >= 1.0 else "NCCL's"
            yield f"on registered buffers: {ratio:.3f}x, so such calls are {whose}"


def _variables_lines(call: ExplainedCall, key: KeyReport, report: Report) -> Iterator[str]:
    """Yield lines on the variables of NCCL that the table sets, and that a site sets."""
    if call.profile:
        yield f"{UNDER_PROFILE} {profile_text(call.profile)}: {key.profile_default_us:.2f} us"
    if report.base:
        yield f"measured with {profile_text(report.base)}, which stock NCCL had, too"


def _provenance_lines(call: ExplainedCall, report: Report) -> Iterator[str]:
    """Yield lines on the origin of the entry's times, where its table has it."""
    if report.assumed:
        yield report.assumed
    provenance = None if call.entry is None else call.entry.provenance
    if provenance is not None:
        on_machine = provenance.machine and provenance.is_measured
        machine = f", on {provenance.machine}" if on_machine else ""
        yield f"times: {provenance.describe()}{machine}"


def _apart_lines(call: ExplainedCall, key: KeyReport) -> Iterator[str]:
    """Yield lines on the schedule that won but that no job here runs."""
    apart = call.apart
    if apart is None or call.times is None:
        return
    yield (
        f"not run by a job here: {apart.schedule}, {apart.time_us:.2f} us "
        f"({apart.speedup:.3f}x, {call.times.value})"
    )
    if key.schedule is not None:
        yield f"  {ratio_text(key.schedule)}"
    yield f"  {apart.reason.sentence}"
