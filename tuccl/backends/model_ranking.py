"""`modelled_ranking`: configurations in the order in which the model expects them to be fast.

A search that starts from it measures the promising ones first. Pure: no backend, no noise.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuccl.backends.figures import MachineFigures
from tuccl.backends.model_constants import SHIPPED, ModelConstants
from tuccl.backends.nccl_choice import Choice, choose
from tuccl.backends.nccl_model import builtin_time_us
from tuccl.errors import ConfigurationFailedError
from tuccl.search.config import Config, Task


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
    times: dict[Choice, float] = {}
    ranked: list[tuple[float, Config]] = []
    for config in configs:
        if config.is_schedule:
            continue
        try:
            choice = choose(task.operation, task.size_bytes, config, machine)
        except ConfigurationFailedError:
            continue
        if choice not in times:
            times[choice] = builtin_time_us(
                task.operation, task.size_bytes, choice, machine, constants
            )
        ranked.append((times[choice], config))
    return tuple(config for _, config in sorted(ranked))
