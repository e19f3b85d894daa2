"""Settings and condition of GPUs, read from a real libnvidia-ml.so.1 with simulated GPUs."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from probes.nvidia.gpu_settings import GpuCondition, GpuSettings, GpuStates
from tests.probes.nvidia.nvml_stand_in import build_nvml, python_with_nvml

READ_AND_PRINT = """
import dataclasses, json
from probes.nvidia.gpu_settings import read_gpu_states
print(json.dumps(dataclasses.asdict(read_gpu_states())))
"""
USUAL = GpuSettings("GPU-1", 700, (1980, 3201), (1980, 3201), True, 0)
WELL = GpuCondition((), False, False, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


def read(folder: Path, scene: str = "") -> GpuStates:
    found: dict[str, Any] = json.loads(python_with_nvml(folder, READ_AND_PRINT, scene))
    settings = tuple(GpuSettings(**_tuples(gpu)) for gpu in found["settings"])
    conditions = tuple(GpuCondition(**_tuples(gpu)) for gpu in found["conditions"])
    return GpuStates(found["driver"], settings, conditions, found["problem"])


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}


@pytest.mark.parametrize(
    ("scene", "settings", "condition"),
    [
        ("", USUAL, WELL),
        ("capped", dataclasses.replace(USUAL, power_limit_w=500), WELL),
        ("slow", dataclasses.replace(USUAL, application_clocks_mhz=(1200, 3201)), WELL),
        ("bare", dataclasses.replace(USUAL, application_clocks_mhz=None), WELL),
        ("no ECC", dataclasses.replace(USUAL, ecc=False), WELL),
        ("errors", dataclasses.replace(USUAL, uncorrected_errors=3), WELL),
        ("hot", USUAL, GpuCondition(("hardware thermal slowdown",), False, False, 0)),
        ("pending", USUAL, GpuCondition((), True, False, 0)),
        ("failed", USUAL, GpuCondition((), False, True, 0)),
    ],
)
def test_each_value_is_read(
    folder: Path, scene: str, settings: GpuSettings, condition: GpuCondition
) -> None:
    found = read(folder, scene)
    assert (found.driver, found.problem) == ("580.1", "")
    assert (found.settings[1], found.conditions[1]) == (settings, condition)
    assert (found.settings[0].power_limit_w, found.conditions[0]) == (700, WELL)


def test_an_nvml_that_fails_gives_its_message(folder: Path) -> None:
    found = read(folder, "mismatch")
    assert (found.settings, found.conditions) == ((), ())
    assert found.problem


def test_nothing_is_known_of_a_lost_gpu(folder: Path) -> None:
    found = read(folder, "lost")
    assert found.settings[1] == GpuSettings(None, None, None, None, None, None)
    assert (found.settings[0].power_limit_w, found.conditions) == (700, (WELL, WELL))
