"""MRACO on what four H200 did; `scripts/bench/bench_search.py` has all keys and strategies."""

from statistics import median

import pytest

from lookup_tables.collective import Collective
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.measuring.backends.replay import ReplayBackend
from tuccl.measuring.records.grid_csv import read_grid_csv, topology_beside
from tuccl.measuring.records.record import Record
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.search.strategies.meter import Meter
from tuccl.search.strategies.mraco import Mraco
from tuccl.search.strategies.strategy import run_search
from tuccl.search.trials.backend import Measured
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.space import space_of

GRID = SHARED_DATA / "replay/h200x4_nvlink_nccl2.28.9.csv"
pytestmark = [pytest.mark.long, requires_shared_data]


@pytest.fixture(scope="module")
def record() -> Record:
    return read_grid_csv(GRID, load_machine(MachineOptions(str(topology_beside(GRID)))))


class Replayed:
    """Measures on a record; what was measured before is not charged again."""

    def __init__(self, record: Record, task: Task) -> None:
        self._backend = ReplayBackend(record, restart_s=0.0)
        self._task = task
        self._known: dict[Config, Measured] = {}

    def __call__(self, config: Config, repeats: int) -> Measured:
        known = self._known.get(config, Measured((), 0.0))
        first = len(known.samples_us)
        more = self._backend.measure(self._task, config, first, repeats - first)
        samples_us = known.samples_us + more.samples_us
        self._known[config] = Measured(samples_us, known.seconds + more.seconds)
        return self._known[config]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("operation", [Collective.ALL_REDUCE, Collective.ALL_GATHER])
@pytest.mark.parametrize("size_bytes", [64 << 10, 4 << 20, 64 << 20])
def test_the_choice_is_within_one_per_cent_at_five_per_cent_of_the_grid(
    record: Record, operation: Collective, size_bytes: int, seed: int
) -> None:
    task = Task(operation, size_bytes, record.shape)
    samples_us = {
        config: row.samples_us
        for config in record.configs(task)
        if (row := record.row(task, config)) is not None and config != STOCK
    }
    truth_us = {config: median(samples) for config, samples in samples_us.items() if samples}
    grid_s = 1e-6 * record.timing.calls(size_bytes) * sum(map(sum, samples_us.values()))
    meter = Meter(Replayed(record, task), 5, 0.05 * grid_s)
    found = run_search(Mraco(), space_of("recorded", samples_us), meter, seed=seed)
    assert truth_us[found.ranking[0].config] <= 1.01 * min(truth_us.values())
    assert found.seconds <= 0.05 * grid_s
