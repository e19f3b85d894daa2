"""The figures of docs/lab/model.md, on what the constants were not fitted to."""

from statistics import median

import bench_model
import pytest

from probes.files.read import read_topology
from tests.shared_data import requires_shared_data
from tuccl.measuring.calibration.fit import fit_constants, median_error
from tuccl.measuring.calibration.observations import Observation, tabulate
from tuccl.measuring.calibration.sources import from_record
from tuccl.measuring.records.grid_csv import read_grid_csv
from tuccl.measuring.records.record import Record
from tuccl.models.model_constants import SHIPPED
from tuccl.models.nccl_choice import nccl_choice

pytestmark = [pytest.mark.long, requires_shared_data]


@pytest.fixture(scope="module")
def record() -> Record:
    return read_grid_csv(bench_model.GRID, read_topology(bench_model.TOPOLOGY))


@pytest.fixture(scope="module")
def grid(record: Record) -> tuple[Observation, ...]:
    return from_record(record, record.topology).observations


@pytest.mark.slow
def test_a_size_that_was_left_out_is_told_and_its_winner_found(
    record: Record, grid: tuple[Observation, ...]
) -> None:
    keys = bench_model.leave_one_size_out(record, grid)
    assert len(keys) == 27
    assert keys["median_error"].median() < 0.10
    assert keys["median_error"].max() < 0.20
    assert keys["rank_correlation"].median() > 0.95
    assert keys["rank_correlation"].min() > 0.85
    assert keys["winner_in_tenth"].sum() >= 24
    assert keys["launch_in_tenth"].sum() >= 24


@pytest.mark.slow
def test_a_machine_that_was_left_out_is_told_within_a_third(grid: tuple[Observation, ...]) -> None:
    errors = bench_model.leave_one_machine_out(grid, bench_model.curves(bench_model.CURVES))
    assert errors["machine"][errors["wanted"]].nunique() == 5
    assert (errors.groupby("machine")["error"].median() < 0.35).all()
    assert errors["error"][errors["wanted"]].median() < 0.20


def test_the_shipped_constants_are_what_the_measurements_give(
    grid: tuple[Observation, ...],
) -> None:
    parts = bench_model.curves(bench_model.CURVES)
    table = tabulate([*grid, *(seen for part in parts for seen in part)])
    refitted = fit_constants([*grid, *(seen for part in parts for seen in part)], bench_model.START)
    assert median_error(table, SHIPPED) == pytest.approx(refitted.error_after, abs=0.002)


def test_stock_nccls_choices_on_four_h200_are_met(
    record: Record, grid: tuple[Observation, ...]
) -> None:
    """NCCL's own choice takes as long as what `nccl_choice` returns, where the grid has both."""
    found = 0
    by_launch: dict[object, list[float]] = {}
    defaults = []
    for seen in grid:
        key = (seen.operation, seen.size_bytes, nccl_choice(
            seen.operation, seen.size_bytes, seen.config, seen.machine
        ))  # fmt: skip
        if seen.config.is_default:
            defaults.append((key, seen.time_us))
        else:
            by_launch.setdefault(key, []).append(seen.time_us)
    for key, time_us in defaults:
        if key in by_launch:
            found += 1
            assert median(by_launch[key]) == pytest.approx(time_us, rel=0.15), key
    assert found > 200
