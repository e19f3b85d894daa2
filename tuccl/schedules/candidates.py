"""The candidates of a search: of all schedules that are made the few that promise something.

More are made than a search can try. For each size those stay that are near the fastest in the
model; the search for that size looks at no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from programs.compiler import program_of
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import TimeBound, time_bound
from synthesizer.errors import DefectError, InfeasibleError
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.collectives import Collective
from synthesizer.simulate.simulator import CompiledSchedule, ExecutionModel, compile_schedule
from tuccl.processes.workers import IN_PROCESS, Workers
from tuccl.schedules.chunk_fit import misfits, worth
from tuccl.schedules.guidance import worth_trying
from tuccl.schedules.making import Made, Stopwatch, Wanted, make_schedules

_NEAR = 1.25
"""A candidate up to that many times slower than the best in the model may win in truth."""
_MOST_PER_SIZE = 3
MADE_SHARE = 0.8
"""Share of the time that candidates take; the rest is the choice for each size."""
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
_WIRES_ALONE = ExecutionModel(slot_bytes=512 << 10)
"""No overheads: what is held against the bound."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A size that a schedule is worth trying for, and how good it can be said to be there."""

    size_bytes: int
    simulated_us: float
    """On the wires alone, without overheads of protocol and executor."""
    bound_us: float
    """No schedule on this machine takes less."""

    @property
    def ratio(self) -> float:
        """Share of the bound that is reached, at most 1."""
        return self.bound_us / self.simulated_us


@dataclass(frozen=True)
class Candidate:
    """A verified schedule with the sketch that it runs on."""

    algorithm: Algorithm
    sketch: Sketch
    origin: str
    """Expert or synthesized, on which sketch, with the solver's gap."""
    promises: tuple[Promise, ...] = ()
    """Sizes that it is worth trying for."""
    own: bool = False
    """Whether the user wrote it."""

    @cached_property
    def content_hash(self) -> str:
        """Names the schedule in configurations and in the table."""
        return self.algorithm.content_hash()

    @cached_property
    def program(self) -> bytes:
        """What an executor runs; empty where none can run the schedule."""
        return program_of(self.algorithm)

    def promises_for(self, size_bytes: int) -> bool:
        """Whether it is worth trying for a size."""
        return any(promise.size_bytes == size_bytes for promise in self.promises)


def make_candidates(
    collective: Collective,
    sketches: Sequence[Sketch],
    machine: Sketch,
    sizes_bytes: Sequence[int],
    search_s: float,
    progress: Callable[[int, float], None] = lambda _done, _share: None,
    workers: Workers = IN_PROCESS,
) -> tuple[Candidate, ...]:
    """Verified candidates that promise something for some size, in a fixed order.

    A sketch that is worth trying for some sizes is tried for all: what protocols and executor cost,
    which the sketch's ranges leave out, can shift them by more than an order of magnitude.

    Args:
        collective: What to make schedules for.
        sketches: What they may use.
        machine: The whole machine, unpruned, which the bounds are of.
        sizes_bytes: The sizes to be tuned; their ends and their middle are searched for.
        search_s: For the solver in one search.
        progress: Told how many sketches are done, and roughly what part of all work that was.
        workers: Who makes them; they are the same however many there are.

    Raises:
        WorkerError: when a worker was killed.
        DefectError: when an expert algorithm of ours fails its proof.
        SolverError: when no solver works.
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
        # That there are no schedules on a sketch is nothing to stop for.
        if not isinstance(failure, InfeasibleError):
            raise failure
    found: dict[str, Candidate] = {}
    # What an expert knows goes by its name where a search finds it, too.
    for one in sorted(made.taken, key=lambda m: (place[m.sketch.name], m.synthesis is not None)):
        candidate = Candidate(one.algorithm, one.sketch, _origin(one))
        found.setdefault(candidate.content_hash, candidate)
    return _promising(collective, machine, list(found.values()), sizes_bytes)


def _proved(made: Made, _watch: Stopwatch) -> Made:
    defect = made.defect()
    if defect is not None:
        raise DefectError(defect)
    return made


def _origin(made: Made) -> str:
    result = made.synthesis
    if result is None:
        return f"expert on {made.sketch.name}"
    how = result.fallback or f"solver gap {result.solver_gap:.1%}"
    return f"synthesized on {made.sketch.name} for {made.size_bytes} bytes, {how}"


def _promising(
    collective: Collective,
    machine: Sketch,
    candidates: Sequence[Candidate],
    sizes_bytes: Sequence[int],
) -> tuple[Candidate, ...]:
    """The few that are near the fastest for a size, each with those sizes."""
    compiled = [compile_schedule(c.algorithm, c.sketch) for c in candidates]
    promises: list[list[Promise]] = [[] for _ in candidates]
    bound = time_bound(collective, machine)
    for size_bytes in sizes_bytes:
        worths = [worth(misfits(c.sketch, c.algorithm, size_bytes)) for c in candidates]
        slowdowns = _slowdowns(compiled, worths, size_bytes)
        order = sorted(range(len(candidates)), key=lambda i: (slowdowns[i], i))
        for i in order[:_MOST_PER_SIZE]:
            if slowdowns[i] <= _NEAR:
                simulated_us = compiled[i].time_us(size_bytes, _WIRES_ALONE)
                promises[i].append(Promise(size_bytes, simulated_us, bound.time_us(size_bytes)))
    return tuple(
        replace(candidate, promises=tuple(found))
        for candidate, found in zip(candidates, promises, strict=True)
        if found
    )


def promises_of(
    candidate: Candidate, bound: TimeBound, sizes_bytes: Sequence[int]
) -> tuple[Promise, ...]:
    """A promise for each of these sizes, for schedules that are to be tried in any case."""
    compiled = compile_schedule(candidate.algorithm, candidate.sketch)
    return tuple(
        Promise(size_bytes, compiled.time_us(size_bytes, _WIRES_ALONE), bound.time_us(size_bytes))
        for size_bytes in sizes_bytes
    )


def _slowdowns(
    compiled: Sequence[CompiledSchedule], worths: Sequence[float], size_bytes: int
) -> list[float]:
    """Each schedule's time over the fastest's, under the model that favours it most.

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
