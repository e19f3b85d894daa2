"""Search problems for `bench_search.py`: the keys of a record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from tuccl.measuring.backends.replay import ReplayBackend
from tuccl.measuring.records.grid_csv import read_grid_csv, topology_beside
from tuccl.measuring.records.record import Record
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.quantities import format_size
from tuccl.search.strategies.meter import Measure
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.space import Space, space_of


@dataclass(frozen=True)
class Problem:
    """One key to search."""

    name: str
    max_repeats: int
    space: Space
    grid_s: float
    """Seconds to measure every configuration once at full budget."""
    truth_us: dict[Config, float]
    """True times; configurations that cannot run are absent."""
    best_us: float
    measure_of: Callable[[int], Measure]
    """Maps a seed to a measurement whose samples are the same in every search with that seed."""

    def regret(self, choice: Config | None) -> float:
        """Slowdown of the choice against the best; infinite without a choice."""
        return math.inf if choice is None else self.truth_us[choice] / self.best_us - 1.0


class _Replayed:
    """Measures on a record; samples measured before cost nothing."""

    def __init__(self, record: Record, task: Task, seed: int) -> None:
        self._backend = ReplayBackend(record, seed, restart_s=0.0)
        self._task = task
        self._known: dict[Config, Measured] = {}

    def __call__(self, config: Config, repeats: int) -> Measured:
        known = self._known.get(config, Measured((), 0.0))
        first = len(known.samples_us)
        if first < repeats:
            more = self._backend.measure(self._task, config, first, repeats - first)
            known = Measured((*known.samples_us, *more.samples_us), known.seconds + more.seconds)
            self._known[config] = known
        return known


def record_problems(path: Path) -> list[Problem]:
    """Problems from the keys of a grid, in the joint space of parameters per call and process."""
    topology = load_machine(MachineOptions(str(topology_beside(path))))
    record = read_grid_csv(path, topology)
    return [_record_problem(record, task) for task in record.tasks]


def _record_problem(record: Record, task: Task) -> Problem:
    samples_us = {
        config: row.samples_us
        for config in record.configs(task)
        if (row := record.row(task, config)) is not None and config != STOCK
    }
    truth_us = {config: median(samples) for config, samples in samples_us.items() if samples}
    calls = record.timing.calls(task.size_bytes)
    return Problem(
        name=f"{task.operation.value} {format_size(task.size_bytes)}",
        max_repeats=max(map(len, samples_us.values())),
        space=space_of(task.name, samples_us),
        grid_s=1e-6 * calls * sum(map(sum, samples_us.values())),
        truth_us=truth_us,
        best_us=min(truth_us.values()),
        measure_of=partial(_Replayed, record, task),
    )
