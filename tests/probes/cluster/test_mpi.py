"""A crew of MPI ranks: who works, who waits, and who is missed."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from probes.cluster.mpi import mpi_tasks

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
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout), done.stderr


@requires_mpirun
def test_the_first_rank_of_every_host_works() -> None:
    code, told, errors = run_job(5)
    assert code == 7
    assert told["names"] == ["host0", "host1", "host2"]
    assert told["answers"] == [{"0": "done", "1": "done", "2": "done"}] * 2
    assert "no answer" not in errors


@requires_mpirun
def test_a_rank_that_hangs_at_work_is_named_and_the_others_answer() -> None:
    started = time.monotonic()
    code, told, errors = run_job(4, "2:hang at work")
    assert code == 7
    failure = {"name": "host1 (rank 2)", "reason": "no answer within 1 s"}
    assert told["answers"] == [{"0": "done", "1": failure}] * 2
    assert "tuccl: no answer from rank 2: the MPI job is ended" in errors
    assert time.monotonic() - started < 20


@requires_mpirun
def test_a_rank_that_never_reports_counts_as_a_host() -> None:
    code, told, errors = run_job(3, "1:hang before it reports")
    assert code == 7
    assert told["names"] == ["host0", "rank 1", "host1"]
    failure = {"name": "rank 1", "reason": "it did not report within 1 s"}
    assert told["answers"] == [{"0": "done", "1": failure, "2": "done"}] * 2
    assert "tuccl: no answer from rank 1: the MPI job is ended" in errors
