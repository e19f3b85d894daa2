"""A bench on standard output as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf

from tuccl.measuring.engines.nccl_library import NcclLibrary
from tuccl.reports.documents.bench import (
    BenchDocument,
    BenchedGain,
    BenchedKey,
    BenchedNccl,
    BenchedStep,
    BenchedTable,
    BenchedTime,
    BenchUpgradeDocument,
    ComparedKey,
    ComparedTables,
    UpgradedKeyDocument,
    UpgradedTimes,
)
from tuccl.search.trials.config import Task
from tuccl.shipping.bench.bandwidths import algbw_gb_per_s, busbw_gb_per_s, element_count, reduction
from tuccl.shipping.bench.contenders import STOCK
from tuccl.shipping.bench.ratios import Gain
from tuccl.shipping.bench.result import BenchResult, Comparison, KeyOutcome, TableOutcome
from tuccl.shipping.bench.rounds import Measured
from tuccl.shipping.bench.step import StepOutcome
from tuccl.shipping.bench.upgrade import UpgradedKey, UpgradeResult
from tuccl.views.terminal.shipped.bench_display import describe_key

_ELEMENT_BYTES = {"float16": 2}


def bench_document(result: BenchResult, measured: Measured) -> BenchDocument:
    """Return the result, with the times of every round."""
    return BenchDocument(
        shape=result.shape,
        data_type=result.timing.data_type,
        in_place=result.timing.in_place,
        graphs=result.timing.graph,
        computations=result.timing.computations,
        versions=result.versions,
        rounds=result.rounds,
        seconds=result.seconds,
        tables=[_table(outcome, result, measured) for outcome in result.tables],
        comparison=None if result.comparison is None else _compared(result, result.comparison),
    )


def _table(outcome: TableOutcome, result: BenchResult, measured: Measured) -> BenchedTable:
    table = outcome.table
    return BenchedTable(
        place=table.name,
        bundle_crc=f"{table.bundle.crc:08x}",
        profile=dict(table.bundle.profile),
        executor=table.has_executor,
        keys=[_key(key, outcome, result, measured) for key in outcome.keys],
        mean=_gain(outcome.mean),
        step=None if outcome.step is None else _step(outcome.step),
    )


def _step(step: StepOutcome) -> BenchedStep:
    predicted = step.predicted
    bounds = None if predicted is None else predicted.bounds
    return BenchedStep(
        workload=step.calls.digest,
        steps=step.calls.steps,
        stock_us=list(step.stock_us),
        table_us=list(step.table_us),
        gain=_gain(step.gain),
        predicted=None if predicted is None else predicted.gain,
        predicted_low=None if bounds is None else bounds.low,
        predicted_high=None if bounds is None or isinf(bounds.high) else bounds.high,
        short=step.is_short,
        untuned_share=step.calls.untuned_share,
        left_out_share=step.calls.left_out_share,
        left_out=list(step.calls.left_out),
    )


def _key(
    key: KeyOutcome, outcome: TableOutcome, result: BenchResult, measured: Measured
) -> BenchedKey:
    task, times_us = key.task, measured.times_us
    return BenchedKey(
        operation=task.operation,
        size_bytes=task.size_bytes,
        shape=task.shape,
        placement=result.example(task) or None,
        count=element_count(task, _ELEMENT_BYTES[result.timing.data_type]),
        redop=reduction(task),
        stock=_time(task, key.stock_us, times_us[STOCK.name][task]),
        table=_time(task, key.time_us, times_us[outcome.table.name][task]),
        gain=_gain(key.gain),
        promised=key.promised,
        promised_low=None if key.promise_bounds is None else key.promise_bounds.low,
        promised_high=None if key.promise_bounds is None else key.promise_bounds.high,
        runner=key.runner,
        runs=describe_key(key, outcome),
        finding=None if key.finding is None else key.finding.value,
    )


def _time(task: Task, time_us: float, rounds_us: Sequence[float]) -> BenchedTime:
    return BenchedTime(
        time_us=time_us,
        algbw_gb_per_s=algbw_gb_per_s(task, time_us),
        busbw_gb_per_s=busbw_gb_per_s(task, time_us),
        rounds_us=list(rounds_us),
    )


def _gain(gain: Gain) -> BenchedGain:
    return BenchedGain(ratio=gain.ratio, low=gain.low, high=gain.high)


def _compared(result: BenchResult, comparison: Comparison) -> ComparedTables:
    return ComparedTables(
        keys=[
            ComparedKey(
                operation=task.operation,
                size_bytes=task.size_bytes,
                shape=task.shape,
                placement=result.example(task) or None,
                gain=_gain(gain),
            )
            for task, gain in comparison.keys.items()
        ],
        mean=_gain(comparison.mean),
    )


def upgrade_document(result: UpgradeResult) -> BenchUpgradeDocument:
    """Return the result of an upgrade."""
    return BenchUpgradeDocument(
        place=result.table.name,
        bundle_crc=f"{result.table.bundle.crc:08x}",
        old=_nccl(result.upgrade.old),
        new=_nccl(result.upgrade.new),
        shape=result.shape,
        data_type=result.timing.data_type,
        in_place=result.timing.in_place,
        graphs=result.timing.graph,
        computations=result.timing.computations,
        rounds=result.rounds,
        seconds=result.seconds,
        keys=[_upgraded(key, result) for key in result.keys],
        old_gain=_gain(result.old_gain),
        new_gain=_gain(result.new_gain),
        stock_change=_gain(result.stock_change),
        table_change=_gain(result.table_change),
    )


def _nccl(library: NcclLibrary) -> BenchedNccl:
    return BenchedNccl(version=library.version_text, path=str(library.path))


def _upgraded(key: UpgradedKey, result: UpgradeResult) -> UpgradedKeyDocument:
    return UpgradedKeyDocument(
        operation=key.task.operation,
        size_bytes=key.task.size_bytes,
        shape=key.task.shape,
        placement=result.example(key.task) or None,
        entry=key.has_entry,
        stock=UpgradedTimes(old_us=key.stock_us[0], new_us=key.stock_us[1]),
        table=UpgradedTimes(old_us=key.table_us[0], new_us=key.table_us[1]),
        old_gain=_gain(key.old_gain),
        new_gain=_gain(key.new_gain),
        stock_change=_gain(key.stock_change),
        table_change=_gain(key.table_change),
        kept=_gain(key.kept),
        effect=None if key.effect is None else key.effect.value,
    )
