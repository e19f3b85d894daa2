"""`make_schedules`: the schedules of one collective, synthesized and expert, on every sketch.

`tuccl synthesize` takes the best of what is made for one size, a run's search all that promises
something for one of its sizes. Each piece of the work depends on its arguments alone, so that it
can be done in another process.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Generic, TypeVar

from sketches.sketch import Sketch
from synthesizer.errors import InfeasibleError, SynthesisError
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.collectives import Collective
from synthesizer.plan.reach import MOST_RANKS_WRITTEN_OUT, beyond_experts, beyond_search
from synthesizer.plan.synthesize import SynthesisOptions, SynthesisResult
from synthesizer.prove.verifier import verify
from tuccl.processes.workers import Workers
from tuccl.schedules.chunk_fit import synthesize_fitting


@dataclass(frozen=True, slots=True)
class Wanted:
    """What schedules are made for, and how long the solver may take."""

    collective: Collective
    sizes_bytes: Sequence[int]
    """Each is searched for; as in nccl-tests."""
    search_s: float
    """For the solver in one search."""
    root: int = 0
    whole_s: float = inf
    """After that no further sketch is begun, if there is any schedule."""


@dataclass(frozen=True, slots=True)
class Made:
    """A schedule and how it was made."""

    algorithm: Algorithm
    sketch: Sketch
    synthesis: SynthesisResult | None
    """None for an expert algorithm."""
    size_bytes: int | None
    """That was searched for; None for an expert algorithm."""

    def defect(self) -> str | None:
        """Why it is wrong, None: it is proved; `synthesize` has proved what it gives back."""
        verdict = verify(self.algorithm) if self.synthesis is None else None
        if verdict is None or verdict.proved:
            return None
        return f"{self.algorithm.name} is wrong, {verdict.describe()}; please report it"


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

    def add(self, seconds: Mapping[str, float]) -> None:
        """Counts what was measured elsewhere."""
        for stage, taken in seconds.items():
            self.seconds[stage] += taken


_Taken = TypeVar("_Taken")
Take = Callable[[Made, Stopwatch], _Taken | None]
"""What is kept of a schedule, by the process that made it; None: nothing."""


@dataclass
class Attempt(Generic[_Taken]):
    """All that came of searches on sketches, and of their expert algorithms."""

    taken: list[_Taken] = field(default_factory=list)
    failures: list[SynthesisError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be tried, and why."""
    watch: Stopwatch = field(default_factory=Stopwatch)

    def add(self, other: Attempt[_Taken]) -> None:
        """Counts what came of another."""
        self.taken += other.taken
        self.failures += other.failures
        self.notes += other.notes
        self.watch.add(other.watch.seconds)


def make_schedules(
    wanted: Wanted,
    sketches: Sequence[Sketch],
    take: Take[_Taken],
    progress: Callable[[int, float], None],
    workers: Workers,
) -> Attempt[_Taken]:
    """Searches every sketch for every size, and makes its expert algorithms.

    Args:
        wanted: What they are for.
        sketches: What they may use, the most promising first.
        take: What is kept of each; where it raises, the search or the experts have failed.
        progress: Told how many sketches are done, and which share of all pieces.
        workers: Who makes them; they are the same however many there are.

    Returns:
        What came of the searches of the first sketch, of its expert algorithms, of the next's, ...

    Raises:
        WorkerError: A worker was killed.
    """
    ends = time.perf_counter() + wanted.whole_s
    # A sketch makes several pieces, because mostly one sketch takes nearly all time.
    per_sketch = len(wanted.sizes_bytes) + 1
    pieces = [
        partial(_attempt, wanted, sketch, size_bytes, take)
        for sketch in sketches
        for size_bytes in (*wanted.sizes_bytes, None)
    ]

    def may_begin(begun: int, done: Sequence[Attempt[_Taken]]) -> bool:
        within = time.perf_counter() <= ends or not any(one.taken for one in done)
        return within or begun % per_sketch != 0

    def told(done: int) -> None:
        progress(done // per_sketch, done / max(len(pieces), 1))

    whole = Attempt[_Taken]()
    attempts = workers.each(pieces, told, may_begin)
    for attempt in attempts:
        whole.add(attempt)
    if too_late := sketches[len(attempts) // per_sketch :]:
        names = ", ".join(sketch.name for sketch in too_late)
        whole.notes.append(f"sketches not tried, because the time limit was over: {names}")
    return whole


def _attempt(
    wanted: Wanted, sketch: Sketch, size_bytes: int | None, take: Take[_Taken]
) -> Attempt[_Taken]:
    """A search for a size, or the expert algorithms; what fails is told."""
    found = Attempt[_Taken]()
    if size_bytes is None:
        schedules = _experts(wanted, sketch, found.watch)
    else:
        schedules = _synthesized(wanted, sketch, size_bytes, found)
    try:
        found.taken.extend(
            one for made in schedules if (one := take(made, found.watch)) is not None
        )
    except SynthesisError as error:
        found.failures.append(error)
        found.notes.append(str(error))
    return found


def _synthesized(
    wanted: Wanted, sketch: Sketch, size_bytes: int, found: Attempt[_Taken]
) -> Iterator[Made]:
    if beyond_search(sketch):
        if not beyond_experts(wanted.collective, sketch):
            found.notes.append(
                f"expert algorithms alone were tried on sketch {sketch.name}: a search is for "
                f"{MOST_RANKS_WRITTEN_OUT} GPUs and fewer, {sketch.ranks} take too long"
            )
        return
    trees = sketch.chunks_per_rank
    if trees == 1 or wanted.collective is Collective.ALLTOALL:
        trees = 0  # Chosen.
    options = SynthesisOptions(time_limit_s=wanted.search_s, trees_per_rank=trees)
    for result in synthesize_fitting(wanted.collective, sketch, size_bytes, options, wanted.root):
        found.watch.add(result.seconds)
        yield Made(result.algorithm, sketch, result, size_bytes)


def _experts(wanted: Wanted, sketch: Sketch, watch: Stopwatch) -> Iterator[Made]:
    if beyond_experts(wanted.collective, sketch):
        raise InfeasibleError(
            f"{wanted.collective} was not tried on sketch {sketch.name}: {sketch.ranks} GPUs and "
            f"{len(sketch.edges)} connections without a rail exchange take too long; "
            f"{MOST_RANKS_WRITTEN_OUT} GPUs do not"
        )
    with watch.stage("experts"):
        algorithms = expert_algorithms(wanted.collective, sketch, wanted.root)
    for algorithm in algorithms:
        yield Made(algorithm, sketch, None, None)
