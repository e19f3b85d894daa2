"""What stock NCCL's times in two starts say of how much starts differ."""

import math
from collections.abc import Collection
from typing import cast

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tests.tuccl.silent_progress import silent
from tuccl.errors import ConfigurationFailedError
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import Config, Task
from tuccl.tuning.spending import Spending
from tuccl.tuning.stock_times import REPEATS, StockTimes
from tuccl.workspace.measurement_log import MeasurementLog

NODE, WHOLE = Shape(2, 1, 2), Shape(4, 2, 2)


class Moving:
    """A log in which keys take longer by a factor in every start but the first."""

    def __init__(self, moved: dict[Task, float], wrong: Collection[Task] = ()) -> None:
        self.moved = moved
        self.wrong = wrong

    def measure(self, task: Task, _config: Config, repeats: int) -> Measured:
        late = max(0, repeats - REPEATS)
        samples = (10.0,) * (repeats - late) + (10.0 * self.moved[task],) * late
        return Measured(samples, 0.001 * repeats)

    def check(self, task: Task, _config: Config) -> None:
        if task in self.wrong:
            raise ConfigurationFailedError("an average is none", seconds=0.0)


def by_shape(moved: dict[Task, float]) -> dict[Shape, float]:
    stock = StockTimes(tuple(moved), Spending(cast(MeasurementLog, Moving(moved))), silent)
    stock.begin()
    stock.again()
    return {shape: own.error for shape, own in stock.between_starts_by_shape().items()}


def test_the_smallest_size_of_each_reduction_shows_whether_stocks_data_are_right() -> None:
    keys = [
        Task(operation, size, shape)
        for operation in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
        for shape in (NODE, WHOLE)
        for size in (1024, 4096)
    ]
    wrong = (keys[0], keys[5], keys[6])
    log = Moving(dict.fromkeys(keys, 1.0), wrong)
    stock = StockTimes(keys, Spending(cast(MeasurementLog, log)), silent)
    assert set(stock.begin()) == set(keys), "stock is the reference all the same"
    assert stock.faults == {keys[6]: "an average is none"}


def test_a_shape_whose_few_keys_did_not_move_is_allowed_what_all_keys_say() -> None:
    keys = {
        shape: [Task(Collective.ALL_REDUCE, size, shape) for size in (1024, 4096)]
        for shape in (NODE, WHOLE)
    }
    still = dict.fromkeys(keys[NODE], 1.0)
    found = by_shape({**still, **dict(zip(keys[WHOLE], (math.exp(0.2), 1.0), strict=True))})
    # Shifts of 0, 0, 0.2 and 0: deviations 0.1 of all keys, 0.1414 of the two of the whole.
    assert found == pytest.approx({NODE: 0.1, WHOLE: 0.2 / math.sqrt(2.0)})
