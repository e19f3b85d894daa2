"""Estimates of the time of a run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.files.read import shipped_machines
from sketches.candidates import sketch_candidates
from tests.tuccl.conftest import SMALL_RUN, Run
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.tuning.pipeline.dry_run import SearchPlan
from tuccl.tuning.pipeline.estimate import (
    across_hosts_seconds,
    measuring_seconds,
    schedules_seconds,
    search_seconds,
)

SIZES = tuple(4**n for n in range(5, 16))
THREE = (Collective.ALL_GATHER, Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


@pytest.mark.parametrize(
    ("machine", "nodes", "schedules_s", "search_s"),
    [
        ("h200-4gpu", 1, 0.8, 17.0),
        ("a100-8gpu-8nic", 1, 7.6, 31.0),
        ("a100-8gpu-8nic", 2, 47.0, 58.0),
        ("a100-8gpu-8nic", 4, 195.0, 321.0),
    ],
)
def test_estimates_are_within_a_factor_of_two_of_runs(
    machine: str, nodes: int, schedules_s: float, search_s: float
) -> None:
    """Seconds of one core, all eleven sizes of three operations."""
    path = shipped_machines()[machine]
    sketches = sketch_candidates(load_machine(MachineOptions(str(path), nodes)))
    estimated_s = schedules_seconds(THREE, sketches, SIZES, workers=1)
    assert schedules_s / 2 < estimated_s < schedules_s * 2
    assert search_s / 2 < search_seconds(len(THREE) * len(SIZES), sketches) < search_s * 2


def test_across_hosts_the_work_grows_with_the_pairs_along_the_rails() -> None:
    # 8 x 200 x 199 pairs: 4e-5 s each, and 8e-5 s for each operation.
    assert across_hosts_seconds(Shape(1600, 200, 8), 1) == pytest.approx(7.2)
    assert across_hosts_seconds(Shape(1600, 200, 8), 3) == pytest.approx(20.0)
    assert across_hosts_seconds(Shape(8, 1, 8), 3) == 0.0


def plan(budget_s: float | None = None, brackets: int = 150) -> SearchPlan:
    return SearchPlan(
        keys=33, most_added=0, shapes=(Shape(4, 1, 4),),
        operations=THREE, sizes_bytes=SIZES, strategy="mraco", configurations={},
        configurations_in_all=0, process_profiles=9, brackets=(), samples_per_pass=brackets,
        pass_s=60.0 if brackets else 0.0, whole_space_s=500.0, restart_s=3.0, budget_s=budget_s,
    )  # fmt: skip


def test_measuring_is_searches_further_launches_and_starts_within_the_budget() -> None:
    # 60 s of searches, 200 launches of each key at 60 s / 150, 15 starts of 3 s.
    assert measuring_seconds(plan()) == pytest.approx(60.0 + 80.0 + 45.0)
    assert measuring_seconds(plan(budget_s=30.0)) == 30.0
    assert measuring_seconds(plan(brackets=0)) == pytest.approx(500.0 + 45.0)


@pytest.mark.long
def test_short_commands_print_no_estimate_and_progress_as_often_as_requested(
    run_tuccl: Run, h200: Path
) -> None:
    often = {**os.environ, "TUCCL_PROGRESS_EVERY": "20ms"}
    done = run_tuccl("init", "--topology", h200, *SMALL_RUN, "--workspace", "asked", env=often)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert not any(line.startswith("this will take") for line in lines), "it takes seconds"
    profiles = [line for line in lines if line.startswith("process profiles: ")]
    assert profiles
    assert all(re.search(r": \d+ (so far, at most \d+|of \d+)", line) for line in profiles)
    again = run_tuccl("init", "--topology", h200, *SMALL_RUN, "--workspace", "asked")
    assert len(again.stderr.splitlines()) == 3, "the machine, nothing to do, and the next command"


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "machine"),
    [
        (("--step", "2", "--max-size", "64G"), "a100-8gpu-8nic: 8 GPUs on 1 node(s)"),
        (
            ("--nodes", "640", "--min-size", "1M", "--max-size", "1M"),
            "640 x a100-8gpu-8nic: 5120 GPUs on 640 node(s)",
        ),
    ],
)
def test_a_long_run_prints_its_estimate_before_it_starts(
    words: tuple[str, ...], machine: str, tuccl_command: str, tmp_path: Path
) -> None:
    command = [tuccl_command, "init", "--topology", "shipped:a100-8gpu-8nic", *words]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(machine)
        line = process.stderr.readline()
    finally:
        process.terminate()
        process.communicate()
    assert re.fullmatch(
        r"this will take roughly \d+ s \(schedules \d+ s, search in the model \d+ s\); "
        r"interrupted, the same command continues\n",
        line,
    )
