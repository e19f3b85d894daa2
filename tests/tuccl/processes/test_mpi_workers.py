"""`tuccl synthesize` as an MPI job."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).parents[3]
COMMAND = (
    sys.executable, "-c", "from tuccl.cli.app import main; main()", "synthesize", "--topology",
    "shipped:a100-8gpu-8nic", "--nodes", "2", "--operation", "all_gather", "--size", "256K",
)  # fmt: skip
MPIRUN = ("mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "3")

requires_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")
requires_mpi4py = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"
)


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@requires_mpirun
@requires_mpi4py
def test_ranks_find_what_one_process_finds_and_the_first_alone_tells_it(tmp_path: Path) -> None:
    together, alone = tmp_path / "together.xml", tmp_path / "alone.xml"
    by_ranks = run(*MPIRUN, *COMMAND, "-o", str(together))
    by_itself = run(*COMMAND, "--jobs", "1", "-o", str(alone))
    assert (by_ranks.returncode, by_itself.returncode) == (0, 0)
    assert together.read_bytes() == alone.read_bytes()
    told = [
        [line for line in done.stdout.splitlines() if not line.startswith("  seconds: ")]
        for done in (by_ranks, by_itself)
    ]
    assert told[0] == told[1]
    assert by_ranks.stderr.count("written to") == 1


@requires_mpirun
@requires_mpi4py
def test_a_mistake_is_told_once() -> None:
    done = run(*MPIRUN, *COMMAND, "--jobs", "2")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("tuccl: --jobs is for one host; leave it out") == 1


@requires_mpi4py
def test_an_mpi_that_is_not_the_launchers_is_named() -> None:
    done = run(*COMMAND, PMI_SIZE="2")
    assert done.returncode == 3
    assert done.stderr.startswith("tuccl: started as one of 2 tasks, but MPI sees 1: ")
    assert len(done.stderr.splitlines()) == 1
