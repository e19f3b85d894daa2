"""Curves: bus bandwidth and latency over size, for each operation and shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from lookup_tables.table import Operation
from tuccl.reports.evidence import Evidence
from tuccl.reports.job_gains import Runner
from tuccl.search.trials.config import Task
from tuccl.shipping.bench.bandwidths import busbw_gb_per_s
from tuccl.views.page.charts import BOUND_DASH, DASHES, Chart, Trace, line, size_axis, value_axis
from tuccl.views.page.figures.key_figures import KeyFigures, Timed, shape_words
from tuccl.views.page.figures.table_figures import TableFigures
from tuccl.words.sizes import format_size


@dataclass(frozen=True, slots=True)
class _Series:
    """One line of both charts."""

    name: str
    colour: str
    symbol: str
    points: tuple[tuple[KeyFigures, Timed, str], ...]
    """Keys with their times, and what runs."""


def keys_by_curve(keys: Sequence[KeyFigures]) -> list[list[KeyFigures]]:
    """Return the keys of each operation and shape, by size, with shapes in the table's order.

    Entries by where ranks sit follow those of their shape.
    """
    shapes = list(dict.fromkeys(key.shape for key in keys))
    places = list(dict.fromkeys(["", *(key.placement for key in keys)]))

    def curve(key: KeyFigures) -> tuple[int, int, Operation]:
        return shapes.index(key.shape), places.index(key.placement), key.operation

    order = sorted(keys, key=lambda key: (curve(key), key.size_bytes))
    return [list(found) for _, found in groupby(order, key=curve)]


def shape_text(key: KeyFigures) -> str:
    """Return `node, 8 ranks on 1 node`, without the name where the table has one shape.

    Communicators with entries of their own have GPUs of one besides.
    """
    words = shape_words(key.shape)
    text = words if key.shape_name in {"", words} else f"{key.shape_name}, {words}"
    return f"{text}, like {key.placement}" if key.placement else text


def curve_charts(figures: TableFigures) -> Iterator[tuple[KeyFigures, Chart, Chart]]:
    """Yield the charts of bus bandwidth and latency for each operation and shape, with a key."""
    for number, keys in enumerate(keys_by_curve(figures.all_keys)):
        yield (
            keys[0],
            _chart(f"busbw-{number}", keys, figures.times, is_bandwidth=True),
            _chart(f"latency-{number}", keys, figures.times, is_bandwidth=False),
        )


def _chart(
    identity: str, keys: Sequence[KeyFigures], times: Evidence, *, is_bandwidth: bool
) -> Chart:
    name = keys[0].curve
    measure, unit = ("bus bandwidth", "GB/s") if is_bandwidth else ("time of a call", "µs")
    series = [found for found in _series(keys) if found.points]
    traces = [_trace(found, keys, times, is_bandwidth=is_bandwidth) for found in series]
    traces += _bound(keys, is_bandwidth=is_bandwidth)
    sizes = [key.size_bytes for key in keys]
    told = "; ".join(_told(found, unit, is_bandwidth=is_bandwidth) for found in series)
    return Chart(
        identity=identity,
        title=f"{name}: {measure}",
        alternative=(
            f"{measure.capitalize()} of {name} over sizes from {format_size(min(sizes))} to "
            f"{format_size(max(sizes))}, {times.value}, both axes logarithmic. {told}."
        ),
        traces=traces,
        layout={
            "xaxis": size_axis(sizes),
            "yaxis": value_axis(unit, [y for trace in traces for y in trace["y"] if y is not None]),
        },
    )


def _series(keys: Sequence[KeyFigures]) -> Iterator[_Series]:
    yield _Series(
        "stock NCCL",
        "--stock",
        "circle",
        tuple((key, key.stock, "NCCL's own choice") for key in keys),
    )
    yield _Series(
        "plugin and process profile",
        "--plugin",
        "square",
        tuple(
            (key, key.without_executor, _without_executor(key))
            for key in keys
            if key.without_executor is not None
        ),
    )
    for runs, name, symbol in (
        (True, "schedule on the executor", "diamond"),
        (False, "schedule that no job here runs", "diamond-open"),
    ):
        yield _Series(
            name,
            "--executor",
            symbol,
            tuple(
                (key, key.schedule, key.schedule_runs)
                for key in keys
                if key.schedule is not None and (key.obstacle is None) is runs
            ),
        )


def _without_executor(key: KeyFigures) -> str:
    return "without the executor" if key.runner is Runner.EXECUTOR else key.runs


def _trace(
    series: _Series, keys: Sequence[KeyFigures], times: Evidence, *, is_bandwidth: bool
) -> Trace:
    """Return the line of a series, which ends where a size of the chart has no time of it."""
    known = {key.size_bytes: (key, timed, runs) for key, timed, runs in series.points}
    first, last = series.points[0][0].size_bytes, series.points[-1][0].size_bytes
    sizes = [key.size_bytes for key in keys if first <= key.size_bytes <= last]
    values: list[float | None] = []
    below: list[float | None] = []
    above: list[float | None] = []
    for size_bytes in sizes:
        value = low = high = None
        if size_bytes in known:
            key, timed, _ = known[size_bytes]
            value, low, high = (
                None if time_us is None else _value(key, time_us, is_bandwidth)
                for time_us in (timed.time_us, timed.low_us, timed.high_us)
            )
            low, high = (high, low) if is_bandwidth else (low, high)
        values.append(value)
        below.append(None if value is None or low is None else max(0.0, value - low))
        above.append(None if value is None or high is None else max(0.0, high - value))
    return line(
        f"{series.name}, {times.value}",
        sizes,
        values,
        colour=series.colour,
        dash=DASHES[times],
        symbol=series.symbol,
        hover=[_hover(series.name, *known[size], times) if size in known else "" for size in sizes],
        below=below,
        above=above,
    )


def _bound(keys: Sequence[KeyFigures], *, is_bandwidth: bool) -> list[Trace]:
    known = [(key, key.bound_us) for key in keys if key.bound_us is not None]
    if not known:
        return []
    trace = line(
        "bound of the links, computed",
        [key.size_bytes for key, _ in known],
        [_value(key, bound, is_bandwidth) for key, bound in known],
        colour="--bound",
        dash=BOUND_DASH,
        hover=[
            f"bound of the links: {bound:.3g} µs for {format_size(key.size_bytes)}"
            for key, bound in known
        ],
    )
    return [trace]


def _value(key: KeyFigures, time_us: float, is_bandwidth: bool) -> float:
    if not is_bandwidth:
        return time_us
    return busbw_gb_per_s(Task(key.operation, key.size_bytes, key.shape), time_us)


def _hover(name: str, key: KeyFigures, timed: Timed, runs: str, times: Evidence) -> str:
    text = (
        f"{name}, {format_size(key.size_bytes)} ({times.value})\n{timed.time_us:.2f} µs, "
        f"{timed.busbw_gb_per_s:.2f} GB/s"
    )
    if timed.low_us is not None and timed.high_us is not None:
        text += f"\n{timed.low_us:.2f} to {timed.high_us:.2f} µs"
    return f"{text}\n{runs}"


def _told(series: _Series, unit: str, *, is_bandwidth: bool) -> str:
    (first, early, _), (last, late, _) = series.points[0], series.points[-1]
    start = _value(first, early.time_us, is_bandwidth)
    end = _value(last, late.time_us, is_bandwidth)
    return (
        f"{series.name} from {start:.3g} {unit} at {format_size(first.size_bytes)} to "
        f"{end:.3g} {unit} at {format_size(last.size_bytes)}"
    )
