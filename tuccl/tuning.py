"""Tuning: the searches for all keys, the common process profile, and the decision for each key.

Three passes over the keys. The first searches NCCL's built-in settings freely, as if every key
could have its own process profile; from its winners one profile is chosen for all. The second
searches again under that profile, with the schedules beside the built-ins, starting from what the
first found and from the winners of the size before. The third confirms the finalists against stock
NCCL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lookup_tables.table import Operation, Shape
from tuccl.decision import Decision, decide
from tuccl.measurement_log import MeasurementLog
from tuccl.profile import ProcessProfile, choose_profile
from tuccl.search.config import Config, Task
from tuccl.search.mraco import MracoOptions, SearchResult, search
from tuccl.search.space import Space, executor_families, nccl_families, with_profile
from tuccl.settings import RunSettings

Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`."""

_FINALISTS = 2
_WARM = 6


@dataclass(frozen=True)
class KeyResult:
    """Everything that is known about one key."""

    task: Task
    search: SearchResult
    decision: Decision


@dataclass(frozen=True)
class TuningResult:
    """The outcome of a run."""

    profile: ProcessProfile
    keys: tuple[KeyResult, ...]


def tune(
    settings: RunSettings,
    shape: Shape,
    schedules: Mapping[Operation, Sequence[str]],
    log: MeasurementLog,
    progress: Progress,
) -> TuningResult:
    """Tune all keys of a run.

    Args:
        settings: Operations, sizes, seed, budget.
        shape: Of the communicator.
        schedules: Content hashes of the candidates by operation.
        log: Measures and remembers.
        progress: Told after each key.
    """
    tasks = [
        Task(operation, size_bytes, shape)
        for operation in settings.operations
        for size_bytes in settings.sizes_bytes
    ]
    free = _free_search(tasks, settings, log, progress)
    progress("process profile", 0, 1)
    profile = choose_profile(free, log.samples)
    progress("process profile", 1, 1)
    found = _search_under_profile(tasks, free, profile, schedules, settings, log, progress)
    keys = []
    for done, task in enumerate(tasks):
        progress("confirmation", done, len(tasks))
        keys.append(KeyResult(task, found[task], _decide(task, found[task], profile, log)))
    progress("confirmation", len(tasks), len(tasks))
    return TuningResult(profile, tuple(keys))


def _free_search(
    tasks: Sequence[Task], settings: RunSettings, log: MeasurementLog, progress: Progress
) -> dict[Task, list[Config]]:
    """Built-in configurations of each key, best first, every key free in its profile."""
    rankings: dict[Task, list[Config]] = {}
    for done, task in enumerate(tasks):
        progress("search, any profile", done, len(tasks))
        space = Space("nccl", nccl_families(task.operation))
        warm = _of_smaller_size(task, rankings)
        options = _options(settings, "free", task)
        result = search(space, _measure_of(log, task), options, warm)
        rankings[task] = [ranked.config for ranked in result.ranking]
    progress("search, any profile", len(tasks), len(tasks))
    return rankings


def _search_under_profile(
    tasks: Sequence[Task],
    free: Mapping[Task, Sequence[Config]],
    profile: ProcessProfile,
    schedules: Mapping[Operation, Sequence[str]],
    settings: RunSettings,
    log: MeasurementLog,
    progress: Progress,
) -> dict[Task, SearchResult]:
    results: dict[Task, SearchResult] = {}
    rankings: dict[Task, list[Config]] = {}
    for done, task in enumerate(tasks):
        progress("search, one profile", done, len(tasks))
        families = (
            *nccl_families(task.operation),
            *executor_families(schedules.get(task.operation, ())),
        )
        space = with_profile(
            Space("nccl+executor", families), profile.nthreads, profile.buffer_bytes
        )
        warm = [profile.applied_to(config) for config in free[task][:_WARM]]
        warm += _of_smaller_size(task, rankings)
        options = _options(settings, "profile", task)
        results[task] = search(space, _measure_of(log, task), options, warm)
        rankings[task] = [ranked.config for ranked in results[task].ranking]
    progress("search, one profile", len(tasks), len(tasks))
    return results


def _decide(
    task: Task, found: SearchResult, profile: ProcessProfile, log: MeasurementLog
) -> Decision:
    configs = [ranked.config for ranked in found.ranking]
    return decide(
        builtins=[config for config in configs if not config.is_schedule][:_FINALISTS],
        schedules=[config for config in configs if config.is_schedule][:_FINALISTS],
        profile_default=profile.default,
        measure=_measure_of(log, task),
        first=MracoOptions().max_repeats,
    )


def _measure_of(log: MeasurementLog, task: Task) -> Callable[[Config, int], tuple[float, ...]]:
    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        return log.samples(task, config, repeats)

    return measure


def _of_smaller_size(task: Task, rankings: Mapping[Task, Sequence[Config]]) -> list[Config]:
    """Elites of the next smaller size of the same operation."""
    smaller = [
        other
        for other in rankings
        if other.operation is task.operation and other.size_bytes < task.size_bytes
    ]
    if not smaller:
        return []
    nearest = max(smaller, key=lambda other: other.size_bytes)
    return list(rankings[nearest][:_WARM])


def _options(settings: RunSettings, stage: str, task: Task) -> MracoOptions:
    """Options with a seed of the key's own, so that keys do not share their luck."""
    text = f"{settings.seed}:{stage}:{task.name}"
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
    return MracoOptions(max_cycles=settings.cycles, seed=seed)
