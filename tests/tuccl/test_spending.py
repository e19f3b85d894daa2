from pathlib import Path

import pytest

from lookup_tables.table import Operation, Shape
from tuccl.backends.protocol import Measured
from tuccl.errors import ConfigurationFailedError
from tuccl.measurement_log import MeasurementLog
from tuccl.search.config import Config, Task
from tuccl.spending import Spending

TASK = Task(Operation.ALL_REDUCE, 1 << 20, Shape(4, 1, 4))
RING = Config("ring", "LL", 4)


class HangsAtTheThird:
    """Gives two samples of 1 s each, then hangs until a deadline of 5 s."""

    name = "test"
    versions = "1"
    restart_s = 0.0

    def measure(self, _task: Task, _config: Config, first: int, repeats: int) -> Measured:
        if first + repeats > 2:
            raise ConfigurationFailedError("hung", seconds=5.0)
        return Measured((10.0,) * repeats, float(repeats))

    def check(self, task: Task, config: Config) -> None:
        pass

    def close(self) -> None:
        pass


def spend(folder: Path) -> list[float]:
    """What is spent after each request."""
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
