"""An explanation of a call on standard output: what a job runs for it, and why."""

from __future__ import annotations

from tuccl.quantities import format_size
from tuccl.reports.choice_text import (
    describe_builtin,
    describe_schedule,
    profile_text,
)
from tuccl.reports.decision_sentence import ratio_text
from tuccl.reports.explanation import Explanation, placed_lines, reason
from tuccl.reports.finished_run import FinishedRun
from tuccl.reports.job_gains import JobGains, KeyGain
from tuccl.reports.keys import Runner
from tuccl.search.trials.shapes import shape_text


def explanation_lines(
    found: Explanation, gain: KeyGain | None, current: FinishedRun, gains: JobGains
) -> list[str]:
    """Return lines on what a job here runs for the call, why, and what it does not run."""
    call = f"{found.operation.value} of {format_size(found.size_bytes)}, {shape_text(found.shape)}"
    profile = profile_text(current.table.profile)
    if gain is None:
        reach = f"{found.tuned_from_bytes} to {found.tuned_to_bytes} bytes"
        lines = [
            f"{call}: no entry, NCCL chooses by itself",
            f"  this size was not tuned: the table reaches from {reach}",
        ]
        if current.table.profile:
            lines.append(f"  the process profile {profile} holds for it all the same")
        return lines
    key = gain.key
    lines = [f"{call}: {gain.runs}"]
    lines += [f"  {line}" for line in placed_lines(found)]
    if gain.runner in {Runner.EXECUTOR, Runner.PLUGIN} and gain.entry is not None:
        held = gain.entry.key
        lines.append(f"  the entry holds from {held.min_bytes} to {held.max_bytes} bytes")
    lines.append(
        f"  {gains.evidence.seen} at {format_size(key.size_bytes)}: stock NCCL "
        f"{key.stock_us:.2f} us, a job here {gain.table_us:.2f} us ({gain.speedup:.3f}x)"
    )
    if key.computation_us:
        lines.append(
            f"  each call was timed beside {key.computation_us:.1f} us of computation, until both "
            "had ended"
        )
    if current.table.profile:
        lines.append(
            f"  under the process profile {profile}: NCCL's own choice "
            f"{key.profile_default_us:.2f} us"
        )
    if (in_turn := key.profile_ratio) is not None:
        lines.append(
            f"  started in turn with stock NCCL, NCCL's own choice is {in_turn.ratio:.3f}x "
            f"({in_turn.low:.3f} to {in_turn.high:.3f}, {in_turn.starts} starts of each)"
        )
    if gain.runner is Runner.EXECUTOR:
        lines.append(f"  without the executor: {_without_executor(gain)}")
    effort = f"{key.configs_tried} configurations, {key.repeats_measured} samples"
    lines += [
        f"  {reason(gain, gains.evidence)}",
        *_provenance_lines(found),
        *_apart_lines(gain, current, gains),
        f"  searched: {effort}",
        *(
            f"  own schedule searched: {name}, {share:.1%} of the bound on the wires alone"
            for name, share in current.report.own_schedules(key)
        ),
        *(
            f"  rejected: {finalist.config}, {finalist.time_us:.2f} us, {ratio_text(finalist)}"
            for finalist in key.rejected
        ),
    ]
    return [current.report.readable(line) for line in lines]


def _provenance_lines(found: Explanation) -> list[str]:
    """Return a line on the origin of the entry's times, where its table has it."""
    provenance = None if found.entry is None else found.entry.provenance
    if provenance is None:
        return []
    on_machine = provenance.machine and provenance.is_measured
    machine = f", on {provenance.machine}" if on_machine else ""
    return [f"  times: {provenance.describe()}{machine}"]


def _without_executor(gain: KeyGain) -> str:
    if gain.without_executor is Runner.PLUGIN and gain.entry is not None:
        return f"{describe_builtin(gain.entry)}, {gain.without_executor_us:.2f} us"
    return f"NCCL's own choice, {gain.without_executor_us:.2f} us"


def _apart_lines(gain: KeyGain, current: FinishedRun, gains: JobGains) -> list[str]:
    """Return lines on the schedule that won but that no job here runs."""
    if gain.obstacle is None or gain.entry is None:
        return []
    schedule = describe_schedule(gain.entry, current.table)
    time = f"{gain.apart_us:.2f} us ({gain.apart_speedup:.3f}x, {gains.evidence.value})"
    return [
        f"  apart, not run by a job here: {schedule}, {time}",
        *([] if gain.key.schedule is None else [f"    {ratio_text(gain.key.schedule)}"]),
        f"    {gain.obstacle.sentence}",
    ]
