"""scripts/check/check_ends.py over stand-ins, and the trials that it draws."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import check_ends as script
import pytest

from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns

KERNELS = {"all_reduce": {"phased exchange": "a"}, "all_gather": {"phased rails_first": "b"}}


def test_trials_go_through_schedules_ends_and_nccls_own_call() -> None:
    both = "LL", "LL128"
    trials = script.trials_of(KERNELS, 42, 1, both)
    assert trials == script.trials_of(KERNELS, 42, 1, both)
    assert {trial.end for trial in trials} == set(script.ENDS)
    assert {trial.pattern for trial in trials} == {"", "phased exchange", "phased rails_first"}
    assert [number for number, trial in enumerate(trials) if not trial.pattern][:2] == [6, 13]
    assert {trial.protocol for trial in trials} == {"LL", "LL128"}
    assert {trial.protocol for trial in script.trials_of(KERNELS, 9, 1, ("LL",))} == {"LL"}


@pytest.mark.long
@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_rank_that_does_not_end_is_told(
    end: str,
    stand_ins: StandIns,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A call of the stand-in waits for a lost rank for ever, and nobody aborts it before STALL_S.
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
    drawn = script.trials_of

    def small(
        kernels: Mapping[str, Mapping[str, str]], count: int, seed: int, protocols: Sequence[str]
    ) -> list[script.Trial]:
        trials = drawn(kernels, count, seed, protocols)
        return [replace(trial, end=end, size_bytes=4096, after_s=0.0) for trial in trials]

    monkeypatch.setattr(script, "trials_of", small)
    monkeypatch.setattr(script, "STALL_S", 60.0)
    debugger = tmp_path / "debugger"
    debugger.write_text(
        '#!/bin/sh\necho "Attaching to $2"\necho "Thread 1 of $2"\necho "#0 poll"\n'
    )
    debugger.chmod(0o755)
    monkeypatch.setattr(script, "DEBUGGERS", ("no-debugger", str(debugger)))
    words = ["--executor", stand_ins.executor, "--nccl", stand_ins.nccl, "--gpus", 2]
    words += ["--nodes", "1", "--trials", 1, "--limit", 0.3, "--json", tmp_path / "ends.json"]
    monkeypatch.setattr(sys, "argv", ["check_ends.py", *map(str, words)])
    assert script.main() == 1
    said = capsys.readouterr().out
    assert said.startswith("NOT ENDED in 0.3 s: all_reduce of 4K, ")
    assert f", {end}; " in said
    assert "hung: [0]" in said
    assert "1 trials, 1 with ranks that did not end; 0 of 1 schedules were run by the exec" in said
    (found,) = json.loads((tmp_path / "ends.json").read_text("utf-8"))
    assert found["hung"] == [0]
    thread, frame = found["stacks"]["0"].split("\n")
    assert thread.startswith("Thread 1 of ")
    assert frame == "#0 poll"
    assert f"rank 0 hangs, thread by thread:\n{thread}\n{frame}\n" in said


def test_a_debugger_that_is_not_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "DEBUGGERS", ("no-debugger",))
    with subprocess.Popen(["true"]) as process:
        assert script.native_stacks([process]) == ["none of no-debugger is here to tell"]
