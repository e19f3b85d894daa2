"""The report on two tables: what a job gets from the second against the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from lookup_tables.table import Operation, Shape
from tuccl.views.page.charts import DASHES, Chart, Trace, figure, line, size_axis, value_axis
from tuccl.views.page.elements import Markup, element, joined
from tuccl.views.page.figures.comparison import ComparedKey, Comparison
from tuccl.views.page.figures.key_figures import KeyFigures, shape_words
from tuccl.views.page.figures.report_figures import ReportFigures
from tuccl.views.page.figures.table_figures import TableFigures
from tuccl.views.page.heat_map import Cell, grid
from tuccl.views.page.key_table import number_cell, sortable_table, time_cell
from tuccl.views.page.page import TITLE_MARK, Scripts, Section, page
from tuccl.views.page.report import closing, facts, gains_section, headline
from tuccl.words.counts import count_of
from tuccl.words.sizes import format_size

_COLUMNS = (
    ("operation", "text"),
    ("size", "number"),
    ("communicator", "text"),
    ("first, µs", "number"),
    ("second, µs", "number"),
    ("first over second", "number"),
    ("gain of the first", "number"),
    ("gain of the second", "number"),
    ("the first runs", "text"),
    ("the second runs", "text"),
)


def comparison_page(figures: ReportFigures, comparison: Comparison, scripts: Scripts) -> str:
    """Return the page on two tables.

    Args:
        figures: The figures of both.
        comparison: Their comparison.
        scripts: The scripts of the page.
    """
    first, second = figures.tables
    return page(
        f"{TITLE_MARK}: {first.name} and {second.name}",
        _heading(figures, comparison),
        list(_sections(first, second, comparison)),
        closing(figures.made_at),
        scripts,
    )


def _heading(figures: ReportFigures, comparison: Comparison) -> Markup:
    first, second = figures.tables
    both = (
        element(
            "div",
            element("h2", f"{order}: {table.name}"),
            headline(table),
            facts(table, figures.made_at),
        )
        for order, table in (("First", first), ("Second", second))
    )
    return joined(
        [
            element("h1", f"{TITLE_MARK}: two tables compared"),
            element("p", f"{comparison.ratio:.3f}x", class_="figure"),
            element(
                "p",
                "is how many times as fast a job is with the second table as with the first: the "
                f"geometric mean over {count_of(len(comparison.keys), 'key')} that both have ",
                _word(first, second),
                class_="over",
            ),
            *(element("p", remark, class_="caveat") for remark in comparison.remarks),
            element("div", *both, class_="pair"),
        ]
    )


def _word(first: TableFigures, second: TableFigures) -> Markup:
    word = first.times.value if first.times is second.times else _mixed(first, second)
    kind = "measured" if first.times is second.times is first.times.MEASURED else "modelled"
    return element("span", word, class_=f"word {kind}")


def _mixed(first: TableFigures, second: TableFigures) -> str:
    return f"{first.times.value} and {second.times.value}"


def _sections(
    first: TableFigures, second: TableFigures, comparison: Comparison
) -> Iterator[Section]:
    yield _ratios(first, second, comparison)
    charts = list(_charts(first, second, comparison.keys))
    rows = [
        element("div", *(figure(chart) for chart in charts[at : at + 2]), class_="pair")
        for at in range(0, len(charts), 2)
    ]
    yield Section("curves", "A job's time over size", joined(rows), charts)
    for order, table in (("first", first), ("second", second)):
        yield gains_section(table, f"gains-{order}", f"What a job gains from the {order}")
    yield Section("table", "Every key that both have", _table(comparison))


def _ratios(first: TableFigures, second: TableFigures, comparison: Comparison) -> Section:
    sizes = sorted({key.size_bytes for key in comparison.keys})
    not_measured = [t.times.value for t in (first, second) if t.times is not t.times.MEASURED]
    rows: list[tuple[str, list[Cell | None]]] = []
    for name, keys in _by_curve(comparison.keys):
        cells = {key.size_bytes: _cell(key) for key in keys}
        rows.append((name, [cells.get(size) for size in sizes]))
    note = (
        "A job's time with the first table over that with the second, larger is faster with the "
        "second. Where the bounds of both times tell them apart, the word below says so."
    )
    return Section(
        "ratios",
        "The second against the first",
        joined(
            [
                element("p", note, " Hatched: not measured." if not_measured else ""),
                grid(
                    sizes,
                    {"": rows},
                    not_measured[0] if not_measured else "measured",
                    "ratio-details",
                ),
            ]
        ),
    )


def _by_curve(keys: Sequence[ComparedKey]) -> Iterator[tuple[str, list[ComparedKey]]]:
    """Yield the keys of each operation and shape by size, with a name."""
    several = len({key.shape for key in keys}) > 1

    def curve(key: ComparedKey) -> tuple[Shape, str, Operation]:
        return key.shape, key.first.placement, key.operation

    order = sorted(keys, key=lambda key: (curve(key), key.size_bytes))
    for (shape, placement, operation), found in groupby(order, key=curve):
        name = f"{operation.value}, {shape_words(shape)}" if several else operation.value
        yield f"{name}, like {placement}" if placement else name, list(found)


def _cell(key: ComparedKey) -> Cell:
    word = "not told apart"
    if key.low is not None and key.low > 1.0:
        word = "faster"
    elif key.high is not None and key.high < 1.0:
        word = "slower"
    bounds = ""
    if key.low is not None and key.high is not None:
        bounds = f" ({key.low:.3f} to {key.high:.3f} by the bounds of both times)"
    details = (
        f"{key.operation.value} {format_size(key.size_bytes)}: {key.ratio:.3f}x{bounds}; the "
        f"first runs {key.first.runs} in {key.first.job.time_us:.2f} µs, the second "
        f"{key.second.runs} in {key.second.job.time_us:.2f} µs"
    )
    return Cell(key.ratio, word, details)


def _charts(
    first: TableFigures, second: TableFigures, keys: Sequence[ComparedKey]
) -> Iterator[Chart]:
    for number, (name, found) in enumerate(_by_curve(keys)):
        sizes = [key.size_bytes for key in found]
        traces = [
            _trace("first: stock NCCL", [k.first for k in found], first, "--stock", stock=True),
            _trace("first: a job", [k.first for k in found], first, "--plugin", stock=False),
            _trace("second: stock NCCL", [k.second for k in found], second, "--bound", stock=True),
            _trace("second: a job", [k.second for k in found], second, "--executor", stock=False),
        ]
        ends = found[-1]
        yield Chart(
            identity=f"compared-{number}",
            title=name,
            alternative=(
                f"Time of a call of {name} over sizes from {format_size(min(sizes))} to "
                f"{format_size(max(sizes))}, both axes logarithmic; first {first.times.value}, "
                f"second {second.times.value}. At {format_size(ends.size_bytes)} a job takes "
                f"{ends.first.job.time_us:.4g} µs with the first and "
                f"{ends.second.job.time_us:.4g} µs with the second."
            ),
            traces=traces,
            layout={
                "xaxis": size_axis(sizes),
                "yaxis": value_axis("µs", [value for trace in traces for value in trace["y"]]),
            },
        )


def _trace(
    name: str, keys: Sequence[KeyFigures], table: TableFigures, colour: str, *, stock: bool
) -> Trace:
    times = [key.stock if stock else key.job for key in keys]
    return line(
        f"{name}, {table.times.value}",
        [key.size_bytes for key in keys],
        [timed.time_us for timed in times],
        colour=colour,
        dash=DASHES[table.times],
        symbol="circle-open" if stock else "square",
        hover=[
            f"{name}, {format_size(key.size_bytes)}: {timed.time_us:.2f} µs"
            + ("" if stock else f"\n{key.runs}")
            for key, timed in zip(keys, times, strict=True)
        ],
        below=[_distance(timed.time_us, timed.low_us) for timed in times],
        above=[_distance(timed.high_us, timed.time_us) for timed in times],
    )


def _distance(high: float | None, low: float | None) -> float | None:
    return None if high is None or low is None else max(0.0, high - low)


def _communicator(key: ComparedKey) -> str:
    like = f", like {key.first.placement}" if key.first.placement else ""
    return f"{shape_words(key.shape)}{like}"


def _table(comparison: Comparison) -> Markup:
    with_shape = len({(key.shape, key.first.placement) for key in comparison.keys}) > 1
    columns = [each for each in _COLUMNS if with_shape or each[0] != "communicator"]
    rows = [
        element(
            "tr",
            element("th", key.operation.value, scope="row"),
            number_cell(format_size(key.size_bytes), key.size_bytes),
            element("td", _communicator(key)) if with_shape else "",
            time_cell(key.first.job),
            time_cell(key.second.job),
            number_cell(f"{key.ratio:.3f}x", key.ratio),
            number_cell(f"{key.first.speedup:.3f}x", key.first.speedup),
            number_cell(f"{key.second.speedup:.3f}x", key.second.speedup),
            element("td", key.first.runs),
            element("td", key.second.runs),
        )
        for key in comparison.keys
    ]
    return sortable_table("keys", "All keys that both tables have.", columns, rows)
