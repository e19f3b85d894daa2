"""A crew of MPI ranks: working, waiting and missing ranks."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from probes.cluster.messages import version
from probes.cluster.mpi import mpi_tasks

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
JOB = Path(__file__).with_name("mpi_job.py")
requires_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")


@pytest.mark.parametrize(
    ("environment", "tasks"),
    [
        ({}, 0),
        ({"OMPI_COMM_WORLD_SIZE": "16"}, 16),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, 1),
        ({"PMI_SIZE": "4", "PMI_RANK": "0"}, 4),
        ({"PMIX_RANK": "0"}, 1),
        ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}, 8),
        ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}, 0),
        ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"}, 2),
        # A batch script that has not called srun yet.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, 0),
        ({"OMPI_COMM_WORLD_SIZE": "many"}, 0),
    ],
)
def test_tasks_are_seen_in_the_environment(environment: dict[str, str], tasks: int) -> None:
    assert mpi_tasks(environment) == tasks


def run_job(ranks: int, *fates: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(ranks), sys.executable,
         str(JOB), *fates],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@requires_mpirun
def test_the_first_rank_of_every_host_works() -> None:
    code, result, errors = run_job(3)
    assert code == 7
    assert result["names"] == ["host0", "host1"]
    assert result["answers"] == [{"0": "done", "1": "done"}] * 2
    assert "no answer" not in errors
    assert sorted(line for line in errors.splitlines() if "finalizes" in line) == [
        "rank 0 finalizes", "rank 1 finalizes", "rank 2 finalizes"
    ]  # fmt: skip


@requires_mpirun
@pytest.mark.slow
def test_faulty_ranks_are_named_and_the_others_answer() -> None:
    fates = ("1:hang before it reports", "4:hang at work", "6:another release")
    started = time.monotonic()
    code, result, errors = run_job(7, *fates)
    assert code == 7
    assert result["names"] == ["host0", "rank 1", "host1", "host2", "host3"]
    release = f"rank 6 runs TuCCL 9.9, messages 8, this side {version()}: install the same release"
    answers = {
        "0": "done",
        "1": {"name": "rank 1", "reason": "it did not report within 5 s"},
        "2": "done",
        "3": {"name": "host2 (rank 4)", "reason": "no answer within 2 s"},
        "4": {"name": "host3 (rank 6)", "reason": f"{release} on both"},
    }
    assert result["answers"] == [answers] * 2
    assert "tuccl: no answer from rank 1, 4, 6: the MPI job is ended" in errors
    assert "Traceback" not in errors
    assert "finalizes" not in errors
    assert time.monotonic() - started < 100


@requires_mpirun
def test_a_leader_that_is_interrupted_before_all_reported_ends_the_job() -> None:
    started = time.monotonic()
    code, result, errors = run_job(3, "0:interrupted", "1:hang before it reports")
    assert (code, result) == (9, {})
    assert "finalizes" not in errors, "a rank that does can hang mpirun"
    assert time.monotonic() - started < 100


@requires_mpirun
def test_a_leader_that_is_interrupted_while_ranks_leave_ends_the_job() -> None:
    started = time.monotonic()
    code, result, errors = run_job(3, "0:interrupted while ranks leave")
    assert (code, result["answers"]) == (7, [{"0": "done", "1": "done"}] * 2)
    assert "KeyboardInterrupt" in errors
    assert "tuccl: no answer from rank 1, 2: the MPI job is ended" in errors
    assert "finalizes" not in errors
    assert time.monotonic() - started < 100
