"""All `Places` do the same: of this host, behind a launcher, and of MPI's ranks."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.tuccl.crew.places_conformance import CHECKS
from tuccl.crew.launched import LaunchedPlaces
from tuccl.crew.places import LocalPlaces, Places

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[3]
requires_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")


def run_mpi_job(ranks: int, *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(ranks), sys.executable,
         "-m", "tests.tuccl.crew.mpi_job", *map(str, arguments)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.fixture(scope="module", params=["local", "launched"])
def places(request: pytest.FixtureRequest) -> Iterator[Places]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    made: Places
    if request.param == "local":
        made = LocalPlaces(3)
    else:
        path = f"env PYTHONPATH={ROOT}"
        # The first two places share a host process.
        made = LaunchedPlaces(["a", "b"], f"{path} HOST={{host}}", slots=[2, 1])
    with closing(made):
        yield made
    assert {child.pid for child in psutil.Process().children(recursive=True)} == before


@pytest.mark.parametrize("name", CHECKS)
def test_places_of_this_host_and_behind_a_launcher(places: Places, name: str) -> None:
    CHECKS[name](places)


@pytest.fixture(scope="module")
def mpi_outcomes() -> dict[str, str]:
    code, outcomes, errors = run_mpi_job(3, "conform")
    assert code == 7, errors
    return outcomes


@requires_mpirun
@pytest.mark.parametrize("name", CHECKS)
def test_places_of_mpi(mpi_outcomes: dict[str, str], name: str) -> None:
    assert mpi_outcomes[name] == ""
