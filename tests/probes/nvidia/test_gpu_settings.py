"""Settings and condition of GPUs, read from a real libnvidia-ml.so.1 with simulated GPUs."""

from dataclasses import replace
from typing import Any

import pytest

from probes.nvidia.gpu_settings import GpuCondition, GpuSettings, GpuStates
from tests.probes.nvidia.nvml_stand_in import build_nvml, read_scenes

USUAL = GpuSettings("GPU-1", 700, (1980, 3201), (1980, 3201), True, 0)
WELL = GpuCondition((), False, False, 0)
SCENES = [
    ("", USUAL, WELL),
    ("capped", replace(USUAL, power_limit_w=500), WELL),
    ("slow", replace(USUAL, application_clocks_mhz=(1200, 3201)), WELL),
    ("bare", replace(USUAL, application_clocks_mhz=None), WELL),
    ("no ECC", replace(USUAL, ecc=False), WELL),
    ("errors", replace(USUAL, uncorrected_errors=3), WELL),
    ("hot", USUAL, GpuCondition(("hardware thermal slowdown",), False, False, 0)),
    ("pending", USUAL, GpuCondition((), True, False, 0)),
    ("failed", USUAL, GpuCondition((), False, True, 0)),
    ("exclusive", USUAL, replace(WELL, takes_one_process=True)),
]


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GpuStates]:
    """States by scene."""
    folder = build_nvml(tmp_path_factory.mktemp("nvml"))
    scenes = [scene for scene, *_ in SCENES] + ["mismatch", "lost"]
    found = read_scenes(folder, "gpu_settings.read_gpu_states", scenes)
    return {scene: _states(values) for scene, values in found.items()}


def _states(found: dict[str, Any]) -> GpuStates:
    settings = tuple(GpuSettings(**_tuples(gpu)) for gpu in found["settings"])
    conditions = tuple(GpuCondition(**_tuples(gpu)) for gpu in found["conditions"])
    return GpuStates(found["driver"], settings, conditions, found["problem"])


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}


@pytest.mark.parametrize(("scene", "settings", "condition"), SCENES)
def test_each_value_is_read(
    states: dict[str, GpuStates], scene: str, settings: GpuSettings, condition: GpuCondition
) -> None:
    found = states[scene]
    assert (found.driver, found.problem) == ("580.1", "")
    assert (found.settings[1], found.conditions[1]) == (settings, condition)
    assert (found.settings[0].power_limit_w, found.conditions[0]) == (700, WELL)


def test_an_nvml_that_fails_gives_its_message(states: dict[str, GpuStates]) -> None:
    found = states["mismatch"]
    assert (found.settings, found.conditions) == ((), ())
    assert found.problem


def test_nothing_is_known_of_a_lost_gpu(states: dict[str, GpuStates]) -> None:
    found = states["lost"]
    assert found.settings[1] == GpuSettings(None, None, None, None, None, None)
    assert (found.settings[0].power_limit_w, found.conditions) == (700, (WELL, WELL))
