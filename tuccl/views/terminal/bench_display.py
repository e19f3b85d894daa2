"""A bench on standard output: nccl-tests' columns for stock NCCL and each table, and findings.

Of an upgrade, the times of stock NCCL and the table under both releases.

Rows of nccl-tests' columns fit 85 columns, where size and time have the digits of usual ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from statistics import geometric_mean
from textwrap import wrap

from tuccl.quantities import count_of, format_seconds, format_size
from tuccl.reports.choice_text import profile_text
from tuccl.reports.ratios import MeasuredGain
from tuccl.search.trials.shapes import shape_text
from tuccl.shipping.bench.result import (
    BenchedKey,
    BenchedTable,
    BenchResult,
    Conditions,
    Shortfall,
    TwoTables,
)
from tuccl.shipping.bench.step import BenchedStep
from tuccl.shipping.bench.upgrade import UpgradedKey, UpgradeEffect, UpgradeResult
from tuccl.views.terminal.display import print_lines, standard_output
from tuccl.views.terminal.step_display import step_words, untuned_words

_TYPES = {"float16": "half"}
"""nccl-tests' names of data types."""
_TIME_HEADINGS = f"{'time':>7} {'algbw':>5} {'busbw':>5}"
_TIME_UNITS = f"{'(us)':>7} {'GB/s':>5} {'GB/s':>5}"
_LEAST_ROOM = 12
"""Least columns into which what runs is wrapped beside its row; with fewer it stands below."""
_LEAST_WIDE = 96
"""Columns from which a row has type and operation, as nccl-tests shows them."""
_MOST_ERROR = 100.0
"""Half of an interval from which its size tells nothing and would not fit its column."""
_FINDINGS = {
    Shortfall.SLOWER_THAN_STOCK: "slower than stock NCCL",
    Shortfall.SLOWER_THAN_PROMISED: "slower than the table promised",
}


_EFFECTS = {
    UpgradeEffect.SLOWER_THAN_STOCK: "slower than stock NCCL {new} with the table",
    UpgradeEffect.NO_GAIN: "loses its worth under NCCL {new}",
    UpgradeEffect.SLOWER: "slower with the table than under NCCL {old}",
    UpgradeEffect.LESS_GAIN: "gains less over stock NCCL {new} than over {old}",
}
_EFFECT_MARKS = {
    UpgradeEffect.SLOWER_THAN_STOCK: "below stock",
    UpgradeEffect.NO_GAIN: "no gain",
    UpgradeEffect.SLOWER: "slower",
    UpgradeEffect.LESS_GAIN: "less gain",
}


def print_bench(result: BenchResult) -> None:
    """Print every table against stock NCCL, then the second against the first."""
    print_lines(bench_lines(result, standard_output().width))


def bench_lines(result: BenchResult, columns: int) -> list[str]:
    """Return the whole output, wrapped between words where it is wider than these columns."""
    lines = [*_conditions(result, columns), ""]
    for outcome in result.tables:
        lines += [*_table_lines(outcome, result, columns), ""]
    if result.comparison is not None:
        lines += [*_comparison_lines(result, result.comparison), ""]
    return lines[:-1]


def _conditions(result: Conditions, columns: int) -> Iterator[str]:
    how = "CUDA graphs" if result.graphs else "calls one by one"
    place = "in place" if result.in_place else "out of place"
    how += ", registered buffers" if result.in_windows else ""
    how += ", beside computation" if result.computations else ""
    yield (
        f"{shape_text(result.shape)}, {result.data_type}, {place}, {how}; "
        f"{result.rounds} rounds of new processes in {format_seconds(result.seconds)}"
    )
    yield from _wrapped(result.versions, columns)


def _table_lines(outcome: BenchedTable, result: BenchResult, columns: int) -> Iterator[str]:
    yield f"{outcome.place}: process profile {profile_text(outcome.profile)}"
    yield from _headings(columns, _with(outcome))
    before = ""
    for key in outcome.keys:
        heading = f"# {key.operation}{key.part(result.shape)}"
        if heading != before:
            before = heading
            yield heading
        yield from _row(key, _TYPES[result.data_type], columns)
    yield from _summary(outcome, result, columns)


def _with(outcome: BenchedTable) -> str:
    return "with the baseline" if outcome.is_baseline else "with the table"


def _headings(columns: int, own: str) -> Iterator[str]:
    key, runs = f"{'size':>5} {'count':>9}", "runs"
    if columns >= _LEAST_WIDE:
        key, runs = f"{key} {'type':>4} {'redop':>5}", "what runs"
    blank = " " * len(key)
    yield f"{blank} {'stock NCCL':^19} {own:^19}".rstrip()
    yield f"{key} {_TIME_HEADINGS} {_TIME_HEADINGS} {'gain':^11} {'said':>5} {runs}"
    yield f"{blank} {_TIME_UNITS} {_TIME_UNITS}"


def _row(key: BenchedKey, name: str, columns: int) -> Iterator[str]:
    said = "-" if key.promised is None else _short_ratio(key.promised.ratio)
    stock = _timed(key.stock_us, key.stock_algbw_gb_per_s, key.stock_busbw_gb_per_s)
    own = _timed(key.table_us, key.table_algbw_gb_per_s, key.table_busbw_gb_per_s)
    of = f" {name:>4} {key.redop:>5}" if columns >= _LEAST_WIDE else ""
    start = (
        f"{format_size(key.size_bytes):>5} {key.count:>9}{of} {stock} {own} "
        f"{_with_error(key.gain):^11} {said:>5} "
    )
    runs = key.runs
    room = columns - len(start)
    if max(_LEAST_ROOM, *map(len, runs.split())) > room:
        yield start.rstrip()
        yield runs.rjust(min(columns, len(start) + len(runs)))
        return
    first, *further = _wrapped(runs, room)
    yield start + first
    for line in further:
        yield f"{'':{len(start)}}{line}"


def _wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    return wrap(text, columns, subsequent_indent=indent, break_long_words=False)


def _timed(time_us: float, *bandwidths: float) -> str:
    words = (f"{_bandwidth(gb_per_s):>5}" for gb_per_s in bandwidths)
    return " ".join([f"{_time(time_us):>7}", *words])


def _time(time_us: float) -> str:
    return (
        f"{time_us:.2f}"
        if time_us < 1e3
        else f"{time_us:.1f}"
        if time_us < 1e5
        else f"{time_us:.0f}"
    )


def _bandwidth(gb_per_s: float) -> str:
    return (
        f"{gb_per_s:.2f}"
        if gb_per_s < 99.995
        else f"{gb_per_s:.1f}"
        if gb_per_s < 999.95
        else f"{gb_per_s:.0f}"
    )


def _short_ratio(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 9.9995 else f"{ratio:.2f}"


def _with_error(gain: MeasuredGain) -> str:
    """`1.080±0.008`: half of the interval, if it says anything."""
    half = (gain.high - gain.low) / 2.0
    return f"{_short_ratio(gain.ratio)}±{_short_ratio(half) if half < _MOST_ERROR else '>100'}"


def _between(gain: MeasuredGain) -> str:
    return f"{gain.ratio:.3f}x ({gain.low:.3f} to {gain.high:.3f})"


def _summary(outcome: BenchedTable, result: BenchResult, columns: int) -> Iterator[str]:
    yield (
        f"{outcome.place} against stock NCCL: {_between(outcome.mean)}, the geometric mean "
        f"over {count_of(len(outcome.keys), 'key')}"
    )
    if outcome.promised is not None:
        count, stated, gained = outcome.promised
        yield f"promised for {count} of these keys: {stated:.3f}x; here {gained:.3f}x"
    if outcome.step is not None:
        yield from _wrapped(_step_line(outcome.step, _with(outcome)), columns, "  ")
    for finding, text in _FINDINGS.items():
        found = outcome.with_finding(finding)
        if not found and not (outcome.is_baseline and finding is Shortfall.SLOWER_THAN_PROMISED):
            yield f"{text}, beyond the noise: no key"
        for key in found:
            line = f"{text}: {key.named(result.shape)}, {_between(key.gain)}{_promise(key)}"
            yield from _wrapped(line, columns, "  ")
    for key in outcome.keys:
        if key.has_slow_start:
            gains = ", ".join(f"{_short_ratio(gain)}x" for gain in key.round_gains)
            line = f"far slower in one start than in others: {key.named(result.shape)}, {gains}"
            yield from _wrapped(line, columns, "  ")
    left = [key for key in outcome.keys if key.left_by_executor]
    if left:
        names = ", ".join(key.named(result.shape) for key in left[:3])
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        yield f"left to NCCL by the executor, though the table has schedules: {names}{more}"


def _step_line(step: BenchedStep, own_table: str) -> str:
    """Return a line on the gain of a step, measured against predicted."""
    times_us = map(geometric_mean, (step.stock_us, step.table_us))
    stock, own = (f"{time_us:.1f} us" for time_us in times_us)
    gain, predicted = step.gain, "no gain was predicted"
    if step.predicted is not None:
        predicted = f"predicted {step.predicted.ratio:.3f}x"
        if step.predicted.low is not None:
            predicted += f" ({step.predicted.low:.3f} to {step.predicted.high or inf:.3f})"
        predicted += ", more than it gains beyond the noise" if step.short else ""
    untuned = untuned_words(step.untuned_share, step.left_out_share)
    return (
        f"{step_words(step.steps)}: {stock} of communication with stock NCCL, {own} {own_table} "
        f"(gain {gain.ratio:.3f}x, 95 % interval {gain.low:.3f} to {gain.high:.3f}); "
        f"{predicted}; {untuned}"
    )


def _promise(key: BenchedKey) -> str:
    """`, promised 1.500x (1.450 to 1.552)`."""
    if key.promised is None:
        return ""
    gain = key.promised
    between = "" if gain.low is None else f" ({gain.low:.3f} to {gain.high:.3f})"
    return f", promised {gain.ratio:.3f}x{between}"


def _comparison_lines(result: BenchResult, comparison: TwoTables) -> Iterator[str]:
    first, second = (outcome.place for outcome in result.tables)
    yield f"{second} against {first}:"
    for key in comparison.keys:
        gain = key.gain
        mark = "  slower" if gain.high < 1.0 else "  faster" if gain.low > 1.0 else ""
        yield f"{key.named(result.shape):<22} {_between(gain)}{mark}"
    yield (
        f"{second} against {first}: {_between(comparison.mean)}, the geometric mean over "
        f"{count_of(len(comparison.keys), 'key')}"
    )


def print_upgrade(result: UpgradeResult) -> None:
    """Print stock NCCL and the table under both releases, and what the new one changes."""
    print_lines(upgrade_lines(result, standard_output().width))


def upgrade_lines(result: UpgradeResult, columns: int) -> Iterator[str]:
    """Yield the whole output, findings wrapped where they are wider than these columns."""
    yield from _conditions(result, columns)
    yield f"old: NCCL {result.old.version} in {result.old.path}"
    yield f"new: NCCL {result.new.version} in {result.new.path}"
    yield ""
    yield f"{result.place}: process profile {profile_text(result.profile)}"
    yield f"{'':5} {'stock NCCL (us)':^17} {'with the table (us)':^19} {'gain':^23}".rstrip()
    yield (
        f"{'size':>5} {'old':>8} {'new':>8} {'old':>9} {'new':>9} {'old':^11} {'new':^11} "
        "what changes"
    )
    before = ""
    for key in result.keys:
        heading = f"# {key.operation}{key.part(result.shape)}"
        if heading != before:
            before = heading
            yield heading
        yield _upgraded_row(key)
    yield from _upgrade_summary(result, columns)


def _upgraded_row(key: UpgradedKey) -> str:
    mark = "" if key.effect is None else _EFFECT_MARKS[key.effect]
    return (
        f"{format_size(key.size_bytes):>5} {_time(key.stock.old_us):>8} "
        f"{_time(key.stock.new_us):>8} {_time(key.table.old_us):>9} "
        f"{_time(key.table.new_us):>9} {_with_error(key.old_gain):^11} "
        f"{_with_error(key.new_gain):^11} {mark}"
    ).rstrip()


def _upgrade_summary(result: UpgradeResult, columns: int) -> Iterator[str]:
    old, new = result.old.version, result.new.version
    keys = count_of(len(result.keys), "key")
    name = result.place
    yield f"geometric means over {keys}:"
    yield f"{name} against stock NCCL {old}: {_between(result.old_gain)}"
    yield f"{name} against stock NCCL {new}: {_between(result.new_gain)}"
    yield f"stock NCCL, {new} against {old}: {_between(result.stock_change)}"
    yield f"with the table, NCCL {new} against {old}: {_between(result.table_change)}"
    for effect, text in _EFFECTS.items():
        said = text.format(old=old, new=new)
        found = result.with_effect(effect)
        if not found:
            yield f"{said}, beyond the noise: no key"
        for key in found:
            gains = f"{_between(key.new_gain)}, it was {_between(key.old_gain)}"
            if effect is UpgradeEffect.SLOWER:
                gains = _between(key.table_change)
            line = f"{said}: {key.named(result.shape)}, {gains}"
            yield from _wrapped(line, columns, "  ")
