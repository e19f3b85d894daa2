"""Schedules over time: when a simulated call uses each link, and each rank runs its steps.

The simulator is that of the search, with the parameters of the entry and the constants of the model
of the executor, whatever the entry's own times rest on. Of its two models of links that messages
share, the one with messages in turn is drawn, in which a link has one message at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from math import ceil

import plotly.graph_objects as go

from lookup_tables.collective import Collective
from lookup_tables.table import ScheduleConfig, Shape, StoredSchedule
from probes.topology.graph import Topology
from sketches.candidates import whole_machine
from sketches.sketch import Sketch
from synthesizer.formats.msccl_xml import read_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from synthesizer.simulate.trace import Trace, TracedStep, Transfer, trace_schedule
from tuccl.errors import ScheduleError, UsageError
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
    """A time that a port of the sketch, or a threadblock, is busy."""

    lane: str
    """The port, or the threadblock with the ranks that it receives from and sends to."""
    phase: MessagePhase
    begin_us: float
    end_us: float
    rank: int | None = None
    """Rank of the threadblock."""
    step: str = ""
    """Number of the threadblock's step, its instruction as MSCCL-IR names it, and its chunks."""


@dataclass(frozen=True, slots=True)
class ScheduleTimeline:
    """A simulated call of a schedule."""

    schedule: str
    operation: Collective
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
    shares: Mapping[str, float]
    """Share of the time that each port is occupied."""
    transfers: tuple[Bar, ...]
    steps: tuple[Bar, ...]

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
        try:
            if key.shape.ranks < len(machine.gpus):
                part, sketch = parts.slowest(key.shape), None
            sketch = sketch or whole_machine(part)
            timeline = _timeline(stored[config.schedule], config, key, sketch, part)
        except (ScheduleError, UsageError):
            continue
        if timeline is not None and steps + len(timeline.steps) <= _MOST_STEPS_TOGETHER:
            made.append(timeline)
            steps += len(timeline.steps)
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
    """Return the call of a key by a schedule, unless that has too many steps.

    Raises:
        ScheduleError: The simulator does not run the schedule on the machine.
    """
    algorithm = read_msccl_xml(stored.msccl_xml, stored.name)
    if algorithm.step_count > _MOST_STEPS:
        return None
    network = with_network_hops(sketch, machine_figures(machine), SHIPPED)
    model = _model(algorithm, network, config, key.size_bytes)
    trace = trace_schedule(algorithm, network, key.size_bytes, model, _TILES)
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
        shares={port: round(share, 4) for port, share in trace.shares().items()},
        transfers=_transfers(trace, sketch),
        steps=tuple(_steps(trace, sketch)),
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


def _transfers(trace: Trace, sketch: Sketch) -> tuple[Bar, ...]:
    """Return when each port is in use, with gaps closed until the bars are few enough."""
    by_port: dict[str, list[Transfer]] = {}
    for transfer in sorted(trace.transfers, key=lambda each: (each.port, each.begin_us)):
        by_port.setdefault(transfer.port, []).append(transfer)
    gap_us = trace.time_us / _FINEST
    while True:
        bars = [bar for found in by_port.values() for bar in _joined(found, sketch, gap_us)]
        if len(bars) <= _MOST_BARS or gap_us > trace.time_us:
            return tuple(bars)
        gap_us *= 2.0


def _joined(transfers: Sequence[Transfer], sketch: Sketch, gap_us: float) -> list[Bar]:
    """Return the times of a port, those of one phase joined over gaps that cannot be seen."""
    bars: list[Bar] = []
    for transfer in transfers:
        phase = _phase(sketch, transfer.src, transfer.dst, reduces=transfer.reduces)
        begin_us, end_us = round(transfer.begin_us, 3), round(transfer.end_us, 3)
        last = bars[-1] if bars else None
        if last is None or last.phase is not phase or transfer.begin_us - last.end_us > gap_us:
            bars.append(Bar(transfer.port, phase, begin_us, end_us))
        else:
            bars[-1] = replace(last, end_us=end_us)
    return bars


def _phase(sketch: Sketch, src: int, dst: int, *, reduces: bool) -> MessagePhase:
    inside = sketch.node_of_rank[src] == sketch.node_of_rank[dst]
    if reduces:
        return MessagePhase.COLLECT_INSIDE if inside else MessagePhase.COLLECT_ACROSS
    return MessagePhase.SPREAD_INSIDE if inside else MessagePhase.SPREAD_ACROSS


def _steps(trace: Trace, sketch: Sketch) -> Iterator[Bar]:
    """Yield the steps of each threadblock, rank by rank."""
    numbers: Counter[tuple[int, int]] = Counter()
    for step in sorted(trace.steps, key=lambda each: (each.rank, each.threadblock.id)):
        block = step.threadblock
        source, target = (
            f"{peer}" if peer >= 0 else "" for peer in (block.recv_peer, block.send_peer)
        )
        yield Bar(
            lane=f"tb {block.id}: " + f"{source} > {target}".strip(),
            phase=_step_phase(step, sketch),
            begin_us=round(step.begin_us, 3),
            end_us=round(step.end_us, 3),
            rank=step.rank,
            step=f"{numbers[step.rank, block.id]} {step.step.type.value} {step.step.count}",
        )
        numbers[step.rank, block.id] += 1


def _step_phase(step: TracedStep, sketch: Sketch) -> MessagePhase:
    """Return a step's phase: by the message that it receives, or else sends."""
    kind = step.step.type
    block = step.threadblock
    if kind.receives:
        return _phase(sketch, block.recv_peer, step.rank, reduces=kind.reduces)
    if kind.sends:
        return _phase(sketch, step.rank, block.send_peer, reduces=step.peer_reduces)
    return MessagePhase.LOCAL


def timeline_charts(timelines: Sequence[ScheduleTimeline]) -> tuple[Chart, Chart]:
    """Return the charts of links, and of steps; there has to be a timeline."""
    links, steps = {}, {}
    for timeline in timelines:
        links[timeline.name] = _lanes(
            (f"{bar.lane} {timeline.shares[bar.lane]:.0%}", bar) for bar in timeline.transfers
        )
        for rank, bars in groupby(timeline.steps, key=lambda bar: bar.rank):
            steps[f"{timeline.name}, rank {rank}"] = _lanes((bar.lane, bar) for bar in bars)
    first = [bar.lane for bar in timelines[0].steps if bar.rank == 0]
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
            f"rank 0 of {timelines[0].name} has {count_of(len(set(first)), 'threadblock')} with "
            f"{count_of(len(first), 'step')}.",
            steps,
            "Rank",
            "A row for each threadblock, with the ranks that it receives from and sends to. On "
            "hover: number of the step, instruction of MSCCL-IR, chunks. A bar begins when the "
            "step could run, and may wait for its link.",
        ),
    )


def _lanes(bars: Iterable[tuple[str, Bar]]) -> go.Figure:
    """Return a chart with a row for each lane, and a trace for each phase that occurs.

    Args:
        bars: Bars with the names of their lanes, which are in the order of their bars.
    """
    shown = [(chart_text(lane), bar) for lane, bar in bars]
    lanes = list(dict.fromkeys(lane for lane, _ in shown))
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
        found = [(lane, bar) for lane, bar in shown if bar.phase is phase]
        if found:
            texts = [chart_text(bar.step) for _, bar in found if bar.step]
            named = "%{y}, step %{hovertext}" if texts else "%{y}"
            figure.add_bar(
                orientation="h",
                name=phase.value,
                base=[bar.begin_us for _, bar in found],
                x=[round(bar.end_us - bar.begin_us, 3) for _, bar in found],
                y=[lane for lane, _ in found],
                width=height,
                marker={"color": colour, "line": {"width": 0}},
                hovertext=texts or None,
                hovertemplate=f"{named}<br>{phase.value}: from %{{base:.2f}} to %{{x:.2f}} µs"
                "<extra></extra>",
            )
    return figure


def _told(timeline: ScheduleTimeline) -> str:
    busiest, idlest = (
        pick(timeline.shares, key=timeline.shares.__getitem__) for pick in (max, min)
    )
    tiles = ""
    if timeline.shown_tiles < timeline.tiles:
        tiles = f" for the first {timeline.shown_tiles} of {timeline.tiles} tiles, alone,"
    return (
        f"{timeline.name} ({timeline.runs}), on sketch {timeline.sketch}, takes"
        f"{tiles} {timeline.time_us:.2f} µs with messages in turn at each link, "
        f"{timeline.fair_us:.2f} µs if they share links fairly, and uses "
        f"{count_of(len(timeline.shares), 'link')}, {busiest} most, for "
        f"{timeline.shares[busiest]:.0%} of the time, and {idlest} least, for "
        f"{timeline.shares[idlest]:.0%}"
    )
