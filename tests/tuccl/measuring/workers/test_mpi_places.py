"""Workers under MPI: the same as local ones, and the message when a rank is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from probes.host.report import HostIdentity
from tests.tuccl.measuring.workers.measuring_plan import carry_out
from tests.tuccl.measuring.workers.worker_fixtures import ROOT, OpenBackend
from tuccl.measuring.workers.mpi_places import RankReport, places_of
from tuccl.measuring.workers.places import Place

pytestmark = pytest.mark.long

requires_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")


def test_ranks_count_from_0_on_each_host_and_namesakes_are_told_apart() -> None:
    first, namesake, far = HostIdentity("a", "1"), HostIdentity("a", "2"), HostIdentity("b", "3")
    cores = [frozenset({number}) for number in range(5)]
    hosts = [first, far, first, namesake, far]
    assert places_of([*map(RankReport, hosts, cores)]) == (
        Place("a", 0, cores[0]), Place("b", 0, cores[1]), Place("a", 1, cores[2]),
        Place("a#2", 0, cores[3]), Place("b", 1, cores[4]),
    )  # fmt: skip


def run_job(ranks: int, *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(ranks), sys.executable,
         "-m", "tests.tuccl.measuring.workers.mpi_measuring_job", *map(str, arguments)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def workers_left() -> list[str]:
    commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    return [" ".join(c) for c in commands if c and "tuccl.measuring.workers.worker" in c]


@requires_mpirun
@pytest.mark.parametrize(("ranks", "fate"), [(2, "its workers are killed"), (4, "")])
def test_ranks_do_what_local_workers_do(
    open_backend: OpenBackend, tmp_path: Path, ranks: int, fate: str
) -> None:
    code, told, errors = run_job(ranks, tmp_path / "log", fate)
    assert code == 7, errors
    assert told["ranks"] == ranks
    assert "Traceback" not in errors
    assert bool(told["incidents"]) == bool(fate)
    if fate:
        assert "rank 1 died: killed by signal 9 (SIGKILL)" in told["incidents"][0]
    backend, places = open_backend(ranks)
    assert told["outcomes"] == carry_out(backend, places, tmp_path / "local")
    assert sorted(set(told["outcomes"].values())) == [
        "measured",
        "the stand-in has no nvls for all_reduce",
        "the stand-in has no nvls for reduce_scatter",
        "the stand-in has no tree for reduce_scatter",
    ]


@requires_mpirun
def test_strangers_delay_no_roll_call_and_hear_no_key(tmp_path: Path) -> None:
    code, told, errors = run_job(2, tmp_path / "log", "strangers come")
    assert code == 7, errors
    assert told["incidents"] == []
    assert told["sent"] > 0
    assert not told["key_sent"]


@requires_mpirun
def test_a_rank_that_hangs_ends_the_job_with_its_name(tmp_path: Path) -> None:
    before = workers_left()
    began = time.monotonic()
    code, told, errors = run_job(2, tmp_path / "log", "it hangs")
    assert (code, told) == (9, {}), errors
    assert "tuccl: MPI rank 1 on " in errors
    assert "start the same command again, which continues from here" in errors
    assert "Traceback" not in errors
    assert time.monotonic() - began < 100
    assert set(workers_left()) <= set(before)


@requires_mpirun
@pytest.mark.parametrize(
    ("fate", "code", "lost"),
    [
        ("it hangs before it reports", 9, "1, 2"),
        ("it hangs at the end", 7, "1"),
        ("the leader cannot listen", 9, "1, 2"),
    ],
)
def test_a_job_ends_whenever_a_rank_hangs(tmp_path: Path, fate: str, code: int, lost: str) -> None:
    began = time.monotonic()
    found, told, errors = run_job(3, tmp_path / "log", fate)
    assert (found, bool(told)) == (code, code == 7), errors
    assert f"tuccl: no answer from rank {lost}: the MPI job is ended" in errors
    assert "finalizes" not in errors, "a rank that does can hang mpirun"
    assert time.monotonic() - began < 100


@requires_mpirun
def test_a_job_that_lost_a_rank_continues(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code, told, errors = run_job(2, log, "it is killed")
    assert code != 0
    assert told == {}
    assert "tuccl: stopped by the launcher of MPI, which says why: a rank died" in errors
    first_half = log.read_bytes()
    code, told, errors = run_job(2, log)
    assert code == 7, errors
    assert log.read_bytes().startswith(first_half)
    tasks = [json.loads(line).get("task") for line in log.read_bytes().splitlines()]
    assert tasks.count("all_reduce-12288") == tasks.count("reduce_scatter-12288") == 5
    assert len(told["outcomes"]) == 10
