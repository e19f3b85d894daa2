"""The process profile: which key it makes faster or slower, and which profiles it forgoes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuccl.reports.report import Report
from tuccl.views.page.charts import DASHES, Chart, Trace, line, size_axis
from tuccl.views.page.curves import keys_by_curve
from tuccl.views.page.elements import Markup, element
from tuccl.views.page.figures.key_figures import KeyFigures, ProfileGain
from tuccl.views.page.figures.table_figures import TableFigures
from tuccl.views.terminal.table_display import floor_lines

_COLOURS = 6
_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star")


def profile_chart(figures: TableFigures) -> Chart | None:
    """Return the chart of gains under the profile alone; None where no key has one."""
    known = [key for key in figures.keys if key.profile_gain is not None]
    if not known:
        return None
    traces = [
        _trace(keys[0].curve, number, figures, keys)
        for number, keys in enumerate(keys_by_curve(known))
    ]
    gains = {id(key): _gain(key).ratio for key in known}
    worst = min(known, key=lambda key: gains[id(key)])
    best = max(known, key=lambda key: gains[id(key)])
    sizes = [key.size_bytes for key in known]
    return Chart(
        identity="profile-gains",
        title="Stock NCCL's time over that of NCCL's own choice under the profile",
        alternative=(
            f"What the process profile alone does to each key, {figures.times.value}; above 1 is "
            f"faster. Best: {_told(best)}. Worst: {_told(worst)}."
        ),
        traces=traces,
        layout={
            "xaxis": size_axis(sizes),
            "yaxis": {"title": {"text": "gain by the profile"}, "tickformat": ".2f"},
            "shapes": [
                {
                    "type": "line",
                    "xref": "paper",
                    "x0": 0,
                    "x1": 1,
                    "y0": 1,
                    "y1": 1,
                    "line": {"color": "--ink", "width": 1},
                }
            ],
        },
        note=(
            "Bars: bounds over starts of both in turn. A point without bars compares single "
            "starts at different times, which differ by themselves."
        ),
    )


def profile_words(profile: Mapping[str, str], report: Report | None) -> Iterator[Markup]:
    """Yield the variables as a table, and sentences on the choice."""
    if not profile:
        yield element(
            "p", "No variable is set: a process runs as with stock NCCL, whatever its calls."
        )
    else:
        rows = (
            element("tr", element("th", name, scope="row"), element("td", value))
            for name, value in profile.items()
        )
        yield element("table", element("tbody", *rows))
    if report is not None:
        names = {shape: name for name, shape in report.shapes.items()}
        lines = floor_lines(report.floor, names, weighed=bool(report.weights))
        yield element("ul", *(element("li", line) for line in lines))


def _gain(key: KeyFigures) -> ProfileGain:
    if key.profile_gain is None:
        raise ValueError("the key has no time under the profile")
    return key.profile_gain


def _told(key: KeyFigures) -> str:
    return f"{_gain(key).ratio:.3f}x at {key.name}"


def _trace(name: str, number: int, figures: TableFigures, keys: list[KeyFigures]) -> Trace:
    gains = [_gain(key) for key in keys]
    return line(
        f"{name}, {figures.times.value}",
        [key.size_bytes for key in keys],
        [gain.ratio for gain in gains],
        colour=f"--family-{number % _COLOURS + 1}",
        dash=DASHES[figures.times],
        symbol=_SYMBOLS[number % len(_SYMBOLS)],
        hover=[f"{_told(key)}{_bounds(gain)}" for key, gain in zip(keys, gains, strict=True)],
        below=[None if gain.low is None else gain.ratio - gain.low for gain in gains],
        above=[None if gain.high is None else gain.high - gain.ratio for gain in gains],
    )


def _bounds(gain: ProfileGain) -> str:
    if gain.low is None or gain.high is None:
        return ", single starts at different times"
    return f" ({gain.low:.3f} to {gain.high:.3f}, {gain.starts} starts of each)"
