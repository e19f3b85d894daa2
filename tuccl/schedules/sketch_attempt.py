"""What one sketch gives for one collective and size: the synthesized schedule and the experts'.

An attempt depends on its arguments alone and can be made in another process. Schedules are timed by
the plain alpha-beta model, wires alone, so that the time can be held against the bounds of the
machine; what protocols and executors add is for measurement to find out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sketches.chunking import Misfit
from sketches.sketch import Sketch
from synthesizer.errors import InfeasibleError, SynthesisError
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.collectives import Collective
from synthesizer.plan.reach import (
    MOST_RANKS_WRITTEN_OUT,
    beyond_experts,
    beyond_search,
)
from synthesizer.plan.synthesize import SynthesisOptions, SynthesisResult
from synthesizer.simulate.simulator import ExecutionModel, simulate_us
from tuccl.schedules.chunk_fit import misfits, synthesize_fitting, worth

WIRES_ALONE = ExecutionModel()


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted."""

    collective: Collective
    size_bytes: int
    """As in nccl-tests."""
    root: int = 0
    time_limit_s: float = 30.0
    """For the solver on all sketches together; after it no further sketch is begun."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One schedule that was considered."""

    algorithm: Algorithm
    sketch: Sketch
    time_us: float
    """Simulated."""
    synthesis: SynthesisResult | None
    """None for an expert algorithm."""
    misfits: tuple[Misfit, ...] = ()
    """What is wrong with its chunks at this size."""

    @property
    def weighed_us(self) -> float:
        """What schedules are compared by: more than the time where chunks misfit."""
        return self.time_us * worth(self.misfits)


@dataclass(frozen=True, slots=True)
class Attempt:
    """All that came of searching a sketch, or of its expert algorithms."""

    tried: tuple[Tried, ...]
    failures: tuple[SynthesisError, ...]
    notes: tuple[str, ...]
    """What was not tried, and why."""
    seconds: dict[str, float]
    """By stage."""


@dataclass
class Stopwatch:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Counts what the block takes."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add({name: time.perf_counter() - started})

    def add(self, seconds: dict[str, float]) -> None:
        """Counts what was measured elsewhere."""
        for stage, taken in seconds.items():
            self.seconds[stage] += taken


def attempt_search(request: Request, sketch: Sketch, limit_s: float) -> Attempt:
    """Searches a schedule on one sketch, with that much time for the solver, and times it."""
    watch = Stopwatch()
    return _attempt(_synthesized(request, sketch, limit_s, watch), watch, _notes(request, sketch))


def attempt_experts(request: Request, sketch: Sketch) -> Attempt:
    """Makes and times the expert algorithms of one sketch."""
    watch = Stopwatch()
    return _attempt(_experts(request, sketch, watch), watch, ())


def _attempt(schedules: Iterator[Tried], watch: Stopwatch, notes: Iterable[str]) -> Attempt:
    """What fails is told."""
    tried: list[Tried] = []
    failures: list[SynthesisError] = []
    try:
        tried += schedules
    except SynthesisError as error:
        failures.append(error)
    return Attempt(tuple(tried), tuple(failures), tuple(notes), dict(watch.seconds))


def _notes(request: Request, sketch: Sketch) -> Iterator[str]:
    if beyond_search(sketch) and not beyond_experts(request.collective, sketch):
        yield (
            f"expert algorithms alone were tried on sketch {sketch.name}: a search is for "
            f"{MOST_RANKS_WRITTEN_OUT} GPUs and fewer, {sketch.ranks} take too long"
        )


def _synthesized(
    request: Request, sketch: Sketch, limit_s: float, watch: Stopwatch
) -> Iterator[Tried]:
    if beyond_search(sketch):
        return
    options = SynthesisOptions(time_limit_s=limit_s, trees_per_rank=_trees(request, sketch))
    results = synthesize_fitting(
        request.collective, sketch, request.size_bytes, options, request.root
    )
    for result in results:
        watch.add(result.seconds)
        yield from _timed(request, sketch, result.algorithm, watch, result)


def _trees(request: Request, sketch: Sketch) -> int:
    """Chunks per rank that a sketch asks for, where it asks for more than one; 0: chosen."""
    wanted = sketch.chunks_per_rank
    return wanted if wanted > 1 and request.collective is not Collective.ALLTOALL else 0


def _experts(request: Request, sketch: Sketch, watch: Stopwatch) -> Iterator[Tried]:
    if beyond_experts(request.collective, sketch):
        raise InfeasibleError(
            f"{request.collective} was not tried on sketch {sketch.name}: {sketch.ranks} GPUs and "
            f"{len(sketch.edges)} connections without a rail exchange take too long; "
            f"{MOST_RANKS_WRITTEN_OUT} GPUs do not"
        )
    with watch.stage("experts"):
        algorithms = expert_algorithms(request.collective, sketch, request.root)
    for algorithm in algorithms:
        yield from _timed(request, sketch, algorithm, watch, None)


def _timed(
    request: Request,
    sketch: Sketch,
    algorithm: Algorithm,
    watch: Stopwatch,
    synthesis: SynthesisResult | None,
) -> Iterator[Tried]:
    """The schedule with its time, unless its chunks have less than a byte."""
    if algorithm.chunks_per_loop <= request.size_bytes:
        with watch.stage("simulating"):
            time_us = simulate_us(algorithm, sketch, request.size_bytes, WIRES_ALONE)
        found = misfits(sketch, algorithm, request.size_bytes)
        yield Tried(algorithm, sketch, time_us, synthesis, found)
