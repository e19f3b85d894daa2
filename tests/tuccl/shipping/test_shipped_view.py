"""`tuccl show` and the manifest: directories of this release, of earlier ones, and damaged ones."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from json_reference import schema_of

from lookup_tables.provenance import NcclVersion, Provenance
from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.tuned_tables import FOUR_GPUS, TWO_HOSTS, tuned
from tuccl.reports.evidence import Evidence
from tuccl.reports.keys import Runner
from tuccl.reports.table_parts import parts_of
from tuccl.reports.tuning_result import read_table
from tuccl.shipping.manifest import MANIFEST_NAME, read_manifest
from tuccl.shipping.shipment import ship
from tuccl.shipping.shipped_view import view_shipped
from tuccl.shipping.shown_table import shown_table
from tuccl.views.terminal.shipped_display import summary_lines
from tuccl.workspace.runs import Run as WorkspaceRun
from tuccl.workspace.runs import Workspace


@pytest.fixture
def run(finished_init: TunedWorkspace) -> WorkspaceRun:
    return Workspace(finished_init.root).current()


@pytest.fixture
def shipped(run: WorkspaceRun, tmp_path: Path) -> Path:
    ship(run, tmp_path / "shipped")
    return tmp_path / "shipped"


def manifest_of(directory: Path) -> Any:
    return json.loads((directory / MANIFEST_NAME).read_text())


def test_the_manifest_says_what_the_table_is(run: WorkspaceRun, shipped: Path) -> None:
    found, table = manifest_of(shipped), read_table(run)
    schema = schema_of("manifest")
    jsonschema.validate(found, schema, cls=jsonschema.Draft202012Validator)
    assert (found["machine"], found["gpu_models"]) == ({"gpus": 4, "nodes": 1}, ["10de:2335"])
    assert (found["nccl"], found["times"]) == (None, "modelled")
    assert found["shapes"] == [{"ranks": 4, "nodes": 1, "ranks_per_node": 4}]
    assert sum(part["entries"] for part in found["parts"]) == len(table.entries)
    times = [entry.tuned_at for entry in table.entries]
    assert (found["tuned_from"], found["tuned_to"]) == (min(times), max(times))
    assert found["profile"] == dict(table.profile)
    assert not found["executor"]
    assert "not measured" in found["caveats"][0]


def test_a_run_without_its_machine_is_shipped_without_its_size(
    run: WorkspaceRun, tmp_path: Path
) -> None:
    for path in (run.table, run.report):
        shutil.copy(path, tmp_path)
    ship(WorkspaceRun(tmp_path), tmp_path / "shipped")
    assert manifest_of(tmp_path / "shipped")["machine"] is None


def test_parts_tell_measured_entries_from_modelled_ones() -> None:
    table, _ = tuned(FOUR_GPUS)
    first, second, third = table.entries
    nccl = Provenance("nccl", NcclVersion(2, 28, 9), "0.1.0", "one", details="GPU 0")
    again = Provenance("nccl", NcclVersion(2, 28, 9), "0.1.0", "one", details="GPU 1")
    for entry, origin in ((first, nccl), (second, Provenance("simulated")), (third, again)):
        object.__setattr__(entry, "provenance", origin)
    measured, modelled = parts_of(table)
    assert (measured.times, measured.nccl, measured.entries) == (Evidence.MEASURED, "2.28.9", 2)
    assert (measured.schedules, measured.min_bytes, measured.max_bytes) == (1, 1024, 8191)
    assert (modelled.times, modelled.entries) == (Evidence.MODELLED, 1)


def test_shapes_of_a_table_are_parts_of_their_own() -> None:
    four, _ = tuned(FOUR_GPUS)
    eight, _ = tuned(TWO_HOSTS)
    parts = [part.shape for table in (four, eight) for part in parts_of(table)]
    assert parts == [FOUR_GPUS, TWO_HOSTS]


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_directory_is_shown_without_its_manifest_too(shipped: Path, has_manifest: bool) -> None:
    if not has_manifest:
        (shipped / MANIFEST_NAME).unlink()
    shown = shown_table(view_shipped(shipped))
    assert (shown.topology, shown.times) == ("h200-4gpu", Evidence.MODELLED)
    assert (shown.machine is not None) == has_manifest
    assert len(shown.problems) == (not has_manifest)
    assert shown.entries
    assert all(entry.times is Evidence.MODELLED for entry in shown.entries)
    assert not any(entry.runner is Runner.EXECUTOR for entry in shown.entries)
    assert any(entry.apart for entry in shown.entries)
    (communicators,) = [line for line in summary_lines(shown) if line.startswith("communicators")]
    assert communicators == "communicators: 4 ranks on 1 node"


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_without_its_parquet_file_a_table_is_shown_from_the_bundle(
    shipped: Path, damage: str
) -> None:
    path = shipped / "table.parquet"
    path.unlink()
    if damage == "damaged":
        path.write_text("PAR1")
    shown = shown_table(view_shipped(shipped))
    assert "times of schedules, and what was measured, are not known" in shown.problems[0]
    assert "table.parquet" in shown.problems[1]
    assert (shown.times, shown.parts) == (None, ())
    aparts = [entry.apart for entry in shown.entries if entry.apart]
    assert aparts
    assert all(apart.time_us is None and "th" in apart.schedule for apart in aparts)


def spoil(name: str, change: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda directory: change(next(directory.glob(name)))


def name_files(*paths: str) -> Callable[[Path], object]:
    def change(directory: Path) -> None:
        found = manifest_of(directory)
        found["files"] = [{"path": path, "bytes": 1, "sha256": ""} for path in paths]
        (directory / MANIFEST_NAME).write_text(json.dumps(found))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (spoil("lib*.so", lambda path: path.write_bytes(b"x")), "files differ from the manifest: "),
        (spoil("schedules/*", os.unlink), "files of the manifest are missing: schedules/"),
        (name_files("../outside", "/etc/passwd"), "names files outside of the directory: ../out"),
        (name_files("a\x1b[31m"), "files of the manifest are missing: a?[31m; "),
        (name_files(*map(str, range(9))), "missing: 0, 1, 2, 3, 4, 5 and 3 more; ship there again"),
    ],
)
def test_files_that_are_not_as_shipped_are_named(
    shipped: Path, change: Callable[[Path], object], said: str
) -> None:
    change(shipped)
    (problem,) = view_shipped(shipped).problems
    assert said in problem


def test_a_manifest_of_a_newer_release_is_not_read(shipped: Path) -> None:
    (shipped / MANIFEST_NAME).write_text('{"schema_version": 9}')
    assert read_manifest(shipped) is None
    (problem,) = view_shipped(shipped).problems
    assert "is of version 9, this release reads 3" in problem


@pytest.mark.long
@pytest.mark.usefixtures("tuned")
def test_the_command_shows_finds_and_refuses(run_tuccl: Run, tmp_path: Path) -> None:
    assert run_tuccl("ship", "shipped").returncode == 0
    done = run_tuccl("show", "shipped")
    assert (done.returncode, done.stderr) == (0, "")
    assert "h200-4gpu, 4 GPUs on 1 node (10de:2335), fingerprint" in done.stdout
    assert "modelled: " in done.stdout
    (tmp_path / "shipped" / "table.parquet").write_text("")
    found = run_tuccl("show", "shipped", "--json")
    assert found.returncode == 1
    schema = schema_of("show")
    jsonschema.validate(json.loads(found.stdout), schema, cls=jsonschema.Draft202012Validator)
    for place in ("nowhere", "tuccl-workspace"):
        refused = run_tuccl("show", place)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert len(refused.stderr.splitlines()) == 1
