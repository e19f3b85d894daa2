"""Charts: plotly figures with the words that stand for them, as a page holds them.

Colours are named by the variables of the page's style sheet, as `var(--stock)`, whose values differ
between light, dark and print; the page's script puts them in. Measured times are drawn in solid
lines, modelled ones in dashed lines, bounds in dotted lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Any

import plotly.graph_objects as go

from tuccl.quantities import format_size
from tuccl.reports.evidence import Evidence

Interval = tuple[float, float | None, float | None]
"""A value with its lower and upper bound, as far as they are known."""
DASHES = {Evidence.MEASURED: "solid", Evidence.MODELLED: "dash", Evidence.STAND_IN: "dashdot"}
COLOURS = tuple(f"var(--{hue})" for hue in ("blue", "orange", "green", "plum", "olive", "grey"))
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star")
_MOST_TICKS = 9
_MOST_DECADES = 3
"""Most powers of ten with labels between them."""
_AXIS = go.layout.XAxis(
    gridcolor="var(--rule)",
    linecolor="var(--muted)",
    tickcolor="var(--muted)",
    ticks="outside",
    zeroline=False,
    automargin=True,
    fixedrange=True,
).to_plotly_json()
TEMPLATE = go.layout.Template(
    layout=go.Layout(
        font_family="system-ui, 'Segoe UI', 'Liberation Sans', sans-serif",
        font_size=13,
        font_color="var(--ink)",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 60, "r": 16, "t": 12, "b": 44},
        legend={"orientation": "h", "x": 0, "xanchor": "left"},
        legend_y=0,
        legend_yanchor="bottom",
        legend_yref="container",
        hoverlabel={"bgcolor": "var(--surface)", "bordercolor": "var(--muted)", "align": "left"},
        hoverlabel_font_color="var(--ink)",
        hovermode="closest",
        showlegend=True,
        xaxis=_AXIS,
        yaxis=_AXIS,
    )
).to_plotly_json()
"""What all charts of a page have in common."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with the texts that stand for it if it is not seen."""

    title: str
    alternative: str
    """A sentence or two with its main figures."""
    figures: Mapping[str, go.Figure]
    """By what a reader chooses; the first is shown. A single one has no choice."""
    choose: str = ""
    """Label of that choice."""
    note: str = ""
    """Line below the chart."""

    @property
    def content(self) -> dict[str, Any]:
        """The figures as plotly.js takes them, without the template that all charts share."""
        return {
            name: figure.update_layout(template=None).to_plotly_json()
            for name, figure in self.figures.items()
        }


def chart_text(text: str) -> str:
    """Return a text for a chart, whose labels understand some tags and entities."""
    return escape(text).replace("\n", "<br>")


def size_axis(sizes_bytes: Iterable[int]) -> dict[str, Any]:
    """Return a logarithmic axis of sizes, with labels as nccl-tests writes sizes."""
    sizes = sorted(set(sizes_bytes))
    shown = sizes[:: -(-len(sizes) // _MOST_TICKS)]
    labels = [format_size(size) for size in shown]
    return {"type": "log", "tickvals": shown, "ticktext": labels, "title": "size"}


def value_axis(unit: str, traces: Iterable[go.Scatter]) -> dict[str, Any]:
    """Return a logarithmic axis, with labels at powers of ten and, over few of them, between."""
    values = [value for trace in traces for value in trace.y if value is not None]
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    between = (1, 2, 5) if high - low <= _MOST_DECADES else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in between]
    return {"type": "log", "title": unit, "tickvals": ticks, "tickformat": "~g"}


def line(
    name: str,
    x: Sequence[float],
    y: Sequence[Interval | None],
    hover: Sequence[str] = (),
    *,
    colour: str,
    dash: str,
    symbol: str = "",
    template: str = "%{text}",
    shape: str = "linear",
    width: float = 2,
) -> go.Scatter:
    """Return a line, with bars at the values whose bounds are known.

    Args:
        name: Name in the legend.
        x: Places.
        y: Values with their bounds; the line has a gap at None.
        hover: Text at each marker, of one line or several.
        colour: Colour of the page.
        dash: Dash of the line.
        symbol: Symbol of the markers; empty: the line has none.
        template: Text that shows at a marker, in plotly's form.
        shape: How plotly connects the values.
        width: Width of the line in pixels.
    """
    trace = go.Scatter(
        mode="lines+markers" if symbol else "lines",
        name=chart_text(name),
        x=list(x),
        y=[each and each[0] for each in y],
        line={"color": colour, "dash": dash, "width": width, "shape": shape},
        hovertemplate=f"{template}<extra></extra>",
    )
    if symbol:
        trace.marker = {"symbol": symbol, "size": 8, "color": colour}
    if hover:
        trace.text = list(map(chart_text, hover))
    if any(each is not None and each[1:] != (None, None) for each in y):
        known = [each or (0.0, None, None) for each in y]
        trace.error_y = {
            "symmetric": False,
            "array": [max(0.0, (high or value) - value) for value, _, high in known],
            "arrayminus": [max(0.0, value - (low or value)) for value, low, _ in known],
            "color": colour,
            "thickness": 1.2,
            "width": 3,
        }
    return trace
