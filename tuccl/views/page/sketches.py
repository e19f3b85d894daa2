"""Connections between GPUs that the sketches of a run keep, or drop and why, with their chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import plotly.graph_objects as go

from probes.topology.graph import Topology
from sketches.sketch import DroppedEdge, Sketch
from sketches.sketch_json import sketch_from_json
from tuccl.errors import MachineError, WorkspaceError
from tuccl.views.page.charts import Chart, chart_text
from tuccl.workspace.runs import Run, read_text_if_present

_MOST_PAIRS = 40_000
"""Most pairs of ranks that are shown, of all sketches together."""
_MOST_WITH_SIGNS = 32
"""Most ranks whose cells have room for a sign."""
_NONE, _DROPPED, _NETWORK, _INSIDE = range(4)
_SIGNS = ("", "x", "n", "")
LEGEND = {
    "none": "no connection",
    "dropped": "x dropped by the pruning",
    "network": "n kept, over the network",
    "kept": "kept, in a node",
}
"""Names of the kinds of pairs, by their colour."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Connections that were dropped at one stage for one reason."""

    stage: str
    reason: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class SketchFigures:
    """A sketch: its purpose, and what it keeps and drops."""

    name: str
    why: str
    kept: int
    dropped: tuple[Dropped, ...]


def read_sketches(run: Run) -> tuple[Sketch, ...]:
    """Read the sketches of a run, by name; a run that made no schedules has none.

    Raises:
        WorkspaceError: A file is damaged.
    """
    return tuple(_read_sketch(path) for path in sorted(run.sketches.glob("*.json")))


def _read_sketch(path: Path) -> Sketch:
    text = read_text_if_present(path)
    if text is None:
        raise WorkspaceError(f"{path} is missing; run `tuccl init` again")
    try:
        return sketch_from_json(text, str(path))
    except MachineError as error:
        raise WorkspaceError(f"{error}; run `tuccl init` again") from error


def sketch_figures(sketch: Sketch) -> SketchFigures:
    """Return what a sketch keeps and drops."""
    reasons = [(edge.stage.value, edge.reason) for edge in sketch.dropped]
    examples = {
        reason: f"{edge.src} to {edge.dst}"
        for reason, edge in zip(reasons, sketch.dropped, strict=True)
    }
    dropped = (
        Dropped(*reason, count, examples[reason])
        for reason, count in Counter(reasons).most_common()
    )
    return SketchFigures(sketch.name, sketch.why, len(sketch.edges), tuple(dropped))


def connection_chart(sketches: Sequence[Sketch], machine: Topology) -> Chart | None:
    """Return a picture of all pairs of GPUs, unless the machine is too large for one."""
    shown = [each for each in sketches if each.ranks**2 * len(sketches) <= _MOST_PAIRS]
    if not shown:
        return None
    told = "; ".join(
        f"{sketch.name} keeps {len(sketch.edges)} connections and drops {len(sketch.dropped)}"
        for sketch in shown
    )
    return Chart(
        "From rank (row) to rank (column)",
        f"Which GPU may send to which, for each sketch: {told}.",
        {sketch.name: _matrix(sketch, machine) for sketch in shown},
        choose="Sketch",
    )


def _matrix(sketch: Sketch, machine: Topology) -> go.Figure:
    names = [gpu.name for gpu in machine.gpus]
    dropped = {(edge.src, edge.dst): edge for edge in sketch.dropped}
    ranks = range(sketch.ranks)
    cells = [
        [_cell(sketch, src, dst, dropped.get((names[src], names[dst]))) for dst in ranks]
        for src in ranks
    ]
    numbers = {
        text: at for at, text in enumerate(dict.fromkeys(t for row in cells for _, t in row))
    }
    shares = [number / len(LEGEND) for number in range(len(LEGEND) + 1)]
    kinds = [[kind for kind, _ in row] for row in cells]
    trace = go.Heatmap(
        z=kinds,
        # Many cells share few texts, so they hold their numbers; the page's script puts them in.
        customdata=[[numbers[text] for _, text in row] for row in cells],
        meta=list(numbers),
        hovertemplate="rank %{y} to rank %{x}: %{customdata}<extra></extra>",
        text=[[_SIGNS[kind] for kind in row] for row in kinds],
        texttemplate="%{text}" if sketch.ranks <= _MOST_WITH_SIGNS else "",
        textfont={"color": "var(--ink)"},
        colorscale=[
            [share, f"var(--{colour})"]
            for colour, pair in zip(LEGEND, pairwise(shares), strict=True)
            for share in pair
        ],
        zmin=-0.5,
        zmax=len(LEGEND) - 0.5,
        showscale=False,
        xgap=1,
        ygap=1,
    )
    axis = {"showgrid": False, "constrain": "domain", "dtick": max(1, sketch.ranks // 16)}
    return go.Figure(trace).update_layout(
        height=min(560, 140 + 60 * sketch.ranks),
        xaxis={**axis, "side": "top"},
        yaxis={**axis, "autorange": "reversed", "scaleanchor": "x"},
        showlegend=False,
    )


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
