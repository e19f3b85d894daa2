"""`check_learn.py` over stand-ins of CUDA and NCCL, with the plugin and the executor's host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.test_check_at_start import executor, found_by, shipped, stand_ins
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns

pytestmark = [pytest.mark.long, pytest.mark.slow]

__all__ = ["executor", "shipped", "stand_ins"]


def test_a_job_learns_and_its_results_are_nccls(shipped: Path, stand_ins: StandIns) -> None:
    words = (
        "--rounds",
        "1",
        "--steps",
        "500",
        "--learning",
        "400",
        "--calls",
        "600",
    )
    found, _ = found_by(
        "check_learn.py", shipped, (*words, "--compute", "64", "--step", "small"), stand_ins, 1
    )
    (job,) = found["steps"]["empty table, learning"]
    assert {key["key"] for key in job["learned"]} == {
        "all_gather 16384",
        "all_reduce 16384",
        "all_reduce 1024",
    }
    assert all(key["us"]["NCCL's own choice"] > 0 for key in job["learned"])
    different = found["verdict"]["different_bytes"]
    assert different == {"table, learning": 0, "empty table, learning": 0}
