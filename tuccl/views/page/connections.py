"""Connections between GPUs as a picture: kept, or dropped by a sketch's pruning, and why."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from probes.topology.graph import Topology
from sketches.sketch import DroppedEdge, Sketch
from tuccl.views.page.charts import Chart, Trace
from tuccl.views.page.elements import Markup, chart_text, element
from tuccl.views.page.figures.sketch_figures import SketchFigures

_MOST_PAIRS = 40_000
"""Most pairs of ranks that are shown, of all sketches together."""
_NONE, _DROPPED, _NETWORK, _INSIDE = 0, 1, 2, 3
_COLOURS = ("--none", "--dropped", "--network", "--kept")
_SIGNS = ("", "x", "n", "")
_MOST_WITH_SIGNS = 32
"""Most ranks whose cells have room for a sign."""
_NAMES = (
    "no connection",
    "x dropped by the pruning",
    "n kept, over the network",
    "kept, in a node",
)


def connection_chart(sketches: Sequence[Sketch], machine: Topology) -> Chart | None:
    """Return a picture of all pairs of GPUs; None for machines that it cannot show."""
    shown = [each for each in sketches if each.ranks**2 * len(sketches) <= _MOST_PAIRS]
    if not shown:
        return None
    choices = {sketch.name: [_matrix(sketch, machine)] for sketch in shown}
    first = shown[0]
    told = "; ".join(
        f"{sketch.name} keeps {len(sketch.edges)} connections and drops {len(sketch.dropped)}"
        for sketch in shown
    )
    return Chart(
        identity="connections",
        title="From rank (row) to rank (column)",
        alternative=f"Which GPU may send to which, for each sketch: {told}.",
        traces=choices[first.name],
        choices=choices,
        choose="Sketch",
        layout={
            "height": min(560, 140 + 60 * first.ranks),
            "xaxis": {
                "side": "top",
                "showgrid": False,
                "constrain": "domain",
                "dtick": _tick(first),
            },
            "yaxis": {
                "autorange": "reversed",
                "showgrid": False,
                "scaleanchor": "x",
                "constrain": "domain",
                "dtick": _tick(first),
            },
            "showlegend": False,
        },
    )


def connection_words(figures: Sequence[SketchFigures]) -> Markup:
    """Return the legend, and what each sketch dropped, by stage and reason."""
    legend = element(
        "ul",
        *(
            element(
                "li",
                element("span", class_="swatch", style=f"background:var({colour})"),
                name,
            )
            for colour, name in zip(_COLOURS, _NAMES, strict=True)
        ),
        class_="legend",
    )
    rows = [
        element(
            "tr",
            element("th", sketch.name, scope="row"),
            element("td", dropped.stage.replace("_", " ")),
            element("td", str(dropped.count), class_="number"),
            element("td", dropped.reason),
            element("td", dropped.example),
        )
        for sketch in figures
        for dropped in sketch.dropped
    ]
    heads = ("sketch", "stage", "dropped", "why", "an example")
    table = element(
        "table",
        element("caption", "Dropped connections between GPUs, and between GPUs and NICs"),
        element("thead", element("tr", *(element("th", name, scope="col") for name in heads))),
        element("tbody", *rows),
        class_="keys",
    )
    purposes = element(
        "ul", *(element("li", element("b", each.name), f": {each.why}") for each in figures)
    )
    if not rows:
        return element("div", legend, purposes, element("p", "No connection was dropped."))
    return element("div", legend, purposes, element("div", table, class_="wide"))


def _tick(sketch: Sketch) -> int:
    return max(1, sketch.ranks // 16)


def _matrix(sketch: Sketch, machine: Topology) -> Trace:
    names = [gpu.name for gpu in machine.gpus]
    dropped = {(edge.src, edge.dst): edge for edge in sketch.dropped}
    ranks = range(sketch.ranks)
    kinds: list[list[int]] = []
    numbers: dict[str, int] = {}
    texts: list[list[int]] = []
    for src in ranks:
        row = [_cell(sketch, src, dst, dropped.get((names[src], names[dst]))) for dst in ranks]
        kinds.append([kind for kind, _ in row])
        texts.append([numbers.setdefault(text, len(numbers)) for _, text in row])
    shares = [number / len(_COLOURS) for number in range(len(_COLOURS) + 1)]
    scale = [
        [share, colour]
        for colour, pair in zip(_COLOURS, pairwise(shares), strict=True)
        for share in pair
    ]
    return {
        "type": "heatmap",
        "z": kinds,
        "customdata": texts,
        "texts": list(numbers),
        "hovertemplate": "rank %{y} to rank %{x}: %{customdata}<extra></extra>",
        "text": [[_SIGNS[kind] for kind in row] for row in kinds],
        "texttemplate": "%{text}" if sketch.ranks <= _MOST_WITH_SIGNS else "",
        "textfont": {"color": "--ink"},
        "colorscale": scale,
        "zmin": -0.5,
        "zmax": len(_COLOURS) - 0.5,
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }


def _cell(sketch: Sketch, src: int, dst: int, why: DroppedEdge | None) -> tuple[int, str]:
    """Return the kind of a pair of ranks, and its text."""
    edge = sketch.edge.get((src, dst))
    if edge is not None:
        same = sketch.node_of_rank[src] == sketch.node_of_rank[dst]
        text = f"{edge.kind.value}, {edge.bandwidth_gb_per_s:g} GB/s, {edge.alpha_us:g} µs"
        return (_INSIDE if same else _NETWORK), chart_text(text)
    if why is None:
        return _NONE, "no connection"
    text = f"dropped by {why.stage.value.replace('_', ' ')}: {why.reason}"
    return _DROPPED, chart_text(text)
