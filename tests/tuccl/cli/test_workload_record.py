"""`tuccl workload record`: a job that loads the plugin as NCCL does, from its start to its end."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from tests.runtime.profiler_player import build_program
from tests.tuccl.conftest import Run
from tests.tuccl.reports.test_schemas import check
from tuccl.runtime import EXECUTOR_NAME, profiler_path
from tuccl.workloads.workload import SourceKind
from tuccl.workloads.workload_file import read_workload

STEPS = 10


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(tmp_path_factory.mktemp("player"), "-O2")


@pytest.fixture(autouse=True)
def no_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NCCL_PROFILER_PLUGIN", "TUCCL_RECORD", "LD_PRELOAD"):
        monkeypatch.delenv(variable, raising=False)


def job(player: Path, *last: str, ranks: int = 4) -> list[str]:
    """A launcher's command, here a shell that starts all ranks."""
    ways = [f'{player} 5 {rank} {ranks} {STEPS} & pids="$pids $!"' for rank in range(ranks)]
    wait = 'for pid in $pids; do wait "$pid" || exit 90; done'
    return ["sh", "-c", "\n".join((*ways, wait, *last))]


def test_a_job_is_recorded(run_inside: Run, player: Path, tmp_path: Path) -> None:
    done = run_inside(
        "workload", "record", "-o", "W.json", "--steps", str(STEPS), "--", *job(player)
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "7 keys of a job of 4 ranks on 1 node" in done.stderr
    assert "counts once, when it is captured" in done.stderr
    workload = read_workload(tmp_path / "W.json")
    assert (workload.source.kind, workload.source.files) == (SourceKind.RECORDED, ())
    assert (workload.ranks, workload.nodes, workload.steps) == (4, 1, STEPS)
    assert [
        (call.operation, call.size_bytes, call.ranks, call.siblings, call.calls_per_step)
        for call in workload.calls
    ] == [
        (Collective.BROADCAST, 64, 4, 1, 0.1),
        (Collective.ALL_GATHER, 4096, 4, 1, 1.0),
        (Collective.REDUCE_SCATTER, 1024, 4, 1, 1.0),
        (Collective.ALL_REDUCE, 4000, 4, 1, 2.0),
        (Collective.ALL_REDUCE, 4096, 4, 1, 1.0),
        (Collective.ALL_REDUCE, 8192, 4, 1, 0.3),
        (Collective.ALL_REDUCE, 256, 2, 2, 1.0),
    ]
    assert [kind.operation for kind in workload.not_tuned] == ["recv", "send"]
    assert [path.name for path in tmp_path.iterdir()] == ["W.json"]


def test_figures_as_json(run_inside: Run, player: Path) -> None:
    done = run_inside("workload", "record", "-o", "W.json", "--json", "--", *job(player, ranks=2))
    figures = check("workload", done.stdout)
    assert (figures["file"], figures["source"]["kind"], figures["ranks"]) == (
        "W.json",
        "recorded",
        2,
    )
    assert "counts once, when it is captured" in done.stderr


def test_the_jobs_exit_code_is_passed_on(run_inside: Run, player: Path, tmp_path: Path) -> None:
    """Its options are its own without -- too, and what was recorded counts all the same."""
    for last, code in (("exit 17", 17), ("kill -9 $$", 128 + 9)):
        done = run_inside("workload", "record", "-o", "W.json", *job(player, last, ranks=2))
        assert done.returncode == code
        assert read_workload(tmp_path / "W.json").ranks == 2


def test_a_job_without_calls(run_inside: Run, tmp_path: Path) -> None:
    """Exit code 1, or the job's own."""
    for words, code in ((["true"], 1), (["sh", "-c", "exit 4"], 4)):
        done = run_inside("workload", "record", "-o", "W.json", "--", *words)
        assert done.returncode == code
        assert done.stderr.startswith("tuccl: nothing was recorded: ")
        assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_mistakes_are_a_line(
    run_inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ("workload", "record")
    for words, said in (
        ((), "name the job and its workload"),
        (("true",), "name the job and its workload"),
        (("-o", "W.json"), "name the job and its workload"),
        (("-o", ".", "true"), "is a directory"),
        (("-o", "W.json", "--steps", "0", "true"), "--steps 0.0 is out of range"),
        (("-o", "W.json", "--", "/no/such/job"), "cannot start '/no/such/job'"),
        (("--env", "d", "true"), "--env prints lines for a shell"),
    ):
        done = run_inside(*record, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", "inspector")
    assert "NCCL loads one profiler" in run_inside(*record, "-o", "W.json", "true").stderr
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    assert "put it before the launcher" in run_inside(*record, "-o", "W.json", "true").stderr
    assert not list(tmp_path.iterdir())


def test_the_executor_is_left_out(
    run_inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", f"/no/{EXECUTOR_NAME}")
    seen = tmp_path / "seen"
    words = ("sh", "-c", f'echo "<$LD_PRELOAD>" > {shlex.quote(str(seen))}')
    done = run_inside("workload", "record", "-o", "W.json", "--", *words)
    assert "the job runs without TuCCL's executor" in done.stderr
    assert seen.read_text() == "<>\n"


def test_variables_for_other_launchers(run_inside: Run, player: Path, tmp_path: Path) -> None:
    """Variables from --env, a job that gets them by itself, and the import of what it wrote."""
    done = run_inside("workload", "record", "--env", "a recording")
    plugin = profiler_path()
    assert done.stdout.splitlines() == [
        f"export NCCL_PROFILER_PLUGIN={plugin}",
        f"export TUCCL_RECORD={shlex.quote(str(tmp_path / 'a recording'))}",
    ]
    assert "tuccl workload import 'a recording' -o W.json" in done.stderr
    script = f"eval {shlex.quote(done.stdout)}; {job(player)[2]}"
    subprocess.run(["sh", "-c", script], check=True)
    read = run_inside("workload", "import", "a recording", "-o", "W.json", "--steps", "10")
    assert read.returncode == 0, read.stderr
    workload = read_workload(tmp_path / "W.json")
    assert (workload.source.kind, workload.ranks) == (SourceKind.RECORDED, 4)
    assert workload.source.files == ("a recording",)


@pytest.mark.long
def test_sigterm_ends_the_job_and_keeps_its_calls(player: Path, tmp_path: Path) -> None:
    """As Slurm sends it at a time limit: the job decides how it ends."""
    # The shell has no child that could outlive it and hold standard error open.
    rest = "touch ready; for i in $(seq 1200); do sleep 0.05; done"
    script = f"trap 'exit 33' TERM; {job(player, ranks=2)[2]}; {rest}"
    command = [sys.executable, "-m", "tuccl", "workload", "record", "-o", "W.json"]
    with subprocess.Popen(
        [*command, "--", "sh", "-c", script],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        until = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 33, said
    assert read_workload(tmp_path / "W.json").ranks == 2
