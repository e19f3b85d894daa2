"""The page: one HTML file that fetches nothing, with its scripts, style and figures inside.

Its content security policy names the scripts by their hashes, so that no other would run, and
allows no connection, except to the server of a page that is followed. The templates escape every
text that they are given.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from math import log2, sqrt
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from probes.topology.graph import Topology
from sketches.sketch import Sketch
from tuccl import __version__
from tuccl.errors import MachineError
from tuccl.quantities import count_of, format_seconds, format_size
from tuccl.reports.evidence import Evidence
from tuccl.reports.verdicts import (
    VerdictHistory,
    last_changes,
    period,
    runs_words,
    time_text,
)
from tuccl.views.drawing.svg import draw_svg
from tuccl.views.page.charts import TEMPLATE, Chart
from tuccl.views.page.curves import compared_charts, curve_charts, profile_chart
from tuccl.views.page.keys import KeyT, by_curve, shape_words
from tuccl.views.page.place import ReportedTable
from tuccl.views.page.search import search_charts
from tuccl.views.page.sketches import LEGEND, connection_chart, read_sketches, sketch_figures
from tuccl.views.page.so_far import RunSoFar
from tuccl.views.page.tables import (
    ReportFigures,
    TableFigures,
    report_figures,
)
from tuccl.views.page.timelines import timeline_charts
from tuccl.views.page.verdicts import MOST_CHANGES, verdict_charts
from tuccl.views.terminal.step_display import gain_words, step_line, step_words
from tuccl.views.terminal.table_display import floor_lines

PLOTLY_ADDRESS = "/plotly.js"
"""Where a server has the script that draws charts."""
TITLE_MARK = "TuCCL report"
"""Text by which a file is known as a report."""
MOST_BYTES = 6_000_000
"""Size of a page beyond which schedules over time are left out."""
_FULL_GAIN = 1.0
"""Binary logarithm of the gain from which on a cell has the strongest colour."""
_STRONGEST = 60.0
"""Share of the strongest colour in per cent, at which texts keep their contrast."""
Grid = tuple[list[int], dict[str, list[tuple[str, list[KeyT | None]]]]]


def table_report(found: ReportedTable, made_at: str, plotly: str) -> tuple[ReportFigures, str]:
    """Return the figures of a report on one table, and its page.

    Args:
        found: The table.
        made_at: Date of the report.
        plotly: The script that draws charts; empty: the page is followed, and a server has it.

    Raises:
        WorkspaceError: Sketches or measurements of its run cannot be read.
    """
    sketches = () if found.run is None else read_sketches(found.run)
    figures = report_figures(found, sketches, made_at)
    text = table_page(figures, found, sketches, plotly)
    while len(text.encode()) > MOST_BYTES and figures.timelines:
        figures = replace(figures, timelines=figures.timelines[:-1])
        text = table_page(figures, found, sketches, plotly)
    return figures, text


def table_page(
    figures: ReportFigures, found: ReportedTable, sketches: Sequence[Sketch], plotly: str
) -> str:
    """Return the page on one table.

    Args:
        figures: The figures.
        found: The table that they are of.
        sketches: Sketches of its run.
        plotly: As for `table_report`.
    """
    (table,) = figures.tables
    charts: dict[str, Chart | None] = {"profile-gains": profile_chart(table)}
    curves = by_curve(table.all_keys)
    for number, keys in enumerate(curves):
        charts[f"busbw-{number}"], charts[f"latency-{number}"] = curve_charts(keys, table.times)
    if figures.search is not None:
        charts["search-mean"], charts["search-key"] = search_charts(figures.search, table.times)
    if figures.timelines:
        charts["schedule-links"], charts["schedule-steps"] = timeline_charts(figures.timelines)
    if found.machine is not None:
        charts["connections"] = connection_chart(sketches, found.machine)
    floor: Sequence[str] = ()
    if found.report is not None and found.gains is not None:
        floor = floor_lines(found.report, found.gains)
    return _render(
        "table.html",
        plotly,
        charts,
        figures.made_at,
        title=f"{TITLE_MARK}: {table.topology}",
        tables=[table],
        curves=[
            keys[0].communicator if keys[0].shape_name or keys[0].placement else ""
            for keys in curves
        ],
        step=table.step,
        floor=floor,
        search=figures.search,
        timelines=figures.timelines,
        sketches=figures.sketches,
        **_machine(found.machine),
    )


def comparison_page(figures: ReportFigures, plotly: str) -> str:
    """Return the page on two tables; arguments as for `table_page`.

    Raises:
        ValueError: The figures are of one table.
    """
    comparison = figures.comparison
    if comparison is None:
        raise ValueError("the figures are of one table")
    first, second = figures.tables
    charts = list(compared_charts(first, second, comparison.keys))
    times = list(dict.fromkeys(table.times for table in figures.tables))
    pairs = {id(key.first): key for key in comparison.keys}
    return _render(
        "comparison.html",
        plotly,
        {f"compared-{number}": chart for number, chart in enumerate(charts)},
        figures.made_at,
        title=f"{TITLE_MARK}: {first.name} and {second.name}",
        comparison=comparison,
        tables=figures.tables,
        times=" and ".join(each.value for each in times),
        kind=next((each.value for each in times if each is not Evidence.MEASURED), "measured"),
        pair=lambda key: pairs[id(key)],
    )


def so_far_page(
    found: RunSoFar,
    sketches: Sequence[Sketch],
    made_at: str,
    measured_at: datetime | None,
    plotly: str = "",
) -> str:
    """Return the page of a run that is not finished.

    Args:
        found: What is known of it.
        sketches: Its sketches, as far as it has made them.
        made_at: Date of the page.
        measured_at: When the run last measured something, if it has.
        plotly: As for `table_report`.
    """
    charts: dict[str, Chart | None] = {}
    if found.keys:
        charts["search-mean"], charts["search-key"] = search_charts(found.search, found.evidence)
    if found.machine is not None:
        charts["connections"] = connection_chart(sketches, found.machine)
    name = "a machine" if found.machine is None else found.machine.name
    return _render(
        "so_far.html",
        plotly,
        charts,
        made_at,
        title=f"{TITLE_MARK}: {name}, so far",
        heading=f"{TITLE_MARK}: {name}, a run that is not finished",
        found=found,
        times=found.evidence,
        facts=_facts_so_far(found, name, measured_at),
        sketches=[sketch_figures(each) for each in sketches],
        **_machine(found.machine),
    )


def verdicts_page(found: VerdictHistory, place: str, made_at: str, plotly: str) -> str:
    """Return the page of the guard's verdicts.

    Args:
        found: The verdicts.
        place: Where they were read from.
        made_at: Date of the page.
        plotly: As for `table_report`.
    """
    charts: dict[str, Chart | None] = {}
    if found.keys:
        charts["verdict-runs"], charts["verdict-times"] = verdict_charts(found)
    return _render(
        "verdicts.html",
        plotly,
        charts,
        made_at,
        title=f"{TITLE_MARK}: what the guard found",
        found=found,
        facts={"read from": place, "files": str(len(found.files)), **period(found)},
        runs_words=runs_words,
        changes=last_changes(found, MOST_CHANGES),
        changed=sum(key.changes for key in found.keys),
        time_text=time_text,
    )


def _render(
    template: str, plotly: str, charts: Mapping[str, Chart | None], made_at: str, **members: Any
) -> str:
    """Return a page.

    Args:
        template: File of its template.
        plotly: As for `table_report`.
        charts: Its charts by identity.
        made_at: Date of the page.
        members: What the template needs beside them.
    """
    environment = Environment(
        loader=PackageLoader("tuccl.views.page"),
        extensions=["jinja2.ext.do"],
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    for function in (
        *(colour_share, count_of, format_size, gain_words, grid, scope, shape_words, step_line),
        step_words,
    ):
        environment.globals[function.__name__] = function
    folder = files("tuccl.views.page") / "templates"
    style, script = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js"))
    known = {identity: chart for identity, chart in charts.items() if chart is not None}
    running = filter(None, (plotly, script))
    hashes = [b64encode(sha256(each.encode()).digest()).decode() for each in running]
    return environment.get_template(template).render(
        plotly=Markup(plotly),  # noqa: S704 - this package's own, as the next two
        plotly_address=PLOTLY_ADDRESS,
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        allowed=" ".join(f"'sha256-{each}'" for each in hashes),
        mark=TITLE_MARK,
        charts=known,
        data={
            "template": TEMPLATE,
            "charts": {identity: chart.content for identity, chart in known.items()},
        },
        contents=[],
        made_at=made_at,
        version=__version__,
        **members,
    )


def _machine(machine: Topology | None) -> dict[str, Any]:
    """Return what a template needs of a machine: its picture, or why it has none."""
    if machine is None:
        return {"machine": None}
    drawing, problem = "", ""
    try:
        drawing = draw_svg(machine)
    except MachineError as error:
        problem = str(error)
    return {
        "machine": machine,
        "drawing": Markup(drawing),  # noqa: S704 - the project's drawing escapes its texts
        "no_drawing": problem,
        "legend": LEGEND,
    }


def scope(table: TableFigures) -> str:
    """Return which keys the headline is over."""
    sizes = [key.size_bytes for key in table.keys]
    if not sizes:
        return "no keys"
    operations = ", ".join(dict.fromkeys(key.operation.value for key in table.keys))
    shapes = "; ".join(dict.fromkeys(key.communicator for key in table.keys))
    entries = " with an entry" if table.shipped else ""
    return (
        f"{count_of(len(sizes), 'key')}{entries}: {operations} of {format_size(min(sizes))} to "
        f"{format_size(max(sizes))}; {shapes}"
    )


def _facts_so_far(found: RunSoFar, name: str, measured_at: datetime | None) -> dict[str, str]:
    spent_s = found.search.seconds
    record = ", from a record" if found.source != found.backend else ""
    budget = "no limit"
    if found.budget_s is not None:
        left_s = max(0.0, found.budget_s - spent_s)
        budget = f"{format_seconds(found.budget_s)}, {format_seconds(left_s)} left"
    last = "" if measured_at is None else f"{measured_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    tried = sum(key.tried for key in found.keys)
    failed = sum(key.failed for key in found.keys)
    return {
        "machine": name,
        "fingerprint of its topology": "" if found.machine is None else found.machine.fingerprint(),
        "backend": f"{found.source}, {found.evidence.value}{record}",
        "run": found.run.root.name,
        "begun": found.begun_at,
        "last measurement": last,
        "machine time of measuring": format_seconds(spent_s) if spent_s else "none yet",
        "budget of machine time": budget,
        "measurements": str(found.search.measurements),
        "configurations": f"{tried} tried, {failed} failed",
        "read from": found.place,
    }


def grid(keys: Sequence[KeyT], *, grouped: bool = False) -> Grid[KeyT]:
    """Return the sizes of a heat map, and the keys of its named rows by a heading."""
    sizes = sorted({key.size_bytes for key in keys})
    groups: dict[str, list[tuple[str, list[KeyT | None]]]] = {}
    for own in by_curve(keys):
        known = {key.size_bytes: key for key in own}
        heading = replace(own[0], placement=None).communicator if grouped else ""
        row = (own[0].curve, [known.get(size) for size in sizes])
        groups.setdefault(heading, []).append(row)
    return sizes, groups


def colour_share(ratio: float) -> float:
    """Return the share of its colour that the cell of a gain has, in per cent."""
    away = abs(log2(ratio)) if f"{ratio:.2f}" != "1.00" else 0.0
    return min(1.0, sqrt(away / _FULL_GAIN)) * _STRONGEST
