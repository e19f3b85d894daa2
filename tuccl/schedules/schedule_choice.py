"""The fastest schedule for one collective and size: synthesized and expert, on every sketch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sketches.sketch import Sketch
from synthesizer.errors import DefectError, InfeasibleError, SynthesisError
from synthesizer.prove.verifier import verify
from tuccl.processes.workers import IN_PROCESS, Workers
from tuccl.schedules.sketch_attempt import (
    Attempt,
    Request,
    Stopwatch,
    Tried,
    attempt_experts,
    attempt_search,
)

PIECES_PER_SKETCH = 2
"""Its search and its expert algorithms."""


@dataclass(frozen=True)
class Choice:
    """The winner and what it was chosen from."""

    best: Tried
    """Verified."""
    tried: tuple[Tried, ...]
    """By time, which counts for more where chunks misfit; the best is the first. Slower ones of
    the experts are not verified."""
    notes: tuple[str, ...]
    """What could not be tried, and why."""
    left_out: Mapping[str, str]
    """Sketches that are not worth trying at this size, and why."""
    seconds: dict[str, float]
    """By stage, over all sketches."""


def choose_schedule(
    request: Request,
    sketches: Sequence[Sketch],
    progress: Callable[[int], None] = lambda _: None,
    refusal: Callable[[Tried], str | None] = lambda _: None,
    workers: Workers = IN_PROCESS,
) -> Choice:
    """Tries every sketch that is worth it and takes the fastest schedule.

    Args:
        request: What is wanted.
        sketches: The most promising first. Those that are not worth trying at this size are tried
            when the others give no schedule.
        progress: Told how many sketches are done.
        refusal: Why a schedule can't be used although it is fast; None: it can.
        workers: Who solves the sketches; the choice does not depend on how many they are.

    Raises:
        InfeasibleError: There is no schedule on any sketch, or all are refused.
        WorkerError: A worker was killed.
        SolverError: No solver works, and no expert algorithm fits.
        DefectError: Every schedule fails its proof: a defect of the synthesizer.
    """
    worth, left_out = _worth_trying(request, sketches)
    try:
        return _choose(request, worth, left_out, progress, refusal, workers)
    except SynthesisError:
        if not left_out:
            raise
    return _choose(request, sketches, {}, progress, refusal, workers)


def _choose(
    request: Request,
    sketches: Sequence[Sketch],
    left_out: Mapping[str, str],
    progress: Callable[[int], None],
    refusal: Callable[[Tried], str | None],
    workers: Workers,
) -> Choice:
    search = _Search(request, left_out)
    ends = time.perf_counter() + request.time_limit_s
    limit_s = request.time_limit_s / len(sketches)
    # Search and experts are pieces of their own, because mostly one sketch takes nearly all time.
    pieces = [
        piece
        for sketch in sketches
        for piece in (
            partial(attempt_search, request, sketch, limit_s),
            partial(attempt_experts, request, sketch),
        )
    ]

    def told(done: int) -> None:
        progress(len(left_out) + done // PIECES_PER_SKETCH)

    def may_begin(begun: int, done: Sequence[Attempt]) -> bool:
        within = time.perf_counter() <= ends or not any(one.tried for one in done)
        return within or begun % PIECES_PER_SKETCH != 0

    attempts = workers.each(pieces, told, may_begin)
    for attempt in attempts:
        search.add(attempt)
    if too_late := sketches[len(attempts) // PIECES_PER_SKETCH :]:
        names = ", ".join(sketch.name for sketch in too_late)
        search.notes.append(f"sketches not tried, because the time limit was over: {names}")
    return search.choice(refusal)


def _worth_trying(
    request: Request, sketches: Sequence[Sketch]
) -> tuple[Sequence[Sketch], Mapping[str, str]]:
    """The sketches to try, and why the others are not; a sketch that is alone is tried anyway."""
    if len(sketches) == 1:
        return sketches, {}
    operation, size_bytes = request.collective.value, request.size_bytes
    left_out = {
        sketch.name: sizes.reason
        for sketch in sketches
        if (sizes := sketch.sizes_of(operation)) is not None and not sizes.holds(size_bytes)
    }
    return [sketch for sketch in sketches if sketch.name not in left_out], left_out


@dataclass
class _Search:
    """What was found so far."""

    request: Request
    left_out: Mapping[str, str]
    tried: list[Tried] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[SynthesisError] = field(default_factory=list)
    watch: Stopwatch = field(default_factory=Stopwatch)

    def add(self, attempt: Attempt) -> None:
        """Adds what came of a sketch; what failed is noted."""
        self.tried += attempt.tried
        self.failures += attempt.failures
        self.notes += [*map(str, attempt.failures), *attempt.notes]
        self.watch.add(attempt.seconds)

    def choice(self, refusal: Callable[[Tried], str | None]) -> Choice:
        """The fastest that is not refused and proved."""
        self.tried.sort(key=lambda one: (one.weighed_us, one.time_us))
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
        seconds = dict(self.watch.seconds)
        return Choice(self.tried[0], tuple(self.tried), notes, self.left_out, seconds)


def _too_small(request: Request) -> InfeasibleError:
    return InfeasibleError(
        f"{request.collective}: {request.size_bytes} bytes are less than one for each chunk of any "
        f"schedule; ask for a larger size"
    )


def _defect(tried: Tried, watch: Stopwatch) -> str | None:
    """Why a schedule is wrong; what `synthesize` gives back it has proved already."""
    if tried.synthesis is not None:
        return None
    with watch.stage("verifying"):
        verdict = verify(tried.algorithm)
    if verdict.proved:
        return None
    return f"{tried.algorithm.name} is wrong, {verdict.describe()}; please report it"
