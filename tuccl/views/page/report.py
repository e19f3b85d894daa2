"""The report on one table: its heading and its parts, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lookup_tables.provenance import SIMULATED
from probes.topology.graph import Topology
from sketches.sketch import Sketch
from tuccl import __version__
from tuccl.reports.choice_text import profile_text
from tuccl.reports.evidence import Evidence
from tuccl.views.page.charts import figure
from tuccl.views.page.connections import connection_chart, connection_words
from tuccl.views.page.curves import curve_charts, shape_text
from tuccl.views.page.elements import Markup, element, joined
from tuccl.views.page.figures.places import ReportedTable
from tuccl.views.page.figures.report_figures import ReportFigures, report_figures
from tuccl.views.page.figures.search_progress import SearchProgress
from tuccl.views.page.figures.sketch_figures import SketchFigures, read_sketches
from tuccl.views.page.figures.table_figures import TableFigures
from tuccl.views.page.figures.timelines import Timeline
from tuccl.views.page.heat_map import apart_heat_map, job_heat_map
from tuccl.views.page.key_table import key_table
from tuccl.views.page.machine import machine_picture
from tuccl.views.page.page import TITLE_MARK, Scripts, Section, page
from tuccl.views.page.profile import profile_chart, profile_words
from tuccl.views.page.search_charts import search_charts
from tuccl.views.page.step_section import step_section
from tuccl.views.page.timeline_charts import timeline_charts
from tuccl.words.counts import count_of
from tuccl.words.durations import format_seconds
from tuccl.words.sizes import format_size

_LINES = {
    Evidence.MEASURED: "Solid lines: measured",
    Evidence.MODELLED: "Dashed lines: computed by a model, not measured",
    Evidence.STAND_IN: "Dashed and dotted lines: timed on a stand-in for NCCL",
}


_PLACED = (
    "Rows that name GPUs are of communicators that NCCL's estimates tell from others of their "
    "shape: these entries come before those of the shape, which are safe wherever ranks sit and "
    "were timed on neighbours. The means are over the rows of shapes alone."
)
MOST_BYTES = 6_000_000
"""Size of a page beyond which schedules over time are left out."""


def page_of_table(
    found: ReportedTable, made_at: str, scripts: Scripts
) -> tuple[ReportFigures, str]:
    """Return the figures of a report on one table, and its page.

    Args:
        found: The table.
        made_at: Date of the report.
        scripts: The scripts of the page.

    Raises:
        WorkspaceError: Sketches or measurements of its run cannot be read.
    """
    sketches = () if found.run is None else read_sketches(found.run)
    figures = report_figures(found, sketches, made_at)
    text = report_page(figures, found, sketches, scripts)
    while len(text.encode()) > MOST_BYTES and figures.timelines:
        figures = replace(figures, timelines=figures.timelines[:-1])
        text = report_page(figures, found, sketches, scripts)
    return figures, text


def report_page(
    figures: ReportFigures, found: ReportedTable, sketches: Sequence[Sketch], scripts: Scripts
) -> str:
    """Return the page on one table.

    Args:
        figures: The figures.
        found: The table that they are of.
        sketches: Sketches of its run.
        scripts: The scripts of the page.
    """
    (table,) = figures.tables
    return page(
        f"{TITLE_MARK}: {table.topology}",
        _heading(table, figures.made_at),
        list(_sections(figures, found, sketches)),
        closing(figures.made_at),
        scripts,
    )


def _sections(
    figures: ReportFigures, found: ReportedTable, sketches: Sequence[Sketch]
) -> Iterator[Section]:
    (table,) = figures.tables
    if table.step is not None:
        yield step_section(table.step, table.times)
    yield gains_section(table, "gains", "What a job gains")
    yield _curves(table)
    yield _profile(table, found)
    if figures.search is not None:
        yield search_section(figures.search, table.times)
    if figures.timelines:
        yield _schedules(figures.timelines)
    if found.machine is not None:
        yield machine_section(found.machine, sketches, figures.sketches)
    yield Section("table", "Every key", key_table(table))


def headline(table: TableFigures) -> Markup:
    """Return the gain in large, and what it is over."""
    return element(
        "div",
        element("p", f"{table.speedup:.3f}x", class_="figure"),
        element(
            "p",
            f"is what a job here {table.times.gets} against stock NCCL: the geometric mean over "
            f"{_scope(table)} ",
            element("span", table.times.value, class_=f"word {table.times.value}"),
            " from a record" if table.replayed else "",
            class_="over",
        ),
        element("p", f"By shape: {_gains_of_shapes(table)}", class_="over") if table.shapes else "",
    )


def _gains_of_shapes(table: TableFigures) -> str:
    return ", ".join(
        f"{each.name} {each.speedup:.3f}x over {count_of(each.keys, 'key')}"
        for each in table.shapes
    )


def _scope(table: TableFigures) -> str:
    sizes = [key.size_bytes for key in table.keys]
    operations = ", ".join(dict.fromkeys(key.operation.value for key in table.keys))
    shapes = "; ".join(dict.fromkeys(shape_text(key) for key in table.keys))
    entries = " with an entry" if table.shipped else ""
    if not sizes:
        return "no keys"
    return (
        f"{count_of(len(sizes), 'key')}{entries}: {operations} of {format_size(min(sizes))} to "
        f"{format_size(max(sizes))}; {shapes}"
    )


def _heading(table: TableFigures, made_at: str) -> Markup:
    caveat = table.times.caveat
    return joined(
        [
            element("h1", f"{TITLE_MARK}: {table.topology}"),
            element("div", headline(table), class_="headline"),
            element("p", caveat, class_="caveat") if caveat else "",
            facts(table, made_at),
        ]
    )


def facts(table: TableFigures, made_at: str) -> Markup:
    """Return machine, versions and dates as a list."""
    no_nccl = f"none ran: a model {table.details}" if table.backend == SIMULATED else "not stated"
    known = {
        "machine": table.topology,
        "fingerprint of its topology": table.fingerprint,
        "GPUs (PCI vendor:device)": ", ".join(table.gpu_models) or "unknown",
        "backend": backend_text(table),
        "NCCL": table.nccl_version or no_nccl,
        "TuCCL that measured": table.tuccl_version or "not stated",
        "driver, CUDA, GPU": table.details if table.nccl_version else "",
        "measured under": ", ".join(table.conditions),
        "recorded": table.recorded_at,
        "replayed" if table.replayed else "tuned": " to ".join(table.dates),
        "machine time of measuring": (
            "" if not table.measuring_s else format_seconds(table.measuring_s)
        ),
        "process profile": profile_text(table.profile),
        "read from": f"{table.name}{f', run {table.run}' if table.run else ''}",
        "report made": made_at,
    }
    rows = (
        element("div", element("dt", name), element("dd", text))
        for name, text in known.items()
        if text
    )
    return element("dl", *rows, class_="facts")


def backend_text(table: TableFigures) -> str:
    """Return `nccl, measured, from a record`."""
    record = ", from a record" if table.replayed else ""
    return f"{table.backend}, {table.times.value}{record}"


def gains_section(table: TableFigures, identity: str, title: str) -> Section:
    """Return the heat maps of a table's gains, and its remarks."""
    apart = apart_heat_map(table, f"{identity}-apart-details")
    parts: list[Markup] = [
        element(
            "p",
            "Stock NCCL's time over a job's, larger is faster; below it what decides the call: "
            "a schedule, a setting of the plugin, the process profile, or NCCL itself.",
            " Hatched: not measured." if table.times is not Evidence.MEASURED else "",
        ),
        job_heat_map(table, f"{identity}-details"),
    ]
    if table.placed:
        parts.append(element("p", _PLACED))
    if apart is not None:
        parts += [
            element("h3", "Apart from that: schedules that no job here runs"),
            element(
                "p",
                f"With them the geometric mean over all keys would be "
                f"{table.speedup_with_all_schedules:.3f}x, {table.times.value}.",
            ),
            apart,
        ]
    words = element("ul", *(element("li", remark) for remark in table.remarks))
    parts.append(element("details", element("summary", "The same in words"), words))
    return Section(identity, title, joined(parts))


def _curves(table: TableFigures) -> Section:
    curves = list(curve_charts(table))
    notes = [
        (
            f"{_LINES[table.times]}; dotted: a bound that follows from the links alone and assumes "
            "that no switch reduces or multicasts. It is of the part of the machine that a "
            "communicator has. There is none where a time is below it, and none between faked "
            "nodes, whose network is only assumed, or where ranks of a node share a GPU."
        ),
        (
            "Bars: for stock NCCL between the quartiles of its samples; for the others the bounds "
            "of their gain, their reference held."
        ),
    ]
    parts = [element("p", note) for note in notes]
    before = ("", "")
    for key, bandwidth, latency in curves:
        own = (key.shape_name, key.placement)
        if own != before:
            parts.append(element("h3", shape_text(key)))
        before = own
        parts.append(element("div", figure(bandwidth), figure(latency), class_="pair"))
    charts = [chart for _, *pair in curves for chart in pair]
    return Section("curves", "Bandwidth and latency over size", joined(parts), charts)


def _profile(table: TableFigures, found: ReportedTable) -> Section:
    chart = profile_chart(table)
    words = joined(profile_words(table.profile, found.report))
    content = joined([words, "" if chart is None else figure(chart)])
    return Section("profile", "The process profile", content, [] if chart is None else [chart])


def search_section(progress: SearchProgress, times: Evidence) -> Section:
    """Return the charts of the search."""
    charts = search_charts(progress, times)
    note = (
        "A configuration counts with the median of the samples that it had by then, so that the "
        "best so far can become slower again when it is measured on."
    )
    content = joined(
        [element("p", note), element("div", *(figure(chart) for chart in charts), class_="pair")]
    )
    return Section("search", "How the search went", content, charts)


def _schedules(timelines: Sequence[Timeline]) -> Section:
    charts = timeline_charts(timelines)
    notes = (
        (
            "Simulated, not measured: each schedule with the parameters of its entry, at the size "
            "where it gains most, on the model of the executor. Times are without the launch; hops "
            "over a network have the latency of NCCL's."
        ),
        "Of a call that is cut into more tiles than are shown, these run as if alone.",
    )
    content = joined([*(element("p", note) for note in notes), *map(figure, charts)])
    return Section("schedules", "Schedules over time", content, charts)


def machine_section(
    machine: Topology, sketches: Sequence[Sketch], figures: Sequence[SketchFigures]
) -> Section:
    """Return the machine's picture, and the connections that sketches keep and drop."""
    chart = connection_chart(sketches, machine)
    parts = [machine_picture(machine)]
    if figures:
        parts.append(element("h3", "Connections that schedules may use"))
        parts += [figure(chart)] if chart is not None else []
        parts.append(connection_words(figures))
    return Section("machine", "The machine", joined(parts), [] if chart is None else [chart])


def closing(made_at: str) -> Markup:
    """Return the last lines of a page."""
    return joined(
        [
            element(
                "p",
                f"Made by TuCCL {__version__} on {made_at}. Bus bandwidth as nccl-tests counts it; "
                "sizes in powers of 1024, GB/s in powers of 1000.",
            ),
            element("p", "Charts are drawn by plotly.js (MIT licence), which this file contains."),
        ]
    )
