"""Alpha-beta simulation of a schedule over a sketch.

Every threadblock runs its steps in order, on one tile of the data after another. A message is ready
when its threadblock, the awaited step, the data and a FIFO slot are available. It takes bytes /
(bandwidth * wire efficiency) of every port of its edge; an edge narrower than its ports is a port
of its own. It arrives alpha after its last byte has passed. Two models say how messages share a
port:

- In turn: a port serves messages one at a time, in the order of their arrival. A message passes its
  ports in travel order; it waits for one port at a time and blocks nothing meanwhile; the times of
  its ports overlap. Events are arrivals of messages at ports, in order of time, then tile, then
  step number. The steps that a finished step releases start later, at a time known at once, so
  nothing else is an event.
- Fair: the messages under way get max-min fair rates over the ports that they cross, as switches
  and networks roughly do. Events are starts and ends of messages; each changes the rates of all
  messages that share ports with it, directly or through others.

Neither is a machine: in turn, a schedule can rely on an order of messages that nothing enforces;
fairly, many messages at once all end late. A schedule is judged by the worse of both times. The
loops over events are the inner loop of every search, and are written in C
(`synthesizer.native`).

Three simplifications keep a search fast. Instances run in lockstep, so one of them is simulated
with the port times of all. Data that fills more than one FIFO slot runs in tiles of one slot: one,
two and three tiles (small schedules also 12 and 24, so that FIFOs fill) are simulated exactly, each
further tile costs as much as the last (and at least the time of the busiest port, threadblock or
FIFO), and counts in between are interpolated. Inside one tile a message is stored and forwarded;
tiles overlap, bytes do not.

The cost model is the usual alpha-beta one (TACCL section 3); tiles and FIFO slots follow MSCCL's
interpreter (microsoft/msccl, src/collectives/device/msccl_interpreter.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from sketches.sketch import Sketch
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.schedule_graph import ScheduleGraph
from synthesizer.native import Deadlock, NativeSchedule, Sharing
from synthesizer.simulate.flattening import folded_graph, schedule_graph
from tuccl.errors import InfeasibleError, ScheduleError

_EXACT_TILES = (1, 2, 3)
_MORE_EXACT_TILES = (12, 24)
_SMALL_SCHEDULE_STEPS = 200
_FOLDED_STEPS = 50_000
"""Number of steps from which equivalent ranks are simulated once (`flattening`)."""


@dataclass(frozen=True, slots=True)
class ExecutionModel:
    """Costs of the executor and the protocol beyond those of the links."""

    step_overhead_us: float = 0.0
    """Handover from one instruction of a threadblock to the next."""
    threadblock_gb_per_s: float = float("inf")
    """Rate at which one threadblock copies or reduces."""
    wire_efficiency: float = 1.0
    """Share of the wire's bytes that are payload: LL 0.5, LL128 0.9375, Simple 1."""
    slot_bytes: int = 1 << 62
    """Payload of one FIFO slot; larger messages are cut into tiles."""
    instances: int = 1
    """Parallel copies of the schedule, each on its share of the data."""
    launch_us: float = 0.0
    """Launch time of each call."""
    fifo_slots: int = 8
    """Most messages in flight on a connection (NCCL_STEPS, NCCL 2.30 src/include/device.h)."""


class TileCosts(NamedTuple):
    """Costs of a tile's steps in microseconds."""

    handover: float
    wire_bytes: float
    """Bytes per chunk on the wire, all instances together."""
    copy: float
    """Time per chunk that a threadblock moves."""


class Times(NamedTuple):
    """Times of one call under both models of sharing, in microseconds."""

    in_turn_us: float
    fair_us: float

    @property
    def worse_us(self) -> float:
        """The time that the schedule is judged by."""
        return max(self)


class _SteadyState(NamedTuple):
    exact: tuple[tuple[int, float], ...]
    """Simulated tile counts and their times."""
    each_further_us: float


class CompiledSchedule:
    """A schedule on a sketch, prepared for simulation at any size and model.

    `steps` is the number of the schedule's steps if the graph has fewer, as after folding.
    """

    def __init__(
        self, graph: ScheduleGraph, chunks_per_loop: int, steps: int | None = None
    ) -> None:
        self._graph = graph
        self._chunks_per_loop = chunks_per_loop
        # The schedule's steps decide, not the graph's: folding must not change the tile counts.
        self._small = (len(graph.names) if steps is None else steps) <= _SMALL_SCHEDULE_STEPS
        self._largest_message = max(
            (chunks for chunks, hops in zip(graph.chunks, graph.hops, strict=True) if hops),
            default=0,
        )
        self._native = NativeSchedule(graph)
        self._steady: dict[tuple[ExecutionModel, Sharing], _SteadyState] = {}
        self._times_us: dict[tuple[int, int, TileCosts, Sharing], float] = {}
        """Times by tiles, FIFO slots and costs: larger slots than a message change none of them."""

    def time_us(self, size_bytes: float, model: ExecutionModel) -> float:
        """Return the worse of the simulated times of one call; see `times`."""
        return self.times(size_bytes, model).worse_us

    def times(self, size_bytes: float, model: ExecutionModel) -> Times:
        """Return the simulated times of one call.

        The size is that of the larger buffer, as in nccl-tests.

        Raises:
            ScheduleError: The schedule deadlocks with `model.fifo_slots`.
        """
        return Times(*(self._shared_us(size_bytes, model, sharing) for sharing in Sharing))

    def _shared_us(self, size_bytes: float, model: ExecutionModel, sharing: Sharing) -> float:
        chunk_bytes = size_bytes / self._chunks_per_loop
        tiles = self.largest_message_bytes(size_bytes, model.instances) / model.slot_bytes
        if tiles <= 1:
            return model.launch_us + self._run(1, chunk_bytes, model, sharing)
        exact, each_further_us = self._steady_state(model, sharing)
        for (fewer, below), (more, above) in pairwise(exact):
            if tiles <= more:
                share = (tiles - fewer) / (more - fewer)
                return model.launch_us + below + share * (above - below)
        most, longest = exact[-1]
        return model.launch_us + longest + (tiles - most) * each_further_us

    def largest_message_bytes(self, size_bytes: float, instances: int) -> float:
        """Return the payload of an instance's largest message; larger slots change no time."""
        return size_bytes / self._chunks_per_loop * self._largest_message / instances

    def _steady_state(self, model: ExecutionModel, sharing: Sharing) -> _SteadyState:
        """Return the times of full tiles, which all sizes above one slot share."""
        if (model, sharing) not in self._steady:
            chunk_bytes = model.slot_bytes * model.instances / self._largest_message
            counts = (*_EXACT_TILES, *(_MORE_EXACT_TILES if self._small else ()))
            runs = (self._run(tiles, chunk_bytes, model, sharing) for tiles in counts)
            times = accumulate(runs, max)
            exact = tuple(zip(counts, times, strict=True))
            (fewer, below), (more, above) = exact[-2:]
            least = _least_tile_us(self._graph, tile_costs(chunk_bytes, model), model.fifo_slots)
            further = max(least, (above - below) / (more - fewer))
            self._steady[model, sharing] = _SteadyState(exact, further)
        return self._steady[model, sharing]

    def _run(
        self, tiles: int, chunk_bytes: float, model: ExecutionModel, sharing: Sharing
    ) -> float:
        costs = tile_costs(chunk_bytes, model)
        timed = (tiles, model.fifo_slots, costs, sharing)
        if timed not in self._times_us:
            self._times_us[timed] = self._simulate(*timed)
        return self._times_us[timed]

    def _simulate(self, tiles: int, fifo_slots: int, costs: TileCosts, sharing: Sharing) -> float:
        time_us = self._native.simulate_us(
            tiles,
            fifo_slots,
            sharing,
            handover_us=costs.handover,
            wire_bytes_per_chunk=costs.wire_bytes,
            copy_us_per_chunk=costs.copy,
        )
        if not isinstance(time_us, Deadlock):
            return time_us
        steps = len(self._graph.names)
        rank, block, position = self._graph.names[time_us.stuck % steps]
        raise ScheduleError(
            f"deadlock: {time_us.unfinished} of {tiles * steps} steps never start, the first of "
            f"them step {position} of threadblock {block} of rank {rank}"
        )


def compile_schedule(algorithm: Algorithm, sketch: Sketch) -> CompiledSchedule:
    """Resolve peers, ports and dependences once, for many calls of `CompiledSchedule.time_us`.

    Raises:
        InfeasibleError: The sketch does not connect the ranks of a message.
        ScheduleError: Sends and receives of a connection differ, or a dependence names no step.
    """
    if algorithm.ranks != sketch.ranks:
        raise InfeasibleError(
            f"schedule {algorithm.name} is for {algorithm.ranks} ranks and sketch {sketch.name} "
            f"has {sketch.ranks}: use a sketch of the machine the schedule was made for"
        )
    steps = algorithm.step_count
    graph = folded_graph(algorithm, sketch) if steps >= _FOLDED_STEPS else None
    graph = graph or schedule_graph(algorithm, sketch)
    return CompiledSchedule(graph, algorithm.chunks_per_loop, steps)


def simulate(algorithm: Algorithm, sketch: Sketch, size_bytes: int, model: ExecutionModel) -> Times:
    """Compile a schedule and simulate it once; see `CompiledSchedule.times`."""
    return compile_schedule(algorithm, sketch).times(size_bytes, model)


def simulate_us(
    algorithm: Algorithm, sketch: Sketch, size_bytes: int, model: ExecutionModel
) -> float:
    """Return the worse of the times of `simulate`."""
    return simulate(algorithm, sketch, size_bytes, model).worse_us


def tile_costs(chunk_bytes: float, model: ExecutionModel) -> TileCosts:
    """Return the costs of a tile's steps with chunks of this size."""
    return TileCosts(
        handover=model.step_overhead_us,
        wire_bytes=chunk_bytes / model.wire_efficiency,
        copy=chunk_bytes / model.instances * 1e-3 / model.threadblock_gb_per_s,
    )


def _least_tile_us(graph: ScheduleGraph, costs: TileCosts, fifo_slots: int) -> float:
    """Return a lower bound on the cost of a tile among many."""
    load = [0.0] * graph.port_count
    for chunks, hops in zip(graph.chunks, graph.hops, strict=True):
        for hop in hops:
            load[hop.port] += chunks * hop.us_per_byte * costs.wire_bytes
    blocks = (
        sum(costs.handover + graph.chunks[step] * costs.copy for step in block)
        for block in graph.blocks
    )
    # A slot is free again only after its message has passed, arrived and been copied out.
    round_trips = (
        sum(
            graph.alpha_us[step]
            + graph.chunks[step] * costs.copy
            + max(hop.us_per_byte for hop in graph.hops[step])
            * graph.chunks[step]
            * costs.wire_bytes
            for step in sends
        )
        / fifo_slots
        for sends, _ in graph.connections
    )
    return max(max(load, default=0.0), max(blocks, default=0.0), max(round_trips, default=0.0))
