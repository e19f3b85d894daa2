"""scripts/check/check_kills.py: the trials that it draws, and that it names what it looks for."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import check_kills as script
import psutil
import pytest

SLEEPS = (sys.executable, "-P", "-c", "import time; time.sleep(60)")
KEYS = [{"size_bytes": 1 << 20, "time_us": 3.5}]
LOG = "workspace/runs/a/measurements.jsonl"


def trial(befalls: signal.Signals) -> script.Trial:
    return script.Trial("plain", 0, "sockets", befalls, 0.5, 0.99)


def says(folder: Path, keys: object, log: str, code: int = 0) -> script.Command:
    """A command that prints a table and writes a log."""
    folder.joinpath(LOG).parent.mkdir(parents=True)
    folder.joinpath(LOG).write_text("first\n")
    text = f"echo '{json.dumps({'keys': keys})}'; printf '{log}' > {LOG}; exit {code}"
    return script.Command(("sh", "-c", text), folder, 1)


def test_trials_follow_from_launcher_and_seed() -> None:
    trials = script.trials_of("ray", 40, 1)
    assert trials == script.trials_of("ray", 40, 1)
    assert trials[0] != script.trials_of("ray", 40, 2)[0]
    assert {each.signal for each in trials} == {signal.SIGKILL, signal.SIGSTOP}
    assert [each.number for each in trials if each.engine == "simulated"][:2] == [3, 7]
    assert all(0 <= each.after < 1 for each in trials)


@pytest.mark.long
def test_an_exit_code_that_no_guide_has_and_a_hang_are_told_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    command = script.Command(SLEEPS, tmp_path / "own", 1)
    killed = script.run_trial(trial(signal.SIGKILL), command, 0.3, 10.0)
    stopped = script.run_trial(trial(signal.SIGSTOP), command, 0.3, 0.5)
    assert killed == ["a worker: exit code -9"]
    assert stopped == ["a worker: it has not ended within 0.5 s"]
    assert script.processes_of(command, of_cluster=False) == []
    assert [each for each in psutil.Process().children() if each.cmdline()[-1] == SLEEPS[-1]] == []


def test_a_run_that_ends_before_its_trial_is_no_trial(tmp_path: Path) -> None:
    command = script.Command(("true",), tmp_path / "own", 1)
    assert script.run_trial(trial(signal.SIGKILL), command, 0.1, 10.0) is None


@pytest.mark.parametrize(
    ("keys", "log", "code", "wrong"),
    [
        (KEYS, "first\\nsecond\\n", 0, []),
        (KEYS, "second\\n", 0, ["started again: measurements are lost"]),
        ([], "first\\n", 0, ["started again: another table"]),
        (KEYS, "first\\n", 3, ["started again: exit code 3: []"]),
    ],
)
def test_what_a_second_start_loses_is_told(
    keys: list[object], log: str, code: int, wrong: list[str], tmp_path: Path
) -> None:
    command = says(tmp_path, keys, log, code)
    assert list(script.continued(command, KEYS, 10.0, exactly=True)) == wrong


def test_keys_that_are_missing_are_told_where_times_differ_from_run_to_run(tmp_path: Path) -> None:
    slower = [{"size_bytes": 1 << 20, "time_us": 4.5}]
    same = says(tmp_path / "same", slower, "first\\n")
    assert list(script.continued(same, KEYS, 10.0, exactly=False)) == []
    none = says(tmp_path / "none", [], "first\\n")
    assert list(script.continued(none, KEYS, 10.0, exactly=False)) == [
        "started again: keys are missing"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["plain", "ssh", "mpirun", "torchrun"])
def test_twenty_kills_at_random_lose_nothing(launcher: str) -> None:
    done = subprocess.run(
        [sys.executable, script.__file__, "--launchers", launcher, "--trials", "20"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "left out, for it is not here" in done.stdout:
        pytest.skip(f"{launcher} is not installed")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(f"{launcher} ") >= 20
