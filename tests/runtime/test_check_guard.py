"""`check_guard.py` over stand-ins of CUDA and NCCL, with the plugin and the executor's host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.test_check_at_start import executor, found_by, shipped, stand_ins
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns

pytestmark = [pytest.mark.long, pytest.mark.slow]

__all__ = ["executor", "shipped", "stand_ins"]


def test_slow_settings_are_left_out_in_a_job(shipped: Path, stand_ins: StandIns) -> None:
    words = "--rounds", "2", "--steps", "240", "--calls", "600", "--compute", "64"
    found, _ = found_by("check_guard.py", shipped, words, stand_ins, slow_ms=3)
    # One channel takes milliseconds here, many take next to nothing.
    ratios = found["verdict"]["ratios"]
    assert ratios["wrong"]["ratio"] > 3
    assert ratios["wrong_guarded"]["ratio"] < ratios["wrong"]["ratio"] / 2
    assert [len(job["left_out"]) for job in found["steps"]["wrong, guarded"]] == [4, 4]
    assert found["verdict"]["different_bytes"] == {"table, guarded": 0, "wrong, guarded": 0}
    assert all(found["verdict"]["random_reports"].values())
