"""Charts over size: bandwidth and latency, gains by the process profile, and two tables' times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import plotly.graph_objects as go

from tuccl.quantities import format_size
from tuccl.reports.evidence import Evidence
from tuccl.reports.keys import Runner
from tuccl.search.trials.config import Task
from tuccl.shipping.bench.bandwidths import busbw_gb_per_s
from tuccl.views.page.charts import (
    COLOURS,
    DASHES,
    SYMBOLS,
    Chart,
    Interval,
    line,
    size_axis,
    value_axis,
)
from tuccl.views.page.keys import KeyFigures, ProfileGain, Timed, by_curve
from tuccl.views.page.tables import ComparedKey, TableFigures

Convert = Callable[[KeyFigures, float], float]
"""Returns what a chart shows of a time in µs."""
Point = tuple[KeyFigures, Timed, str]
"""A key with its time, and what runs."""


def curve_charts(keys: Sequence[KeyFigures], times: Evidence) -> tuple[Chart, Chart]:
    """Return the charts of bus bandwidth and latency of one operation and shape."""
    return (
        _curve_chart(keys, times, "bus bandwidth", "GB/s", _busbw),
        _curve_chart(keys, times, "time of a call", "µs", lambda _, time_us: time_us),
    )


def profile_chart(figures: TableFigures) -> Chart | None:
    """Return the chart of gains under the profile alone, if a key has one."""
    known = [(key, key.profile_gain) for key in figures.keys if key.profile_gain is not None]
    if not known:
        return None
    gains = {id(key): gain for key, gain in known}
    traces = [
        line(
            f"{keys[0].curve}, {figures.times.value}",
            [key.size_bytes for key in keys],
            [(gain.ratio, gain.low, gain.high) for gain in (gains[id(key)] for key in keys)],
            [_gain_text(key, gains[id(key)]) for key in keys],
            colour=COLOURS[number % len(COLOURS)],
            dash=DASHES[figures.times],
            symbol=SYMBOLS[number % len(SYMBOLS)],
        )
        for number, keys in enumerate(by_curve([key for key, _ in known]))
    ]
    worst = min(known, key=lambda pair: pair[1].ratio)
    best = max(known, key=lambda pair: pair[1].ratio)
    figure = go.Figure(traces).update_layout(
        xaxis=size_axis(key.size_bytes for key, _ in known),
        yaxis={"title": "gain by the profile", "tickformat": ".2f"},
    )
    figure.add_hline(1, line={"color": "var(--ink)", "width": 1})
    return Chart(
        "Stock NCCL's time over that of NCCL's own choice under the profile",
        f"What the process profile alone does to each key, {figures.times.value}; above 1 is "
        f"faster. Best: {best[1].ratio:.3f}x at {best[0].name}. "
        f"Worst: {worst[1].ratio:.3f}x at {worst[0].name}.",
        {"": figure},
        note="Bars: bounds over starts of both in turn. A point without bars compares single "
        "starts at different times, which differ by themselves.",
    )


def compared_charts(
    first: TableFigures, second: TableFigures, keys: Sequence[ComparedKey]
) -> Iterator[Chart]:
    """Yield a chart of stock NCCL's times and a job's for each curve of two tables."""
    pairs = {id(key.first): key for key in keys}
    for found in by_curve([key.first for key in keys]):
        own = [pairs[id(key)] for key in found]
        name = found[0].curve
        sides = (
            (first, [key.first for key in own], "first", "var(--grey)", "var(--blue)"),
            (second, [key.second for key in own], "second", "var(--violet)", "var(--orange)"),
        )
        traces = [
            trace
            for table, side, order, stock, job in sides
            for trace in (
                _compared(f"{order}: stock NCCL", side, table, stock, is_stock=True),
                _compared(f"{order}: a job", side, table, job, is_stock=False),
            )
        ]
        last = own[-1]
        yield Chart(
            name,
            f"Time of a call of {name} over sizes from {format_size(own[0].size_bytes)} to "
            f"{format_size(last.size_bytes)}, both axes logarithmic; first {first.times.value}, "
            f"second {second.times.value}. At {format_size(last.size_bytes)} a job takes "
            f"{last.first.job.time_us:.4g} µs with the first and "
            f"{last.second.job.time_us:.4g} µs with the second.",
            {"": _size_figure(traces, found, "µs")},
        )


def _busbw(key: KeyFigures, time_us: float) -> float:
    return busbw_gb_per_s(Task(key.operation, key.size_bytes, key.shape), time_us)


def _size_figure(traces: Sequence[go.Scatter], keys: Sequence[KeyFigures], unit: str) -> go.Figure:
    sizes = size_axis(key.size_bytes for key in keys)
    return go.Figure(traces).update_layout(xaxis=sizes, yaxis=value_axis(unit, traces))


def _curve_chart(
    keys: Sequence[KeyFigures], times: Evidence, measure: str, unit: str, convert: Convert
) -> Chart:
    name = keys[0].curve
    traces, told = [], []
    for label, colour, symbol, points in _series(keys):
        if not points:
            continue
        traces.append(_curve(label, colour, symbol, points, keys, times, convert))
        (first, early, _), (last, late, _) = points[0], points[-1]
        told.append(
            f"{label} from {convert(first, early.time_us):.3g} {unit} at "
            f"{format_size(first.size_bytes)} to {convert(last, late.time_us):.3g} {unit} at "
            f"{format_size(last.size_bytes)}"
        )
    bounded = [(key, key.bound_us) for key in keys if key.bound_us is not None]
    if bounded:
        traces.append(
            line(
                "bound of the links, computed",
                [key.size_bytes for key, _ in bounded],
                [(convert(key, bound_us), None, None) for key, bound_us in bounded],
                [
                    f"bound of the links: {bound_us:.3g} µs for {format_size(key.size_bytes)}"
                    for key, bound_us in bounded
                ],
                colour="var(--violet)",
                dash="dot",
            )
        )
    return Chart(
        f"{name}: {measure}",
        f"{measure.capitalize()} of {name} over sizes from {format_size(keys[0].size_bytes)} to "
        f"{format_size(keys[-1].size_bytes)}, {times.value}, both axes logarithmic. "
        f"{'; '.join(told)}.",
        {"": _size_figure(traces, keys, unit)},
    )


def _series(keys: Sequence[KeyFigures]) -> Iterator[tuple[str, str, str, list[Point]]]:
    """Yield name, colour and symbol of each line, and what it connects."""
    yield "stock NCCL", "grey", "circle", [(key, key.stock, "NCCL's own choice") for key in keys]
    alone = [
        (key, key.without_executor, "without the executor" if runs_schedule else key.runs)
        for key in keys
        for runs_schedule in [key.runner is Runner.EXECUTOR]
        if key.without_executor is not None
    ]
    yield "plugin and process profile", "blue", "square", alone
    for name, symbol, runs in (
        ("schedule on the executor", "diamond", True),
        ("schedule that no job here runs", "diamond-open", False),
    ):
        schedules = [
            (key, key.schedule, key.schedule_runs)
            for key in keys
            if key.schedule is not None and (key.obstacle is None) is runs
        ]
        yield name, "orange", symbol, schedules


def _curve(
    name: str,
    colour: str,
    symbol: str,
    points: Sequence[Point],
    keys: Sequence[KeyFigures],
    times: Evidence,
    convert: Convert,
) -> go.Scatter:
    """Return a line, which has a gap at a size of the chart that it has no time for."""
    known = {key.size_bytes: (key, timed, runs) for key, timed, runs in points}
    first, last = points[0][0].size_bytes, points[-1][0].size_bytes
    sizes = [key.size_bytes for key in keys if first <= key.size_bytes <= last]
    values: list[Interval | None] = []
    hover = []
    for size in sizes:
        if size not in known:
            values.append(None)
            hover.append("")
            continue
        key, timed, runs = known[size]
        values.append(_interval(key, timed, convert))
        bounds = ""
        if timed.low_us is not None and timed.high_us is not None:
            bounds = f"\n{timed.low_us:.2f} to {timed.high_us:.2f} µs"
        hover.append(
            f"{name}, {format_size(size)} ({times.value})\n{timed.time_us:.2f} µs, "
            f"{timed.busbw_gb_per_s:.2f} GB/s{bounds}\n{runs}"
        )
    return line(
        f"{name}, {times.value}",
        sizes,
        values,
        hover,
        colour=f"var(--{colour})",
        dash=DASHES[times],
        symbol=symbol,
    )


def _interval(key: KeyFigures, timed: Timed, convert: Convert) -> Interval:
    """Return what a chart shows of a time: the longest time is the least bandwidth."""
    bounds = [
        None if time_us is None else convert(key, time_us)
        for time_us in (timed.low_us, timed.high_us)
    ]
    if convert is _busbw:
        bounds.reverse()
    return convert(key, timed.time_us), bounds[0], bounds[1]


def _gain_text(key: KeyFigures, gain: ProfileGain) -> str:
    text = f"{gain.ratio:.3f}x at {key.name}"
    if gain.low is None or gain.high is None:
        return f"{text}, single starts at different times"
    return f"{text} ({gain.low:.3f} to {gain.high:.3f}, {gain.starts} starts of each)"


def _compared(
    name: str, keys: Sequence[KeyFigures], table: TableFigures, colour: str, *, is_stock: bool
) -> go.Scatter:
    times = [key.stock if is_stock else key.job for key in keys]
    return line(
        f"{name}, {table.times.value}",
        [key.size_bytes for key in keys],
        [(timed.time_us, timed.low_us, timed.high_us) for timed in times],
        [
            f"{name}, {format_size(key.size_bytes)}: {timed.time_us:.2f} µs"
            + ("" if is_stock else f"\n{key.runs}")
            for key, timed in zip(keys, times, strict=True)
        ],
        colour=colour,
        dash=DASHES[table.times],
        symbol="circle-open" if is_stock else "square",
    )
