"""The effect of another NCCL on each key, and its lines and document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tuccl.reports.test_schemas import check
from tests.tuccl.shipping.bench.shipped_tables import TWO_RANKS
from tests.tuccl.shipping.bench.test_result import STOCK_US, TASKS, shipped
from tuccl.measuring.engines.job_processes import STOCK
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, NcclLibrary
from tuccl.measuring.engines.nccl_variables import PLUGIN_VARIABLE
from tuccl.reports.json_form import json_of
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.rounds import BenchTimes
from tuccl.shipping.bench.upgrade import (
    Upgrade,
    UpgradeEffect,
    UpgradeResult,
    upgrade_contenders,
    upgrade_result,
)
from tuccl.views.terminal.bench_display import upgrade_lines

UPGRADE = Upgrade(
    NcclLibrary(Path("/old/libnccl.so.2"), 22809, "named"),
    NcclLibrary(Path("/new/libnccl.so.2"), 22903, "named"),
)
TABLE = shipped()


def result_of(*keys: tuple[float, float, float]) -> UpgradeResult:
    """For each key the table's gain, stock NCCL's change, and the table's, by the new release."""
    names = [contender.name for contender in upgrade_contenders(TABLE, UPGRADE)]
    times_us = {name: {task: [0.0] * 3 for task in TASKS} for name in names}
    for task, (gain, stock_change, table_change) in zip(TASKS, keys, strict=True):
        for number, stock in enumerate(STOCK_US):
            values = (stock, stock / gain, stock / stock_change, stock / gain / table_change)
            for name, value in zip(names, values, strict=True):
                noise = 1.005 if number == names.index(name) % 3 else 1.0
                times_us[name][task][number] = value * noise
    measured = BenchTimes(times_us, {}, "NCCL 2.28.9", 3, 12.0)
    return upgrade_result(measured, TABLE, UPGRADE, TWO_RANKS, Timing())


def test_each_contender_has_its_release_and_a_name_of_its_own() -> None:
    contenders = upgrade_contenders(TABLE, UPGRADE)
    assert [each.name for each in contenders] == [
        STOCK.name, TABLE.name, "stock NCCL under NCCL 2.29.3", "tables/a under NCCL 2.29.3",
    ]  # fmt: skip
    paths = [each.variables[LIBRARY_VARIABLE] for each in contenders]
    assert paths == ["/old/libnccl.so.2"] * 2 + ["/new/libnccl.so.2"] * 2
    assert [each.variables.get(PLUGIN_VARIABLE) == "none" for each in contenders] == [
        True, False, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gain", "stock", "table", "effect"),
    [
        (2.0, 1.0, 1.0, None),
        (2.0, 1.2, 1.2, None),
        (1.0, 1.2, 1.2, None),
        (2.0, 0.8, 1.0, None),
        (2.0, 2.4, 1.0, UpgradeEffect.SLOWER_THAN_STOCK),
        (2.0, 2.0, 1.0, UpgradeEffect.NO_GAIN),
        (2.0, 0.8, 0.8, UpgradeEffect.SLOWER),
        (1.0, 0.8, 0.8, UpgradeEffect.SLOWER),
        (2.0, 1.3, 1.0, UpgradeEffect.LESS_GAIN),
    ],
)
def test_the_worst_effect_beyond_the_noise_is_told(
    gain: float, stock: float, table: float, effect: UpgradeEffect | None
) -> None:
    result = result_of((gain, stock, table), *[(2.0, 1.0, 1.0)] * 3)
    assert [key.effect for key in result.keys] == [effect, None, None, None]
    assert result.has_findings is (effect is not None and effect.is_finding)


def test_a_change_within_the_noise_has_no_effect() -> None:
    result = result_of((2.0, 1.003, 1.0), (2.0, 1.0, 0.997), (1.0, 1.0, 1.0), (1.0, 1.003, 1.0))
    assert {key.effect for key in result.keys} == {None}


def test_the_lines_fit_a_terminal_and_name_every_effect() -> None:
    result = result_of((2.0, 2.4, 1.0), (2.0, 2.0, 1.0), (2.0, 0.8, 0.8), (2.0, 1.3, 1.0))
    lines = list(upgrade_lines(result, 80))
    assert max(map(len, lines[1:])) <= 80
    text = "\n".join(lines)
    assert "old: NCCL 2.28.9 in /old/libnccl.so.2" in text
    row = next(line for line in lines if line.startswith("   1K"))
    assert row.split()[:3] == ["1K", "16.03", "6.68"]
    assert row.endswith("below stock")
    assert "slower than stock NCCL 2.29.3 with the table: all_reduce 1K, 0.83" in text
    assert "loses its worth under NCCL 2.29.3: all_reduce 2K, 1.0" in text
    assert "slower with the table than under NCCL 2.28.9: all_reduce 4K, 0.80" in text
    assert "gains less over stock NCCL 2.29.3 than over 2.28.9: all_reduce 8K, 1.5" in text
    fine = "\n".join(upgrade_lines(result_of(*[(2.0, 1.0, 1.0)] * 4), 85))
    assert fine.count("beyond the noise: no key") == 4


def test_the_document_is_valid() -> None:
    result = result_of((2.0, 2.4, 1.0), *[(2.0, 1.0, 1.0)] * 3)
    document = check("bench-upgrade", json.dumps(json_of(result)))
    assert document["new"] == {"version": "2.29.3", "path": "/new/libnccl.so.2"}
    assert [key["effect"] for key in document["keys"]] == ["slower_than_stock", None, None, None]
    assert [key["entry"] for key in document["keys"]] == [True, True, True, False]
