"""Charts of the search: the mean gain of the best so far, and each key by families."""

from __future__ import annotations

from collections.abc import Iterable

from tuccl.reports.evidence import Evidence
from tuccl.views.page.charts import DASHES, Chart, Trace, line
from tuccl.views.page.figures.search_progress import GainLine, KeySearch, SearchProgress
from tuccl.words.durations import format_seconds

_COLOURS = 6
"""Number of the page's colours for families."""
_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star")


def search_charts(progress: SearchProgress, times: Evidence) -> tuple[Chart, Chart]:
    """Return the charts of the mean gain, and of each key by families."""
    return _mean_chart(progress, times), _key_chart(progress, times)


def _mean_chart(progress: SearchProgress, times: Evidence) -> Chart:
    operations = list(dict.fromkeys(gain.operation for gain in progress.gains))
    choices: dict[str, list[Trace]] = {}
    for gain in progress.gains:
        trace = line(
            f"{_name(gain)}, {times.value}",
            [*(step.seconds for step in gain.steps), progress.seconds],
            [*(step.gain for step in gain.steps), gain.steps[-1].gain],
            colour=f"--family-{operations.index(gain.operation) % _COLOURS + 1}",
            dash=DASHES[times],
            template=f"{_name(gain)} after %{{x:.1f}} s: %{{y:.3f}}x",
        )
        own = choices.setdefault(gain.shape_name, [])
        own.append(_steps(trace, width=1 if gain.apart else 2.5))
    told = "; ".join(f"{_name(gain)} ends at {gain.steps[-1].gain:.3f}" for gain in progress.gains)
    return Chart(
        identity="search-mean",
        title="Best so far, all keys of an operation",
        alternative=(
            f"Geometric mean of stock NCCL's time over that of the best configuration so far, "
            f"over {format_seconds(progress.seconds)} of machine time and "
            f"{progress.measurements} measurements, {times.value}: {told}."
        ),
        traces=next(iter(choices.values()), []),
        choices=choices if len(choices) > 1 else None,
        choose="Shape",
        layout={
            "xaxis": {"title": {"text": "seconds of the machine"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": "gain over stock NCCL"}, "tickformat": ".2f"},
        },
    )


def _name(gain: GainLine) -> str:
    apart = " with schedules that no job here runs" if gain.apart else ""
    return f"{gain.shape_name} {gain.operation.value}{apart}".strip()


def _key_chart(progress: SearchProgress, times: Evidence) -> Chart:
    families = dict.fromkeys(family.name for key in progress.keys for family in key.families)
    styles = {name: number for number, name in enumerate(families)}
    choices = {
        key.key: [
            _family(key, number, styles[family.name], times, progress.seconds)
            for number, family in enumerate(key.families)
        ]
        for key in progress.keys
    }
    first = next(iter(choices.values()), [])
    return Chart(
        identity="search-key",
        title="Best so far of each family of algorithm",
        alternative=(
            f"Time of the best configuration so far of each family, over seconds of the machine, "
            f"{times.value}, for the key that is chosen. {_told(progress.keys)}"
        ),
        traces=first,
        choices=choices,
        choose="Key",
        layout={
            "xaxis": {"title": {"text": "seconds of the machine"}, "rangemode": "tozero"},
            "yaxis": {"type": "log", "title": {"text": "µs"}, "nticks": 8},
        },
    )


def _family(key: KeySearch, number: int, style: int, times: Evidence, seconds: float) -> Trace:
    family = key.families[number]
    trace = line(
        f"{family.name}, {family.configs} tried, {times.value}",
        [*(step.seconds for step in family.steps), seconds],
        [*(step.time_us for step in family.steps), family.steps[-1].time_us],
        colour=f"--family-{style % _COLOURS + 1}",
        dash=DASHES[times],
        symbol=_SYMBOLS[style % len(_SYMBOLS)],
        hover=[*(step.config for step in family.steps), family.steps[-1].config],
        template="%{text}: %{y:.2f} µs after %{x:.1f} s",
    )
    trace["marker"]["size"] = 6
    return _steps(trace, width=2)


def _steps(trace: Trace, *, width: float) -> Trace:
    """Return a line that keeps its value until the next one."""
    trace["line"] |= {"shape": "hv", "width": width}
    return trace


def _told(keys: Iterable[KeySearch]) -> str:
    """Return by which families the keys ended."""
    won: dict[str, int] = {}
    for key in keys:
        for family in key.families[:1]:
            won[family.name] = won.get(family.name, 0) + 1
    counted = ", ".join(f"{name} for {count}" for name, count in won.items())
    return f"Fastest at the end: {counted} of the keys." if counted else ""
