"""`tuccl init --schedules DIR` end to end on the simulated backend."""

import json
from pathlib import Path

import pytest

from tests.tuccl.conftest import TINY_RUN, Run
from tests.tuccl.schedules.test_own_schedules import IN_THE_LANGUAGE
from tuccl.workspace.runs import Workspace


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "everyone.py").write_text(IN_THE_LANGUAGE)
    return tmp_path / "own"


@pytest.mark.long
def test_own_schedules_are_searched_and_named_and_count_into_the_run(
    run_inside: Run, h200: Path, own: Path, tmp_path: Path
) -> None:
    machine = ("--topology", h200, *TINY_RUN, "--backend", "simulated")
    assert run_inside("init", *machine).returncode == 0
    workspace = Workspace(tmp_path / "tuccl-workspace")
    without = workspace.current()
    assert run_inside("init", *machine, "--schedules", "own").returncode == 0
    run = workspace.current()
    assert run.root != without.root
    record = run.record()
    assert record is not None
    assert record.options["own_schedules"] == str(own)
    searched = json.loads(run.report.read_text())["schedules"].values()
    assert [schedule["name"] for schedule in searched if schedule["own"]] == ["everyone"]
    log = run.measurements.read_text()
    hashes = json.loads(run.report.read_text())["schedules"]
    assert any(found["own"] and name in log for name, found in hashes.items()), "measured"
    assert "own schedule searched: everyone" in run_inside("explain", "all_gather", "64K").stdout
    again = run_inside("init", *machine, "--schedules", "own")
    assert "nothing to do" in again.stderr
    (own / "everyone.py").rename(own / "all_to_all.py")
    assert run_inside("init", *machine, "--schedules", "own").returncode == 0
    assert workspace.current().root != run.root


def test_a_broken_one_stops_the_run_before_it_begins(
    run_inside: Run, h200: Path, own: Path, tmp_path: Path
) -> None:
    (own / "broken.xml").write_text("<algo>")
    done = run_inside("init", "--topology", h200, *TINY_RUN, "--schedules", own)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"tuccl: --schedules {own / 'broken.xml'}")
    assert not (tmp_path / "tuccl-workspace").exists()


def test_a_backend_that_runs_none_is_named(run_inside: Run, h200: Path, own: Path) -> None:
    options = ("--topology", h200, *TINY_RUN, "--backend", "sockets", "--schedules", own)
    done = run_inside("init", *options)
    assert done.returncode == 2
    assert "--backend sockets does neither" in done.stderr


def test_a_directory_that_is_not_there_is_named_before_anything_is_probed(run_inside: Run) -> None:
    done = run_inside("init", "--backend", "simulated", "--schedules", "none")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "No such file" in done.stderr
