"""Charts of the guard's verdicts: which choice ran over time, and the times that were compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import plotly.graph_objects as go

from tuccl.quantities import count_of, format_size
from tuccl.reports.verdicts import JudgedKey, Verdict, VerdictHistory, runs_words
from tuccl.views.page.charts import COLOURS, SYMBOLS, Chart, chart_text, line, value_axis
from tuccl.views.page.keys import shape_words

MOST_CHANGES = 200
"""Changes that a page lists."""
_MOST_KEYS = 60
"""Keys of the charts: those that changed most often."""
_MOST_POINTS = 400
"""Verdicts of a key that a chart shows: the last ones."""
_LANE_PIXELS = 22
_AROUND_PIXELS = 130


@dataclass(frozen=True, slots=True)
class VerdictDocument:
    """`report --verdicts`: the guard's verdicts, and the page that shows them."""

    file: Path
    """The page."""
    figures: VerdictHistory


def key_name(key: JudgedKey) -> str:
    """Return `all_reduce of 64K, 8 ranks on 1 node`."""
    return f"{key.operation.value} of {format_size(key.size_bytes)}, {shape_words(key.shape)}"


def verdict_charts(found: VerdictHistory) -> tuple[Chart, Chart]:
    """Return the charts of what ran, and of the times."""
    shown = sorted(found.keys, key=lambda key: (-key.changes, -len(key.verdicts)))[:_MOST_KEYS]
    names = list(
        dict.fromkeys(choice.name for key in shown for each in key.verdicts
                      for choice in each.choices)
    )  # fmt: skip
    left = len(found.keys) - len(shown)
    note = f"{count_of(left, 'key')} that changed less often are not shown." if left else ""
    return _runs_chart(shown, names, note), _times_chart(shown, names, note)


def _style(name: str, names: Sequence[str]) -> tuple[str, str]:
    place = names.index(name)
    return COLOURS[place % len(COLOURS)], SYMBOLS[place % len(SYMBOLS)]


def _date(each: Verdict) -> str:
    return datetime.fromtimestamp(each.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _runs_chart(keys: Sequence[JudgedKey], names: Sequence[str], note: str) -> Chart:
    traces = []
    for name in names:
        colour, symbol = _style(name, names)
        points = [
            (_date(each), chart_text(key_name(key)), chart_text(each.verdict.words))
            for key in keys
            for each in key.verdicts[-_MOST_POINTS:]
            if each.runs == name
        ]
        if points:
            dates, lanes, words = zip(*points, strict=True)
            traces.append(
                go.Scatter(
                    x=dates,
                    y=lanes,
                    text=words,
                    name=chart_text(name),
                    mode="markers",
                    marker={"color": colour, "symbol": symbol, "size": 9},
                    hovertemplate="%{y}<br>%{x}: %{text}",
                )
            )
    order = [chart_text(key_name(key)) for key in reversed(keys)]
    figure = go.Figure(traces).update_layout(
        height=_AROUND_PIXELS + _LANE_PIXELS * len(order),
        xaxis={"type": "date", "title": "time, UTC"},
        yaxis={"type": "category", "categoryorder": "array", "categoryarray": order, "dtick": 1},
        yaxis_tickfont_size=11,
    )
    told = "; ".join(f"{key_name(key)}: {runs_words(key)}" for key in keys[:10])
    return Chart(
        "Which choice runs from each verdict on",
        f"What ran at last, of the keys that changed most often: {told}.",
        {"all": figure},
        note=note,
    )


def _times_chart(keys: Sequence[JudgedKey], names: Sequence[str], note: str) -> Chart:
    figures = {}
    for key in keys:
        shown = key.verdicts[-_MOST_POINTS:]
        traces = []
        for name in names:
            timed = [(each, each.median_us(name)) for each in shown]
            known = [(each, us) for each, us in timed if us is not None]
            if not known:
                continue
            colour, symbol = _style(name, names)
            trace = line(
                chart_text(name),
                [0.0] * len(known),
                [(us, None, None) for _, us in known],
                [chart_text(each.verdict.words) for each, _ in known],
                colour=colour,
                dash="solid",
                symbol=symbol,
                template="%{x}: %{y:.4g} µs, %{text}",
            )
            traces.append(trace.update(x=[_date(each) for each, _ in known]))
        if traces:
            figures[key_name(key)] = go.Figure(traces).update_layout(
                xaxis={"type": "date", "title": "time, UTC"}, yaxis=value_axis("µs", traces)
            )
    first = keys[0]
    told = ", ".join(
        f"{name} {us:.4g} µs" for name in names if (us := first.last_median_us(name)) is not None
    )
    return Chart(
        "Times in the job",
        "The medians of each trial over time, for the key that is chosen. "
        f"Last of {key_name(first)}: {told or 'not known'}.",
        figures or {"none": go.Figure()},
        "Key",
        note=note,
    )
