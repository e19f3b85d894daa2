"""`tuccl history`, `rollback` and `diff`: what they print, and what they refuse."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.shipping.job_roots import run_of_one_rank
from tests.tuccl.shipping.lost_bundles import LOST, lose_bundle
from tuccl.shipping.shipment import ship
from tuccl.shipping.shipped_directory import sourced_crc
from tuccl.workspace.runs import Workspace


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A directory that keeps two tables of one entry, with other profiles."""
    target = tmp_path / "shipped"
    ship(run_of_one_rank(tmp_path / "first", {"NCCL_NTHREADS": "256"}), target)
    ship(run_of_one_rank(tmp_path / "second", {"NCCL_BUFFSIZE": "1048576"}), target)
    return target


def test_history_lists_the_tables_and_their_origin(
    run_inside: Run, shipped: Path, tmp_path: Path
) -> None:
    done = run_inside("history", "shipped")
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("* 2", "first", "second", "measured: 1 of all_reduce", "test"):
        assert text in done.stdout
    document = check("history", run_inside("history", "shipped", "--json").stdout)
    assert document["bundle_crc"] == sourced_crc(shipped)
    first, second = document["versions"]
    assert [first["current"], second["current"]] == [False, True]
    assert first["run"] == str(tmp_path / "first")
    assert second["profile"] == {"NCCL_BUFFSIZE": "1048576"}
    (Path(first["folder"]) / "table.parquet").unlink()
    done = run_inside("history", "shipped")
    assert done.returncode == 1
    assert "problem: version 1: files of the manifest are missing: table.parquet" in done.stdout


@pytest.mark.parametrize("damage", LOST)
def test_versions_are_listed_though_the_current_bundle_is_lost(
    run_inside: Run, shipped: Path, damage: str
) -> None:
    crc = sourced_crc(shipped)
    bundle = lose_bundle(shipped, damage)
    done = run_inside("history", "shipped")
    assert (done.returncode, done.stderr) == (1, "")
    assert "* 2" in done.stdout
    (problem,) = [line for line in done.stdout.splitlines() if line.startswith("problem: ")]
    assert str(bundle) in problem
    found = run_inside("history", "shipped", "--json")
    document = check("history", found.stdout)
    assert (found.returncode, document["bundle_crc"], len(document["problems"])) == (1, crc, 1)
    assert [(each["current"], each["problems"]) for each in document["versions"]] == [
        (False, []),
        (True, []),
    ]
    assert run_inside("rollback", "shipped", "2").returncode == 0
    assert run_inside("history", "shipped").returncode == 0


def test_a_current_table_without_its_version_is_named(run_inside: Run, shipped: Path) -> None:
    shutil.rmtree(shipped / "versions")
    done = run_inside("history", "shipped")
    assert done.returncode == 0
    assert "version: `tuccl ship` there again" in done.stderr


def test_rollback_says_what_is_current_and_how_to_undo_it(run_inside: Run, shipped: Path) -> None:
    done = run_inside("rollback", "shipped")
    assert done.returncode == 0
    assert f"version 1 (table {sourced_crc(shipped)}, shipped 2" in done.stdout
    assert "to undo: tuccl rollback shipped 2" in done.stderr
    forward = check("rollback", run_inside("rollback", "shipped", "2", "--json").stdout)
    assert (forward["version"], forward["before"]) == (2, 1)
    assert forward["bundle_crc"] == sourced_crc(shipped)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rollback", "shipped", "7"), "keeps no version '7', only 1, 2"),
        (("rollback", "missing"), "tuccl.env is missing; name a directory that `tuccl ship`"),
        (("history", "missing"), "missing is not a directory"),
        (("diff", "shipped", "missing"), "missing is not a directory: name a workspace, a run"),
        (("diff", "shipped", "shipped@9"), "keeps no version '9', only 1, 2"),
    ],
)
@pytest.mark.usefixtures("shipped")
def test_what_is_not_there_is_one_line(run_inside: Run, words: tuple[str, ...], said: str) -> None:
    done = run_inside(*words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr


def test_versions_of_a_directory_are_compared(run_inside: Run, shipped: Path) -> None:
    done = run_inside("diff", "shipped@1", "shipped")
    assert done.returncode == 1
    assert "process profile: NCCL_NTHREADS is not set in B, 256 in A" in done.stdout
    assert "keys: 1 common, 1 of them not told apart; 0 in A alone, 0 in B alone" in done.stdout
    assert "B against A: 1.000x (0.985 to 1.015), geometric mean over 1 common key\n" in done.stdout
    version = next(path for path in (shipped / "versions").iterdir() if "-" not in path.name)
    same = run_inside("diff", str(version), f"shipped@{version.name}", "--json")
    assert same.returncode == 0
    assert check("diff", same.stdout)["same"]


def test_a_workspace_is_compared_with_its_run_and_with_what_was_shipped(
    run_inside: Run, tuned: TunedWorkspace, tmp_path: Path
) -> None:
    run = Workspace(tuned.root).current()
    same = run_inside("diff", "tuccl-workspace", str(run.root), "--json")
    assert same.returncode == 0, same.stdout
    document = check("diff", same.stdout)
    assert document["common"] == document["first"]["keys"] > 0
    assert document["speedup"] == pytest.approx(1.0)
    ship(run, tmp_path / "mine")
    document = check("diff", run_inside("diff", "tuccl-workspace", "mine", "--json").stdout)
    assert document["first"]["fingerprint"] == document["second"]["fingerprint"]
    alone = [key for key in document["keys"] if key["second"] is None]
    assert all(key["first"]["runs"].startswith("NCCL") for key in alone), "keys without an entry"
    known = [key["gain"]["ratio"] for key in document["keys"] if key["gain"] is not None]
    assert known == pytest.approx([1.0] * len(known), rel=0.05)


def test_the_runs_of_a_workspace_are_listed_and_shipped_by_name(
    run_inside: Run, tuned: TunedWorkspace, tmp_path: Path
) -> None:
    run = Workspace(tuned.root).current()
    record = run.record()
    assert record is not None
    for name, is_complete in (("another", True), ("begun", False)):
        shutil.copytree(run.root, run.root.with_name(name))
        other = Workspace(tuned.root).run(name)
        other.write_record(replace(record, tuned_at="2026-01-02T03:04:05Z", complete=is_complete))
    found = check("runs", run_inside("runs", "--json").stdout)["runs"]
    assert [each["name"] for each in found] == ["another", "begun", run.root.name]
    assert [each["current"] for each in found] == [False, False, True]
    assert [each["finished"] for each in found] == [True, False, True]
    assert (found[0]["topology"], found[0]["keys"], found[1]["keys"]) == ("h200-4gpu", 6, None)
    rows = run_inside("runs").stdout.splitlines()
    assert rows[-2].split()[:2] == ["*", run.root.name]
    assert rows[-3].endswith("not finished")
    done = run_inside("ship", "mine", "--run", "another")
    assert done.returncode == 0
    entries = f"{found[0]['entries']} entries for h200-4gpu, {found[0]['gain']:.3f}x for a job here"
    assert entries in done.stderr
    assert done.stderr.startswith("shipped run another of ")
    (version,) = check("history", run_inside("history", "mine", "--json").stdout)["versions"]
    assert version["run"] == str(run.root.with_name("another"))
    refused = run_inside("ship", "mine", "--run", "none")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    runs = ", ".join(sorted(("another", "begun", run.root.name)))
    assert f"its runs: {runs}" in refused.stderr
    assert run_inside("runs", "mine").returncode == 2
    assert run_inside("ship", "mine", "--check", "--run", "another").returncode == 2


def test_damaged_runs_are_listed_with_their_fault(run_inside: Run, tuned: TunedWorkspace) -> None:
    run = Workspace(tuned.root).current()
    for name in ("cut", "lost", "unreadable", "unlike"):
        shutil.copytree(run.root, run.root.with_name(name))
    workspace = Workspace(tuned.root)
    record = run.root.with_name("cut") / "run.json"
    record.write_bytes(record.read_bytes()[:100])
    workspace.run("lost").table.unlink()
    workspace.run("unreadable").report.write_text("{")
    workspace.run("unlike").bundle.write_bytes(b"")
    done = run_inside("runs", "--json")
    assert done.returncode == 1
    document = check("runs", done.stdout)
    assert document["problem"] is None
    found = {each["name"]: each for each in document["runs"]}
    assert list(found) == ["cut", *sorted(("lost", "unlike", "unreadable", run.root.name))]
    assert [each["finished"] for each in found.values()] == [False, True, True, True, True]
    assert (found["cut"]["begun_at"], found["lost"]["keys"]) == (None, None)
    whole = found.pop(run.root.name)
    assert (whole["current"], whole["keys"], whole["problem"]) == (True, 6, None)
    files = {"cut": "run.json", "lost": "table.parquet", "unreadable": "report.json"}
    for name, each in found.items():
        assert f"{name}/{files.get(name, 'bundle.tuccl')}" in each["problem"]
    done = run_inside("runs")
    assert done.returncode == 1
    for name, each in found.items():
        (row,) = (line for line in done.stdout.splitlines() if line.split()[:1] == [name])
        assert row.endswith("damaged")
        assert f"problem: run {name}: {each['problem']}\n" in done.stdout


def test_a_damaged_pointer_to_the_current_run_is_named(
    run_inside: Run, tuned: TunedWorkspace
) -> None:
    (tuned.root / "current.json").write_text("{")
    done = run_inside("runs")
    assert done.returncode == 1
    assert "problem: tuccl-workspace/current.json is damaged" in done.stdout
    document = check("runs", run_inside("runs", "--json").stdout)
    assert document["problem"].startswith("tuccl-workspace/current.json is damaged")
    assert [each["current"] for each in document["runs"]] == [False]
    (tuned.root / "current.json").unlink()
    assert run_inside("runs").returncode == 0
