"""`make_schedules`: the schedules of one collective, synthesized and expert, on every sketch.

`tuccl synthesize` takes the best schedule for one size, a run's search all that may win at one of
its sizes. Each piece of the work depends on its arguments alone, so that it can run in another
process.
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

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.experts import (
    MOST_RANKS_WRITTEN_OUT,
    beyond_experts,
    beyond_search,
    expert_algorithms,
    rails_suffice,
)
from synthesizer.ir.algorithm import Algorithm
from synthesizer.plan.synthesize import SynthesisOptions, SynthesisResult
from synthesizer.prove.verifier import verify
from tuccl.crew.pool import Workers
from tuccl.errors import InfeasibleError, ScheduleError
from tuccl.schedules.chunk_fit import synthesize_fitting


@dataclass(frozen=True, slots=True)
class Wanted:
    """Collective and sizes of schedules, and limits of the search."""

    collective: Collective
    sizes_bytes: Sequence[int]
    """Sizes to search schedules for, as nccl-tests counts them."""
    search_s: float
    """Limit of the solver's work in one search, in seconds of an idle core."""
    root: int = 0
    whole_s: float = inf
    """Time by the clock after which no further sketch is begun, if there is a schedule."""
    trees: Sequence[int] = ()
    """Numbers of trees of each source to search with, whose chunks have one piece; empty: as many
    trees and pieces as pay."""


@dataclass(frozen=True, slots=True)
class Made:
    """A schedule and its origin."""

    algorithm: Algorithm
    sketch: Sketch
    synthesis: SynthesisResult | None
    """Result of the synthesis; None for an expert algorithm."""
    size_bytes: int | None
    """Size of the search; None for an expert algorithm."""

    def defect(self) -> str | None:
        """Return the defect; None if it is proved, as results of `synthesize` are already."""
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
        """Count the seconds of a block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add({name: time.perf_counter() - started})

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add seconds that were measured elsewhere."""
        for stage, taken in seconds.items():
            self.seconds[stage] += taken


_Taken = TypeVar("_Taken")
Take = Callable[[Made, Stopwatch], _Taken | None]
"""Function of the making process that returns what to keep of a schedule; None keeps nothing."""


@dataclass
class Attempt(Generic[_Taken]):
    """Results of searches on sketches, and of their expert algorithms."""

    taken: list[_Taken] = field(default_factory=list)
    failures: list[ScheduleError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes on what could not be tried, and why."""
    watch: Stopwatch = field(default_factory=Stopwatch)

    def add(self, attempt: Attempt[_Taken]) -> None:
        """Add the results of a further attempt."""
        self.taken += attempt.taken
        self.failures += attempt.failures
        self.notes += attempt.notes
        self.watch.add(attempt.watch.seconds)


def make_schedules(
    wanted: Wanted,
    sketches: Sequence[Sketch],
    take: Take[_Taken],
    progress: Callable[[int, float], None],
    workers: Workers,
) -> Attempt[_Taken]:
    """Search every sketch for every size, and make its expert algorithms.

    Args:
        wanted: Collective, sizes and limits.
        sketches: Sketches to use, the most promising first.
        take: Returns what to keep of a schedule; where it raises, the search or expert has failed.
        progress: Called with the number of sketches that are done, and the share of all pieces.
        workers: Processes that make them; their number does not change the result.

    Returns:
        The results of the first sketch's searches, of its expert algorithms, of the next's, ...

    Raises:
        HostError: A worker was killed.
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
        within = time.perf_counter() <= ends or not any(attempt.taken for attempt in done)
        return within or begun % per_sketch != 0

    def told(done: int) -> None:
        progress(done // per_sketch, done / max(len(pieces), 1))

    whole = Attempt[_Taken]()
    attempts = workers.each(pieces, told, may_begin)
    for attempt in attempts:
        whole.add(attempt)
    if too_late := sketches[len(attempts) // per_sketch :]:
        names = ", ".join(sketch.name for sketch in too_late)
        whole.notes.append(
            f"sketches not tried, because time was over; another run may differ: {names}"
        )
    return whole


def _attempt(
    wanted: Wanted, sketch: Sketch, size_bytes: int | None, take: Take[_Taken]
) -> Attempt[_Taken]:
    """Search for a size, or make the expert algorithms; failures are in the result."""
    found = Attempt[_Taken]()
    if size_bytes is None:
        schedules = _experts(wanted, sketch, found.watch)
    else:
        schedules = _synthesized(wanted, sketch, size_bytes, found)
    try:
        found.taken.extend(
            taken for made in schedules if (taken := take(made, found.watch)) is not None
        )
    except ScheduleError as error:
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
    if rails_suffice(wanted.collective, sketch, size_bytes):
        found.notes.append(
            f"expert algorithms alone were tried on sketch {sketch.name}: a search for this size "
            f"finds nothing faster on {sketch.ranks} GPUs whose nodes are joined by rails"
        )
        return
    for options in _options(wanted, sketch):
        for result in synthesize_fitting(
            wanted.collective, sketch, size_bytes, options, wanted.root
        ):
            found.watch.add(result.seconds)
            yield Made(result.algorithm, sketch, result, size_bytes)


def _options(wanted: Wanted, sketch: Sketch) -> Iterator[SynthesisOptions]:
    if wanted.trees:
        limit_s = wanted.search_s / len(wanted.trees)
        for trees in wanted.trees:
            yield SynthesisOptions(limit_s, trees_per_rank=trees, pieces_per_tree=1)
        return
    trees = sketch.chunks_per_rank
    if trees == 1 or wanted.collective.is_paired:
        trees = 0  # Chosen.
    yield SynthesisOptions(time_limit_s=wanted.search_s, trees_per_rank=trees)


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
