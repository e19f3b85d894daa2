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
from tuccl.views.page.keys import ProfileGain, ReportedKey, TimedCall, by_curve
from tuccl.views.page.tables import ComparedKey, TableFigures

Convert = Callable[[ReportedKey, float], float]
"""Returns what a chart shows of a time in µs."""
Points = Sequence[tuple[ReportedKey, TimedCall, str]]
"""Keys with their times, and what runs."""
_OWN_CHOICE = "NCCL's own choice"


def curve_charts(keys: Sequence[ReportedKey], times: Evidence) -> tuple[Chart, Chart]:
    """Return the charts of bus bandwidth and latency of one operation and shape."""
    return (
        _curve_chart(keys, times, "bus bandwidth", "GB/s", _busbw),
        _curve_chart(keys, times, "time of a call", "µs", _time),
    )


def profile_chart(figures: TableFigures) -> Chart | None:
    """Return the chart of gains under the profile alone, if a key has one."""
    known = [(key, key.profile_gain) for key in figures.keys if key.profile_gain is not None]
    if not known:
        return None
    gains = {id(key): gain for key, gain in known}
    figure = go.Figure().update_layout(
        xaxis=size_axis(key.size_bytes for key, _ in known),
        yaxis={"title": "gain by the profile", "tickformat": ".2f"},
    )
    for number, keys in enumerate(by_curve([key for key, _ in known])):
        own = [gains[id(key)] for key in keys]
        trace = line(
            f"{keys[0].curve}, {figures.times.value}",
            [key.size_bytes for key in keys],
            [(gain.ratio, gain.low, gain.high) for gain in own],
            [_gain_text(key, gain) for key, gain in zip(keys, own, strict=True)],
            colour=COLOURS[number % len(COLOURS)],
            dash=DASHES[figures.times],
            symbol=SYMBOLS[number % len(SYMBOLS)],
        )
        figure.add_trace(trace)
    figure.add_hline(1, line={"color": "var(--ink)", "width": 1})
    worst = min(known, key=lambda pair: pair[1].ratio)
    best = max(known, key=lambda pair: pair[1].ratio)
    return Chart(
        "Stock NCCL's time over that of NCCL's own choice under the profile",
        f"What the process profile alone does to each key, {figures.times.value}; above 1 is "
        f"faster. Best: {best[1].ratio:.3f}x at {best[0].name}. "
        f"Worst: {worst[1].ratio:.3f}x at {worst[0].name}.",
        {"": figure},
        note="Bars: bounds over starts of both in turn. A point without bars compares single "
        "starts at different times, which differ by themselves. Keys that an entry serves are "
        "shown without it: a job does not run NCCL's own choice there.",
    )


def compared_charts(
    first: TableFigures, second: TableFigures, keys: Sequence[ComparedKey]
) -> Iterator[Chart]:
    """Yield a chart of stock NCCL's times and a job's for each curve of two tables."""
    others = {id(key.first): key.second for key in keys}
    for own in by_curve([key.first for key in keys]):
        traces = []
        for order, table, colours, found in (
            ("first", first, ("grey", "blue"), own),
            ("second", second, ("violet", "orange"), [others[id(key)] for key in own]),
        ):
            for name, colour, symbol, points in (
                ("stock NCCL", colours[0], "circle-open", _stock(found)),
                ("a job", colours[1], "square", [(key, key.job, key.runs) for key in found]),
            ):
                label = f"{order}: {name}"
                traces.append(_curve(label, colour, symbol, points, found, table.times, _time))
        last = own[-1]
        size = format_size(last.size_bytes)
        yield Chart(
            last.curve,
            f"Time of a call of {last.curve} over sizes from {format_size(own[0].size_bytes)} to "
            f"{size}, both axes logarithmic; first {first.times.value}, second "
            f"{second.times.value}. At {size} a job takes {last.job.time_us:.4g} µs with the "
            f"first and {others[id(last)].job.time_us:.4g} µs with the second.",
            {"": _size_figure(traces, own, "µs")},
        )


def _busbw(key: ReportedKey, time_us: float) -> float:
    return busbw_gb_per_s(Task(key.operation, key.size_bytes, key.shape), time_us)


def _time(_: ReportedKey, time_us: float) -> float:
    return time_us


def _stock(keys: Sequence[ReportedKey]) -> Points:
    return [(key, key.stock, _OWN_CHOICE) for key in keys]


def _size_figure(traces: Sequence[go.Scatter], keys: Sequence[ReportedKey], unit: str) -> go.Figure:
    sizes = size_axis(key.size_bytes for key in keys)
    return go.Figure(traces).update_layout(xaxis=sizes, yaxis=value_axis(unit, traces))


def _curve_chart(
    keys: Sequence[ReportedKey], times: Evidence, measure: str, unit: str, convert: Convert
) -> Chart:
    traces, told = [], []
    for name, colour, symbol, points in _series(keys):
        if points:
            traces.append(_curve(name, colour, symbol, points, keys, times, convert))
            ends = [
                f"{convert(key, timed.time_us):.3g} {unit} at {format_size(key.size_bytes)}"
                for key, timed, _ in (points[0], points[-1])
            ]
            told.append(f"{name} from {' to '.join(ends)}")
    bounded = [(key, key.bound_us) for key in keys if key.bound_us is not None]
    if bounded:
        trace = line(
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
        traces.append(trace)
    name = keys[0].curve
    return Chart(
        f"{name}: {measure}",
        f"{measure.capitalize()} of {name} over sizes from {format_size(keys[0].size_bytes)} to "
        f"{format_size(keys[-1].size_bytes)}, {times.value}, both axes logarithmic. "
        f"{'; '.join(told)}.",
        {"": _size_figure(traces, keys, unit)},
    )


def _series(keys: Sequence[ReportedKey]) -> Iterator[tuple[str, str, str, Points]]:
    """Yield name, colour and symbol of each line, and what it connects."""
    yield "stock NCCL", "grey", "circle", _stock(keys)
    alone = [
        (key, key.without_executor, runs)
        for key in keys
        for runs in ["without the executor" if key.runner is Runner.EXECUTOR else key.runs]
        if key.without_executor is not None
    ]
    yield "plugin and process profile", "blue", "square", alone
    for name, symbol, runs_here in (
        ("schedule on the executor", "diamond", True),
        ("schedule that no job here runs", "diamond-open", False),
    ):
        schedules = [
            (key, key.schedule, key.schedule_runs)
            for key in keys
            if key.schedule is not None and (key.obstacle is None) is runs_here
        ]
        yield name, "orange", symbol, schedules


def _curve(
    name: str,
    colour: str,
    symbol: str,
    points: Points,
    keys: Sequence[ReportedKey],
    times: Evidence,
    convert: Convert,
) -> go.Scatter:
    """Return a line, which has a gap at a size of the chart that it has no time for."""
    known = {key.size_bytes: point for point in points for key in [point[0]]}
    sizes = [key.size_bytes for key in keys if min(known) <= key.size_bytes <= max(known)]
    values: list[Interval | None] = [None] * len(sizes)
    hover = [""] * len(sizes)
    for at, size in enumerate(sizes):
        if size not in known:
            continue
        key, timed, runs = known[size]
        low, high = (
            None if time_us is None else convert(key, time_us)
            for time_us in (timed.low_us, timed.high_us)
        )
        # The longest time is the least bandwidth.
        bounds = (high, low) if convert is _busbw else (low, high)
        values[at] = (convert(key, timed.time_us), *bounds)
        between = ""
        if timed.low_us is not None and timed.high_us is not None:
            between = f"\n{timed.low_us:.2f} to {timed.high_us:.2f} µs"
        hover[at] = (
            f"{name}, {format_size(size)} ({times.value})\n{timed.time_us:.2f} µs, "
            f"busbw {timed.busbw_gb_per_s:.2f} GB/s{between}\n{runs}"
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


def _gain_text(key: ReportedKey, gain: ProfileGain) -> str:
    text = f"{gain.ratio:.3f}x at {key.name}"
    if gain.low is None or gain.high is None:
        return f"{text}, single starts at different times"
    return f"{text} ({gain.low:.3f} to {gain.high:.3f}, {gain.starts} starts of each)"
