"""`tuccl workload bench`: jobs that start a communicator over the stand-in of NCCL."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lookup_tables.table import Shape
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry, ship_entries

pytestmark = pytest.mark.long

BENCH = ("workload", "bench", "--rounds", "2")


@pytest.fixture
def table(stand_ins: StandIns, jobs_find_nccl: None, tmp_path: Path) -> Path:
    """A shipped table."""
    entry = all_gather_entry(8, size_bytes=65536, shape=Shape(1, 1, 1))
    return ship_entries(tmp_path / "shipped", stand_ins, entry)


def job(program: Path, without_ms: float = 10.0, own_ms: float = 8.0) -> tuple[str, ...]:
    """A job that starts a communicator and prints the times of two steps."""
    times = f'if [ -n "$TUCCL_BUNDLE" ]; then ms={own_ms}; else ms={without_ms}; fi'
    return ("--", "sh", "-c", f'{times}; {program} && echo "step 500.0 ms\nstep $ms ms"')


METRIC = ("--metric", r"step (\S+) ms", "--skip", "1", "--unit", "ms")


def test_a_job_that_gains(run_inside: Run, table: Path, program: Path, tmp_path: Path) -> None:
    done = run_inside(*BENCH, "shipped", *METRIC, *job(program))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("sh -c ")
    assert lines[3].split() == ["round", "without", "with", "the", "table", "ratio"]
    assert lines[4].split() == ["1", "10", "8", "1.250"]
    assert lines[-1] == (
        "the job is 1.250 times as fast with the table (95 % interval 1.250 to 1.250): faster, "
        "beyond the noise"
    )
    said = [line.rsplit(",", 1)[0] for line in done.stderr.splitlines() if "of 2, " in line]
    assert said == [
        "round 1 of 2, without the table: 10 ms",
        "round 1 of 2, with the table: 8 ms",
        "round 2 of 2, with the table: 8 ms",
        "round 2 of 2, without the table: 10 ms",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shipped"]


def test_a_job_that_loses_is_a_finding_in_json(
    run_inside: Run, table: Path, program: Path, tmp_path: Path
) -> None:
    words = ("shipped", "--logs", "logs", "--json", *METRIC)
    done = run_inside(*BENCH, *words, *job(program, 10.0, 12.5))
    assert done.returncode == 1, done.stderr
    document = check("workload-bench", done.stdout)
    assert (document["slower"], document["load_seen"]) == (True, True)
    assert document["gain"]["ratio"] == pytest.approx(0.8)
    assert document["rounds"][0]["without"]["figure"] == 10.0
    kept = sorted(path.name for path in (tmp_path / "logs").glob("round*"))
    assert kept == [
        "round-1-with-the-table.log",
        "round-1-without-the-table.log",
        "round-2-with-the-table.log",
        "round-2-without-the-table.log",
    ]
    again = run_inside(*BENCH, *words, *job(program))
    assert (again.returncode, again.stdout) == (2, "")
    assert "--logs logs is not empty" in again.stderr


def test_the_whole_time_of_a_job_without_a_figure(
    run_inside: Run, table: Path, program: Path
) -> None:
    """It ends well or, by the noise of two runs each, with a loss."""
    whole = ("--", "sh", "-c", f"{program} && sleep 0.1")
    done = run_inside(*BENCH, "shipped", "--json", *whole)
    document = check("workload-bench", done.stdout)
    assert done.returncode == int(document["slower"])
    runs = [run for each in document["rounds"] for run in each.values()]
    assert all(run["figure"] == run["seconds"] > 0.1 for run in runs)
    assert (document["metric"], document["saving"]) == (None, None)


def test_a_job_that_does_not_load_the_table_ends_the_bench(
    run_inside: Run, table: Path, program: Path, tmp_path: Path
) -> None:
    """As under an mpirun that passes no environment on."""
    lost = f"env -u NCCL_TUNER_PLUGIN {program} && : > ${{NCCL_DEBUG_FILE%%%*}}host"
    done = run_inside(*BENCH, "shipped", "--", "sh", "-c", lost)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no process of the job loaded the table: does its launcher pass" in done.stderr
    (kept,) = tmp_path.glob("tuccl-job-*")
    assert f"{kept} keeps what the job printed" in done.stderr


def test_a_log_of_its_own_and_none(
    run_inside: Run, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("shipped", "--json")
    done = run_inside(*BENCH, *words, "--", "true")
    assert done.stderr.count("NCCL wrote no log") == 1
    assert check("workload-bench", done.stdout)["load_seen"] is False
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    own = 'echo "TuCCL: /x/bundle-1.tuccl (CRC 1): 6 entries; $NCCL_DEBUG_SUBSYS."'
    done = run_inside(*BENCH, *words, "--", "sh", "-c", own)
    assert check("workload-bench", done.stdout)["load_seen"] is True


def test_a_job_that_fails_or_hangs(run_inside: Run, table: Path, program: Path) -> None:
    done = run_inside(*BENCH, "shipped", "--", "sh", "-c", "echo no GPU here; exit 7")
    assert done.returncode == 3
    assert "the job ended with exit code 7 without the table: 'no GPU here'" in done.stderr
    done = run_inside(*BENCH, "shipped", "--limit", "200ms", "--", "sleep", "30")
    assert done.returncode == 3
    assert "did not end within 0.2 s" in done.stderr
    done = run_inside(*BENCH, "shipped", "--metric", "loss (.*)", *job(program))
    assert done.returncode == 3
    assert "--metric 'loss (.*)' matches nothing" in done.stderr


def test_ctrl_c_ends_the_bench_with_its_job(
    stand_ins: StandIns, table: Path, tuccl_command: str, tmp_path: Path
) -> None:
    command = [tuccl_command, *BENCH, "shipped", "--", "sh", "-c"]
    running = subprocess.Popen(
        [*command, "trap 'exit 3' INT; : > begun; while :; do sleep 0.05; done"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert not list(tmp_path.glob("tuccl-job-*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("here",), "name the job: tuccl workload bench"),
        (("--rounds", "1", "here", "true"), "--rounds 1 is out of range"),
        (("--skip", "3", "here", "true"), "--skip is about the figure that --metric finds"),
        (("--metric", "x", "here", "true"), "has 0 groups"),
        (
            ("--metric", "(x)", "--unit", "h", "here", "true"),
            "--unit 'h' is unknown; use us, ms, s",
        ),
        (
            ("--metric", "(x)", "--unit", "s", "--higher-is-better", "here", "true"),
            "is that of a time",
        ),
        (("--limit", "soon", "here", "true"), "--limit 'soon'"),
        (("--rounds", "2"), "Missing argument 'DIR'"),
        (("nowhere", "true"), "nowhere/tuccl.env is missing"),
    ],
)
def test_mistakes_are_a_line(run_inside: Run, words: tuple[str, ...], said: str) -> None:
    done = run_inside("workload", "bench", *words)
    assert done.returncode in {2, 3}
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_launcher_in_front_is_refused(run_inside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    done = run_inside("workload", "bench", "here", "true")
    assert "put it before the launcher" in done.stderr
