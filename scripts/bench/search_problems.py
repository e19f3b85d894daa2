"""Search problems for `bench_search.py` and `paper.py`: keys of a record or of a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from lookup_tables.collective import Collective
from tuccl.measuring.backends.replay import ReplayBackend
from tuccl.measuring.backends.simulated import SimulatedBackend, noisy_samples
from tuccl.measuring.records.grid_csv import read_grid_csv, topology_beside
from tuccl.measuring.records.record import Record
from tuccl.models.figures import communicator_shape
from tuccl.models.model_constants import MOST_CHANNELS
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.quantities import format_size
from tuccl.search.strategies.meter import Measure
from tuccl.search.trials.backend import Backend, Measured
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.presets import nccl_space
from tuccl.search.trials.space import Space, space_of, with_channels_up_to

MODELLED = {
    "2x2-tcp": MachineOptions(
        "shipped:a100-8gpu-8nic",
        nodes=2,
        node_gpus="2,2",
        network_gbps=24.0,
        network_latency_us=15.0,
    ),
    "2x8-roce": MachineOptions("shipped:a100-8gpu-8nic", nodes=2),
    "1x4-nvlink": MachineOptions("shipped:h200-4gpu"),
}
"""Machines in the model, by name."""
REPEATS = 5
"""Samples of a configuration at full budget, in the model."""


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


class Remembered:
    """Measures one task on a backend; samples measured before cost nothing."""

    def __init__(self, backend: Backend, task: Task) -> None:
        """Begin without samples."""
        self._backend = backend
        self._task = task
        self._known: dict[Config, Measured] = {}

    def __call__(self, config: Config, repeats: int) -> Measured:
        """Return the first samples and what they cost, as `Measure` does."""
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


def model_problems(machine: MachineOptions, spread: float) -> list[Problem]:
    """Problems of NCCL's joint space on a machine in the model, 4 KB to 64 MB in steps of 4.

    Args:
        machine: The machine.
        spread: Relative standard deviation of a sample.
    """
    topology = load_machine(machine)
    shape = communicator_shape(topology)

    def backend_of(seed: int | None) -> Backend:
        backend = SimulatedBackend(topology, {}, seed or 0, 0.0 if seed is None else spread)
        backend.restart_s = 0.0
        return backend

    return [
        model_problem(backend_of, Task(operation, size_bytes, shape), space, REPEATS)
        for operation in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
        for space in (with_channels_up_to(nccl_space(operation, shape), MOST_CHANNELS),)
        for size_bytes in (4 << 10 << 2 * step for step in range(8))
    ]


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
        measure_of=lambda seed: Remembered(ReplayBackend(record, seed, restart_s=0.0), task),
    )


def noisier(problem: Problem, spread: float) -> Problem:
    """The problem on a machine as noisy as said: samples around its true times, at equal cost.

    Args:
        problem: The problem of a quieter machine.
        spread: Relative standard deviation of a sample; over TCP it is about 0.1.
    """

    def measure_of(seed: int) -> Measure:
        quiet = problem.measure_of(seed)

        def measure(config: Config, repeats: int) -> Measured:
            found = quiet(config, repeats)
            samples_us = noisy_samples(
                problem.truth_us[config],
                f"{problem.name}: {config}",
                seed,
                spread,
                0,
                len(found.samples_us),
            )
            return Measured(samples_us, found.seconds)

        return measure

    return replace(problem, measure_of=measure_of)


def mirrored(problem: Problem) -> Problem:
    """The problem with every axis of its space turned round.

    Constants of a strategy that were chosen on a record may lean towards the corner where its best
    configurations lie, such as that of most channels. Here these lie in the opposite one.
    """

    def image(config: Config) -> Config:
        index, positions = problem.space.positions(config)
        family = problem.space.families[index]
        return family.at(
            [len(axis) - 1 - place for axis, place in zip(family.axes, positions, strict=True)]
        )

    truth_us = {
        config: problem.truth_us[image(config)]
        for config in problem.truth_us
        if image(config) in problem.truth_us
    }

    def measure_of(seed: int) -> Measure:
        measure = problem.measure_of(seed)
        return lambda config, repeats: measure(image(config), repeats)

    return replace(
        problem,
        space=space_of(problem.name, truth_us),
        truth_us=truth_us,
        best_us=min(truth_us.values()),
        measure_of=measure_of,
    )


def model_problem(
    backend_of: Callable[[int | None], Backend], task: Task, space: Space, max_repeats: int
) -> Problem:
    """A problem from a model.

    Args:
        backend_of: Maps a seed to a backend; None to one without noise.
        task: The key.
        space: What is searched.
        max_repeats: Samples of a configuration at full budget.
    """
    exact = backend_of(None)
    measured = {config: exact.measure(task, config, 0, max_repeats) for config in space}
    truth_us = {config: found.samples_us[0] for config, found in measured.items()}
    return Problem(
        name=f"{task.full_name}",
        max_repeats=max_repeats,
        space=space,
        grid_s=sum(found.seconds for found in measured.values()),
        truth_us=truth_us,
        best_us=min(truth_us.values()),
        measure_of=lambda seed: Remembered(backend_of(seed), task),
    )
