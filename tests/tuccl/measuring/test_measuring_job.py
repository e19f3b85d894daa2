"""scripts/check/measuring_job.py: how the processes of a job ended."""

import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import measuring_job
import pytest
from measuring_job import TAKEN_OUT, wait_for_all, without_tables

from tuccl.trials.presets import KNOBS


def started(*programs: str) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen([sys.executable, "-c", program]) for program in programs]


def with_ranks_that(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> ModuleType:
    """The module, whose ranks run this program."""
    rank = folder / "scripts" / "check" / "measuring_rank.py"
    rank.parent.mkdir(parents=True)
    rank.write_text(program)
    monkeypatch.setattr(measuring_job, "ROOT", folder)
    return measuring_job


def test_it_says_of_each_process_how_it_ended() -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    processes = started(crash, "raise SystemExit(3)", "pass", "import time; time.sleep(60)")
    begin = time.monotonic()
    assert wait_for_all(processes, begin + 30) == [
        "died of SIGSEGV",
        "ended with code 3",
        "ended with code 0",
        "hung",
    ]
    assert time.monotonic() - begin < 20


def test_a_job_inherits_nothing_of_a_table() -> None:
    assert {"NCCL_ALGO", "NCCL_PROTO", "NCCL_TUNER_PLUGIN", "NCCL_MIN_NCHANNELS"} <= TAKEN_OUT
    assert {variable for knob in KNOBS for variable in knob.variables} <= TAKEN_OUT
    profile = dict.fromkeys(TAKEN_OUT, "1") | {"TUCCL_BUNDLE": "b", "NCCL_DEBUG": "WARN"}
    preload = {"LD_PRELOAD": "/a/other.so:/b/libtuccl-executor.so third.so"}
    assert without_tables(profile | preload) == {
        "NCCL_DEBUG": "WARN",
        "LD_PRELOAD": "/a/other.so third.so",
    }
    assert without_tables({"LD_PRELOAD": "/b/libtuccl-executor.so"}) == {}


def test_ranks_before_one_that_cannot_be_started_are_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measuring_job = with_ranks_that(monkeypatch, tmp_path, "import time; time.sleep(60)")
    made: list[subprocess.Popen[bytes]] = []

    def only_one(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        if made:
            raise OSError(11, "Resource temporarily unavailable")
        made.append(start(*words, **options))
        return made[0]

    start = subprocess.Popen
    monkeypatch.setattr(measuring_job.subprocess, "Popen", only_one)
    with pytest.raises(measuring_job.JobError, match=r"rank 1 cannot be started: .*unavailable"):
        measuring_job.run_job(tmp_path / "job", 2, [], {}, libraries=tmp_path, controlled=False)
    assert made[0].returncode is not None


def test_a_rank_that_died_is_named_with_its_signal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crash = "import os; print('so far', flush=True); os.abort()"
    measuring_job = with_ranks_that(monkeypatch, tmp_path, crash)
    with pytest.raises(
        measuring_job.JobError, match="rank 0: died of SIGABRT; its output ends: 'so far"
    ):
        measuring_job.run_job(tmp_path / "job", 1, [], {}, libraries=tmp_path, controlled=False)
