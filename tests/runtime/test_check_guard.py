"""`check_guard.py` over stand-ins of CUDA and NCCL, with the plugin and the executor's host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kept_builds import ROOT
from tests.runtime.test_check_at_start import executor, shipped, stand_ins
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns

pytestmark = [pytest.mark.long, pytest.mark.slow]

__all__ = ["executor", "shipped", "stand_ins"]


def test_slow_settings_are_left_out_in_a_job(
    shipped: Path, stand_ins: StandIns, tmp_path: Path
) -> None:
    script = ROOT / "scripts" / "check" / "check_guard.py"
    words = [str(shipped), "--rounds", "2", "--steps", "240", "--calls", "600", "--compute", "64"]
    done = subprocess.run(
        [sys.executable, str(script), *words, "--json", str(tmp_path / "found")],
        env={**os.environ, **stand_ins.variables, "STAND_IN_GPUS": "2", "STAND_IN_SLOW_MS": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (tmp_path / "found").exists(), done.stderr
    found = json.loads((tmp_path / "found").read_text())
    # One channel takes milliseconds here, many take next to nothing.
    ratios = found["verdict"]["ratios"]
    assert ratios["wrong"]["ratio"] > 3
    assert ratios["wrong_guarded"]["ratio"] < ratios["wrong"]["ratio"] / 2
    assert [len(job["left_out"]) for job in found["steps"]["wrong, guarded"]] == [4, 4]
    assert found["verdict"]["different_bytes"] == {"table, guarded": 0, "wrong, guarded": 0}
    assert all(found["verdict"]["random_reports"].values())
