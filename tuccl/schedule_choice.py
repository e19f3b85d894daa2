"""The fastest schedule for one collective and size: synthesized and expert, on every sketch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from sketches.sketch import Sketch
from synthesizer.errors import DefectError, InfeasibleError, SynthesisError
from synthesizer.verifier import verify
from tuccl.sketch_attempt import Attempt, Request, Stopwatch, Tried, attempt_experts, attempt_search
from tuccl.workers import IN_PROCESS, Workers

PIECES_PER_SKETCH = 2
"""Its search and its expert algorithms."""


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


def choose_schedule(
    request: Request,
    sketches: Sequence[Sketch],
    progress: Callable[[int], None] = lambda _: None,
    refusal: Callable[[Tried], str | None] = lambda _: None,
    workers: Workers = IN_PROCESS,
) -> Choice:
    """Tries every sketch and takes the fastest schedule.

    Args:
        request: What is wanted.
        sketches: The most promising first.
        progress: Told how many sketches are done.
        refusal: Why a schedule can't be used although it is fast; None: it can.
        workers: Who solves the sketches; the choice does not depend on how many they are.

    Raises:
        InfeasibleError: There is no schedule on any sketch, or all are refused.
        WorkerError: A worker was killed.
        SolverError: No solver works, and no expert algorithm fits.
        DefectError: Every schedule fails its proof: a defect of the synthesizer.
    """
    search = _Search(request)
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

    def may_begin(begun: int, done: Sequence[Attempt]) -> bool:
        within = time.perf_counter() <= ends or not any(one.tried for one in done)
        return within or begun % PIECES_PER_SKETCH != 0

    attempts = workers.each(pieces, lambda done: progress(done // PIECES_PER_SKETCH), may_begin)
    for attempt in attempts:
        search.add(attempt)
    if left_out := sketches[len(attempts) // PIECES_PER_SKETCH :]:
        names = ", ".join(sketch.name for sketch in left_out)
        search.notes.append(f"sketches not tried, because the time limit was over: {names}")
    return search.choice(refusal)


@dataclass
class _Search:
    """What was found so far."""

    request: Request
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


def _defect(tried: Tried, watch: Stopwatch) -> str | None:
    """Why a schedule is wrong; what `synthesize` gives back it has proved already."""
    if tried.synthesis is not None:
        return None
    with watch.stage("verifying"):
        verdict = verify(tried.algorithm)
    if verdict.proved:
        return None
    return f"{tried.algorithm.name} is wrong, {verdict.describe()}; please report it"
