"""Charts as plotly takes them, with colours by the names of the page's variables.

A text that begins with `--` stands for the value of that variable, which differs between light,
dark and print; the page's script puts it in. Measured times are drawn in solid lines, modelled ones
in dashed lines, bounds in dotted lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from tuccl.reports.evidence import Evidence
from tuccl.views.page.elements import Markup, chart_text, element
from tuccl.words.sizes import format_size

Trace = dict[str, Any]
DASHES = {Evidence.MEASURED: "solid", Evidence.MODELLED: "dash", Evidence.STAND_IN: "dashdot"}
BOUND_DASH = "dot"
_MOST_TICKS = 9
_MOST_DECADES = 3
"""Most powers of ten with labels between them."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with the texts that stand for it where it is not seen."""

    identity: str
    title: str
    alternative: str
    """A sentence or two with its main figures."""
    traces: Sequence[Trace]
    layout: Mapping[str, Any]
    choices: Mapping[str, Sequence[Trace]] | None = None
    """Traces by what a reader chooses; the first are those of `traces`."""
    choose: str = ""
    """Label of that choice."""
    layouts: Mapping[str, Mapping[str, Any]] | None = None
    """Members of the layout that differ between the choices."""
    note: Markup | str = ""
    """Line below the chart."""

    @property
    def content(self) -> dict[str, Any]:
        """The data that the page's script draws."""
        return {
            "traces": self.traces,
            "layout": self.layout,
            "choices": self.choices,
            "layouts": self.layouts,
        }


def figure(chart: Chart, class_: str = "") -> Markup:
    """Return the place of a chart, with its title, alternative text and choice."""
    choice: Markup | str = ""
    if chart.choices is not None and len(chart.choices) > 1:
        options = (element("option", name, value=name) for name in chart.choices)
        choice = element(
            "label", f"{chart.choose} ", element("select", *options, data_chart=chart.identity)
        )
    return element(
        "figure",
        element("figcaption", element("h3", chart.title), choice),
        element(
            "div",
            class_="chart",
            id=chart.identity,
            role="img",
            aria_label=chart.alternative,
        ),
        element("details", element("summary", "In words"), element("p", chart.alternative)),
        element("p", chart.note, class_="note") if chart.note else "",
        class_=class_ or None,
    )


def size_axis(sizes_bytes: Sequence[int]) -> dict[str, Any]:
    """Return a logarithmic axis of sizes, with labels as nccl-tests writes sizes."""
    sizes = sorted(set(sizes_bytes))
    every = -(-len(sizes) // _MOST_TICKS)
    shown = sizes[::every]
    return {
        "type": "log",
        "tickvals": shown,
        "ticktext": [format_size(size) for size in shown],
        "title": {"text": "size"},
    }


def value_axis(unit: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis, with labels at powers of ten and, over few of them, between."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    between = (1, 2, 5) if high - low <= _MOST_DECADES else (1,)
    return {
        "type": "log",
        "title": {"text": unit},
        "tickvals": [step * 10.0**power for power in range(low, high + 1) for step in between],
        "tickformat": "~g",
    }


def line(
    name: str,
    x: Sequence[float],
    y: Sequence[float | None],
    *,
    colour: str,
    dash: str,
    symbol: str | None = None,
    hover: Sequence[str] | None = None,
    template: str = "%{text}",
    below: Sequence[float | None] | None = None,
    above: Sequence[float | None] | None = None,
) -> Trace:
    """Return a line with markers, and intervals where they are known.

    Args:
        name: Name in the legend.
        x: Places.
        y: Values; None: the line has a gap there.
        colour: Variable of the page.
        dash: Dash of the line.
        symbol: Symbol of the markers; None: no markers.
        hover: Text at each marker, of one line or several.
        template: Text that shows at a marker, in plotly's form.
        below: Distance from a value to its lower bound.
        above: Distance from a value to its upper bound.
    """
    trace: Trace = {
        "type": "scatter",
        "mode": "lines" if symbol is None else "lines+markers",
        "name": chart_text(name),
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "dash": dash, "width": 2},
    }
    if symbol is not None:
        trace["marker"] = {"symbol": symbol, "size": 8, "color": colour}
    trace["hovertemplate"] = f"{template}<extra></extra>"
    if hover is not None:
        trace["text"] = [chart_text(text).replace("\n", "<br>") for text in hover]
    if below is not None and above is not None and any(known is not None for known in below):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [known or 0.0 for known in above],
            "arrayminus": [known or 0.0 for known in below],
            "color": colour,
            "thickness": 1.2,
            "width": 3,
        }
    return trace
