"""`ExplainedCall`: what a job here runs for one call, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lookup_tables.bundles.bundle import BundleEntry
from lookup_tables.collective import Collective
from lookup_tables.lookup import lookup
from lookup_tables.table import Entry, Shape
from tuccl.quantities import count_of, format_size
from tuccl.reports.choice_text import runs_text
from tuccl.reports.decision_sentence import (
    baseline_sentence,
    decision_sentence,
    unproved_sentence,
)
from tuccl.reports.entries import EntryFigures, entry_figures, placed_entries_of
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import KeyApart, KeyGain, WithoutExecutor
from tuccl.reports.keys import Gain, Runner, TunedCall
from tuccl.reports.report import KeyReport
from tuccl.reports.tuning_result import TunedTable, TuningResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedCall(TunedCall):
    """`explain` and `lookup`: the choice that a job here runs for one call, and its reason."""

    runner: Runner
    """The component that decides: executor, plugin, NCCL under the profile, or NCCL alone."""
    runs: str
    """The setting or schedule that runs, in words."""
    why: str
    """The reason, a sentence."""
    times: Evidence | None
    """Evidence behind the times; None: a bundle does not say."""
    caveats: tuple[str, ...]
    stock_us: float | None = None
    """Stock NCCL's time at the tuned size whose range holds the call's; None: unknown."""
    table_us: float | None = None
    """Time in a job here, likewise."""
    gain: Gain | None = None
    """Stock NCCL's time over that; None: one is unknown."""
    without_executor: WithoutExecutor | None = None
    """The outcome if the executor is not preloaded; None: unknown."""
    apart: KeyApart | None = None
    """The schedule that won but that no job here runs; None: it runs, or none won."""
    entry: EntryFigures | None
    """Entry that the plugin finds for the call, with the schedule that no job runs apart."""
    placed: tuple[EntryFigures, ...]
    """Entries that it finds instead if NCCL's estimate is that of some communicators."""
    decision: KeyReport | None = None
    """The decision for the tuned size; None: outside every range, or the place has no run."""
    tuned_from_bytes: int | None
    """Smallest size of the operation that the table can serve; None: not tuned."""
    tuned_to_bytes: int | None
    """Largest size."""
    profile: Mapping[str, str]


def explain(
    found: TunedTable, operation: Collective, size_bytes: int, shape: Shape
) -> ExplainedCall:
    """Return what a job here runs for a call, and why.

    Args:
        found: The table, with the run that made it if that is known.
        operation: Operation of the call.
        size_bytes: Size of the call.
        shape: Shape of its communicator.
    """
    table = found.table
    entries: Sequence[Entry | BundleEntry] = table.entries
    entry = lookup(entries, operation, size_bytes, shape)
    profile = found.profile_of(shape)
    runner = Runner.PROFILE if profile else Runner.NCCL
    tuned = []
    if isinstance(found, TuningResult):
        calls = (key for key in found.report.keys if key.operation is operation)
        tuned = [key for key in calls if key.shape == shape]
    call = ExplainedCall(
        operation=operation,
        size_bytes=size_bytes,
        shape=shape,
        runner=runner,
        runs=runs_text(runner, None, table),
        why=_why_none(found, operation, size_bytes, shape),
        times=found.times,
        caveats=found.caveats if isinstance(found, TuningResult) else (),
        entry=None
        if entry is None
        else entry_figures(
            entry, table, found.times or Evidence.MEASURED, has_executor=found.has_executor
        ),
        placed=tuple(
            each
            for each in placed_entries_of(table)
            if (each.operation, each.shape) == (operation, shape)
            and each.min_bytes <= size_bytes <= each.max_bytes
        ),
        tuned_from_bytes=min((key.min_bytes for key in tuned), default=None),
        tuned_to_bytes=max((key.max_bytes for key in tuned), default=None),
        profile=profile,
    )
    if isinstance(found, TuningResult):
        for gain in found.gains.keys:
            key = gain.decision
            holds = key in tuned and key.min_bytes <= size_bytes <= key.max_bytes
            # A job may have learned another choice for a size within the key's range.
            if holds and gain.entry == entry:
                return _decided(call, gain, found)
    return call if call.entry is None else _of_entry(call, call.entry, found.times)


def _decided(call: ExplainedCall, gain: KeyGain, result: TuningResult) -> ExplainedCall:
    """Return the call with the decision on the size that was tuned."""
    return replace(
        call,
        runner=gain.runner,
        runs=gain.runs,
        why=result.report.readable(reason(gain, result.times)),
        stock_us=gain.stock_us,
        table_us=gain.table_us,
        gain=gain.gain,
        without_executor=gain.without_executor,
        apart=gain.apart,
        decision=gain.decision,
    )


def _of_entry(call: ExplainedCall, entry: EntryFigures, times: Evidence | None) -> ExplainedCall:
    """Return the call with its entry, if nothing else is known of it."""
    times = entry.times or times
    why = f"its entry is for calls of {entry.min_bytes} to {entry.max_bytes} bytes"
    if entry.gain is not None and entry.runner in {Runner.EXECUTOR, Runner.PLUGIN}:
        why = (
            f"{entry.runs} {(times or Evidence.MEASURED).takes} {entry.table_us:.2f} us, stock "
            f"NCCL {entry.stock_us:.2f} us: {entry.gain.ratio:.3f}x"
        )
    return replace(
        call,
        runner=entry.runner,
        runs=entry.runs,
        why=why,
        times=times,
        stock_us=entry.stock_us,
        table_us=entry.table_us,
        gain=entry.gain,
        apart=entry.apart,
    )


def _why_none(found: TunedTable, operation: Collective, size_bytes: int, shape: Shape) -> str:
    if shape not in found.shapes:
        known = " and ".join(map(communicator_words, found.shapes)) or "none"
        return f"no entry: the table is for {known}, not for {communicator_words(shape)}"
    if isinstance(found, TuningResult) and found.report.workload is None:
        keys = [k for k in found.report.keys if (k.operation, k.shape) == (operation, shape)]
        below = max((k.size_bytes for k in keys if k.max_bytes < size_bytes), default=0)
        above = min((k.size_bytes for k in keys if k.min_bytes > size_bytes), default=0)
        if below and above:
            return (
                f"left to NCCL, whose own choice was faster between {format_size(below)} and "
                f"{format_size(above)} than the entries of both"
            )
    return f"no entry of the table holds {operation} of {size_bytes} bytes"


def communicator_words(shape: Shape) -> str:
    """Return `16 ranks on 2 nodes`."""
    return f"{count_of(shape.ranks, 'rank')} on {count_of(shape.nodes, 'node')}"


def reason(gain: KeyGain, evidence: Evidence) -> str:
    """Explain in a sentence why a job runs its choice for a key; schedules appear as hashes."""
    key = gain.decision
    winners = {Runner.EXECUTOR: key.schedule, Runner.PLUGIN: key.builtin}
    winner = winners.get(gain.runner)
    found = decision_sentence(
        *(winner, key.rejected, evidence, key.left_out, gain.runs), is_obliged=key.is_obliged
    )
    unproved = [] if key.unproved is None else [unproved_sentence(key.unproved)]
    return "; ".join([found, *unproved, *map(baseline_sentence, key.baseline)])
