"""The modelled cost of measuring, which counts against a budget."""

import pytest

from lookup_tables.table import Operation
from tests.tuccl.measuring.records.small_record import machine
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.backends.simulated import SimulatedBackend
from tuccl.models.figures import communicator_shape
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.running_profiles import RunningProfiles
from tuccl.workspace.measurement_log import ModelledRestarts

TOPOLOGY = machine()
TASK = Task(Operation.ALL_REDUCE, 4096, communicator_shape(TOPOLOGY))
FEW_THREADS = Config("ring", "LL", 4, 128)


def backend() -> SimulatedBackend:
    return SimulatedBackend(TOPOLOGY, {}, seed=0, spread=0.0)


def test_another_profile_than_the_one_before_costs_a_restart() -> None:
    model = backend()
    costs = [model.measure(TASK, config, 0, 1).seconds for config in
             (STOCK, Config("ring", "LL", 4), FEW_THREADS, FEW_THREADS, STOCK)]  # fmt: skip
    assert [round(cost / model.restart_s) for cost in costs] == [1, 0, 1, 0, 1]


def test_a_schedule_runs_on_whatever_workers_are_up() -> None:
    running = RunningProfiles()
    configs = (FEW_THREADS, Config("schedule:a", "LL", 4, 256), FEW_THREADS, STOCK)
    assert [running.run(config) for config in configs] == [True, False, False, True]


def test_samples_cost_their_launches() -> None:
    model = backend()
    model.measure(TASK, STOCK, 0, 1)
    once, nine = (model.measure(TASK, STOCK, 0, count) for count in (1, 9))
    launch_s = once.samples_us[0] * 1e-6 * model.timing.calls(TASK.size_bytes)
    assert nine.seconds - once.seconds == pytest.approx(8 * launch_s)


def test_a_stopped_search_goes_on_with_the_workers_that_it_had() -> None:
    model = backend()
    assert isinstance(model, ModelledRestarts)
    model.resume(ProcessProfile(nthreads=128))
    assert model.measure(TASK, FEW_THREADS, 0, 1).seconds < model.restart_s


def test_beyond_what_the_model_was_fitted_to_it_says_nothing() -> None:
    for config in (Config("ring", "LL", 64), Config("default", min_nchannels=64)):
        with pytest.raises(ConfigurationFailedError, match="no more than 32 channels"):
            backend().measure(TASK, config, 0, 1)
