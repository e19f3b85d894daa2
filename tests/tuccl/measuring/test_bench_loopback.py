"""scripts/bench_loopback.py as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "scripts" / "bench_loopback.py"


def run_bench(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


needs_two_cpus = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="two processes poll: needs two CPUs"
)


@needs_two_cpus
def test_the_bench_times_every_control_and_plan(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["--controls", "reno", "--sizes", "100K", "--last", "600K", "--connections", 2]
    done = run_bench(*words, "--json", report)
    assert done.returncode == 0, done.stderr
    times_us = json.loads(report.read_text())["times_us"]["reno"]
    names = ["100K", "600K over two after both", "600K over two after first"]
    assert {name: len(found) for name, found in times_us.items()} == dict.fromkeys(names, 2)
    assert all(0 < one < 1e6 for found in times_us.values() for one in found)
    assert [line[10:37].strip() for line in done.stdout.splitlines()[2:]] == names


@needs_two_cpus
def test_the_bench_names_a_control_that_the_kernel_has_not() -> None:
    done = run_bench("--controls", "carrier-pigeon", "--connections", 1)
    assert done.returncode == 2
    assert "congestion control carrier-pigeon: No such file" in done.stderr
    assert "Traceback" not in done.stderr


@needs_two_cpus
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--connections", 0), "use at least one of --connections"),
        (("--last", 1), "sizes from 2 bytes"),
        (("--sizes", "1T"), "sizes from 2 bytes to 256M"),
        (("--sizes", "large"), "'large' is not understood"),
    ],
)
def test_what_the_bench_cannot_do_is_one_line(words: tuple[object, ...], why: str) -> None:
    done = run_bench(*words, "--controls", "reno")
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
