"""`init --baseline`: a tuner's CSV whose choices are tried first and named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from probes.topology.json_form import topology_to_json
from tests.kept_builds import ROOT
from tests.runtime.builds import RUNTIME, compile_native
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tuccl.measuring.records.record_file import write_record
from tuccl.reports.report import BaselineFate, KeyReport, read_report
from tuccl.search.trials.config import AXIS_VARIABLES
from tuccl.workspace.runs import Workspace

TUNER = ROOT / "tests" / "runtime" / "native" / "stand_in_tuner.c"
KEYS = ("--operations", "all_reduce", "--min-size", "4K", "--max-size", "16M", "--step", "64")
ROWS = """# the site's
allreduce,0,4096,tree,ll,12,1,-1
allreduce,4097,1048576,nvls,ll,1,1,-1
allreduce,4097,8388608,ring,simple,-1,-1,4,1,0
broadcast,0,-1,ring,ll,2,-1,-1
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A file with three choices for a host of four GPUs, one of which NCCL does not have."""
    path = tmp_path / "site.csv"
    path.write_text(ROWS)
    return path


@pytest.mark.long
def test_choices_of_a_file_are_tried_whatever_the_search_would_try(
    run_inside: Run, h200: Path, site: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record.parquet"
    done = run_inside(
        "tune", "--topology", h200, *KEYS, "--baseline", site, "--record", record, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert "note: site.csv has choices for 2 of 3 keys; 1 row for none of them" in done.stderr
    tried = pd.read_parquet(record)
    asked = {
        (size, algorithm, protocol, channels)
        for size, algorithm, protocol, channels in zip(
            tried.size_bytes, tried.algorithm, tried.protocol, tried.nchannels, strict=True
        )
        if channels in {0, 12} and algorithm != "default"
    }
    assert asked == {(4096, "tree", "LL", 12), (262144, "ring", "Simple", 0)}

    small, middle, large = (key["decision"]["baseline"] for key in json.loads(done.stdout)["keys"])
    assert large == []
    assert [(choice["file"], choice["line"]) for choice in small] == [("site.csv", 2)]
    assert [choice["line"] for choice in middle] == [4]
    assert small[0]["config"].startswith("tree LL ch12")
    assert small[0]["time_us"] >= small[0]["best_us"] > 0.0
    explained = run_inside("explain", "all_reduce", "256K")
    assert "line 4 of site.csv chooses ring Simple" in explained.stdout
    shown = run_inside("table")
    assert "site.csv has settings for 2 keys, 0 of which won (`tuccl explain` says why)" in (
        shown.stdout
    )

    # The record has the rows, so that a replay takes the same steps and names them.
    again = run_inside("tune", "--records", record, "--workspace", "again", "--json")
    assert again.returncode == 0, again.stderr
    assert "the recorded search is repeated step by step" in again.stderr
    keys = [key["decision"] for key in json.loads(again.stdout)["keys"]]
    assert [key["baseline"] for key in keys] == [small, middle, large]
    site.write_text(ROWS.replace(",12,", ",11,"))
    other = run_inside(
        "tune", "--records", record, "--workspace", "other", "--baseline", site, "--json"
    )
    assert "it differs from the recorded one in the rows of --baseline" in other.stderr
    (choice,) = json.loads(other.stdout)["keys"][0]["decision"]["baseline"]
    assert (choice["fate"], choice["config"]) == ("untried", "tree LL ch11")


def keys_of(workspace: Path) -> list[KeyReport]:
    return read_report(Workspace(workspace).current()).keys


@pytest.mark.long
def test_a_choice_that_wins_is_named_and_others_have_their_reason(
    run_inside: Run, tmp_path: Path
) -> None:
    """The best call of 4 KB is ring LL with 2 channels, of 64 KB ring Simple with 8."""
    write_record(tmp_path / "r.parquet", tiny_grid())
    (tmp_path / "t.csv").write_text(
        "allreduce,0,4096,ring,ll,2,-1,-1\n"
        "allreduce,4097,-1,ring,simple,3,-1,-1\n"
        "allgather,0,4096,pat,simple,2,-1,-1\n"
        "allgather,4097,-1,ring,simple,1,-1,-1\n"
    )
    done = run_inside("tune", "--records", "r.parquet", "--baseline", "t.csv")
    assert done.returncode == 0, done.stderr
    line = "t.csv has settings for 4 keys, 1 of which won; NCCL does not have 1 of them here"
    assert line in done.stdout
    found = {(key.operation.short_name, key.size_bytes): key.baseline
             for key in keys_of(tmp_path / "tuccl-workspace")}  # fmt: skip
    fates = {key: [choice.fate for choice in choices] for key, choices in found.items()}
    assert fates == {
        ("allreduce", 4096): [BaselineFate.WON],
        ("allreduce", 65536): [BaselineFate.UNTRIED],
        ("allgather", 4096): [BaselineFate.NOT_HERE],
        ("allgather", 65536): [BaselineFate.BEHIND],
    }
    (behind,) = found["allgather", 65536]
    # 30 % more for each of three steps from 8 channels to 1, with 1 % of noise.
    assert behind.time_us is not None
    assert behind.best_us is not None
    assert behind.time_us / behind.best_us == pytest.approx(1.3**3, rel=0.03)
    for operation, size, said in (
        ("all_reduce", "4K", "ring LL ch2 is the choice of line 1 of t.csv, too"),
        ("all_reduce", "64K", "line 2 of t.csv chooses ring Simple ch3, which was not tried: "),
        ("all_gather", "4K", "line 3 of t.csv chooses pat Simple ch2, which NCCL does not have he"),
        ("all_gather", "64K", "line 4 of t.csv chooses ring Simple ch1: 2"),
    ):
        assert said in run_inside("explain", operation, size).stdout
    assert run_inside("report", "-o", "page.html").returncode == 0
    assert "ring LL ch2 is the choice of line 1 of t.csv, too" in (
        tmp_path / "page.html"
    ).read_text("utf-8")


@pytest.mark.long
def test_an_exported_table_is_chosen_again(run_inside: Run, tmp_path: Path) -> None:
    write_record(tmp_path / "r.parquet", tiny_grid())
    assert run_inside("tune", "--records", "r.parquet").returncode == 0
    assert run_inside("export", "-o", "nccl_tuner.conf").returncode == 0
    again = ("--baseline", "nccl_tuner.conf", "--workspace", "again")
    done = run_inside("tune", "--records", "r.parquet", *again)
    assert "nccl_tuner.conf has settings for 4 keys, 4 of which won (" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("rows", "words", "said"),
    [
        ("allreduce,0,1,ring,LL,1,1,1\n", (), "line 1: protocol 'LL' is unknown to tuners: write"),
        (
            "allreduce,0,-1,ring,ll,1,4,32\n",
            (),
            "no row is for a key of this run (all_reduce; 3 sizes, 4K to 16M; 4 ranks on 1 node(s)",
        ),
        (
            "allreduce,0,-1,ring,ll,1,-1,-1\n",
            ("--backend", "executor"),
            "--baseline is for a backend that searches NCCL's settings, as nccl,executor; --backen",
        ),
    ],
)
def test_what_cannot_be_a_baseline_is_refused(
    run_inside: Run, h200: Path, site: Path, rows: str, words: tuple[str, ...], said: str
) -> None:
    site.write_text(rows)
    done = run_inside("init", "--topology", h200, *KEYS, "--baseline", site, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.long
def test_a_library_is_asked_what_it_chooses(run_inside: Run, h200: Path, tmp_path: Path) -> None:
    library = compile_native(
        tmp_path / "libtuner.so", [TUNER], "-O1", "-shared", "-fPIC", "-DABI=5", f"-I{RUNTIME}"
    )
    machine = ("--topology", h200, *KEYS, "--baseline", library)
    done = run_inside("tune", *machine, "--json")
    assert done.returncode == 0, done.stderr
    assert "note: libtuner.so has choices for 3 of 3 keys" in done.stderr
    keys = [key["decision"]["baseline"] for key in json.loads(done.stdout)["keys"]]
    named = [[(each["line"], each["config"].split(" min")[0]) for each in own] for own in keys]
    # The model's NCCL has no NVLS here, which the library chooses for registered buffers.
    assert named == [[(0, "tree LL ch4")], *[[(0, "ring Simple ch64")]] * 2]
    explained = run_inside("explain", "all_reduce", "4K")
    assert "; libtuner.so chooses tree LL ch4" in explained.stdout
    again = run_inside("tune", *machine)
    assert "nothing to do: " in again.stderr, "the same choices are the same run"
    (tmp_path / "libtuner.so").write_bytes(b"\x7fELF")
    broken = run_inside("tune", *machine)
    assert (broken.returncode, broken.stderr.count("\n")) == (2, 1)
    assert "libtuner.so cannot be asked as a tuner: " in broken.stderr
    for record in ("site.csv", "libtuner.so"):
        own = ("--baseline", record, "--record", record, "--force")
        (tmp_path / "site.csv").write_text(ROWS)
        refused = run_inside("tune", "--topology", h200, *KEYS, *own)
        assert refused.returncode == 2
        assert f"--record {record} is read by this command" in refused.stderr


@pytest.mark.long
def test_choices_are_measured_through_the_plugin(
    stand_ins: StandIns, run_tuccl: Run, tmp_path: Path
) -> None:
    """One channel is slow on the stand-in, and NCCL takes it by itself."""
    (tmp_path / "machine.json").write_text(topology_to_json(cluster(1, 2, 1)))
    (tmp_path / "site.csv").write_text(
        "allreduce,0,-1,collnet_chain,simple,2,1,2\nallreduce,0,-1,tree,ll,12,1,2\n"
    )
    own = {name: value for name, value in os.environ.items() if "NCCL" not in name}
    stand_in = {"STAND_IN_GPUS": "2", "STAND_IN_COUNTS_TIME": "1", "STAND_IN_CHANNELS": "1"}
    libraries = {**stand_ins.variables, "PYTHONPATH": str(stand_ins.libraries)}
    machine = ("--backend", "nccl", "--topology", "machine.json", "--budget", "1s")
    keys = ("--min-size", "16K", "--max-size", "16K", "--operations", "all_reduce")
    # One profile, so that hardly any processes are started.
    site = (f"--set={name}=16" for name in AXIS_VARIABLES.values())
    words = ("tune", *machine, *keys, *site, "--baseline", "site.csv")
    done = run_tuccl(*words, env=own | stand_in | libraries)
    assert done.returncode == 0, done.stderr
    ((choice,),) = (key.baseline for key in keys_of(tmp_path / "tuccl-workspace"))
    assert (choice.line, choice.config) == (2, "tree LL ch12")
    assert choice.fate in {BaselineFate.WON, BaselineFate.COMPARED, BaselineFate.BEHIND}
    # Twelve channels are as fast as any but one.
    assert choice.time_us == choice.best_us
