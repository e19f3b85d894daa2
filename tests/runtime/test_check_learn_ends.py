"""`check_learn_ends.py` over stand-ins of CUDA and NCCL, and the host part of the executor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.test_check_at_start import executor, found_by, shipped, stand_ins
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns

pytestmark = [pytest.mark.long, pytest.mark.slow]

__all__ = ["executor", "shipped", "stand_ins"]


def test_a_split_and_an_early_end_of_a_job_that_learns(shipped: Path, stand_ins: StandIns) -> None:
    # The first three are for GPUs: an abort of the stand-in does not end its calls.
    words = "--first", "3", "--trials", "2"
    found, out = found_by("check_learn_ends.py", shipped, words, stand_ins, 0)
    assert [trial["trial"]["end"] for trial in found["trials"]] == ["split", "destroyed"]
    assert found["verdict"]["right"], out
