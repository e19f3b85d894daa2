"""`tuccl ship` into directories that are there: what is refused, what stays, and kills."""

import fcntl
import hashlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle import Bundle, read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.program_header import sealed
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Table
from tests.tuccl.conftest import Run as RunCommand
from tests.tuccl.conftest import TunedWorkspace
from tests.tuccl.shipping.form_readers import sourced
from tuccl.errors import UsageError, WorkspaceError
from tuccl.reports.tuning_result import read_machine, read_table
from tuccl.runtime import PLUGIN_NAME, plugin_path
from tuccl.shipping import shipment
from tuccl.shipping.environment_file import ShippedExecutor
from tuccl.shipping.host_facts import hosts_of
from tuccl.shipping.locating import bundle_name
from tuccl.shipping.shipment import ship
from tuccl.workspace.runs import Run, Workspace

MANIFEST = "tuccl-manifest.json"


def run_with(table: Table, root: Path, like: Run) -> Run:
    """A run that has this table."""
    root.mkdir()
    (root / "table.parquet").write_bytes(table_to_parquet_bytes(table))
    shutil.copy(like.report, root / "report.json")
    return Run(root)


@pytest.fixture
def first(finished_init: TunedWorkspace) -> Run:
    return Workspace(finished_init.root).current()


@pytest.fixture
def second(first: Run, tmp_path: Path) -> Run:
    """A run of the same machine, without one of the schedules, and with another profile."""
    table = read_table(first)
    gone, *kept = table.schedules
    entries = tuple(
        entry
        for entry in table.entries
        if entry.schedule is None or entry.schedule.schedule != gone.content_hash
    )
    changed = replace(
        table,
        entries=entries,
        schedules=tuple(kept),
        runners_up=(),
        settings=(),
        profile={"NCCL_BUFFSIZE": "8388608"},
    )
    return run_with(changed, tmp_path / "second-run", first)


@pytest.fixture
def elsewhere(first: Run, tmp_path: Path) -> Run:
    """A run of another machine."""
    table, fingerprint = read_table(first), "e" * 32
    entries = tuple(
        replace(entry, key=replace(entry.key, fingerprint=fingerprint)) for entry in table.entries
    )
    moved = replace(table, topology_name="other", fingerprint=fingerprint, entries=entries)
    return run_with(moved, tmp_path / "other-run", first)


def sourced_bundle(directory: Path) -> Bundle:
    """Return the bundle of a job: that of the name and sum in tuccl.env, beside a plugin."""
    text = (directory / "tuccl.env").read_text()
    found = re.search(r"TUCCL_BUNDLE_CRC=([0-9a-f]{8})", text)
    assert found is not None
    name = f"bundle-{found[1]}.tuccl"
    assert f'TUCCL_BUNDLE="$tuccl_files/{name}"' in text
    data = (directory / name).read_bytes()
    assert f"{bundle_crc(data):08x}" == found[1]
    assert (directory / PLUGIN_NAME).read_bytes()[:4] == b"\x7fELF"
    return read_bundle(data, name)


def contents(directory: Path) -> dict[str, bytes]:
    """Files of the current table, without the versions that the directory keeps."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.relative_to(directory).parts[0] != "versions"
    }


def schedules_of(run: Run) -> set[str]:
    return {f"{schedule.content_hash}.xml" for schedule in read_table(run).schedules}


def schedules_in(directory: Path) -> set[str]:
    return {path.name for path in (directory / "schedules").iterdir()}


def test_the_manifest_lists_what_is_there_and_says_the_same_each_time(
    first: Run, tmp_path: Path
) -> None:
    target = tmp_path / "shipped"
    ship(first, target)
    before = contents(target)
    manifest = json.loads(before[MANIFEST])
    table = read_table(first)
    facts = sourced_bundle(target).facts
    assert facts.hosts == hosts_of(read_machine(first))
    crc = bundle_crc(bundle_bytes(table, facts))
    assert manifest["schema_version"] == 3
    assert (manifest["fingerprint"], manifest["bundle_crc"]) == (table.fingerprint, f"{crc:08x}")
    listed = {file["path"]: (file["bytes"], file["sha256"]) for file in manifest["files"]}
    assert listed == {
        name: (len(data), hashlib.sha256(data).hexdigest())
        for name, data in before.items()
        if name != MANIFEST
    }
    ship(first, target)
    assert contents(target) == before


def test_a_program_that_does_not_compute_its_operation_is_not_shipped(
    first: Run, tmp_path: Path
) -> None:
    table = read_table(first)
    sound = next(schedule for schedule in table.schedules if schedule.program)
    data = bytearray(sound.program)
    data[-12:-8] = bytes(4)  # The last step moves nothing.
    wrong = replace(sound, program=sealed(bytes(data)))
    kept = tuple(wrong if found == sound else found for found in table.schedules)
    run = run_with(replace(table, schedules=kept), tmp_path / "wrong", first)
    with pytest.raises(WorkspaceError, match=f"schedule {sound.content_hash}: the program is"):
        ship(run, tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()


def test_schedules_of_two_tables_never_mix_and_the_old_bundle_stays(
    first: Run, second: Run, tmp_path: Path
) -> None:
    assert schedules_of(second) < schedules_of(first), "the tables differ in their schedules"
    target = tmp_path / "shipped"
    for run in (first, second, first):
        ship(run, target)
        assert schedules_in(target) == schedules_of(run)
        assert sourced_bundle(target).profile == read_table(run).profile
        listed = {file["path"] for file in json.loads((target / MANIFEST).read_text())["files"]}
        assert {f"schedules/{name}" for name in schedules_of(run)} < listed
        assert (target / "table.parquet").read_bytes() == run.table.read_bytes()
    assert len(list(target.glob("bundle-*.tuccl"))) == 2


def test_a_rank_that_sources_what_its_job_script_names_keeps_the_jobs_table(
    first: Run, second: Run, tmp_path: Path
) -> None:
    target = tmp_path / "shipped"
    ship(first, target)
    environment = target / "tuccl.env"
    job, crc = sourced(environment)["TUCCL_ENV"], sourced(environment)["TUCCL_BUNDLE_CRC"]
    bound = Path(job).read_bytes()
    ship(second, target)
    assert sourced(environment)["TUCCL_BUNDLE_CRC"] != crc
    assert sourced(job)["TUCCL_BUNDLE_CRC"] == crc
    assert Path(sourced(job)["TUCCL_BUNDLE"]).is_file()
    assert Path(job).read_bytes() == bound
    assert sourced(environment)["TUCCL_ENV"] != job


@pytest.mark.parametrize(
    "place",
    ["notes.txt", "schedules/mine.xml", "kubernetes/mine.yaml", "folder/below", ".hidden"],
)
def test_files_of_others_are_named_and_left_alone(
    first: Run, second: Run, tmp_path: Path, place: str
) -> None:
    target = tmp_path / "shipped"
    ship(first, target)
    (target / place).parent.mkdir(exist_ok=True)
    (target / place).write_text("mine")
    before = contents(target)
    named = "folder/" if place.startswith("folder") else place
    with pytest.raises(UsageError, match=f"did not write: {re.escape(named)}; name a new or empty"):
        ship(second, target)
    assert contents(target) == before
    ship(second, target, force=True)
    assert (target / place).read_text() == "mine"
    assert sourced_bundle(target).profile == read_table(second).profile
    assert schedules_in(target) - {"mine.xml"} == schedules_of(second)


def test_a_directory_that_was_never_shipped_to_is_refused(first: Run, tmp_path: Path) -> None:
    # A run has a table.parquet, which is none that was shipped.
    target = tmp_path / "run"
    target.mkdir()
    for number in range(7):
        (target / f"file{number}").touch()
    (target / "table.parquet").write_text("mine")
    with pytest.raises(UsageError, match=r"write: file0, .*, file5 and 2 more; name a new"):
        ship(first, target)
    assert len(contents(target)) == 8


def test_another_machines_table_is_kept(first: Run, elsewhere: Run, tmp_path: Path) -> None:
    target = tmp_path / "shipped"
    ship(first, target)
    before = contents(target)
    with pytest.raises(UsageError, match=r"holds the table of h200-4gpu \(topology .*of other \("):
        ship(elsewhere, target)
    assert contents(target) == before
    ship(elsewhere, target, force=True)
    assert sourced_bundle(target).fingerprint == read_table(elsewhere).fingerprint
    ship(elsewhere, target)  # It is this machine's now.
    with pytest.raises(UsageError, match="holds the table of other"):
        ship(first, target)


@pytest.mark.parametrize("stale", [False, True])
def test_a_directory_without_a_manifest_is_known_by_its_bundles(
    first: Run, second: Run, elsewhere: Run, tmp_path: Path, stale: bool
) -> None:
    """As earlier releases left it, which let the schedules of two tables mix."""
    target = tmp_path / "shipped"
    ship(first, target)
    if stale:
        kept = contents(target / "schedules")
        ship(second, target)
        for name, data in kept.items():
            (target / "schedules" / name).write_bytes(data)
    (target / MANIFEST).unlink()
    with pytest.raises(UsageError, match="holds the table of h200-4gpu"):
        ship(elsewhere, target)
    ship(second, target)
    assert schedules_in(target) == schedules_of(second)
    assert (target / MANIFEST).exists()


@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_no_executor_is_shipped_to_where_ld_preload_cannot_name_it(
    first: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target, library = tmp_path / name, tmp_path / "library"
    library.write_bytes(b"executor")
    wanted = ShippedExecutor(library, None)
    monkeypatch.setattr(shipment, "shipped_executor", lambda *_: wanted)
    with pytest.raises(UsageError, match="at which LD_PRELOAD is split"):
        ship(first, target)
    assert not target.exists()
    ship(first, tmp_path / "plain")
    assert (tmp_path / "plain" / "libtuccl-executor.so").read_bytes() == b"executor"
    library.write_bytes(plugin_path().read_bytes())
    ship(first, tmp_path / "plain")
    assert b"$ORIGIN/libtuccl-executor.so\0" in (tmp_path / "plain/libtuccl-nccl.so").read_bytes()
    monkeypatch.setattr(shipment, "shipped_executor", lambda *_: None)
    ship(first, target)


@pytest.mark.long
def test_new_empty_and_linked_directories_serve(first: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "nfs").mkdir()
    (tmp_path / "nfs" / ".nfs0000000000001").touch()
    for name in ("empty", "link", "nfs", "new/deep"):
        ship(first, tmp_path / name)
        ship(first, tmp_path / name)
        sourced_bundle(tmp_path / name)
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(("folder", "file"), [("tuccl.env/x", ""), ("", "schedules")])
def test_what_cannot_take_its_place_is_said_before_anything_is_written(
    first: Run, tmp_path: Path, folder: str, file: str
) -> None:
    target = tmp_path / "shipped"
    (target / folder).mkdir(parents=True)
    if file:
        (target / file).touch()
    before = contents(target)
    for force in (False, True):
        with pytest.raises(UsageError):
            ship(first, target, force=force)
    assert contents(target) == before


def test_a_manifest_of_a_newer_release_is_not_written_over(first: Run, tmp_path: Path) -> None:
    target = tmp_path / "shipped"
    ship(first, target)
    newer = {**json.loads((target / MANIFEST).read_text()), "schema_version": 4, "more": True}
    (target / MANIFEST).write_text(json.dumps(newer))
    with pytest.raises(UsageError, match="is of version 4, this release writes 3"):
        ship(first, target)
    ship(first, target, force=True)
    assert json.loads((target / MANIFEST).read_text())["schema_version"] == 3


def test_a_damaged_manifest_or_plugin_is_made_again(first: Run, tmp_path: Path) -> None:
    target = tmp_path / "shipped"
    ship(first, target)
    before = contents(target)
    for name in (MANIFEST, PLUGIN_NAME, "table.parquet"):
        (target / name).write_text("{")
    ship(first, target)
    assert contents(target) == before


def test_a_manifest_that_lists_a_file_without_a_name_is_replaced(
    first: Run, tmp_path: Path
) -> None:
    target = tmp_path / "shipped"
    ship(first, target)
    manifest = target / MANIFEST
    document = json.loads(manifest.read_text())
    document["files"][0]["path"] = ""
    manifest.write_text(json.dumps(document))
    ship(first, target)
    assert all(file["path"] for file in json.loads(manifest.read_text())["files"])


def test_two_ships_at_once_exclude_each_other(first: Run, tmp_path: Path) -> None:
    target = tmp_path / "shipped"
    target.mkdir()
    descriptor = os.open(target, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(WorkspaceError, match="by another process; wait for it"):
            ship(first, target)
    finally:
        os.close(descriptor)
    ship(first, target)


def test_the_command_refuses_and_forces(
    run_inside: RunCommand, tuned: TunedWorkspace, tmp_path: Path
) -> None:
    target = tmp_path / "shipped"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    done = run_inside("ship", "shipped")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "notes.txt" in done.stderr
    assert [path.name for path in target.iterdir()] == ["notes.txt"]
    done = run_inside("ship", "shipped", "--force", "--json")
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)["files"]
    assert files[-1] == str(target / "tuccl.env")
    assert str(target / MANIFEST) in files
    assert (target / "notes.txt").read_text() == "mine"
    assert bundle_name(sourced_bundle(target).crc) in {path.name for path in target.iterdir()}
    assert tuned.root.exists()
