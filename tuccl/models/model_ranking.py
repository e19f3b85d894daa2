"""Configurations ranked by the model of NCCL.

A search that starts from the ranking measures the promising ones first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tuccl.errors import ConfigurationFailedError
from tuccl.models.figures import MULTIPROCESSORS, MachineFigures, time_beside_us
from tuccl.models.model_constants import MOST_CHANNELS, SHIPPED, ModelConstants
from tuccl.models.nccl_choice import Choice, nccl_choice
from tuccl.models.nccl_model import builtin_time_us
from tuccl.search.trials.config import Config, Task


def modelled_opening(
    machine: MachineFigures,
    task: Task,
    configs: Iterable[Config],
    count: int,
    constants: ModelConstants = SHIPPED,
    computation_us: float = 0.0,
) -> tuple[Config, ...]:
    """The first `count` configurations of NCCL's built-ins that NCCL does not run alike.

    Configurations that NCCL runs alike take equally long; the first in the order of `Config` stands
    for them. Schedules and algorithms that the model does not know are left out.

    On the grid of four H200, with constants fitted to other machines alone, the best of the first
    three is 0.6 % behind the best of the whole grid (median over 27 keys).

    Args:
        machine: The machine that its communicators see.
        task: The key.
        configs: What is ranked.
        count: Most configurations.
        constants: Constants of the model.
        computation_us: Time of the computation beside each call; 0: calls are timed alone.
    """
    by_choice: dict[Choice, Config] = {}
    known = (
        config for config in configs if max(config.nchannels, config.min_nchannels) <= MOST_CHANNELS
    )
    for _, config, choice in _timed(machine, task, known, constants, computation_us):
        if len(by_choice) == count:
            break
        by_choice.setdefault(choice, config)
    return tuple(by_choice.values())


def _timed(
    machine: MachineFigures,
    task: Task,
    configs: Iterable[Config],
    constants: ModelConstants,
    computation_us: float = 0.0,
) -> list[tuple[float, Config, Choice]]:
    """Time, configuration and what NCCL makes of it, the fastest first."""
    times: dict[Choice, float] = {}
    found = []
    for config, choice in _choices(machine, task, configs):
        if choice not in times:
            alone_us = builtin_time_us(task.operation, task.size_bytes, choice, machine, constants)
            multiprocessors = MULTIPROCESSORS[machine.generation]
            times[choice] = time_beside_us(
                alone_us, choice.nchannels, computation_us, multiprocessors
            )
        found.append((times[choice], config, choice))
    return sorted(found, key=lambda row: row[:2])


def _choices(
    machine: MachineFigures, task: Task, configs: Iterable[Config]
) -> Iterator[tuple[Config, Choice]]:
    for config in configs:
        if config.is_schedule:
            continue
        try:
            yield config, nccl_choice(task.operation, task.size_bytes, config, machine)
        except ConfigurationFailedError:
            continue
