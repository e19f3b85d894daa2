from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.tuning.spending import Spending
from tuccl.workspace.measurement_log import MeasurementLog, read_log

TASK = Task(Collective.ALL_REDUCE, 1 << 20, Shape(4, 1, 4))
RING = Config("ring", "LL", 4)


class HangsAtTheThird:
    """Returns two samples of 1 s each, then hangs until a deadline of 5 s."""

    name = "test"
    provenance = Provenance("test")
    restart_s = 0.0

    def measure(self, _task: Task, _config: Config, first: int, repeats: int) -> Measured:
        if first + repeats > 2:
            raise ConfigurationFailedError("hung", seconds=5.0)
        return Measured((10.0,) * repeats, float(repeats))

    def restart(self) -> None:
        """All starts are alike."""

    def check(self, task: Task, config: Config) -> None:
        pass


def spend(folder: Path) -> list[float]:
    """Machine time spent after each request."""
    spent_s = []
    with MeasurementLog(folder / "log", HangsAtTheThird(), "id") as log:
        spending = Spending(log, 20.0)
        spending.measure(TASK, RING, 1)
        spent_s.append(spending.spent_s)
        spending.measure(TASK, RING, 2)
        spent_s.append(spending.spent_s)
        for _ in range(2):
            with pytest.raises(ConfigurationFailedError, match="hung"):
                spending.measure(TASK, RING, 3)
            spent_s.append(spending.spent_s)
    return spent_s


def test_a_failure_after_samples_is_paid_for_once(tmp_path: Path) -> None:
    assert spend(tmp_path) == [1.0, 2.0, 7.0, 7.0]


def test_a_run_that_continues_has_spent_the_same(tmp_path: Path) -> None:
    assert spend(tmp_path) == spend(tmp_path)


class MeasuredRestarts:
    """Workers whose restart time varies, and is known only from the process's own restarts."""

    name = "test"
    provenance = Provenance("test")

    def __init__(self, starts_s: list[float]) -> None:
        self.restart_s = 3.0
        self._starts_s = starts_s

    def measure(self, _task: Task, _config: Config, _first: int, repeats: int) -> Measured:
        self.restart_s = self._starts_s.pop(0)
        return Measured((10.0,) * repeats, 1.0)

    def restart(self) -> None:
        """All starts are alike."""

    def check(self, task: Task, config: Config) -> None:
        pass


def restart_costs(log: MeasurementLog, requests: int) -> list[float]:
    """Cost of a restart after each request, some of which the log answers."""
    spending = Spending(log)
    known = []
    for repeats in range(1, requests + 1):
        spending.measure(TASK, RING, repeats)
        spending.measure(TASK, RING, 1)
        known.append(spending.restart_s)
    return known


def test_a_run_that_continues_plans_with_the_same_cost_of_a_restart(tmp_path: Path) -> None:
    with MeasurementLog(tmp_path / "log", MeasuredRestarts([2.0, 2.5, 2.5, 2.25]), "id") as log:
        first = restart_costs(log, 4)
    assert first == [2.0, 2.5, 2.5, 2.25]
    with MeasurementLog(tmp_path / "log", MeasuredRestarts([9.0]), "id") as log:
        assert restart_costs(log, 5) == [*first, 9.0]


def test_a_schedule_after_a_profile_starts_no_workers(tmp_path: Path) -> None:
    threads, schedule = Config("ring", "LL", 4, 128), Config("schedule:a", "LL", 4, 256)
    with MeasurementLog(tmp_path / "log", MeasuredRestarts([1.0] * 4), "id") as log:
        spending = Spending(log)
        seconds = [
            spending.measure_running(TASK, config, count).seconds
            for config, count in ((threads, 1), (schedule, 1), (threads, 2), (RING, 1))
        ]
        assert seconds == [0.0, 1.0, 1.0, 0.0]

    assert read_log(tmp_path / "log", "id").profiles == [
        ProcessProfile(nthreads=128),
        ProcessProfile(),
    ]


def test_fresh_samples_come_after_all_that_were_returned(tmp_path: Path) -> None:
    class Numbered(MeasuredRestarts):
        def measure(self, _task: Task, _config: Config, first: int, repeats: int) -> Measured:
            most = min(first + repeats, 6)  # The backend stops it there.
            return Measured(tuple(float(n + 1) for n in range(first, most)), 1.0)

    with MeasurementLog(tmp_path / "log", Numbered([1.0] * 9), "id") as log:
        spending = Spending(log)
        spending.measure(TASK, RING, 2)
        assert spending.fresh(TASK, RING, 3) == (3.0, 4.0, 5.0)
        with pytest.raises(ConfigurationFailedError, match="too slow"):
            spending.fresh(TASK, RING, 3)
