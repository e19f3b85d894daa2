"""Charts of schedules over time: the use of links, and the steps of each rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuccl.views.page.charts import Chart, Trace
from tuccl.views.page.elements import chart_text
from tuccl.views.page.figures.timelines import Bar, Phase, ThreadblockLane, Timeline
from tuccl.words.counts import count_of
from tuccl.words.sizes import format_size

_COLOURS = {
    Phase.COLLECT_INSIDE: "--inside",
    Phase.COLLECT_ACROSS: "--across",
    Phase.SPREAD_INSIDE: "--inside-back",
    Phase.SPREAD_ACROSS: "--across-back",
    Phase.LOCAL: "--local",
}
_HEIGHTS = {
    Phase.COLLECT_INSIDE: 0.8,
    Phase.COLLECT_ACROSS: 0.8,
    Phase.SPREAD_INSIDE: 0.45,
    Phase.SPREAD_ACROSS: 0.45,
    Phase.LOCAL: 0.2,
}
"""Heights of bars, so that phases differ by more than their colour."""
_LANE_PIXELS = 15
_AROUND_PIXELS = 150


def timeline_charts(timelines: Sequence[Timeline]) -> tuple[Chart, Chart]:
    """Return the charts of links, and of steps; there has to be a timeline."""
    return _link_chart(timelines), _step_chart(timelines)


def timeline_name(timeline: Timeline) -> str:
    """Return `all_reduce_ring_8x at 64M`, with the shape where the table has several."""
    shape = f", {timeline.shape_name}" if timeline.shape_name else ""
    return f"{timeline.schedule} at {format_size(timeline.size_bytes)}{shape}"


def _link_chart(timelines: Sequence[Timeline]) -> Chart:
    choices: dict[str, list[Trace]] = {}
    layouts: dict[str, Mapping[str, Any]] = {}
    for timeline in timelines:
        lanes = {
            chart_text(f"{lane.port} {lane.share:.0%}"): [(bar, "") for bar in lane.bars]
            for lane in timeline.links
        }
        choices[timeline_name(timeline)] = list(_bars(lanes))
        layouts[timeline_name(timeline)] = _layout(list(lanes))
    told = ". ".join(_told(timeline) for timeline in timelines)
    return Chart(
        identity="schedule-links",
        title="Links over time (simulated)",
        alternative=f"Simulated, not measured. {told}.",
        traces=next(iter(choices.values())),
        layout=_first(layouts),
        choices=choices,
        choose="Schedule",
        layouts=layouts,
        note=(
            "Messages pass a link in turn. A row for each link or port, with the share of the time "
            "that it is in use. Thick "
            "bars reduce, thin ones copy. Gaps that cannot be seen are closed."
        ),
    )


def _step_chart(timelines: Sequence[Timeline]) -> Chart:
    choices: dict[str, list[Trace]] = {}
    layouts: dict[str, Mapping[str, Any]] = {}
    for timeline in timelines:
        for rank in dict.fromkeys(lane.rank for lane in timeline.ranks):
            own = [lane for lane in timeline.ranks if lane.rank == rank]
            lanes = {
                _lane_name(lane): [
                    (step.bar, f"{number} {step.instruction} {step.chunks}")
                    for number, step in enumerate(lane.steps)
                ]
                for lane in own
            }
            name = f"{timeline_name(timeline)}, rank {rank}"
            choices[name] = list(_bars(lanes))
            layouts[name] = _layout(list(lanes))
    first = timelines[0]
    return Chart(
        identity="schedule-steps",
        title="Steps of a rank over time (simulated)",
        alternative=(
            "Simulated, not measured. When each threadblock of the chosen rank runs its steps; "
            f"rank 0 of {timeline_name(first)} has "
            f"{count_of(sum(lane.rank == 0 for lane in first.ranks), 'threadblock')} with "
            f"{count_of(sum(len(x.steps) for x in first.ranks if x.rank == 0), 'step')}."
        ),
        traces=next(iter(choices.values())),
        layout=_first(layouts),
        choices=choices,
        choose="Rank",
        layouts=layouts,
        note=(
            "A row for each threadblock, with the ranks that it receives from and sends to. On "
            "hover: number of the step, instruction of MSCCL-IR, chunks. A bar begins when the "
            "step could run, and may wait for its link."
        ),
    )


def _lane_name(lane: ThreadblockLane) -> str:
    source = "" if lane.receives_from < 0 else f"{lane.receives_from} "
    target = "" if lane.sends_to < 0 else f" {lane.sends_to}"
    return chart_text(f"tb {lane.threadblock}: {source}>{target}")


def _bars(lanes: Mapping[str, Sequence[tuple[Bar, str]]]) -> Iterable[Trace]:
    """Yield a trace for each phase that occurs."""
    for phase in Phase:
        found = [
            (lane, bar, text)
            for lane, bars in lanes.items()
            for bar, text in bars
            if bar.phase is phase
        ]
        if not found:
            continue
        texts = [chart_text(text) for _, _, text in found if text]
        named = "%{y}, step %{hovertext}" if texts else "%{y}"
        yield {
            "type": "bar",
            "orientation": "h",
            "name": phase.value,
            "base": [bar.begin_us for _, bar, _ in found],
            "x": [round(bar.end_us - bar.begin_us, 3) for _, bar, _ in found],
            "y": [lane for lane, _, _ in found],
            "width": _HEIGHTS[phase],
            "marker": {"color": _COLOURS[phase], "line": {"width": 0}},
            "hovertext": texts,
            "hovertemplate": (
                f"{named}<br>{phase.value}: from %{{base:.2f}} to %{{x:.2f}} µs<extra></extra>"
            ),
        }


def _layout(lanes: Sequence[str]) -> dict[str, Any]:
    return {
        "height": _AROUND_PIXELS + _LANE_PIXELS * len(lanes),
        "barmode": "overlay",
        "bargap": 0,
        "xaxis": {"title": {"text": "simulated µs"}, "rangemode": "tozero"},
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": list(lanes),
            "range": [len(lanes) - 0.5, -0.5],
            "tickfont": {"size": 11},
            "dtick": 1,
            "showgrid": False,
        },
    }


def _first(layouts: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return next(iter(layouts.values()))


def _told(timeline: Timeline) -> str:
    busiest = max(timeline.links, key=lambda lane: lane.share)
    idlest = min(timeline.links, key=lambda lane: lane.share)
    tiles = ""
    if timeline.shown_tiles < timeline.tiles:
        tiles = f" for the first {timeline.shown_tiles} of {timeline.tiles} tiles, alone,"
    return (
        f"{timeline_name(timeline)} ({timeline.runs}), on sketch {timeline.sketch}, takes"
        f"{tiles} {timeline.time_us:.2f} µs with messages in turn at each link, "
        f"{timeline.fair_us:.2f} µs where they share links fairly, "
        f"and uses {count_of(len(timeline.links), 'link')}, "
        f"{busiest.port} most, for {busiest.share:.0%} of the time, and {idlest.port} least, "
        f"for {idlest.share:.0%}"
    )
