"""The same measurements for every way in which workers are started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lookup_tables.collective import Collective
from tuccl.crew.places import Places
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.workers.seating import whole_shape
from tuccl.search.trials.backend import Backend
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.workspace.measurement_log import MeasurementLog

CONFIGS = (
    STOCK,
    Config("ring", "LL", 1),
    Config("tree", "LL128", 2),
    Config("nvls", "Simple", 1),
    Config("ring", "Simple", 2, buffer_bytes=16 << 10),
)


def carry_out(
    backend: Backend, places: Places, path: Path, halfway: Callable[[], None] = lambda: None
) -> dict[str, str]:
    """Return each configuration's result, with its data checked: measured, or its error."""
    outcomes = {}
    with MeasurementLog(path, backend, "plan") as log:
        for operation in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER):
            task = Task(operation, 12_288, whole_shape(places.places))
            for config in CONFIGS:
                try:
                    log.check(task, config)
                    log.measure(task, config, 3)
                    outcome = "measured"
                except ConfigurationFailedError as error:
                    outcome = str(error)
                outcomes[f"{task.name} {config.describe()}"] = outcome
                if config == CONFIGS[1]:
                    halfway()  # The next measurement is for the running group.
    return outcomes
