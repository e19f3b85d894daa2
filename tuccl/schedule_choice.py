"""The fastest schedule for one collective and size: synthesized and expert, on every sketch.

All are timed by the plain alpha-beta model, wires alone, so that the time can be held against the
bounds of the machine; what protocols and executors add is for measurement to find out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sketches.sketch import Sketch
from synthesizer.algorithm import Algorithm
from synthesizer.collectives import Collective
from synthesizer.errors import DefectError, InfeasibleError, ProgramError, SolverError
from synthesizer.experts import expert_algorithms
from synthesizer.simulator import ExecutionModel, simulate_us
from synthesizer.synthesize import SynthesisOptions, SynthesisResult, synthesize
from synthesizer.verifier import verify

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


@dataclass(frozen=True)
class Choice:
    """The winner and what it was chosen from."""

    best: Tried
    """Verified."""
    tried: tuple[Tried, ...]
    """By time; the best is the first."""
    notes: tuple[str, ...]
    """What could not be tried, and why."""
    seconds: dict[str, float]
    """By stage, over all sketches."""


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
            self.seconds[name] += time.perf_counter() - started


def choose_schedule(
    request: Request,
    sketches: Sequence[Sketch],
    progress: Callable[[int], None] = lambda _: None,
) -> Choice:
    """Tries every sketch and takes the fastest schedule.

    Args:
        request: What is wanted.
        sketches: The most promising first.
        progress: Told how many sketches are done.

    Raises:
        InfeasibleError: There is no schedule on any sketch.
        SolverError: No solver works, and no expert algorithm fits.
        DefectError: The winner fails its proof: a defect of the synthesizer.
    """
    watch = Stopwatch()
    tried: list[Tried] = []
    notes: list[str] = []
    failures: list[Exception] = []
    ends = time.perf_counter() + request.time_limit_s
    for done, sketch in enumerate(sketches):
        progress(done)
        if tried and time.perf_counter() > ends:
            names = ", ".join(sketch.name for sketch in sketches[done:])
            notes.append(f"sketches not tried, because the time limit was over: {names}")
            break
        share = request.time_limit_s / len(sketches)
        for attempt in (
            _synthesized(request, sketch, share, watch),
            _experts(request, sketch, watch),
        ):
            try:
                tried += attempt
            except (InfeasibleError, SolverError, ProgramError) as error:
                failures.append(error)
                notes.append(f"{error}")
    if not tried:
        raise (
            failures[0]
            if failures
            else InfeasibleError(
                f"{request.collective}: {request.size_bytes} bytes are less than one for each "
                f"chunk of any schedule; ask for a larger size"
            )
        )
    tried.sort(key=lambda one: one.time_us)
    _prove(tried[0].algorithm, watch)
    return Choice(tried[0], tuple(tried), tuple(dict.fromkeys(notes)), dict(watch.seconds))


def _synthesized(
    request: Request, sketch: Sketch, limit_s: float, watch: Stopwatch
) -> Iterator[Tried]:
    options = SynthesisOptions(time_limit_s=limit_s, trees_per_rank=_trees(request, sketch))
    result = synthesize(request.collective, sketch, request.size_bytes, options, request.root)
    for stage, seconds in result.seconds.items():
        watch.seconds[stage] += seconds
    yield from _timed(request, sketch, result.algorithm, watch, result)


def _trees(request: Request, sketch: Sketch) -> int:
    """Chunks per rank that a sketch asks for, where it asks for more than one; 0: chosen."""
    wanted = sketch.chunks_per_rank
    return wanted if wanted > 1 and request.collective is not Collective.ALLTOALL else 0


def _experts(request: Request, sketch: Sketch, watch: Stopwatch) -> Iterator[Tried]:
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
        yield Tried(algorithm, sketch, time_us, synthesis)


def _prove(algorithm: Algorithm, watch: Stopwatch) -> None:
    with watch.stage("verifying"):
        verdict = verify(algorithm)
    if not verdict.proved:
        raise DefectError(f"{algorithm.name}: {verdict.describe()}; please report it")
