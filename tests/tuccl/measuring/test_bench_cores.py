"""scripts/bench_cores.py as a user runs it, and what it makes of times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import bench_cores
import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


def run_bench(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "bench_cores.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_every_core_is_timed(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = run_bench("--seconds", 0.2, "--step", 2, "--json", report)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert [core["number"] for core in found] == sorted(os.sched_getaffinity(0))[::2]
    assert all(core["median"] >= 1.0 and 0.0 <= core["slow"] <= 1.0 for core in found)
    assert len(done.stdout.splitlines()) == len(found) + 2


def test_a_core_with_a_busy_sibling_is_slow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = [[1.0, 1.1, 1.0, 1.2], [2.0, 1.9, 2.0, 2.0], [1.0, 2.0, 2.0, 1.2]]
    found = bench_cores.summarize([4, 6, 8], times)
    assert found == [
        bench_cores.Core(4, 1.05, 0.0, 0),
        bench_cores.Core(6, 2.0, 1.0, 0),
        bench_cores.Core(8, 1.6, 0.5, 2),
    ]
    bench_cores.tell(found)
    out = capsys.readouterr().out
    assert "3 busy cores: 1 more than 1.25 times as slow" in out
    assert "half of the time, 1 now and then" in out


@pytest.mark.parametrize("words", [("--step", 0), ("--seconds", 0), ("--seconds", "nan")])
def test_the_bench_refuses_what_times_nothing(words: tuple[object, ...]) -> None:
    done = run_bench(*words)
    assert done.returncode == 2
    assert "--step is 1 at least, --seconds more than 0" in done.stderr
