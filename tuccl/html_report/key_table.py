"""The table of all keys, which sorts by any column and filters by words."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.html_report.curves import shape_text
from tuccl.html_report.elements import Markup, element
from tuccl.html_report.figures.key_figures import KeyFigures, Timed
from tuccl.html_report.figures.table_figures import TableFigures
from tuccl.words.sizes import format_size

_COLUMNS = (
    ("operation", "text"),
    ("size", "number"),
    ("stock, µs", "number"),
    ("job, µs", "number"),
    ("gain", "number"),
    ("stock, GB/s", "number"),
    ("job, GB/s", "number"),
    ("of bound", "number"),
    ("what runs", "text"),
)


def key_table(figures: TableFigures, identity: str = "keys") -> Markup:
    """Return the table with its filter."""
    with_shape = len({key.shape for key in figures.keys}) > 1
    columns = [*_COLUMNS[:2], ("communicator", "text"), *_COLUMNS[2:]] if with_shape else _COLUMNS
    heads = [
        element(
            "th",
            element("button", name, type="button", data_kind=kind),
            scope="col",
            aria_sort="none",
            class_=kind,
        )
        for name, kind in columns
    ]
    rows = [
        element("tr", *_cells(key, with_shape=with_shape), class_=figures.times.value)
        for key in figures.keys
    ]
    control = element(
        "label",
        "Filter rows ",
        element(
            "input", type="search", data_table=identity, placeholder="as all_reduce ring", size=24
        ),
    )
    count = element("output", f"{len(rows)} keys", data_count=identity, aria_live="polite")
    table = element(
        "table",
        element(
            "caption", f"All keys; times {figures.times.value}. A heading sorts by its column."
        ),
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
        class_="keys sortable",
        id=identity,
    )
    return element(
        "div",
        element("p", control, " ", count, class_="controls"),
        element("div", table, class_="wide", tabindex=0, role="group", aria_label="All keys"),
    )


def _cells(key: KeyFigures, *, with_shape: bool) -> Iterator[Markup]:
    yield element("th", key.operation.value, scope="row")
    yield _number(format_size(key.size_bytes), key.size_bytes)
    if with_shape:
        yield element("td", shape_text(key.shape))
    yield _time(key.stock)
    yield _time(key.job)
    yield _number(f"{key.speedup:.3f}x", key.speedup)
    yield _number(f"{key.stock.busbw_gb_per_s:.2f}", key.stock.busbw_gb_per_s)
    yield _number(f"{key.job.busbw_gb_per_s:.2f}", key.job.busbw_gb_per_s)
    if key.bound_us is None:
        yield _number("-", -1.0)
    else:
        share = key.bound_us / key.job.time_us
        yield _number(f"{share:.0%}", share)
    why = element("details", element("summary", "why"), element("span", key.evidence))
    yield element("td", key.runs, why)


def _time(timed: Timed) -> Markup:
    bounds: Markup | str = ""
    if timed.low_us is not None and timed.high_us is not None:
        bounds = element("small", f"{timed.low_us:.2f} to {timed.high_us:.2f}")
    return element("td", f"{timed.time_us:.2f}", bounds, class_="number", data_value=timed.time_us)


def _number(text: str, value: float) -> Markup:
    return element("td", text, class_="number", data_value=value)
