"""A bench on standard output: nccl-tests' columns for stock NCCL and each table, and findings.

Of an upgrade, the times of stock NCCL and the table under both releases.

Rows of nccl-tests' columns fit 85 columns, where size and time have the digits of usual ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import geometric_mean
from textwrap import wrap

from probes.inputs.printable import printable
from tuccl.reports.choice_text import describe_builtin, describe_schedule, profile_text
from tuccl.reports.job_gains import Runner
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import shape_text
from tuccl.shipping.bench.bandwidths import algbw_gb_per_s, busbw_gb_per_s, element_count, reduction
from tuccl.shipping.bench.ratios import Gain
from tuccl.shipping.bench.result import BenchResult, Comparison, Finding, KeyOutcome, TableOutcome
from tuccl.shipping.bench.step import StepOutcome
from tuccl.shipping.bench.upgrade import Effect, UpgradedKey, UpgradeResult
from tuccl.views.terminal.display import print_lines, standard_output
from tuccl.views.terminal.step_display import step_words, untuned_words
from tuccl.words.counts import count_of
from tuccl.words.durations import format_seconds
from tuccl.words.sizes import format_size

_TYPES = {"float16": ("half", 2)}
"""nccl-tests' name of a data type, and its bytes."""
_TIME_HEADINGS = f"{'time':>7} {'algbw':>5} {'busbw':>5}"
_TIME_UNITS = f"{'(us)':>7} {'GB/s':>5} {'GB/s':>5}"
_KEY_HEADINGS = f"{'size':>5} {'count':>9} {'type':>4} {'redop':>5}"
_HEADINGS = (
    f"{'':26} {'stock NCCL':^19} {'with the table':^19}".rstrip(),
    f"{_KEY_HEADINGS} {_TIME_HEADINGS} {_TIME_HEADINGS} {'gain':^11} {'said':>5} what runs",
    f"{'':26} {_TIME_UNITS} {_TIME_UNITS}",
)
_MOST_ERROR = 100.0
"""Half of an interval from which its size tells nothing and would not fit its column."""
_FINDINGS = {
    Finding.SLOWER_THAN_STOCK: "slower than stock NCCL",
    Finding.SLOWER_THAN_PROMISED: "slower than the table promised",
}


_EFFECTS = {
    Effect.SLOWER_THAN_STOCK: "slower than stock NCCL {new} with the table",
    Effect.NO_GAIN: "loses its worth under NCCL {new}",
    Effect.SLOWER: "slower with the table than under NCCL {old}",
    Effect.LESS_GAIN: "gains less over stock NCCL {new} than over {old}",
}
_EFFECT_MARKS = {
    Effect.SLOWER_THAN_STOCK: "slower than stock",
    Effect.NO_GAIN: "no gain",
    Effect.SLOWER: "slower",
    Effect.LESS_GAIN: "less gain",
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


def describe_key(outcome: KeyOutcome, table: TableOutcome) -> str:
    """Return the choice that runs: `ring LL128 ch16`, a schedule with parameters, or NCCL."""
    if outcome.entry is not None and outcome.runner is Runner.EXECUTOR:
        return describe_schedule(outcome.entry, table.table.bundle)
    if outcome.entry is not None and outcome.runner is Runner.PLUGIN:
        return describe_builtin(outcome.entry)
    return "NCCL, profile" if outcome.runner is Runner.PROFILE else "NCCL alone"


def _conditions(result: BenchResult | UpgradeResult, columns: int) -> Iterator[str]:
    shape, timing = result.shape, result.timing
    how = "CUDA graphs" if timing.graph else "calls one by one"
    place = "in place" if timing.in_place else "out of place"
    how += ", beside computation" if timing.computations else ""
    yield (
        f"{shape_text(shape)}, {timing.data_type}, {place}, {how}; "
        f"{result.rounds} rounds of new processes in {format_seconds(result.seconds)}"
    )
    yield from _wrapped(result.versions, columns)


def _table_lines(outcome: TableOutcome, result: BenchResult, columns: int) -> Iterator[str]:
    profile = profile_text(outcome.table.bundle.profile)
    yield f"{outcome.table.name}: process profile {profile}"
    yield from _HEADINGS
    before = ""
    for key in outcome.keys:
        heading = f"# {key.task.operation}{_part(key.task, result)}"
        if heading != before:
            before = heading
            yield heading
        yield from _row(key, outcome, result, columns)
    yield from _summary(outcome, result, columns)


def _row(
    key: KeyOutcome, outcome: TableOutcome, result: BenchResult, columns: int
) -> Iterator[str]:
    name, element_bytes = _TYPES[result.timing.data_type]
    task = key.task
    said = "-" if key.promised is None else _short_ratio(key.promised)
    start = (
        f"{format_size(task.size_bytes):>5} {element_count(task, element_bytes):>9} {name:>4} "
        f"{reduction(task):>5} {_timed(task, key.stock_us)} {_timed(task, key.time_us)} "
        f"{_with_error(key.gain):^11} {said:>5} "
    )
    runs = describe_key(key, outcome)
    room = columns - len(start)
    if max(map(len, runs.split())) > room:
        yield start.rstrip()
        yield runs.rjust(min(columns, len(start) + len(runs)))
        return
    first, *further = _wrapped(runs, room)
    yield start + first
    for line in further:
        yield f"{'':{len(start)}}{line}"


def _wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    return wrap(text, columns, subsequent_indent=indent, break_long_words=False)


def _timed(task: Task, time_us: float) -> str:
    bandwidths = (algbw_gb_per_s(task, time_us), busbw_gb_per_s(task, time_us))
    return " ".join(
        [f"{_time(time_us):>7}", *(f"{_bandwidth(gb_per_s):>5}" for gb_per_s in bandwidths)]
    )


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


def _with_error(gain: Gain) -> str:
    """`1.080±0.008`: half of the interval, if it says anything."""
    half = (gain.high - gain.low) / 2.0
    return f"{_short_ratio(gain.ratio)}±{_short_ratio(half) if half < _MOST_ERROR else '>100'}"


def _between(gain: Gain) -> str:
    return f"{gain.ratio:.3f}x ({gain.low:.3f} to {gain.high:.3f})"


def _summary(outcome: TableOutcome, result: BenchResult, columns: int) -> Iterator[str]:
    yield (
        f"{outcome.table.name} against stock NCCL: {_between(outcome.mean)}, the geometric mean "
        f"over {count_of(len(outcome.keys), 'key')}"
    )
    if outcome.promised is not None:
        count, stated, gained = outcome.promised
        yield f"promised for {count} of these keys: {stated:.3f}x; here {gained:.3f}x"
    if outcome.step is not None:
        yield from _wrapped(_step_line(outcome.step), columns, "  ")
    for finding, text in _FINDINGS.items():
        found = outcome.with_finding(finding)
        if not found:
            yield f"{text}, beyond the noise: no key"
        for key in found:
            line = f"{text}: {_key_name(key.task, result)}, {_between(key.gain)}{_promise(key)}"
            yield from _wrapped(line, columns, "  ")
    for key in outcome.keys:
        if key.has_slow_start:
            gains = ", ".join(f"{_short_ratio(gain)}x" for gain in key.round_gains)
            line = f"far slower in one start than in others: {_key_name(key.task, result)}, {gains}"
            yield from _wrapped(line, columns, "  ")
    left = [
        key
        for key in outcome.keys
        if outcome.table.has_executor
        and key.entry is not None
        and key.entry.schedule is not None
        and key.runner is not Runner.EXECUTOR
    ]
    if left:
        names = ", ".join(_key_name(key.task, result) for key in left[:3])
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        yield f"left to NCCL by the executor, though the table has schedules: {names}{more}"


def _step_line(step: StepOutcome) -> str:
    """Return a line on the gain of a step, measured against predicted."""
    times_us = map(geometric_mean, (step.stock_us, step.table_us))
    stock, own = (f"{time_us:.1f} us" for time_us in times_us)
    gain, predicted = step.gain, "the table predicts none"
    if step.predicted is not None:
        predicted = f"predicted {step.predicted.gain:.3f}x"
        if step.predicted.bounds is not None:
            low, high = step.predicted.bounds.low, step.predicted.bounds.high
            predicted += f" ({low:.3f} to {high:.3f})"
        predicted += ", more than it gains beyond the noise" if step.is_short else ""
    untuned = untuned_words(step.calls.untuned_share, step.calls.left_out_share)
    return (
        f"{step_words(step.calls.steps)}: {stock} of communication with stock NCCL, {own} with the "
        f"table (gain {gain.ratio:.3f}x, 95 % interval {gain.low:.3f} to {gain.high:.3f}); "
        f"{predicted}; {untuned}"
    )


def _promise(key: KeyOutcome) -> str:
    """`, promised 1.500x (1.450 to 1.552)`."""
    if key.promised is None:
        return ""
    bounds = key.promise_bounds
    between = "" if bounds is None else f" ({bounds.low:.3f} to {bounds.high:.3f})"
    return f", promised {key.promised:.3f}x{between}"


def _key_name(task: Task, result: BenchResult | UpgradeResult) -> str:
    return f"{task.operation.value} {format_size(task.size_bytes)}{_part(task, result)}"


def _part(task: Task, result: BenchResult | UpgradeResult) -> str:
    """Return the shape of communicators that are a part of the machine; all of them run at once.

    Where some of them have entries of their own, GPUs of one tell which.
    """
    if task.shape == result.shape:
        return ""
    example = result.example(task)
    like = f", like {printable(example)}" if example else ""
    return f" of {shape_text(task.shape)}{like}"


def _comparison_lines(result: BenchResult, comparison: Comparison) -> Iterator[str]:
    first, second = (outcome.table.name for outcome in result.tables)
    yield f"{second} against {first}:"
    for task, gain in comparison.keys.items():
        mark = "  slower" if gain.high < 1.0 else "  faster" if gain.low > 1.0 else ""
        yield f"{_key_name(task, result):<22} {_between(gain)}{mark}"
    yield (
        f"{second} against {first}: {_between(comparison.mean)}, the geometric mean over "
        f"{count_of(len(comparison.keys), 'key')}"
    )


def print_upgrade(result: UpgradeResult) -> None:
    """Print stock NCCL and the table under both releases, and what the new one changes."""
    print_lines(upgrade_lines(result, standard_output().width))


def upgrade_lines(result: UpgradeResult, columns: int) -> Iterator[str]:
    """Yield the whole output, findings wrapped where they are wider than these columns."""
    old, new = result.upgrade.old.version_text, result.upgrade.new.version_text
    yield from _conditions(result, columns)
    yield f"old: NCCL {old} in {result.upgrade.old.path}"
    yield f"new: NCCL {new} in {result.upgrade.new.path}"
    yield ""
    yield f"{result.table.name}: process profile {profile_text(result.table.bundle.profile)}"
    yield f"{'':5} {'stock NCCL (us)':^17} {'with the table (us)':^19} {'gain':^23}".rstrip()
    yield (
        f"{'size':>5} {'old':>8} {'new':>8} {'old':>9} {'new':>9} {'old':^11} {'new':^11} "
        "what changes"
    )
    before = ""
    for key in result.keys:
        heading = f"# {key.task.operation}{_part(key.task, result)}"
        if heading != before:
            before = heading
            yield heading
        yield _upgraded_row(key)
    yield from _upgrade_summary(result, columns)


def _upgraded_row(key: UpgradedKey) -> str:
    (stock, stock_new), (table, table_new) = key.stock_us, key.table_us
    mark = "" if key.effect is None else _EFFECT_MARKS[key.effect]
    return (
        f"{format_size(key.task.size_bytes):>5} {_time(stock):>8} {_time(stock_new):>8} "
        f"{_time(table):>9} {_time(table_new):>9} {_with_error(key.old_gain):^11} "
        f"{_with_error(key.new_gain):^11} {mark}"
    ).rstrip()


def _upgrade_summary(result: UpgradeResult, columns: int) -> Iterator[str]:
    old, new = result.upgrade.old.version_text, result.upgrade.new.version_text
    keys = count_of(len(result.keys), "key")
    name = result.table.name
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
            if effect is Effect.SLOWER:
                gains = _between(key.table_change)
            line = f"{said}: {_key_name(key.task, result)}, {gains}"
            yield from _wrapped(line, columns, "  ")
