"""The modelled cost of measuring, which counts against a budget."""

import pytest

from lookup_tables.collective import Collective
from tests.tuccl.measuring.records.small_record import machine
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.backends.simulated import SimulatedBackend
from tuccl.models.figures import communicator_shape
from tuccl.search.trials.backend import RunningProfiles
from tuccl.search.trials.config import STOCK, Config, Task

TOPOLOGY = machine()
TASK = Task(Collective.ALL_REDUCE, 4096, communicator_shape(TOPOLOGY))
FEW_THREADS = Config("ring", "LL", 4, 128)


def backend() -> SimulatedBackend:
    return SimulatedBackend(TOPOLOGY, {}, seed=0, spread=0.0)


def test_a_schedule_runs_on_whatever_workers_are_up() -> None:
    running = RunningProfiles()
    configs = (FEW_THREADS, Config("schedule:a", "LL", 4, 256), FEW_THREADS, STOCK)
    assert [running.run(config) for config in configs] == [True, False, False, True]


def test_beyond_what_the_model_was_fitted_to_it_says_nothing() -> None:
    for config in (Config("ring", "LL", 64), Config("default", min_nchannels=64)):
        with pytest.raises(ConfigurationFailedError, match="no more than 32 channels"):
            backend().measure(TASK, config, 0, 1)
