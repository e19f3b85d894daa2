"""`tuccl retune` after a change that touches some communicators: what is kept, measured, gained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import Entry
from probes.topology.graph import Device, DeviceKind, LinkKind, Topology
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import Cable, cluster, machine
from tests.tuccl.conftest import Run
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.tuning.pipeline.test_retune_plan import with_halved
from tests.tuccl.workloads.made_workloads import call, workload, written
from tuccl.errors import ProfileLostError
from tuccl.measuring.records.record_file import read_record
from tuccl.options.run_options import RunOptions
from tuccl.reports.tuning_result import current_run
from tuccl.search.trials.config import Task
from tuccl.search.trials.events import Event, KeyDecided, Listener, RunBegins, Total
from tuccl.search.trials.shapes import ShapeName
from tuccl.tuning.pipeline import stages
from tuccl.tuning.pipeline.carried_table import samples_in
from tuccl.tuning.pipeline.options_to_settings import read_options
from tuccl.tuning.pipeline.preparing import prepare
from tuccl.tuning.pipeline.retuning import retuning_of
from tuccl.tuning.pipeline.tuning_run import run
from tuccl.workloads.workload_file import read_workload
from tuccl.workspace.measurement_log import read_log
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long


def hosts(nodes: int, nic_gb_per_s: float = 25.0, absent: frozenset[str] = frozenset()) -> Topology:
    """Hosts of two GPUs and two NICs, whose PCIe switches hang on one CPU; one NIC may be slow."""
    found = cluster(nodes, 2, 2, nic_gb_per_s={(1, 1): nic_gb_per_s}, absent=absent)
    cpus = [Device(f"n{node}/cpu0", DeviceKind.CPU, node) for node in range(nodes)]
    cables: list[Cable] = [
        (cpu.name, f"n{cpu.node}/pcie_switch{number}", LinkKind.PCIE, 24.0, 0.1)
        for cpu in cpus
        for number in (0, 1)
    ]
    joined = machine("joined", (), cables)
    return replace(found, devices=(*found.devices, *cpus), links=(*found.links, *joined.links))


BEFORE = hosts(2)
SLOWER_NVLINK = with_halved(BEFORE, LinkKind.NVLINK, "n1/gpu1")
SLOWER_NIC = hosts(2, nic_gb_per_s=12.0)


def write(path: Path, found: Topology) -> Path:
    path.write_text(topology_to_json(found))
    return path


def tuned_from_the_beginning(folder: Path, found: Topology) -> Path:
    """Workspace of a run over three shapes of a machine."""
    options = RunOptions(
        topology=str(write(folder / "machine.json", found)), shapes="whole,node,rail",
        operations="all_reduce", min_size="64K", max_size="1M", step=16,
    )  # fmt: skip

    def unused() -> Topology:
        raise AssertionError("a machine is given")

    prepared = prepare(options, unused)
    root = folder / "tuccl-workspace"
    run(prepared, Workspace(root), Listener())
    return root


@pytest.fixture(scope="module")
def tuned_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned_from_the_beginning(tmp_path_factory.mktemp("tuned-cluster"), BEFORE)


@pytest.fixture
def workspace(tuned_cluster: Path, tmp_path: Path) -> Path:
    """The test's own copy, where `run_inside` looks for one."""
    return Path(shutil.copytree(tuned_cluster, tmp_path / "tuccl-workspace"))


Retune = Callable[..., dict[str, object]]


def entries_of(root: Path, name: str) -> list[Entry]:
    found = current_run(root)
    shape = found.report.shapes[name]
    return [entry for entry in found.table.entries if entry.key.shape == shape]


def samples_of(root: Path) -> tuple[int, set[Task]]:
    """Samples of the current run, and the keys that it measured."""
    current = Workspace(root).current()
    record = current.record()
    assert record is not None
    log = read_log(current.measurements, record.identity)
    return samples_in(log), {recorded.task for recorded in log.all}


@pytest.mark.parametrize(
    ("changed", "kept", "measured"),
    [
        pytest.param(SLOWER_NVLINK, {"rail"}, {"whole", "node"}, id="NVLink"),
        pytest.param(SLOWER_NIC, {"node"}, {"whole", "rail"}, id="NIC"),
    ],
)
def test_entries_that_the_change_does_not_touch_are_kept_as_they_were(
    run_inside: Run, workspace: Path, tmp_path: Path, changed: Topology, kept: set[str],
    measured: set[str],
) -> None:  # fmt: skip
    first_samples, _ = samples_of(workspace)
    old = current_run(workspace)
    before = {name: entries_of(workspace, name) for name in kept}
    now = write(tmp_path / "now.json", changed)
    done = run_inside("retune", "--topology", now, "--json")
    assert done.returncode == 0, done.stderr
    document = check("retune", done.stdout)
    new = current_run(workspace)
    assert new.table.fingerprint == changed.fingerprint() == document["fingerprint"]
    assert new.table.profile == old.table.profile
    for name in kept:
        assert [
            replace(entry, key=replace(entry.key, fingerprint=old.table.fingerprint))
            for entry in entries_of(workspace, name)
        ] == before[name]
    fates = {part["name"]: part["fate"] for part in document["parts"]}
    assert fates == dict.fromkeys(kept, "kept") | dict.fromkeys(measured, "measured again")
    shapes = new.report.shapes
    samples, tasks = samples_of(workspace)
    # Hosts that differ now are classes of their own, which a suffix names.
    assert {task.full_name.partition("@")[2].partition("/")[0] for task in tasks} == {
        f"{shapes[name].ranks}x{shapes[name].nodes}" for name in measured
    }
    assert 3 * samples < first_samples
    against = document["against_old"]
    assert (against["kept"], against["measured"]) == (2 * len(kept), 2 * len(measured))
    assert (against["samples"], against["samples_before"]) == (samples, first_samples)
    assert against["run"] == old.run.root.name
    assert len(against["keys"]) == against["measured"]
    assert 0.97 < against["gain"] < 2.0
    assert min(key["ratio"] for key in against["keys"]) > 0.95
    assert len(document["keys"]) == len(old.report.keys)
    assert Path(str(document["kept"])).name == old.run.root.name
    again = run_inside("retune", "--topology", now)
    assert "the table stands" in again.stderr


def test_communicators_that_the_change_does_not_touch_keep_their_entries(
    run_inside: Run, workspace: Path, tmp_path: Path
) -> None:
    """The host whose NVLink did not change has entries of its own, which it had with the other."""
    before = {entry.tuned_bytes: entry for entry in entries_of(workspace, "node")}
    report = current_run(workspace).report
    reports = {key.size_bytes: key for key in report.keys if key.shape == report.shapes["node"]}
    now = write(tmp_path / "now.json", SLOWER_NVLINK)
    assert run_inside("retune", "--topology", now).returncode == 0
    new = current_run(workspace)
    kept, touched = new.table.placements
    assert [own.example.split("/")[0] for own in (kept, touched)] == ["n0", "n1"]
    assert [entry.tuned_bytes for entry in kept.entries] == [
        size for size, entry in before.items() if entry.builtin is not None
    ]
    for entry in kept.entries:
        old, shown = before[entry.tuned_bytes], reports[entry.tuned_bytes].builtin
        assert entry.key.fingerprint == new.table.fingerprint
        assert (entry.builtin, entry.schedule) == (old.builtin, None)
        assert entry.time_us == old.builtin_time_us
        assert shown is not None
        assert entry.confirmation is not None
        assert entry.confirmation.ratio == shown.ratio
    record = new.run.record()
    assert record is not None
    log = read_log(new.run.measurements, record.identity)
    of_kept = [each for each in log.all if each.task.full_name.endswith("2x1/1:0")]
    assert sum(len(each.samples_us) for each in of_kept) < 60, "only what serves any host"


def test_a_dry_run_says_what_would_be_measured_and_why_and_measures_nothing(
    run_inside: Run, workspace: Path, tmp_path: Path
) -> None:
    def files() -> set[str]:
        return {str(path) for path in workspace.rglob("*")}

    present = files()
    now = write(tmp_path / "now.json", SLOWER_NIC)
    done = run_inside("retune", "--topology", now, "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("changed: ")
    assert "node all_reduce: 2 keys kept: its communicators do not touch what changed" in lines
    (rail,) = (line for line in lines if line.startswith("rail all_reduce: 2 keys measured again"))
    assert "n1/nic1" in rail
    assert lines[-1] == "4 of 6 keys to measure, 2 kept"
    document = run_inside("retune", "--topology", now, "--dry-run", "--json").stdout
    found = check("retune-plan", document)
    assert (found["kept"], found["measured"], found["gone"]) == (2, 4, {})
    assert [part["fate"] for part in found["parts"]] == ["measured again", "kept", "measured again"]
    assert files() == present
    done = run_inside("retune", "--dry-run")
    assert "the machine is as it was (topology " in done.stdout
    document = run_inside("retune", "--dry-run", "--json").stdout
    assert check("retune-plan", document)["parts"] == []


def test_a_change_that_touches_no_communicator_measures_nothing(
    run_inside: Run, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third host whose GPUs are hidden: a NIC more on the network."""
    before = current_run(workspace)
    more = hosts(3, absent=frozenset({"n2/gpu0", "n2/gpu1", "n2/nvswitch"}))
    assert more.fingerprint() != BEFORE.fingerprint()

    def measured(*_: object) -> None:
        raise AssertionError("nothing is to be measured")

    monkeypatch.setattr(stages, "open_backend", measured)
    now = write(tmp_path / "now.json", more)
    done = run_inside("retune", "--topology", now, "--json")
    assert done.returncode == 0, done.stderr
    document = check("retune", done.stdout)
    against = document["against_old"]
    assert (against["gain"], against["samples"], against["keys"]) == (1.0, 0, [])
    after = current_run(workspace)
    assert after.table.fingerprint == more.fingerprint()
    assert len(after.table.entries) == len(before.table.entries)
    assert run_inside("table").returncode == 0


def test_a_hidden_gpu_leaves_the_shapes_that_are_still_there(
    run_inside: Run, workspace: Path, tmp_path: Path
) -> None:
    now = write(tmp_path / "now.json", hosts(2, absent=frozenset({"n1/gpu1"})))
    done = run_inside("retune", "--topology", now)
    assert done.returncode == 0, done.stderr
    assert (
        "plan: whole all_reduce: 2 keys measured for the first time: there were no" in done.stderr
    )
    for name in ("node", "rail"):
        assert f"plan: {name}: the entries for 2 ranks on" in done.stderr
    assert "against the old table, on this machine now: " in done.stdout
    after = current_run(workspace)
    assert {entry.key.shape.ranks for entry in after.table.entries} <= {3}
    assert {key.shape and key.shape.ranks for key in after.report.keys} == {3}
    # When the GPU is back, so are the shapes, and the run that the workspace has of the machine.
    back = run_inside("retune", "--topology", write(tmp_path / "back.json", BEFORE), "--json")
    document = check("retune", back.stdout)
    assert not document["tuned"]
    assert {part["why"] for part in document["parts"]} == {
        "the workspace has a run of this machine"
    }
    assert set(document["shapes"]) == {ShapeName.WHOLE, ShapeName.NODE, ShapeName.RAIL}


def test_a_profile_under_the_floor_has_every_key_measured_from_the_beginning(
    run_inside: Run, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise ProfileLostError("NCCL_BUFFSIZE=16777216 is under the floor")

    monkeypatch.setattr(stages, "tune_again", lost)
    done = run_inside("retune", "--topology", write(tmp_path / "now.json", SLOWER_NIC), "--json")
    assert done.returncode == 0, done.stderr
    assert "note: the old table's process profile takes more than the floor allows" in done.stderr
    against = check("retune", done.stdout)["against_old"]
    assert (against["kept"], against["measured"]) == (0, 6)
    assert len(against["keys"]) == 6
    assert against["gain"] > 0.95
    _, tasks = samples_of(workspace)
    # Hosts that differ now are classes of their own, which a suffix names.
    assert {task.full_name.partition("@")[2].partition("/")[0] for task in tasks} == {
        "4x2",
        "2x1",
        "2x2",
    }


def test_a_damaged_log_costs_the_earlier_trials_alone(
    run_inside: Run, workspace: Path, tmp_path: Path
) -> None:
    log = Workspace(workspace).current().measurements
    log.write_bytes(b"no log\n")
    now = write(tmp_path / "now.json", SLOWER_NVLINK)
    done = run_inside("retune", "--topology", now, "--json")
    assert done.returncode == 0, done.stderr
    assert "searches begin from the table alone" in done.stderr
    against = json.loads(done.stdout)["against_old"]
    assert against["samples_before"] is None
    assert against["gain"] > 0.97


def test_the_keys_of_a_workload_are_kept_as_others_are(run_inside: Run, tmp_path: Path) -> None:
    before, now = write(tmp_path / "before.json", BEFORE), write(tmp_path / "now.json", SLOWER_NIC)
    calls = (
        call(Collective.ALL_REDUCE, 1 << 20, 3.0, nodes=2),
        call(Collective.ALL_REDUCE, 1 << 14, 1.0, nodes=2),
        call(Collective.ALL_GATHER, 1 << 16, 2.0, ranks=2),
    )
    job = written(tmp_path / "job.json", workload(*calls))
    done = run_inside("tune", "--topology", before, "--workload", job)
    assert done.returncode == 0, done.stderr
    old = current_run(tmp_path / "tuccl-workspace")
    done = run_inside("retune", "--topology", now, "--dry-run", "--plain-log")
    whole, node, total = done.stdout.splitlines()[-3:]
    assert whole.startswith("whole all_reduce: 2 keys measured again: ")
    assert node == "node all_gather: 1 keys kept: its communicators do not touch what changed"
    assert total == "2 of 3 keys to measure, 1 kept"
    document = check("retune", run_inside("retune", "--topology", now, "--json").stdout)
    new = current_run(tmp_path / "tuccl-workspace")
    assert new.report.workload == old.report.workload
    assert read_workload(new.run.workload) == workload(*calls)
    assert [(part["operation"], part["keys"], part["fate"]) for part in document["parts"]] == [
        ("all_reduce", 2, "measured again"),
        ("all_gather", 1, "kept"),
    ]
    assert (document["against_old"]["kept"], document["against_old"]["measured"]) == (1, 2)
    assert [key["calls_per_step"] for key in document["step"]["keys"]] == [3.0, 1.0, 2.0]
    _, tasks = samples_of(tmp_path / "tuccl-workspace")
    # Hosts that differ now are classes of their own, which a suffix names.
    assert {task.full_name.partition("@")[2].partition("/")[0] for task in tasks} == {"4x2"}


class Watching(AbstractContextManager["Watching"]):
    """A `Progress` that keeps the events of the beginnings."""

    def __init__(self) -> None:
        self.begun: list[RunBegins] = []
        self.decided: set[Task] = set()

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, stage: str, done: int, total: Total, /, share: float | None = None) -> None:
        pass

    def note(self, event: Event) -> None:
        if isinstance(event, RunBegins):
            self.begun.append(event)
        elif isinstance(event, KeyDecided):
            self.decided.add(event.task)


def test_a_watcher_is_told_of_the_keys_that_are_measured(workspace: Path, tmp_path: Path) -> None:
    old = current_run(workspace)
    record = old.run.record()
    assert record is not None
    now = str(write(tmp_path / "now.json", SLOWER_NIC))
    options = replace(read_options(record.options), topology=now)
    prepared = prepare(options, lambda: SLOWER_NIC, only_possible_shapes=True)
    retuning = retuning_of(old, prepared, Workspace(workspace))
    assert retuning.plan is not None
    watching = Watching()
    listener = Listener(progress=lambda: watching)
    run(retuning.prepared, Workspace(workspace), listener, carried=retuning.carried)
    assert [begun.keys for begun in watching.begun] == [retuning.plan.measured]
    assert watching.decided == set(retuning.plan.measured)


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "placed"), [(SLOWER_NVLINK, 2), (SLOWER_NIC, 0)])
def test_a_retuned_table_is_as_good_as_one_from_the_beginning(
    run_inside: Run, workspace: Path, tmp_path: Path, changed: Topology, placed: int
) -> None:
    """Where a link of one host is slower, hosts differ, and node has keys by where ranks sit."""
    (tmp_path / "fresh").mkdir()
    fresh = tuned_from_the_beginning(tmp_path / "fresh", changed)
    done = run_inside("retune", "--topology", write(tmp_path / "now.json", changed))
    assert done.returncode == 0, done.stderr
    found = check("diff", run_inside("diff", fresh, workspace, "--json").stdout)
    # A key that gains 2 % has an entry in one of both and not in the other, by its noise.
    keys = [key for key in found["keys"] if key["first"] is not None and key["second"] is not None]
    assert sum(bool(key["placement"]) for key in keys) == placed, keys
    assert found["common"] == 6 + placed
    alone = [key["first"] or key["second"] for key in found["keys"] if key not in keys]
    assert all(each["gain"]["ratio"] < 1.03 for each in alone), alone
    assert found["speedup"] > 0.98


def test_what_is_measured_again_is_recorded_and_nothing_else(
    run_inside: Run, workspace: Path, tmp_path: Path
) -> None:
    record = ("--record", "r.parquet")
    refused = run_inside("retune", "--dry-run", *record)
    assert (refused.returncode, "--dry-run measures nothing" in refused.stderr) == (2, True)
    same = run_inside("retune", "--topology", write(tmp_path / "same.json", BEFORE), *record)
    assert same.returncode == 0, same.stderr
    assert "note: nothing was measured, so no record is written" in same.stderr
    assert not (tmp_path / "r.parquet").exists()
    now = write(tmp_path / "now.json", SLOWER_NVLINK)
    done = run_inside("retune", "--topology", now, *record)
    assert done.returncode == 0, done.stderr
    found = read_record(tmp_path / "r.parquet")
    shapes = current_run(workspace).report.shapes
    assert {row.task.shape for row in found.rows} == {shapes["whole"], shapes["node"]}
    assert {task.shape for task in found.tasks} == {shapes["whole"], shapes["node"]}
    assert found.of_run.search is None, "it began from the earlier table"
    done = run_inside("tune", "--records", "r.parquet", "--workspace", "elsewhere")
    assert done.returncode == 0, done.stderr
    assert set(current_run(tmp_path / "elsewhere").report.shapes) == {"whole", "node"}


def test_sizes_that_were_added_are_kept_and_measured_as_others_are(tmp_path: Path) -> None:
    options = RunOptions(
        topology=str(write(tmp_path / "machine.json", BEFORE)), shapes="whole,rail",
        operations="all_reduce", min_size="256K", max_size="1M", schedules=False,
    )  # fmt: skip

    def unused() -> Topology:
        raise AssertionError("a machine is given")

    root = Workspace(tmp_path / "tuccl-workspace")
    old = run(prepare(options, unused), root, Listener())
    added = [task for task, _ in old.report.added]
    assert {task.shape for task in added} == set(old.report.shapes.values())
    now = replace(options, topology=str(write(tmp_path / "now.json", SLOWER_NVLINK)))
    plan = retuning_of(current_run(root.root), prepare(now, unused), root)
    assert plan.plan is not None
    assert set(added) <= {*plan.plan.kept, *plan.plan.measured}
    new = run(plan.prepared, root, Listener(), carried=plan.carried)
    assert new.report.added == old.report.added
    assert len(new.report.keys) == len(old.report.keys)
