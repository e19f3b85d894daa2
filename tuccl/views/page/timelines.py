"""Schedules over time: when a simulated call uses each link, and each rank runs its steps.

The simulator is that of the search, with the parameters of the entry and the constants of the model
of the executor, whatever the entry's own times rest on. Of its two models of links that messages
share, the one with messages in turn is drawn, in which a link has one message at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

import plotly.graph_objects as go

from lookup_tables.table import Operation, ScheduleConfig, Shape, StoredSchedule
from probes.topology.graph import Topology
from sketches.candidates import whole_machine
from sketches.sketch import Sketch
from synthesizer.formats.msccl_xml import read_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from synthesizer.simulate.trace import Trace, TracedStep, Transfer, trace_schedule
from tuccl.errors import ScheduleError
from tuccl.models.executor_model import SLOTS, execution_model, with_network_hops
from tuccl.models.figures import machine_figures
from tuccl.models.model_constants import SHIPPED
from tuccl.models.siblings import SiblingMachines
from tuccl.quantities import count_of, format_size
from tuccl.views.page.charts import Chart, chart_text
from tuccl.views.page.keys import ReportedKey
from tuccl.views.page.place import ReportedTable

_MOST_SCHEDULES = 4
_MOST_STEPS = 4_500
"""Most steps of a schedule that is shown."""
_MOST_STEPS_TOGETHER = 5_000
_MOST_BARS = 1_000
"""Most bars of the links of one schedule; close ones are joined to get there."""
_FINEST = 2_000
"""Gaps of the time over this are not shown."""
_TILES = 2


class MessagePhase(StrEnum):
    """The part of a collective that a message or step belongs to."""

    COLLECT_INSIDE = "reduce inside a node"
    COLLECT_ACROSS = "reduce between nodes"
    SPREAD_INSIDE = "copy inside a node"
    SPREAD_ACROSS = "copy between nodes"
    LOCAL = "on the GPU itself"


_STYLES = {
    MessagePhase.COLLECT_INSIDE: ("var(--green)", 0.8),
    MessagePhase.COLLECT_ACROSS: ("var(--orange)", 0.8),
    MessagePhase.SPREAD_INSIDE: ("var(--blue)", 0.45),
    MessagePhase.SPREAD_ACROSS: ("var(--plum)", 0.45),
    MessagePhase.LOCAL: ("var(--grey)", 0.2),
}
"""Colours and heights of bars: phases differ by more than their colour."""
_LANE_PIXELS = 15
_AROUND_PIXELS = 150


@dataclass(frozen=True, slots=True)
class Bar:
    """A time that something is busy."""

    phase: MessagePhase
    begin_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class LinkLane:
    """The use of one port of the sketch."""

    port: str
    share: float
    """Share of the time that it is occupied."""
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class StepBar:
    """A step of a threadblock."""

    instruction: str
    """As MSCCL-IR names it."""
    chunks: int
    bar: Bar


@dataclass(frozen=True, slots=True)
class ThreadblockLane:
    """The steps of one threadblock."""

    rank: int
    threadblock: int
    receives_from: int
    """Rank, -1 for none."""
    sends_to: int
    """Rank, -1 for none."""
    steps: tuple[StepBar, ...]


@dataclass(frozen=True, slots=True)
class ScheduleTimeline:
    """A simulated call of a schedule."""

    schedule: str
    operation: Operation
    size_bytes: int
    shape: Shape
    shape_name: str
    """As `ShownKey.shape_name`."""
    runs: str
    """The schedule and its parameters."""
    sketch: str
    time_us: float
    """Time of the tiles that are shown, their messages in turn at each port."""
    fair_us: float
    """Time of the same tiles where messages share ports fairly."""
    tiles: int
    """Tiles of the whole call."""
    shown_tiles: int
    links: tuple[LinkLane, ...]
    ranks: tuple[ThreadblockLane, ...]

    @property
    def name(self) -> str:
        """Name: `all_reduce_ring_8x at 64M`, with the shape if the table has several."""
        shape = f", {self.shape_name}" if self.shape_name else ""
        return f"{self.schedule} at {format_size(self.size_bytes)}{shape}"


def simulated_timelines(
    found: ReportedTable, keys: Sequence[ReportedKey], sketches: Sequence[Sketch]
) -> tuple[ScheduleTimeline, ...]:
    """Return the schedules that won most keys, each at the size of its largest gain.

    Schedules that are too large to be shown are left out, and so are those of a place that holds
    no machine, and those that the simulator does not run on it.

    Args:
        found: The table.
        keys: Its keys.
        sketches: Sketches of its run, of all GPUs; smaller communicators have those of their part
            of the machine.
    """
    machine, report = found.machine, found.report
    if machine is None or report is None:
        return ()
    by_name = {sketch.name: sketch for sketch in sketches}
    stored = {schedule.content_hash: schedule for schedule in found.table.schedules}
    parts = SiblingMachines(machine)
    made: list[ScheduleTimeline] = []
    steps = 0
    for key, config in _chosen(found, keys):
        tried = report.schedules.get(config.schedule)
        part, sketch = machine, by_name.get("" if tried is None else tried.sketch)
        if key.shape.ranks < len(machine.gpus):
            part, sketch = parts.slowest(key.shape), None
        sketch = sketch or whole_machine(part)
        timeline = _timeline(stored[config.schedule], config, key, sketch, part)
        if timeline is None:
            continue
        more = sum(len(lane.steps) for lane in timeline.ranks)
        if steps + more > _MOST_STEPS_TOGETHER:
            continue
        steps += more
        made.append(timeline)
        if len(made) == _MOST_SCHEDULES:
            break
    return tuple(made)


def _chosen(
    found: ReportedTable, keys: Sequence[ReportedKey]
) -> Iterator[tuple[ReportedKey, ScheduleConfig]]:
    """Yield each schedule that won with the key of its largest gain, the most frequent first."""
    by_call = {(key.operation, key.size_bytes, key.shape): key for key in keys}
    won: dict[str, list[tuple[ReportedKey, ScheduleConfig]]] = {}
    for entry in found.table.entries:
        key = by_call.get((entry.key.operation, entry.tuned_bytes, entry.key.shape))
        if entry.schedule is not None and key is not None:
            won.setdefault(entry.schedule.schedule, []).append((key, entry.schedule))
    for own in sorted(won.values(), key=len, reverse=True):
        yield max(own, key=lambda pair: pair[0].schedule_speedup or 0.0)


def _timeline(
    stored: StoredSchedule,
    config: ScheduleConfig,
    key: ReportedKey,
    sketch: Sketch,
    machine: Topology,
) -> ScheduleTimeline | None:
    try:
        algorithm = read_msccl_xml(stored.msccl_xml, stored.name)
        if algorithm.step_count > _MOST_STEPS:
            return None
        network = with_network_hops(sketch, machine_figures(machine), SHIPPED)
        model = _model(algorithm, network, config, key.size_bytes)
        trace = trace_schedule(algorithm, network, key.size_bytes, model, _TILES)
    except ScheduleError:
        return None
    return ScheduleTimeline(
        schedule=stored.name,
        operation=key.operation,
        size_bytes=key.size_bytes,
        shape=key.shape,
        shape_name=key.shape_name,
        runs=key.schedule_runs,
        sketch=sketch.name,
        time_us=round(trace.time_us, 3),
        fair_us=round(trace.fair_us, 3),
        tiles=trace.tiles,
        shown_tiles=trace.traced_tiles,
        links=_links(trace, sketch),
        ranks=tuple(_ranks(trace, sketch)),
    )


def _model(
    algorithm: Algorithm, sketch: Sketch, config: ScheduleConfig, size_bytes: int
) -> ExecutionModel:
    """Return the model of the executor with an entry's parameters.

    Kernels have no buffer of their own, so that a slot holds any message there.
    """
    compiled = compile_schedule(algorithm, sketch)
    instances = max(1, config.nchannels)
    whole = max(1, ceil(compiled.largest_message_bytes(size_bytes, instances)))
    slot_bytes = min(config.buffer_bytes // SLOTS, whole) if config.buffer_bytes else whole
    return execution_model(config.protocol, max(32, config.nthreads), instances, slot_bytes)


def _links(trace: Trace, sketch: Sketch) -> tuple[LinkLane, ...]:
    by_port: dict[str, list[Transfer]] = {}
    for transfer in trace.transfers:
        by_port.setdefault(transfer.port, []).append(transfer)
    shares = trace.shares()
    gap_us = trace.time_us / _FINEST
    while True:
        lanes = {port: _joined(found, sketch, gap_us) for port, found in by_port.items()}
        if sum(map(len, lanes.values())) <= _MOST_BARS or gap_us > trace.time_us:
            break
        gap_us *= 2.0
    return tuple(LinkLane(port, round(shares[port], 4), lanes[port]) for port in sorted(lanes))


def _joined(transfers: Sequence[Transfer], sketch: Sketch, gap_us: float) -> tuple[Bar, ...]:
    """Return the times of a port, those of one phase joined over gaps that cannot be seen."""
    bars: list[Bar] = []
    for transfer in sorted(transfers, key=lambda each: each.begin_us):
        phase = _phase(sketch, transfer.src, transfer.dst, reduces=transfer.reduces)
        last = bars[-1] if bars else None
        if last is None or last.phase is not phase or transfer.begin_us - last.end_us > gap_us:
            bars.append(_bar(phase, transfer.begin_us, transfer.end_us))
        else:
            bars[-1] = _bar(phase, last.begin_us, transfer.end_us)
    return tuple(bars)


def _phase(sketch: Sketch, src: int, dst: int, *, reduces: bool) -> MessagePhase:
    inside = sketch.node_of_rank[src] == sketch.node_of_rank[dst]
    if reduces:
        return MessagePhase.COLLECT_INSIDE if inside else MessagePhase.COLLECT_ACROSS
    return MessagePhase.SPREAD_INSIDE if inside else MessagePhase.SPREAD_ACROSS


def _ranks(trace: Trace, sketch: Sketch) -> Iterator[ThreadblockLane]:
    lanes: dict[tuple[int, int], list[TracedStep]] = {}
    for step in trace.steps:
        lanes.setdefault((step.rank, step.threadblock.id), []).append(step)
    for (rank, number), steps in sorted(lanes.items()):
        block = steps[0].threadblock
        bars = tuple(
            StepBar(
                step.step.type.value,
                step.step.count,
                _bar(_step_phase(step, sketch), step.begin_us, step.end_us),
            )
            for step in steps
        )
        yield ThreadblockLane(rank, number, block.recv_peer, block.send_peer, bars)


def _step_phase(step: TracedStep, sketch: Sketch) -> MessagePhase:
    """Return a step's phase: by the message that it receives, or else sends."""
    kind = step.step.type
    block = step.threadblock
    if kind.receives:
        return _phase(sketch, block.recv_peer, step.rank, reduces=kind.reduces)
    if kind.sends:
        return _phase(sketch, step.rank, block.send_peer, reduces=step.peer_reduces)
    return MessagePhase.LOCAL


def _bar(phase: MessagePhase, begin_us: float, end_us: float) -> Bar:
    return Bar(phase, round(begin_us, 3), round(end_us, 3))


def timeline_charts(timelines: Sequence[ScheduleTimeline]) -> tuple[Chart, Chart]:
    """Return the charts of links, and of steps; there has to be a timeline."""
    links, steps = {}, {}
    for timeline in timelines:
        links[timeline.name] = _lanes(
            (f"{lane.port} {lane.share:.0%}", bar, "")
            for lane in timeline.links
            for bar in lane.bars
        )
        for rank in dict.fromkeys(lane.rank for lane in timeline.ranks):
            steps[f"{timeline.name}, rank {rank}"] = _lanes(
                (_lane_name(lane), step.bar, f"{number} {step.instruction} {step.chunks}")
                for lane in timeline.ranks
                if lane.rank == rank
                for number, step in enumerate(lane.steps)
            )
    first = [lane for lane in timelines[0].ranks if lane.rank == 0]
    return (
        Chart(
            "Links over time (simulated)",
            f"Simulated, not measured. {'. '.join(map(_told, timelines))}.",
            links,
            "Schedule",
            "Messages pass a link in turn. A row for each link or port, with the share of the time "
            "that it is in use. Thick bars reduce, thin ones copy. Gaps that cannot be seen are "
            "closed.",
        ),
        Chart(
            "Steps of a rank over time (simulated)",
            "Simulated, not measured. When each threadblock of the chosen rank runs its steps; "
            f"rank 0 of {timelines[0].name} has {count_of(len(first), 'threadblock')} with "
            f"{count_of(sum(len(lane.steps) for lane in first), 'step')}.",
            steps,
            "Rank",
            "A row for each threadblock, with the ranks that it receives from and sends to. On "
            "hover: number of the step, instruction of MSCCL-IR, chunks. A bar begins when the "
            "step could run, and may wait for its link.",
        ),
    )


def _lane_name(lane: ThreadblockLane) -> str:
    source = "" if lane.receives_from < 0 else f"{lane.receives_from} "
    target = "" if lane.sends_to < 0 else f" {lane.sends_to}"
    return f"tb {lane.threadblock}: {source}>{target}"


def _lanes(bars: Iterable[tuple[str, Bar, str]]) -> go.Figure:
    """Return a chart with a row for each lane, and a trace for each phase that occurs.

    Args:
        bars: Name of the lane, bar, and text of each step; lanes are in the order of their bars.
    """
    shown = [(chart_text(lane), bar, chart_text(text)) for lane, bar, text in bars]
    lanes = list(dict.fromkeys(lane for lane, _, _ in shown))
    figure = go.Figure().update_layout(
        height=_AROUND_PIXELS + _LANE_PIXELS * len(lanes),
        barmode="overlay",
        bargap=0,
        xaxis={"title": "simulated µs", "rangemode": "tozero"},
        yaxis={"type": "category", "categoryorder": "array", "categoryarray": lanes},
        yaxis_range=[len(lanes) - 0.5, -0.5],
        yaxis_tickfont_size=11,
        yaxis_dtick=1,
        yaxis_showgrid=False,
    )
    for phase, (colour, height) in _STYLES.items():
        found = [(lane, bar, text) for lane, bar, text in shown if bar.phase is phase]
        if found:
            texts = [text for _, _, text in found if text]
            named = "%{y}, step %{hovertext}" if texts else "%{y}"
            figure.add_bar(
                orientation="h",
                name=phase.value,
                base=[bar.begin_us for _, bar, _ in found],
                x=[round(bar.end_us - bar.begin_us, 3) for _, bar, _ in found],
                y=[lane for lane, _, _ in found],
                width=height,
                marker={"color": colour, "line": {"width": 0}},
                hovertext=texts or None,
                hovertemplate=f"{named}<br>{phase.value}: from %{{base:.2f}} to %{{x:.2f}} µs"
                "<extra></extra>",
            )
    return figure


def _told(timeline: ScheduleTimeline) -> str:
    busiest = max(timeline.links, key=lambda lane: lane.share)
    idlest = min(timeline.links, key=lambda lane: lane.share)
    tiles = ""
    if timeline.shown_tiles < timeline.tiles:
        tiles = f" for the first {timeline.shown_tiles} of {timeline.tiles} tiles, alone,"
    return (
        f"{timeline.name} ({timeline.runs}), on sketch {timeline.sketch}, takes"
        f"{tiles} {timeline.time_us:.2f} µs with messages in turn at each link, "
        f"{timeline.fair_us:.2f} µs if they share links fairly, and uses "
        f"{count_of(len(timeline.links), 'link')}, {busiest.port} most, for {busiest.share:.0%} "
        f"of the time, and {idlest.port} least, for {idlest.share:.0%}"
    )
