"""The table of all keys, which sorts by any column and filters by words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuccl.views.page.curves import shape_text
from tuccl.views.page.elements import Markup, element
from tuccl.views.page.figures.key_figures import KeyFigures, Timed
from tuccl.views.page.figures.table_figures import TableFigures
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
    with_shape = len({(key.shape, key.placement) for key in figures.all_keys}) > 1
    columns = [*_COLUMNS[:2], ("communicator", "text"), *_COLUMNS[2:]] if with_shape else _COLUMNS
    rows = [
        element("tr", *_cells(key, with_shape=with_shape), class_=figures.times.value)
        for key in figures.all_keys
    ]
    return sortable_table(identity, f"All keys; times {figures.times.value}.", columns, rows)


def sortable_table(
    identity: str, caption: str, columns: Sequence[tuple[str, str]], rows: Sequence[Markup]
) -> Markup:
    """Return a table of keys that sorts and filters.

    Args:
        identity: Identity of the table.
        caption: What it has.
        columns: Names, and whether they sort as `text` or `number`.
        rows: Its rows.
    """
    heads = [
        element(
            "th",
            element("button", name, type="button"),
            scope="col",
            aria_sort="none",
            class_=kind,
        )
        for name, kind in columns
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
        element("caption", f"{caption} A heading sorts by its column."),
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
    yield number_cell(format_size(key.size_bytes), key.size_bytes)
    if with_shape:
        yield element("td", shape_text(key))
    yield time_cell(key.stock)
    yield time_cell(key.job)
    yield number_cell(f"{key.speedup:.3f}x", key.speedup)
    yield number_cell(f"{key.stock.busbw_gb_per_s:.2f}", key.stock.busbw_gb_per_s)
    yield number_cell(f"{key.job.busbw_gb_per_s:.2f}", key.job.busbw_gb_per_s)
    if key.bound_us is None:
        yield number_cell("-", -1.0)
    else:
        share = key.bound_us / key.job.time_us
        yield number_cell(f"{share:.0%}", share)
    why = element("details", element("summary", "why"), element("span", key.evidence))
    yield element("td", key.runs, why)


def time_cell(timed: Timed) -> Markup:
    """Return a cell with a time and its bounds."""
    bounds: Markup | str = ""
    if timed.low_us is not None and timed.high_us is not None:
        bounds = element("small", f"{timed.low_us:.2f} to {timed.high_us:.2f}")
    return element("td", f"{timed.time_us:.2f}", bounds, class_="number", data_value=timed.time_us)


def number_cell(text: str, value: float) -> Markup:
    """Return a cell that sorts by a number."""
    return element("td", text, class_="number", data_value=value)
