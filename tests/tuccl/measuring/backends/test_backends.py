"""What every measuring backend has to do: `Backend`'s protocol on each implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.measuring.records.small_record import FAST, HUNG, SLOW, machine, small_record
from tests.tuccl.measuring.workers import faulty_engine as faults
from tests.tuccl.measuring.workers.worker_fixtures import FAULTY, OpenBackend
from tuccl.errors import ConfigurationFailedError
from tuccl.measuring.backends.replay import ReplayBackend
from tuccl.measuring.backends.simulated import SimulatedBackend
from tuccl.models.figures import communicator_shape
from tuccl.search.trials.backend import Backend
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.workspace.measurement_log import ModelledRestarts

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Case:
    """A backend, a task, and configurations for it."""

    backend: Backend
    task: Task
    alike: tuple[Config, Config]
    """Two that run under one process profile."""
    other: Config
    """Runs under another process profile."""
    broken: Config
    """Cannot run."""
    repeatable: bool = True
    """Whether a sample's number decides its time."""


def simulated() -> Case:
    topology = machine()
    task = Task(Collective.ALL_REDUCE, 4096, communicator_shape(topology))
    alike = Config("ring", "LL", 4), Config("tree", "LL", 2)
    unknown = Config("nvls", "Simple", 8)
    backend = SimulatedBackend(topology, {}, seed=0, spread=0.05)
    return Case(backend, task, alike, Config("ring", "LL", 4, 128), unknown)


def replayed() -> Case:
    record = small_record()
    return Case(ReplayBackend(record, restart_s=3.0), record.tasks[0], (FAST, SLOW), STOCK, HUNG)


@pytest.fixture(params=["simulated", "replay", "workers"])
def case(request: pytest.FixtureRequest, open_backend: OpenBackend) -> Case:
    if request.param != "workers":
        return simulated() if request.param == "simulated" else replayed()
    backend, _ = open_backend(2, FAULTY)
    # No sample of NCCL's own choice is left out, however slow a loaded host makes it.
    alike = STOCK, Config("ring", "Simple", 1)
    other = Config("ring", "Simple", 1, buffer_bytes=48 << 10)
    broken = Config("ring", "LL", faults.ALL_REFUSE)
    task = Task(Collective.ALL_REDUCE, 4096, Shape(2, 1, 2))
    return Case(backend, task, alike, other, broken, repeatable=False)


def test_it_gives_the_samples_asked_for_and_their_cost(case: Case) -> None:
    measured = case.backend.measure(case.task, case.alike[0], 0, 2)
    assert len(measured.samples_us) == 2
    assert min(measured.samples_us) > 0
    assert measured.seconds >= sum(measured.samples_us) * 1e-6
    assert case.backend.name
    assert case.backend.provenance.describe()


def test_a_request_may_begin_at_any_sample(case: Case) -> None:
    whole = case.backend.measure(case.task, case.alike[0], 0, 4).samples_us
    parts = [case.backend.measure(case.task, case.alike[0], *part) for part in ((0, 1), (1, 3))]
    assert [len(part.samples_us) for part in parts] == [1, 3]
    if case.repeatable:
        assert parts[0].samples_us + parts[1].samples_us == whole


def test_a_restart_is_paid_for_another_profile_than_the_last_alone(case: Case) -> None:
    def restarts(config: Config) -> bool:
        seconds = case.backend.measure(case.task, config, 0, 1).seconds
        return seconds > case.backend.restart_s / 2

    first, second = case.alike
    case.backend.measure(case.task, first, 0, 1)
    order = (second, case.other, case.other, first)
    assert [restarts(config) for config in order] == [False, True, False, True]


def test_a_new_start_of_the_same_profile_is_paid_for_once(case: Case) -> None:
    def restarts() -> bool:
        seconds = case.backend.measure(case.task, case.alike[0], 0, 1).seconds
        return seconds > case.backend.restart_s / 2

    case.backend.measure(case.task, case.alike[0], 0, 1)
    case.backend.restart()
    assert [restarts(), restarts()] == [True, False]


@pytest.mark.parametrize("make", [simulated, replayed])
def test_a_search_that_resumes_has_the_modelled_workers_that_it_had(
    make: Callable[[], Case],
) -> None:
    case = make()
    first, second = case.alike
    assert isinstance(case.backend, ModelledRestarts)
    case.backend.resume(first.profile)
    assert case.backend.measure(case.task, second, 0, 1).seconds < case.backend.restart_s / 2
    case.backend.resume(ProcessProfile(nthreads=64))
    assert case.backend.measure(case.task, second, 0, 1).seconds > case.backend.restart_s / 2


def test_a_configuration_that_cannot_run_fails_alone(case: Case) -> None:
    for _ in range(2):
        with pytest.raises(ConfigurationFailedError) as failed:
            case.backend.measure(case.task, case.broken, 0, 1)
        assert str(failed.value)
        assert failed.value.seconds >= 0
    case.backend.check(case.task, case.alike[0])
    assert len(case.backend.measure(case.task, case.alike[0], 0, 1).samples_us) == 1
