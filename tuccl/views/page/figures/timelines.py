"""Schedules over time: when a simulated call uses each link, and when each rank runs its steps.

The simulator is that of the search, with the parameters of the entry and the constants of the model
of the executor, whatever the entry's own times rest on. Of its two models of links that messages
share, the one with messages in turn is drawn, in which a link has one message at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from lookup_tables.table import Entry, Operation, ScheduleConfig, Shape, StoredSchedule
from probes.topology.graph import Topology
from sketches.candidates import whole_machine
from sketches.sketch import Sketch
from synthesizer.errors import AlgorithmFileError, DefectError, InfeasibleError
from synthesizer.formats.msccl_xml import read_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.simulate.simulator import ExecutionModel, compile_schedule
from synthesizer.simulate.trace import Trace, TracedStep, Transfer, trace_schedule
from tuccl.models.executor_model import SLOTS, execution_model, with_network_hops
from tuccl.models.figures import machine_figures
from tuccl.models.model_constants import SHIPPED
from tuccl.models.siblings import SiblingMachines
from tuccl.views.page.figures.key_figures import KeyFigures
from tuccl.views.page.figures.places import ReportedTable

_MOST_SCHEDULES = 4
_MOST_STEPS = 4_500
"""Most steps of a schedule that is shown."""
_MOST_STEPS_TOGETHER = 5_000
_MOST_BARS = 1_000
"""Most bars of the links of one schedule; close ones are joined to get there."""
_FINEST = 2_000
"""Gaps of the time over this are not shown."""
_TILES = 2


class Phase(StrEnum):
    """The part of a collective that a message or step belongs to."""

    COLLECT_INSIDE = "reduce inside a node"
    COLLECT_ACROSS = "reduce between nodes"
    SPREAD_INSIDE = "copy inside a node"
    SPREAD_ACROSS = "copy between nodes"
    LOCAL = "on the GPU itself"


@dataclass(frozen=True, slots=True)
class Bar:
    """A time that something is busy."""

    phase: Phase
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
class Timeline:
    """A simulated call of a schedule."""

    schedule: str
    operation: Operation
    size_bytes: int
    shape: Shape
    shape_name: str
    """As `KeyFigures.shape_name`."""
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


def timelines_of(
    found: ReportedTable, keys: Sequence[KeyFigures], sketches: Sequence[Sketch]
) -> tuple[Timeline, ...]:
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
    made: list[Timeline] = []
    steps = 0
    for entry, config in _chosen(found, keys):
        key = next(key for key in keys if _is_of(key, entry))
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
    found: ReportedTable, keys: Sequence[KeyFigures]
) -> Iterator[tuple[Entry, ScheduleConfig]]:
    gains = {
        (key.operation, key.size_bytes, key.shape): key.schedule_speedup or 0.0 for key in keys
    }
    won = [entry for entry in found.table.entries if entry.schedule is not None]
    counts = Counter(entry.schedule.schedule for entry in won if entry.schedule is not None)
    for content_hash, _ in counts.most_common():
        own = [
            (entry, entry.schedule)
            for entry in won
            if entry.schedule is not None and entry.schedule.schedule == content_hash
        ]
        yield max(
            own,
            key=lambda pair: gains.get(
                (pair[0].key.operation, pair[0].tuned_bytes, pair[0].key.shape), 0.0
            ),
        )


def _is_of(key: KeyFigures, entry: Entry) -> bool:
    return (key.operation, key.size_bytes, key.shape) == (
        entry.key.operation,
        entry.tuned_bytes,
        entry.key.shape,
    )


def _timeline(
    stored: StoredSchedule,
    config: ScheduleConfig,
    key: KeyFigures,
    sketch: Sketch,
    machine: Topology,
) -> Timeline | None:
    try:
        algorithm = read_msccl_xml(stored.msccl_xml, stored.name)
        if algorithm.step_count > _MOST_STEPS:
            return None
        network = with_network_hops(sketch, machine_figures(machine), SHIPPED)
        model = _model(algorithm, network, config, key.size_bytes)
        trace = trace_schedule(algorithm, network, key.size_bytes, model, _TILES)
    except (AlgorithmFileError, InfeasibleError, DefectError):
        return None
    return Timeline(
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


def _phase(sketch: Sketch, src: int, dst: int, *, reduces: bool) -> Phase:
    inside = sketch.node_of_rank[src] == sketch.node_of_rank[dst]
    if reduces:
        return Phase.COLLECT_INSIDE if inside else Phase.COLLECT_ACROSS
    return Phase.SPREAD_INSIDE if inside else Phase.SPREAD_ACROSS


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
                _bar(_phase_of(step, sketch), step.begin_us, step.end_us),
            )
            for step in steps
        )
        yield ThreadblockLane(rank, number, block.recv_peer, block.send_peer, bars)


def _phase_of(step: TracedStep, sketch: Sketch) -> Phase:
    """Return a step's phase: by the message that it receives, or else sends."""
    kind = step.step.type
    block = step.threadblock
    if kind.receives:
        return _phase(sketch, block.recv_peer, step.rank, reduces=kind.reduces)
    if kind.sends:
        return _phase(sketch, step.rank, block.send_peer, reduces=step.peer_reduces)
    return Phase.LOCAL


def _bar(phase: Phase, begin_us: float, end_us: float) -> Bar:
    return Bar(phase, round(begin_us, 3), round(end_us, 3))
