"""Configurations in the order in which the model of NCCL expects them to be fast.

A search that starts from it measures the promising ones first. Pure: no backend, no noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tuccl.errors import ConfigurationFailedError
from tuccl.models.figures import MachineFigures
from tuccl.models.model_constants import MOST_CHANNELS, SHIPPED, ModelConstants
from tuccl.models.nccl_choice import Choice, choose
from tuccl.models.nccl_model import builtin_time_us
from tuccl.trials.config import Config, Task


def modelled_ranking(
    machine: MachineFigures,
    task: Task,
    configs: Iterable[Config],
    constants: ModelConstants = SHIPPED,
) -> tuple[Config, ...]:
    """Configurations of NCCL's built-ins, the fastest first.

    What NCCL turns into the same launch is as fast; such configurations follow each other in the
    order of `Config`. Schedules and algorithms that the model does not know are left out.
    """
    return tuple(config for _, config, _ in _timed(machine, task, configs, constants))


def modelled_opening(
    machine: MachineFigures,
    task: Task,
    configs: Iterable[Config],
    count: int,
    constants: ModelConstants = SHIPPED,
) -> tuple[Config, ...]:
    """The first configurations of the ranking that NCCL turns into different launches.

    On the grid of four H200, with constants fitted to other machines alone, the best of the first
    three is 0.6 % behind the best of the whole grid (median over 27 keys).
    """
    by_launch: dict[Choice, Config] = {}
    known = (one for one in configs if max(one.nchannels, one.min_nchannels) <= MOST_CHANNELS)
    for _, config, choice in _timed(machine, task, known, constants):
        if len(by_launch) == count:
            break
        by_launch.setdefault(choice, config)
    return tuple(by_launch.values())


def _timed(
    machine: MachineFigures, task: Task, configs: Iterable[Config], constants: ModelConstants
) -> list[tuple[float, Config, Choice]]:
    """Time, configuration and launch, the fastest first."""
    times: dict[Choice, float] = {}
    found = []
    for config, choice in _choices(machine, task, configs):
        if choice not in times:
            times[choice] = builtin_time_us(
                task.operation, task.size_bytes, choice, machine, constants
            )
        found.append((times[choice], config, choice))
    return sorted(found, key=lambda one: one[:2])


def _choices(
    machine: MachineFigures, task: Task, configs: Iterable[Config]
) -> Iterator[tuple[Config, Choice]]:
    for config in configs:
        if config.is_schedule:
            continue
        try:
            yield config, choose(task.operation, task.size_bytes, config, machine)
        except ConfigurationFailedError:
            continue
