"""Ranks of MPI: they measure as local workers do, and faulty ones are named and survived."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from probes.host.report import HostIdentity
from tests.tuccl.crew.measuring_plan import carry_out
from tests.tuccl.crew.test_places import ROOT, requires_mpirun
from tests.tuccl.crew.test_places import run_mpi_job as run_job
from tests.tuccl.measuring.workers.worker_fixtures import OpenBackend
from tuccl.api.hosts.probe_options import Reach
from tuccl.api.hosts.probing import with_hosts
from tuccl.crew.connection import VERSION
from tuccl.crew.places import Place
from tuccl.crew.ranks import RankReport, places_of, run_ranks, with_all_gpus

SYNTHESIZE = (
    sys.executable, "-c", "from tuccl.cli.app import main; main()", "synthesize", "--topology",
    "shipped:a100-8gpu-8nic", "--nodes", "2", "--operation", "all_gather", "--size", "256K",
)  # fmt: skip
MARK = "TUCCL_TEST_JOB"
MPIRUN = ("mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "3")
requires_mpi4py = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"
)


def test_ranks_count_from_0_on_each_host_and_namesakes_are_kept_apart() -> None:
    first, namesake, far = HostIdentity("a", "1"), HostIdentity("a", "2"), HostIdentity("b", "3")
    cores = [frozenset({number}) for number in range(5)]
    hosts = [first, far, first, namesake, far]
    assert places_of([*map(RankReport, hosts, cores), None]) == (
        Place("a", 0, cores[0]), Place("b", 0, cores[1]), Place("a", 1, cores[2]),
        Place("a#2", 0, cores[3]), Place("b", 1, cores[4]), Place("rank 5", 0),
    )  # fmt: skip


def test_a_rank_alone_on_its_host_has_the_places_of_all_its_gpus() -> None:
    cores = frozenset({1, 2})
    ranks = (Place("a", 0, cores), Place("b", 0), Place("b", 1))
    places, rank_of_place = with_all_gpus(ranks, (3, 8, 8))
    assert places == (
        Place("a", 0, cores), Place("a", 1, cores), Place("a", 2, cores),
        Place("b", 0), Place("b", 1),
    )  # fmt: skip
    assert rank_of_place == (0, 0, 0, 1, 2)


def finalizing(errors: str) -> list[str]:
    return sorted(line for line in errors.splitlines() if "finalizes" in line)


@requires_mpirun
@pytest.mark.long
def test_the_first_rank_of_every_host_is_asked() -> None:
    code, result, errors = run_job(3, "ask")
    assert code == 7, errors
    assert result["answers"] == [{"host0": "done", "host1": "done"}] * 2
    assert "no answer" not in errors
    assert finalizing(errors) == ["rank 0 finalizes", "rank 1 finalizes", "rank 2 finalizes"]


@requires_mpirun
@pytest.mark.slow
def test_faulty_ranks_are_named_and_the_others_answer() -> None:
    fates = ("1:hang before it reports", "4:hang at work", "6:another release")
    started = time.monotonic()
    code, result, errors = run_job(7, "ask", *fates)
    assert code == 7, errors
    first, second = result["answers"]
    assert {host: answer for host, answer in first.items() if answer == "done"} == {
        "host0": "done",
        "host1": "done",
    }
    reasons = {host: answer["reason"] for host, answer in first.items() if answer != "done"}
    assert reasons.pop("rank 1").startswith("it did not report within 5 s over TCP to ")
    assert reasons == {
        "host2": "no answer within 2 s",
        "rank 6": f"host 6 runs TuCCL 9.9, crew 8, the leader {VERSION}: install the same release "
        "on both",
    }
    assert first.keys() == second.keys()
    assert second["host2"]["reason"] == "no answer within 2 s"
    assert "tuccl: no answer from rank 1, 4, 6: the MPI job is ended" in errors
    assert "Traceback" not in errors
    assert finalizing(errors) == []
    assert time.monotonic() - started < 100


@requires_mpirun
@pytest.mark.long
@pytest.mark.parametrize(
    ("fates", "code", "answers"),
    [
        (("0:interrupted", "1:hang before it reports"), 130, 0),
        (("0:interrupted while ranks leave",), 7, 2),
    ],
)
def test_a_leader_that_is_interrupted_ends_the_job(
    fates: tuple[str, ...], code: int, answers: int
) -> None:
    started = time.monotonic()
    found, result, errors = run_job(3, "ask", *fates)
    assert (found, len(result.get("answers", []))) == (code, answers)
    assert "KeyboardInterrupt" in errors
    assert "tuccl: no answer from rank 1" in errors
    assert finalizing(errors) == [], "a rank that does can hang mpirun"
    assert time.monotonic() - started < 100


@requires_mpirun
@pytest.mark.long
@pytest.mark.parametrize(("ranks", "fate"), [(2, "its workers are killed"), (4, "")])
def test_ranks_measure_what_local_workers_measure(
    open_backend: OpenBackend, tmp_path: Path, ranks: int, fate: str
) -> None:
    code, found, errors = run_job(ranks, "measure", tmp_path / "log", fate)
    assert code == 7, errors
    assert found["ranks"] == ranks
    assert "Traceback" not in errors
    assert bool(found["incidents"]) == bool(fate)
    if fate:
        assert "rank 1 died: killed by signal 9 (SIGKILL)" in found["incidents"][0]
    backend, places = open_backend(ranks)
    assert found["outcomes"] == carry_out(backend, places, tmp_path / "local")
    assert sorted(set(found["outcomes"].values())) == [
        "measured",
        "the stand-in has no nvls for all_reduce",
        "the stand-in has no nvls for reduce_scatter",
        "the stand-in has no tree for reduce_scatter",
    ]


@requires_mpirun
@pytest.mark.long
def test_strangers_delay_no_roll_call_and_hear_no_key(tmp_path: Path) -> None:
    code, found, errors = run_job(2, "measure", tmp_path / "log", "strangers come")
    assert code == 7, errors
    assert found["incidents"] == []
    assert found["sent"] > 0
    assert not found["key_sent"]


@requires_mpirun
@pytest.mark.long
def test_a_rank_that_hangs_ends_the_job_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    began = time.monotonic()
    code, found, errors = run_job(2, "measure", tmp_path / "log", "it hangs")
    assert (code, found) == (3, {}), errors
    (line,) = (line for line in errors.splitlines() if line.startswith("tuccl: "))
    assert line.startswith("tuccl: MPI rank 1 on ")
    assert "Traceback" not in errors
    assert time.monotonic() - began < 100
    assert not processes_with(str(tmp_path))


def processes_with(mark: str) -> list[psutil.Process]:
    """Processes of a job, by what their environment has; those that were killed have 2 s to end."""
    found = psutil.process_iter(["environ"])
    alike = [own for own in found if (own.info["environ"] or {}).get(MARK) == mark]
    _, left = psutil.wait_procs([own for own in alike if own.pid != os.getpid()], timeout=2)
    return left


@requires_mpirun
@pytest.mark.long
@pytest.mark.parametrize(
    ("fate", "code", "lost"),
    [
        ("it hangs before it reports", 130, "1, 2"),
        pytest.param("it hangs at the end", 7, "1", marks=pytest.mark.slow),  # For 30 s.
        ("the leader cannot listen", 3, "1, 2"),
    ],
)
def test_a_job_ends_whenever_a_rank_hangs(tmp_path: Path, fate: str, code: int, lost: str) -> None:
    began = time.monotonic()
    found, result, errors = run_job(3, "measure", tmp_path / "log", fate)
    assert (found, bool(result)) == (code, code == 7), errors
    assert f"tuccl: no answer from rank {lost}: the MPI job is ended" in errors
    assert finalizing(errors) == [], "a rank that does can hang mpirun"
    assert time.monotonic() - began < 100


@requires_mpirun
@pytest.mark.long
def test_a_rank_that_hangs_after_it_was_dismissed_does_not_keep_the_job(tmp_path: Path) -> None:
    began = time.monotonic()
    code, result, errors = run_job(2, "measure", tmp_path / "log", "it hangs after its farewell")
    assert result, "the command itself is done"
    assert code == 128 + signal.SIGKILL
    said = [line for line in errors.splitlines() if line.startswith("tuccl: ")]
    (line,) = said
    assert line.startswith("tuccl: a rank hangs in MPI_Finalize: the MPI job is ended; ")
    assert line.endswith("the command itself has ended with exit code 7")
    assert time.monotonic() - began < 60


@requires_mpirun
@pytest.mark.long
def test_a_job_that_lost_a_rank_continues(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code, found, errors = run_job(2, "measure", log, "it is killed")
    assert code != 0
    assert found == {}
    assert "tuccl: stopped by the launcher, which says why: a rank died" in errors
    first_half = log.read_bytes()
    code, found, errors = run_job(2, "measure", log)
    assert code == 7, errors
    assert log.read_bytes().startswith(first_half)
    lines = map(json.loads, log.read_bytes().splitlines())
    tasks = Counter(tuple(line["task"][:2]) for line in lines if "task" in line)
    assert tasks["all_reduce", 12288] == tasks["reduce_scatter", 12288] == 5
    assert len(found["outcomes"]) == 10


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@requires_mpirun
@requires_mpi4py
@pytest.mark.long
def test_ranks_synthesize_what_one_process_does_and_rank_0_alone_prints(tmp_path: Path) -> None:
    together, alone = tmp_path / "together.xml", tmp_path / "alone.xml"
    by_ranks = run(*MPIRUN, *SYNTHESIZE, "-o", str(together))
    by_itself = run(*SYNTHESIZE, "--jobs", "1", "-o", str(alone))
    assert (by_ranks.returncode, by_itself.returncode) == (0, 0), by_ranks.stderr
    assert together.read_bytes() == alone.read_bytes()
    printed = [
        [line for line in done.stdout.splitlines() if not line.startswith("  seconds: ")]
        for done in (by_ranks, by_itself)
    ]
    assert printed[0] == printed[1]
    assert by_ranks.stderr.count("written to") == 1


@pytest.mark.parametrize(("rank", "notes"), [("0", 1), ("1", 0)])
def test_ranks_that_work_each_for_itself_are_told_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: str, notes: int
) -> None:
    for name, value in {"RANK": rank, "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert run_ranks(lambda places: 0 if places is None else 1) == 0
    note = (
        "note: torchrun started 2 ranks, and each does this for itself alone: only MPI and --hosts "
        "let them do it as one\n"
    )
    assert capsys.readouterr() == ("", note * notes)


def test_a_command_outside_of_srun_says_that_nodes_of_its_job_stay_idle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "16",
    }.items():
        monkeypatch.setenv(name, value)
    assert with_hosts(Reach(), lambda places: 0 if places is None else 1) == 0
    assert capsys.readouterr().err == (
        "note: Slurm gave this job 2 nodes, and this command is for this host alone: srun starts "
        "it on all\n"
    )
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    assert with_hosts(Reach(), lambda _: 0) == 0
    assert capsys.readouterr().err == ""


@requires_mpirun
@requires_mpi4py
@pytest.mark.long
def test_a_mistake_is_printed_once() -> None:
    done = run(*MPIRUN, *SYNTHESIZE, "--jobs", "2")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("tuccl: --jobs is for one host; leave it out") == 1


@requires_mpirun
@requires_mpi4py
@pytest.mark.long
def test_an_mpi_that_is_not_the_launchers_is_named() -> None:
    done = run(*SYNTHESIZE, PMI_RANK="0", PMI_SIZE="2")
    assert done.returncode == 3
    assert done.stderr.startswith("tuccl: started as one of 2 tasks, but MPI sees 1: ")
    assert len(done.stderr.splitlines()) == 1
