"""Choice of the fastest schedule for one collective and size, among those of every sketch.

Schedules are timed by the plain alpha-beta model, wires alone, so that it can be compared with
the bounds of the machine; of the times with messages in turn and with fair sharing the worse one
counts. What protocols and executors add is for measurement to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lookup_tables.collective import Collective
from sketches.chunking import Misfit
from sketches.sketch import Sketch
from synthesizer.simulate.simulator import ExecutionModel, Times, simulate
from tuccl.crew.pool import IN_PROCESS, Workers
from tuccl.errors import InfeasibleError, ScheduleError
from tuccl.schedules.chunk_fit import misfits, worth
from tuccl.schedules.guidance import worth_trying
from tuccl.schedules.making import Made, Stopwatch, Wanted, make_schedules

WIRES_ALONE = ExecutionModel()

_CLOCK_FACTOR = 20.0
"""Ratio of the time after which no further sketch is begun to the limit of work; far enough that no
load reaches it in practice, since a slower machine shall not make other schedules."""


@dataclass(frozen=True, slots=True)
class Request:
    """Collective, size and limits of a synthesis."""

    collective: Collective
    size_bytes: int
    """Size as nccl-tests counts it."""
    root: int = 0
    time_limit_s: float = 30.0
    """Limit of the solver's work on all sketches, in seconds of an idle core. After many times as
    long by the clock no further sketch is begun, and a note says so."""


@dataclass(frozen=True, slots=True)
class Tried(Made):
    """A schedule that was considered."""

    times: Times
    """Simulated times, with messages in turn and with fair sharing."""
    misfits: tuple[Misfit, ...]
    """Misfits of its chunks at this size."""

    @property
    def time_us(self) -> float:
        """The worse of the simulated times."""
        return self.times.worse_us

    @property
    def weighed_us(self) -> float:
        """Time that schedules are compared by; it is longer where chunks misfit."""
        return self.time_us * worth(self.misfits)


@dataclass(frozen=True)
class Choice:
    """The winner and the schedules that it was chosen from."""

    best: Tried
    """The winner, verified."""
    tried: tuple[Tried, ...]
    """By time, which counts for more where chunks misfit; the best is the first. Slower ones of
    the experts are not verified."""
    notes: tuple[str, ...]
    """Notes on what could not be tried, and why."""
    left_out: Mapping[str, str]
    """Sketches that are not worth trying at this size, and why."""
    seconds: dict[str, float]
    """Seconds by stage, over all sketches."""


Refusal = Callable[[Tried], str | None]
"""Function that returns why a schedule cannot be used; None if it can."""


def choose_schedule(
    request: Request,
    sketches: Sequence[Sketch],
    progress: Callable[[int], None] = lambda _: None,
    refusal: Refusal = lambda _: None,
    workers: Workers = IN_PROCESS,
) -> Choice:
    """Try every sketch that is worth it and choose the fastest schedule.

    Args:
        request: Collective, size and limits.
        sketches: The most promising first. Those that are not worth trying at this size are tried
            when the others give no schedule.
        progress: Called with the number of sketches that are done.
        refusal: Called with the fastest schedules until one can be used.
        workers: Processes that solve the sketches; their number does not change the choice.

    Raises:
        InfeasibleError: There is no schedule on any sketch, or all are refused.
        HostError: A worker was killed.
        ScheduleError: No solver works, and no expert algorithm fits; every schedule fails its
            proof: a defect of the synthesizer.
    """
    kept, left_out = worth_trying(request.collective, sketches, [request.size_bytes])
    try:
        return _choose(request, kept, left_out, progress, refusal, workers)
    except ScheduleError:
        if not left_out:
            raise
    return _choose(request, sketches, {}, progress, refusal, workers)


def _choose(
    request: Request,
    sketches: Sequence[Sketch],
    left_out: Mapping[str, str],
    progress: Callable[[int], None],
    refusal: Refusal,
    workers: Workers,
) -> Choice:
    size_bytes, limit_s = request.size_bytes, request.time_limit_s
    search_s = limit_s / len(sketches)
    found = make_schedules(
        Wanted(request.collective, (size_bytes,), search_s, request.root, limit_s * _CLOCK_FACTOR),
        sketches,
        partial(_timed, size_bytes),
        lambda done, _share: progress(len(left_out) + done),
        workers,
    )
    tried = sorted(found.taken, key=lambda schedule: (schedule.weighed_us, schedule.time_us))
    while tried:
        error = _fault(tried[0], refusal, found.watch)
        if error is None:
            notes = tuple(dict.fromkeys(found.notes))
            return Choice(tried[0], tuple(tried), notes, left_out, dict(found.watch.seconds))
        found.failures.append(error)
        found.notes.append(f"left out on sketch {tried[0].sketch.name}: {error}")
        del tried[0]
    if found.failures:
        raise found.failures[0]
    raise InfeasibleError(
        f"{request.collective}: {size_bytes} bytes are less than one for each chunk of any "
        f"schedule; ask for a larger size"
    )


def _timed(size_bytes: int, made: Made, watch: Stopwatch) -> Tried | None:
    """Return the schedule with its time, unless its chunks have less than a byte."""
    algorithm, sketch = made.algorithm, made.sketch
    if algorithm.chunks_per_loop > size_bytes:
        return None
    with watch.stage("simulating"):
        times = simulate(algorithm, sketch, size_bytes, WIRES_ALONE)
    found = misfits(sketch, algorithm, size_bytes)
    return Tried(algorithm, sketch, made.synthesis, made.size_bytes, times, found)


def _fault(tried: Tried, refusal: Refusal, watch: Stopwatch) -> ScheduleError | None:
    """Return why the schedule cannot be taken; None if it can."""
    reason = refusal(tried)
    if reason is not None:
        return InfeasibleError(reason)
    with watch.stage("verifying"):
        defect = tried.defect()
    return None if defect is None else ScheduleError(defect)
