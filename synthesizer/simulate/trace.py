"""`Trace`: a simulated call of a schedule step by step, and the use of each port over time.

It comes from the simulator's own loop for messages in turn, in which a port serves one message at a
time, so that its end is `Times.in_turn_us` for data of one tile, without the launch. Of more tiles
than asked for only the first are traced, as if there were no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from sketches.sketch import Sketch
from synthesizer.ir.algorithm import Algorithm, Step, Threadblock
from synthesizer.ir.schedule_graph import ScheduleGraph
from synthesizer.native import Deadlock, NativeSchedule, NativeTrace, Sharing
from synthesizer.simulate.flattening import schedule_graph
from synthesizer.simulate.simulator import ExecutionModel, tile_costs
from tuccl.errors import ScheduleError


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step of a threadblock on one tile."""

    rank: int
    threadblock: Threadblock
    position: int
    """Number of the step in its threadblock."""
    tile: int
    peer_reduces: bool
    """Whether the receiver of its message reduces it with data of its own."""
    begin_us: float
    end_us: float

    @property
    def step(self) -> Step:
        """The instruction."""
        return self.threadblock.steps[self.position]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A message while it occupies a port."""

    port: str
    """Name of the sketch's port, of several that serve the same edges all of them in travel order;
    the ranks where an edge is narrower than its ports."""
    src: int
    dst: int
    reduces: bool
    """Whether the receiver reduces it with data of its own."""
    begin_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Trace:
    """A simulated call, its messages in turn."""

    time_us: float
    """End of the last step that is traced, without the launch."""
    fair_us: float
    """Time of the same tiles where messages share ports fairly."""
    tiles: int
    """Tiles of the whole call."""
    traced_tiles: int
    steps: tuple[TracedStep, ...]
    transfers: tuple[Transfer, ...]

    def shares(self) -> dict[str, float]:
        """Return the share of the time that each used port is occupied, by its name."""
        busy: dict[str, float] = {}
        for transfer in self.transfers:
            taken_us = transfer.end_us - transfer.begin_us
            busy[transfer.port] = busy.get(transfer.port, 0.0) + taken_us
        return {port: busy_us / self.time_us for port, busy_us in sorted(busy.items())}


def trace_schedule(
    algorithm: Algorithm,
    sketch: Sketch,
    size_bytes: int,
    model: ExecutionModel,
    most_tiles: int = 1,
) -> Trace:
    """Simulate a call and return when each step ran.

    Raises:
        InfeasibleError: The sketch does not connect the ranks of a message.
        ScheduleError: The schedule is defect or deadlocks.
    """
    graph = schedule_graph(algorithm, sketch)
    chunk_bytes = size_bytes / algorithm.chunks_per_loop
    largest = max((c for c, hops in zip(graph.chunks, graph.hops, strict=True) if hops), default=0)
    tiles = max(1, ceil(chunk_bytes * largest / model.instances / model.slot_bytes))
    if tiles > 1:
        chunk_bytes = model.slot_bytes * model.instances / largest
    traced = min(tiles, most_tiles)
    costs = tile_costs(chunk_bytes, model)
    native = NativeSchedule(graph)
    each = {
        "handover_us": costs.handover,
        "wire_bytes_per_chunk": costs.wire_bytes,
        "copy_us_per_chunk": costs.copy,
    }
    times = native.trace_in_turn(traced, model.fifo_slots, **each)
    fair_us = native.simulate_us(traced, model.fifo_slots, Sharing.FAIR, **each)
    if isinstance(times, Deadlock) or isinstance(fair_us, Deadlock):
        raise ScheduleError(
            f"schedule {algorithm.name} deadlocks with {model.fifo_slots} FIFO slots"
        )
    blocks = {
        (gpu.rank, block.id): block for gpu in algorithm.programs for block in gpu.threadblocks
    }
    steps = tuple(_steps(graph, blocks, times, traced))
    transfers = tuple(_transfers(graph, steps, times, traced, sketch))
    return Trace(times.makespan_us, fair_us, tiles, traced, steps, transfers)


def _steps(
    graph: ScheduleGraph,
    blocks: dict[tuple[int, int], Threadblock],
    times: NativeTrace,
    tiles: int,
) -> Iterator[TracedStep]:
    count = len(graph.names)
    kinds = [blocks[rank, block].steps[position].type for rank, block, position in graph.names]
    reduced = {
        send
        for sends, receives in graph.connections
        for send, receive in zip(sends, receives, strict=True)
        if kinds[receive].reduces
    }
    for tile in range(tiles):
        for number, (rank, block, position) in enumerate(graph.names):
            at = tile * count + number
            yield TracedStep(
                rank,
                blocks[rank, block],
                position,
                tile,
                number in reduced,
                float(times.begin_us[at]),
                float(times.end_us[at]),
            )


def _transfers(
    graph: ScheduleGraph,
    steps: tuple[TracedStep, ...],
    times: NativeTrace,
    tiles: int,
    sketch: Sketch,
) -> Iterator[Transfer]:
    count = len(graph.names)
    receiver = {
        send: receive
        for sends, receives in graph.connections
        for send, receive in zip(sends, receives, strict=True)
    }
    names = _port_names(graph, steps, sketch)
    at = 0
    for _tile in range(tiles):
        for number, hops in enumerate(graph.hops):
            for hop in hops:
                sent, received = steps[number], steps[receiver[number]]
                yield Transfer(
                    names[hop.port],
                    sent.rank,
                    received.rank,
                    sent.peer_reduces,
                    float(times.hop_begin_us[at]),
                    float(times.hop_end_us[at]),
                )
                at += 1
    if at != len(times.hop_begin_us) or count * tiles != len(steps):
        raise ValueError("a trace of another schedule")


def _port_names(
    graph: ScheduleGraph, steps: tuple[TracedStep, ...], sketch: Sketch
) -> dict[int, str]:
    """Return the name of each numbered port.

    `schedule_graph` numbers the ports of each edge in travel order and leaves out those that serve
    the same edges as an earlier one; an edge that is narrower than its ports comes first.
    """
    pairs: dict[int, set[tuple[int, int]]] = {}
    for number, hops in enumerate(graph.hops):
        block = steps[number].threadblock
        for hop in hops:
            pairs.setdefault(hop.port, set()).add((steps[number].rank, block.send_peer))
    used = set().union(*pairs.values())
    users: dict[str, set[tuple[int, int]]] = {}
    for pair in sorted(used):
        for port in sketch.edge[pair].ports:
            users.setdefault(port, set()).add(pair)
    named: dict[frozenset[tuple[int, int]], list[str]] = {}
    for port, served in users.items():
        named.setdefault(frozenset(served), []).append(port)
    return {
        number: ", ".join(named.get(frozenset(served), [f"{s} to {d}" for s, d in sorted(served)]))
        for number, served in pairs.items()
    }
