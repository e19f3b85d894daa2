"""Tuning: the searches for all keys, the common process profile, and the decision for each key.

First NCCL's built-in settings are searched freely, as if every key could have its own process
profile, and from the winners one profile is chosen for all keys. Then the built-ins are searched
again under that profile, and the schedules beside them: apart, because a job without the executor
needs the best built-in even where a schedule is faster. Last the finalists of both are confirmed
against stock NCCL. Every search starts from the winners of the size before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lookup_tables.table import Shape
from tuccl.decision import Decision, decide
from tuccl.measurement_log import MeasurementLog
from tuccl.profile import choose_profile
from tuccl.search.config import Config, ProcessProfile, Task
from tuccl.search.meter import Meter
from tuccl.search.mraco import Mraco, MracoOptions
from tuccl.search.presets import executor_families, nccl_families
from tuccl.search.space import Space, with_profile
from tuccl.search.strategy import SearchResult, run_search
from tuccl.settings import RunSettings

Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`."""

_FINALISTS = 2
_MAX_REPEATS = 27
"""Samples of a configuration at full budget."""
_WARM = 6


@dataclass(frozen=True)
class KeyResult:
    """Everything that is known about one key."""

    task: Task
    searches: tuple[SearchResult, ...]
    """Of built-ins under the profile, and of schedules if there are any."""
    decision: Decision


@dataclass(frozen=True)
class TuningResult:
    """The outcome of a run."""

    profile: ProcessProfile
    keys: tuple[KeyResult, ...]


def tune(
    settings: RunSettings,
    shape: Shape,
    schedules: Callable[[Task], Sequence[str]],
    log: MeasurementLog,
    progress: Progress,
) -> TuningResult:
    """Tune all keys of a run.

    Args:
        settings: Operations, sizes, seed, budget.
        shape: Of the communicator.
        schedules: Content hashes of the candidates for a task.
        log: Measures and remembers.
        progress: Told after each key.
    """
    tasks = [
        Task(operation, size_bytes, shape)
        for operation in settings.operations
        for size_bytes in settings.sizes_bytes
    ]

    def searched(stage: str, space_of: Callable[[Task], Space], warm: _Rankings) -> _Results:
        return _search_all(stage, tasks, space_of, warm, settings, log, progress)

    free = searched("any profile", lambda task: Space("nccl", nccl_families(task.operation)), {})
    rankings = _rankings(free)

    def samples(task: Task, config: Config, repeats: int) -> tuple[float, ...]:
        return log.measure(task, config, repeats).samples_us

    profile = choose_profile(rankings, samples, _MAX_REPEATS)
    applied = {
        task: [profile.applied_to(config) for config in configs]
        for task, configs in rankings.items()
    }
    builtins = searched("one profile", lambda task: _under(profile, task), applied)
    executor = searched(
        "schedules' parameters",
        lambda task: Space("executor", executor_families(schedules(task))),
        {},
    )
    keys = []
    for done, task in enumerate(tasks):
        progress("confirmation", done, len(tasks))
        found = [results[task] for results in (builtins, executor) if task in results]
        keys.append(KeyResult(task, tuple(found), _decide(task, found, profile, log)))
    progress("confirmation", len(tasks), len(tasks))
    return TuningResult(profile, tuple(keys))


_Results = dict[Task, SearchResult]
_Rankings = Mapping[Task, Sequence[Config]]


def _search_all(
    stage: str,
    tasks: Sequence[Task],
    space_of: Callable[[Task], Space],
    warm: _Rankings,
    settings: RunSettings,
    log: MeasurementLog,
    progress: Progress,
) -> _Results:
    """Search every key that has a space, starting from `warm` and from the next smaller size."""
    results: _Results = {}
    for done, task in enumerate(tasks):
        progress(stage, done, len(tasks))
        space = space_of(task)
        if not space.families:
            continue
        known = [*warm.get(task, ())[:_WARM], *_of_smaller_size(task, results)]
        meter = Meter(partial(log.measure, task), _MAX_REPEATS)
        strategy = Mraco(MracoOptions(max_cycles=settings.cycles))
        seed = _seed(settings, stage, task)
        results[task] = run_search(strategy, space, meter, first=known, seed=seed)
    progress(stage, len(tasks), len(tasks))
    return results


def _under(profile: ProcessProfile, task: Task) -> Space:
    free = Space("nccl", nccl_families(task.operation))
    return with_profile(free, profile)


def _rankings(results: _Results) -> dict[Task, list[Config]]:
    return {task: [ranked.config for ranked in result.ranking] for task, result in results.items()}


def _decide(
    task: Task, found: Sequence[SearchResult], profile: ProcessProfile, log: MeasurementLog
) -> Decision:
    finalists = [ranked.config for result in found for ranked in result.ranking[:_FINALISTS]]
    return decide(
        builtins=[config for config in finalists if not config.is_schedule],
        schedules=[config for config in finalists if config.is_schedule],
        profile_default=profile.default,
        measure=_measure_of(log, task),
        first=_MAX_REPEATS,
    )


def _measure_of(log: MeasurementLog, task: Task) -> Callable[[Config, int], tuple[float, ...]]:
    def measure(config: Config, repeats: int) -> tuple[float, ...]:
        return log.measure(task, config, repeats).samples_us

    return measure


def _of_smaller_size(task: Task, results: _Results) -> list[Config]:
    """Elites of the next smaller size of the same operation."""
    smaller = [
        other
        for other in results
        if other.operation is task.operation and other.size_bytes < task.size_bytes
    ]
    if not smaller:
        return []
    nearest = max(smaller, key=lambda other: other.size_bytes)
    return [ranked.config for ranked in results[nearest].ranking[:_WARM]]


def _seed(settings: RunSettings, stage: str, task: Task) -> int:
    """A seed of the key's own, so that keys do not share their luck."""
    text = f"{settings.seed}:{stage}:{task.name}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
