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
from synthesizer.errors import DefectError, InfeasibleError, SynthesisError
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
    """By time; the best is the first. Slower ones of the experts are not verified."""
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
    refusal: Callable[[Tried], str | None] = lambda _: None,
) -> Choice:
    """Tries every sketch and takes the fastest schedule.

    Args:
        request: What is wanted.
        sketches: The most promising first.
        progress: Told how many sketches are done.
        refusal: Why a schedule can't be used although it is fast; None: it can.

    Raises:
        InfeasibleError: There is no schedule on any sketch, or all are refused.
        SolverError: No solver works, and no expert algorithm fits.
        DefectError: Every schedule fails its proof: a defect of the synthesizer.
    """
    search = _Search(request)
    ends = time.perf_counter() + request.time_limit_s
    for done, sketch in enumerate(sketches):
        progress(done)
        if search.tried and time.perf_counter() > ends:
            names = ", ".join(sketch.name for sketch in sketches[done:])
            search.notes.append(f"sketches not tried, because the time limit was over: {names}")
            break
        search.try_sketch(sketch, request.time_limit_s / len(sketches))
    return search.choice(refusal)


@dataclass
class _Search:
    """What was found so far."""

    request: Request
    tried: list[Tried] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[SynthesisError] = field(default_factory=list)
    watch: Stopwatch = field(default_factory=Stopwatch)

    def try_sketch(self, sketch: Sketch, limit_s: float) -> None:
        """Adds the schedules of one sketch; what fails is noted."""
        for attempt in (
            _synthesized(self.request, sketch, limit_s, self.watch),
            _experts(self.request, sketch, self.watch),
        ):
            try:
                self.tried += attempt
            except SynthesisError as error:
                self.failures.append(error)
                self.notes.append(str(error))

    def choice(self, refusal: Callable[[Tried], str | None]) -> Choice:
        """The fastest that is not refused and proved."""
        self.tried.sort(key=lambda one: one.time_us)
        while self.tried:
            best = self.tried[0]
            reason = refusal(best)
            error: SynthesisError = InfeasibleError(f"{reason}")
            if reason is None:
                reason = _defect(best, self.watch)
                error = DefectError(f"{reason}")
            if reason is None:
                break
            self.failures.append(error)
            self.notes.append(f"left out on sketch {best.sketch.name}: {reason}")
            del self.tried[0]
        if not self.tried:
            raise self.failures[0] if self.failures else _too_small(self.request)
        notes = tuple(dict.fromkeys(self.notes))
        return Choice(self.tried[0], tuple(self.tried), notes, dict(self.watch.seconds))


def _too_small(request: Request) -> InfeasibleError:
    return InfeasibleError(
        f"{request.collective}: {request.size_bytes} bytes are less than one for each chunk of any "
        f"schedule; ask for a larger size"
    )


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


def _defect(tried: Tried, watch: Stopwatch) -> str | None:
    """Why a schedule is wrong; what `synthesize` gives back it has proved already."""
    if tried.synthesis is not None:
        return None
    with watch.stage("verifying"):
        verdict = verify(tried.algorithm)
    if verdict.proved:
        return None
    return f"{tried.algorithm.name} is wrong, {verdict.describe()}; please report it"
