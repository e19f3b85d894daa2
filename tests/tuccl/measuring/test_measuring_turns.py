"""scripts/measuring_turns.py: jobs that wait for each other at every step."""

from __future__ import annotations

import socket
import time
from itertools import count
from pathlib import Path
from typing import Any

import measuring_turns
import pytest
from measuring_rank import wait_for_turn

from tests.tuccl.measuring.test_measuring_job import with_ranks_that

RANK = """
import json, os, socket, sys, time
job = json.load(open(sys.argv[1]))
name, rank = os.path.basename(job["folder"]), sys.argv[2]
turns = socket.socket(fileno=0)
def note(what, step):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{what} {name} {step}\\n")
for number, step in enumerate(job["steps"]):
    turns.sendall(b".")
    if not turns.recv(1):
        sys.exit("called off")
    note("begin", number)
    fate = step.get(name + rank)
    if fate == "dies": os.abort()
    if fate == "hangs": time.sleep(60)
    note("end", number)
turns.sendall(b".")
if not turns.recv(1):
    sys.exit("called off")
note("leave", number)
results = [{"times_us": [1.0]} for _ in job["steps"]]
with open(f"{job['folder']}/result{rank}.json", "w") as file:
    json.dump({"versions": name, "open_seconds": 0.0, "results": results}, file)
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Which rank began and ended which step, in order."""
    path = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(path))
    return path


def run_jobs(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    steps: list[dict[str, Any]],
    period: int,
    limit_s: float = 60.0,
) -> list[Any]:
    """What three jobs of two ranks each find."""
    measuring_job = with_ranks_that(monkeypatch, folder, RANK)
    how = {"libraries": folder, "controlled": False, "in_turns": True, "limit_s": limit_s}
    jobs = [measuring_job.start_job(folder / name, 2, steps, {}, **how) for name in "abc"]
    try:
        return measuring_turns.run_in_turns(jobs, len(steps), period)
    finally:
        assert all(process.returncode is not None for job in jobs for process in job.processes)
        assert all(turn.fileno() == -1 for job in jobs for turn in job.turns)


def test_one_job_at_a_time_does_a_step_and_the_first_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, notes: Path
) -> None:
    results = run_jobs(monkeypatch, tmp_path, [{}] * 6, period=3)
    assert [result.versions for result in results] == ["a", "b", "c"]
    assert [len(result.steps) for result in results] == [6, 6, 6]
    told = notes.read_text().splitlines()
    assert all(line.startswith("leave") for line in told[-6:]), "nobody leaves while others work"
    told = told[:-6]
    turns = [told[start : start + 4] for start in range(0, len(told), 4)]
    for turn in turns:
        assert len({line.split(" ", 1)[1] for line in turn}) == 1, "of one job and step alone"
    order = [turn[0].split()[1:] for turn in turns]
    assert [step for _, step in order] == [str(number) for number in range(6) for _ in "abc"]
    jobs = "".join(job for job, _ in order)
    assert [jobs[start : start + 3] for start in range(0, 18, 3)] == [
        "abc", "bca", "cab",
        "bca", "cab", "abc",  # The same three steps again: somebody else is first at each.
    ]  # fmt: skip


def test_a_rank_that_dies_ends_all_jobs_and_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, notes: Path
) -> None:
    # The other rank waits for it, as in a collective; that is no reason to wait for the limit.
    steps: list[dict[str, Any]] = [{}, {"b0": "hangs", "b1": "dies"}, {}]
    begin = time.monotonic()
    with pytest.raises(Exception, match=r"^b: rank 0: hung.*\nrank 1: died of SIGABRT"):
        run_jobs(monkeypatch, tmp_path, steps, period=3)
    assert time.monotonic() - begin < 30.0
    assert "begin b 2" not in notes.read_text()


def test_a_rank_that_hangs_is_not_waited_for_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, notes: Path
) -> None:
    steps: list[dict[str, Any]] = [{"c0": "hangs"}, {}]
    with pytest.raises(Exception, match=r"^c: rank 0: hung"):
        run_jobs(monkeypatch, tmp_path, steps, period=2, limit_s=8.0)
    assert "end c 1" not in notes.read_text()


def test_ctrl_c_leaves_no_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, notes: Path) -> None:
    waits = measuring_turns._all_wait

    turns = count(-3)  # First all three jobs are waited for.

    def interrupted(job: Any) -> Any:
        if next(turns) < 0:
            return waits(job)
        deadline = time.monotonic() + 30.0
        while not notes.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring_turns, "_all_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(monkeypatch, tmp_path, [{"a0": "hangs"}] * 2, period=1)
    assert notes.read_text().startswith("begin a 0")


def test_a_rank_whose_leader_is_gone_does_not_stay() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b".")
        wait_for_turn(theirs)
        assert ours.recv(1) == b"."
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="called off"):
            wait_for_turn(theirs)
    wait_for_turn(None)


def test_without_turns_standard_input_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = """
import json, os, sys
job = json.load(open(sys.argv[1]))
result = {"versions": os.readlink("/proc/self/fd/0"), "open_seconds": 0.0, "results": []}
json.dump(result, open(f"{job['folder']}/result{sys.argv[2]}.json", "w"))
"""
    measuring_job = with_ranks_that(monkeypatch, tmp_path, program)
    how = {"libraries": tmp_path, "controlled": False}
    found = measuring_job.run_job(tmp_path / "job", 1, [], {}, **how)
    assert found.versions == str(Path("/proc/self/fd/0").readlink())
