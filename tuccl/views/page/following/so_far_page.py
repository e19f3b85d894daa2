"""The page of a run without a table: the best of each key so far, the search, the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sketches.sketch import Sketch
from tuccl.views.page.elements import Markup, element, joined
from tuccl.views.page.figures.key_figures import shape_words
from tuccl.views.page.figures.run_so_far import KeyFiguresSoFar, RunSoFar
from tuccl.views.page.figures.sketch_figures import sketch_figures
from tuccl.views.page.heat_map import Cell, grid
from tuccl.views.page.key_table import number_cell, sortable_table, time_cell
from tuccl.views.page.page import TITLE_MARK, Scripts, Section, page
from tuccl.views.page.report import closing, machine_section, search_section
from tuccl.words.counts import count_of
from tuccl.words.durations import format_seconds
from tuccl.words.sizes import format_size

_COLUMNS = (
    ("operation", "text"),
    ("size", "number"),
    ("communicator", "text"),
    ("stock, µs", "number"),
    ("best, µs", "number"),
    ("gain", "number"),
    ("best, GB/s", "number"),
    ("tried", "number"),
    ("failed", "number"),
    ("best so far", "text"),
)


@dataclass(frozen=True, slots=True)
class Dates:
    """When the page was made, and when its run last measured something."""

    made_at: str
    measured_at: datetime | None


def so_far_page(found: RunSoFar, sketches: Sequence[Sketch], dates: Dates, scripts: Scripts) -> str:
    """Return the page of a run that is not finished.

    Args:
        found: What is known of it.
        sketches: Its sketches, as far as it has made them.
        dates: Dates of the page.
        scripts: The scripts of the page.
    """
    return page(
        f"{TITLE_MARK}: {_machine_name(found)}, so far",
        _heading(found, dates),
        list(_sections(found, sketches)),
        closing(dates.made_at),
        scripts,
    )


def _machine_name(found: RunSoFar) -> str:
    return "a machine" if found.machine is None else found.machine.name


def _heading(found: RunSoFar, dates: Dates) -> Markup:
    caveat = found.evidence.caveat
    return joined(
        [
            element("h1", f"{TITLE_MARK}: {_machine_name(found)}, a run that is not finished"),
            element("div", _headline(found), class_="headline"),
            element("p", caveat, class_="caveat") if caveat else "",
            _facts(found, dates),
        ]
    )


def _headline(found: RunSoFar) -> Markup:
    if found.gain is None:
        return element("p", "Stock NCCL has not been timed yet.", class_="over")
    return element(
        "div",
        element("p", f"{found.gain:.3f}x", class_="figure"),
        element(
            "p",
            "is what the best so far gains against stock NCCL: the geometric mean over "
            f"{count_of(len(found.keys), 'key')}. Nothing is decided yet: the least of many noisy "
            "times tends to be lucky. ",
            element("span", found.evidence.value, class_=f"word {found.evidence.value}"),
            class_="over",
        ),
    )


def _facts(found: RunSoFar, dates: Dates) -> Markup:
    spent_s = found.search.seconds
    record = ", from a record" if found.source != found.backend else ""
    budget = "no limit"
    if found.budget_s is not None:
        left_s = max(0.0, found.budget_s - spent_s)
        budget = f"{format_seconds(found.budget_s)}, {format_seconds(left_s)} left"
    last = dates.measured_at
    known = {
        "machine": _machine_name(found),
        "fingerprint of its topology": "" if found.machine is None else found.machine.fingerprint(),
        "backend": f"{found.source}, {found.evidence.value}{record}",
        "run": found.run.root.name,
        "begun": found.begun_at,
        "last measurement": "" if last is None else f"{last.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "machine time of measuring": format_seconds(spent_s) if spent_s else "none yet",
        "budget of machine time": budget,
        "measurements": str(found.search.measurements),
        "configurations": f"{sum(key.tried for key in found.keys)} tried, "
        f"{sum(key.failed for key in found.keys)} failed",
        "read from": found.place,
        "page made": dates.made_at,
    }
    rows = (
        element("div", element("dt", name), element("dd", text))
        for name, text in known.items()
        if text
    )
    return element("dl", *rows, class_="facts")


def _sections(found: RunSoFar, sketches: Sequence[Sketch]) -> Iterator[Section]:
    if found.keys:
        yield Section("gains", "Best so far", _gains(found))
        yield search_section(found.search, found.evidence)
    if found.machine is not None:
        yield machine_section(found.machine, sketches, [sketch_figures(each) for each in sketches])
    if found.keys:
        yield Section("table", "Every key so far", _table(found))


def _gains(found: RunSoFar) -> Markup:
    sizes = sorted({key.size_bytes for key in found.keys})
    rows: dict[str, dict[int, KeyFiguresSoFar]] = {}
    for key in found.keys:
        rows.setdefault(f"{key.shape_name} {key.operation.value}".strip(), {})[key.size_bytes] = key
    cells = [
        (name, [_cell(keys[size]) if size in keys else None for size in sizes])
        for name, keys in rows.items()
    ]
    note = (
        "Stock NCCL's time over that of the best configuration so far, by the medians of their "
        "samples; below it the number of configurations that were tried."
    )
    return joined(
        [element("p", note), grid(sizes, {"": cells}, found.evidence.value, "gains-details")]
    )


def _cell(key: KeyFiguresSoFar) -> Cell:
    details = (
        f"{key.name}: {key.best_runs}, {key.best.time_us:.2f} µs instead of "
        f"{key.stock.time_us:.2f} µs; {count_of(key.tried, 'configuration')} tried, "
        f"{key.failed} failed"
    )
    return Cell(key.gain, str(key.tried), details)


def _table(found: RunSoFar) -> Markup:
    with_shape = len({key.shape for key in found.keys}) > 1
    columns = [each for each in _COLUMNS if with_shape or each[0] != "communicator"]
    rows = [
        element(
            "tr",
            element("th", key.operation.value, scope="row"),
            number_cell(format_size(key.size_bytes), key.size_bytes),
            element("td", shape_words(key.shape)) if with_shape else "",
            time_cell(key.stock),
            time_cell(key.best),
            number_cell(f"{key.gain:.3f}x", key.gain),
            number_cell(f"{key.best.busbw_gb_per_s:.2f}", key.best.busbw_gb_per_s),
            number_cell(str(key.tried), key.tried),
            number_cell(str(key.failed), key.failed),
            element("td", key.best_runs),
            class_=found.evidence.value,
        )
        for key in found.keys
    ]
    caption = f"All keys that stock NCCL was timed on; times {found.evidence.value}."
    return sortable_table("keys", caption, columns, rows)
