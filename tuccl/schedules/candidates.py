"""The candidates of a search: the few schedules that may win at some size.

More schedules are made than a search can try. For each size, those near the fastest in the model
are kept; the search for that size tries no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf

from lookup_tables.collective import Collective
from lookup_tables.program_header import content_address
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import TimeBound, time_bound
from synthesizer.formats.msccl_xml import write_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.programs.compiler import compile_program, program_hash, program_of
from synthesizer.programs.cutting import cut
from synthesizer.programs.phases import LANES_MARK, PhasedSchedule
from synthesizer.simulate.simulator import CompiledSchedule, ExecutionModel, compile_schedule
from tuccl.crew.pool import IN_PROCESS, Workers
from tuccl.errors import InfeasibleError, ScheduleError
from tuccl.schedules.chunk_fit import misfits, worth
from tuccl.schedules.guidance import worth_trying
from tuccl.schedules.making import Made, Stopwatch, Wanted, make_schedules

NEAR = 1.25
"""Greatest slowdown in the model of a candidate that may win when it is measured."""
MOST_PER_SIZE = 3
MADE_SHARE = 0.8
"""Share of the time for making schedules; the rest is the choice for each size."""
_LOW_LATENCY = ExecutionModel(
    launch_us=2.5, step_overhead_us=0.45, threadblock_gb_per_s=9.0, wire_efficiency=0.40
)
_BANDWIDTH = ExecutionModel(
    launch_us=2.5,
    step_overhead_us=1.1,
    threadblock_gb_per_s=22.0,
    wire_efficiency=0.77,
    slot_bytes=512 << 10,
    instances=8,
)
_SMALL_BYTES = 32 << 10
_LARGE_BYTES = 16 << 20
WIRES_IN_SLOTS = ExecutionModel(slot_bytes=512 << 10)
"""Model without overheads, in the slots of NCCL's Simple, for comparison with the bound."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A size that a schedule is worth trying for, with its modelled time and its bound."""

    size_bytes: int
    simulated_us: float
    """Simulated time without overheads of protocol and executor."""
    bound_us: float
    """Time that no schedule on this machine undercuts."""

    @property
    def ratio(self) -> float:
        """Share of the bound that the schedule reaches, at most 1."""
        return self.bound_us / self.simulated_us


@dataclass(frozen=True)
class Candidate:
    """A verified schedule with the sketch that it runs on."""

    schedule: Algorithm | PhasedSchedule
    """Steps of all ranks, or a plan across hosts, whose phases are alike on all."""
    sketch: Sketch
    origin: str
    """Origin: expert or synthesized, the sketch, and the solver's gap."""
    promises: tuple[Promise, ...] = ()
    """Promises of the sizes that it is worth trying for."""
    own: bool = False
    """Whether the user wrote it."""
    node_sizes: tuple[int, ...] = ()
    """Ranks of each node, of steps that the executor runs across hosts in stages and rounds."""
    round_lanes: int = 1
    """Lanes of such rounds."""

    @property
    def phases(self) -> PhasedSchedule | None:
        """The plan across hosts; None if it has steps."""
        return self.schedule if isinstance(self.schedule, PhasedSchedule) else None

    @property
    def is_across_hosts(self) -> bool:
        """Whether the executor runs it in phases, on several nodes."""
        return self.phases is not None or bool(self.node_sizes)

    @property
    def steps(self) -> Algorithm:
        """Steps of all ranks.

        Raises:
            TypeError: It has phases instead.
        """
        if isinstance(self.schedule, PhasedSchedule):
            raise TypeError(f"{self.name} has phases, no steps of ranks")
        return self.schedule

    @property
    def name(self) -> str:
        """Name for people."""
        own = self.schedule.name
        if self.round_lanes > 1:
            own = f"{own}{LANES_MARK}{self.round_lanes}"
        return own if self.phases is None else f"{self.collective}_{own}"

    @property
    def collective(self) -> Collective:
        """The operation."""
        return self.schedule.collective

    @property
    def rail_channels(self) -> int:
        """Most channels that its calls along rails ask NCCL for; 0: NCCL's own count, or none."""
        phases = () if self.phases is None else self.phases.calls
        return max((phase.rail.nchannels for phase in phases if phase.rail is not None), default=0)

    @property
    def lanes(self) -> int:
        """Communicators of each rail, or of all ranks, that it uses at the same time."""
        return self.round_lanes if self.phases is None else self.phases.lanes

    @cached_property
    def content_hash(self) -> str:
        """Hash that identifies the schedule in configurations and in the table."""
        if self.phases is not None:
            return program_hash(self.phases)
        if self.node_sizes:
            return content_address(self.program).hex()
        return self.steps.content_hash()

    @cached_property
    def phased(self) -> PhasedSchedule | None:
        """Phases of a schedule that runs across hosts; None on one node.

        Raises:
            NoProgramError: Its steps have no form in stages and rounds.
        """
        if self.phases is not None or not self.node_sizes:
            return self.phases
        return replace(_cut(self.steps, self.node_sizes), lanes=self.round_lanes)

    @cached_property
    def program(self) -> bytes:
        """Program of the executor; empty if it cannot run the schedule.

        Raises:
            NoProgramError: It is to run in stages and rounds, and has no such form.
        """
        return program_of(self.steps) if self.phased is None else compile_program(self.phased)

    @property
    def msccl_xml(self) -> str:
        """Its steps as MSCCL XML; empty across nodes, where they grow with the ranks' square."""
        return "" if is_across_nodes(self.sketch) else write_msccl_xml(self.steps)

    def promises_for(self, size_bytes: int) -> bool:
        """Whether it is worth trying for a size."""
        return any(promise.size_bytes == size_bytes for promise in self.promises)


@lru_cache(maxsize=4)
def _cut(algorithm: Algorithm, node_sizes: tuple[int, ...]) -> PhasedSchedule:
    return cut(algorithm, node_sizes)


def is_across_nodes(sketch: Sketch) -> bool:
    """Whether the ranks of a sketch are on several nodes."""
    return len(set(sketch.node_of_rank)) > 1


def make_candidates(
    collective: Collective,
    sketches: Sequence[Sketch],
    machine: Sketch,
    sizes_bytes: Sequence[int],
    search_s: float,
    progress: Callable[[int, float], None] = lambda _done, _share: None,
    workers: Workers = IN_PROCESS,
) -> tuple[Candidate, ...]:
    """Return verified candidates that may win at some size, in a fixed order.

    A sketch that is worth trying for some sizes is tried for all: what protocols and executor cost,
    which the sketch's ranges leave out, can shift them by more than an order of magnitude.

    Args:
        collective: The collective of the schedules.
        sketches: Sketches to use.
        machine: The whole machine, unpruned, for the bounds.
        sizes_bytes: The sizes to be tuned; their ends and their middle are searched for.
        search_s: Time limit of the solver in one search.
        progress: Called with the number of sketches that are done, and a share of all work.
        workers: Processes that make them; their number does not change the result.

    Raises:
        HostError: A worker was killed.
        ScheduleError: An expert algorithm fails its proof, or no solver works.
    """
    searched = sorted({sizes_bytes[0], sizes_bytes[len(sizes_bytes) // 2], sizes_bytes[-1]})
    kept, _ = worth_trying(collective, sketches, sizes_bytes)
    place = {sketch.name: number for number, sketch in enumerate(sketches)}
    next_place = [*(place[sketch.name] for sketch in kept), len(sketches)]
    made = make_schedules(
        Wanted(collective, searched, search_s),
        kept,
        _proved,
        lambda done, share: progress(next_place[done], MADE_SHARE * share),
        workers,
    )
    for failure in made.failures:
        # A sketch without a schedule does not stop the others.
        if not isinstance(failure, InfeasibleError):
            raise failure
    found: dict[str, Candidate] = {}
    # An expert's schedule keeps the expert's name where a search finds it, too.
    order = sorted(made.taken, key=lambda m: (place[m.sketch.name], m.synthesis is not None))
    for schedule in order:
        candidate = Candidate(schedule.algorithm, schedule.sketch, origin_of(schedule))
        found.setdefault(candidate.content_hash, candidate)
    return promising(collective, machine, list(found.values()), sizes_bytes)


def _proved(made: Made, _watch: Stopwatch) -> Made:
    defect = made.defect()
    if defect is not None:
        raise ScheduleError(defect)
    return made


def origin_of(made: Made) -> str:
    """Return the origin of a schedule, for people."""
    result = made.synthesis
    if result is None:
        return f"expert on {made.sketch.name}"
    how = result.fallback or f"solver gap {result.solver_gap:.1%}"
    return f"synthesized on {made.sketch.name} for {made.size_bytes} bytes, {how}"


def promising(
    collective: Collective,
    machine: Sketch,
    candidates: Sequence[Candidate],
    sizes_bytes: Sequence[int],
) -> tuple[Candidate, ...]:
    """Return the candidates near the fastest at some size, each with those sizes."""
    compiled = [compile_schedule(c.steps, c.sketch) for c in candidates]
    promises: list[list[Promise]] = [[] for _ in candidates]
    bound = time_bound(collective, machine)
    for size_bytes in sizes_bytes:
        worths = [worth(misfits(c.sketch, c.steps, size_bytes)) for c in candidates]
        slowdowns = _slowdowns(compiled, worths, size_bytes)
        order = sorted(range(len(candidates)), key=lambda i: (slowdowns[i], i))
        for i in order[:MOST_PER_SIZE]:
            if slowdowns[i] <= NEAR:
                simulated_us = compiled[i].time_us(size_bytes, WIRES_IN_SLOTS)
                promises[i].append(Promise(size_bytes, simulated_us, bound.time_us(size_bytes)))
    return tuple(
        replace(candidate, promises=tuple(found))
        for candidate, found in zip(candidates, promises, strict=True)
        if found
    )


def promises_of(
    candidate: Candidate, bound: TimeBound, sizes_bytes: Sequence[int]
) -> tuple[Promise, ...]:
    """Return a promise for each of these sizes, for a schedule that is tried in any case."""
    compiled = compile_schedule(candidate.steps, candidate.sketch)
    return tuple(
        Promise(size_bytes, compiled.time_us(size_bytes, WIRES_IN_SLOTS), bound.time_us(size_bytes))
        for size_bytes in sizes_bytes
    )


def _slowdowns(
    compiled: Sequence[CompiledSchedule], worths: Sequence[float], size_bytes: int
) -> list[float]:
    """Return each schedule's time over the fastest's, in the model that favours it most.

    Times count for more, by `worths`, where chunks do not fit the size.

    Small sizes are judged by a low-latency protocol, large ones by a bandwidth protocol with many
    channels, those between by both.
    """
    models = [_LOW_LATENCY] if size_bytes < _LARGE_BYTES else []
    models += [_BANDWIDTH] if size_bytes > _SMALL_BYTES else []
    slowdowns = [inf] * len(compiled)
    for model in models:
        times = [
            schedule.time_us(size_bytes, model) * factor
            for schedule, factor in zip(compiled, worths, strict=True)
        ]
        best = min(times, default=inf)
        slowdowns = [min(s, time / best) for s, time in zip(slowdowns, times, strict=True)]
    return slowdowns
