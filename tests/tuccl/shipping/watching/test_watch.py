"""A watch of this host over stand-ins of GPUs and NCCL, from recorded snapshots and end to end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.table import Shape
from probes.files.read import read_topology, shipped_machines
from probes.nvidia.gpu_settings import GpuStates
from probes.topology.graph import Topology
from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.reports.test_schemas import check
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry, placed_pairs
from tests.tuccl.shipping.job_roots import run_of_one_rank
from tests.tuccl.shipping.lost_bundles import LOST, lose_bundle
from tests.tuccl.shipping.watching.watched_tables import (
    GPU,
    WELL,
    recorded,
    states_of,
    watched_table,
)
from tuccl.errors import UsageError
from tuccl.reports.host_record import HostRecord, host_record_text, record_host
from tuccl.shipping.manifest import MANIFEST_NAME, read_manifest
from tuccl.shipping.shipment import ship
from tuccl.shipping.shipped_directory import sourced_crc
from tuccl.shipping.watching.watch import WatchOptions, watch
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

SIZE = 4096
WatchOf = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def machine() -> Topology:
    return read_topology(shipped_machines()["h200-4gpu-measured"])


@pytest.fixture(scope="module")
def here() -> HostRecord:
    """This host as it is."""
    record = record_host()
    assert record is not None
    return record


def options(machine: Topology, states: GpuStates, *, measure: bool = False) -> WatchOptions:
    """A watch of a host that is recorded."""
    return WatchOptions(measure, probe=lambda: machine, gpu_states=lambda: states)


@pytest.fixture
def shipped(stand_ins: StandIns, machine: Topology, tmp_path: Path) -> Path:
    record = recorded(machine, GPU, GPU, GPU, GPU)
    return watched_table(tmp_path / "shipped", stand_ins, machine=machine, record=record)


@pytest.fixture
def named_nccl(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stand_ins.variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("named_nccl")
def test_20_of_20_watches_of_a_host_that_did_not_change_find_nothing(
    shipped: Path, machine: Topology
) -> None:
    states = states_of(GPU, GPU, GPU, GPU)
    for _ in range(20):
        found = watch(shipped, options(machine, states))
        assert (found.changes, found.unchecked) == ((), ())
    assert {each.check for each in found.findings} >= {"machine", "GPUs", "driver", "NCCL"}


@pytest.mark.usefixtures("named_nccl")
def test_each_kind_of_change_is_found_at_once(
    shipped: Path, machine: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_NCCL_VERSION", "22903")
    text = (shipped / "tuccl.env").read_text()
    (shipped / "tuccl.env").write_text(f"{text}export TUCCL_NCCL=2.28.9\n")
    devices = (replace(d, line_rate_gb_per_s=0.125) for d in machine.devices)
    slowed = replace(machine, devices=tuple(devices))
    capped = replace(GPU, power_limit_w=500)
    found = watch(shipped, options(slowed, states_of(GPU, GPU, GPU, capped, driver="590.1")))
    assert [each.check for each in found.changes] == [
        "directory", "NCCL", "GPUs", "driver", "machine",
    ]  # fmt: skip
    said = {each.check: each.text for each in found.changes}
    assert "differ from the manifest: tuccl.env" in said["directory"]
    assert "measured with NCCL 2.28.9" in said["NCCL"]
    assert said["GPUs"].startswith("GPU 3: the power limit is 500 W")
    assert "runs at 1 Gb/s, it ran at 10 Gb/s" in said["machine"]
    assert all(each.mend for each in found.changes)


@pytest.mark.usefixtures("named_nccl")
def test_gpus_that_others_use_are_not_measured_and_it_is_no_change(
    shipped: Path, machine: Topology
) -> None:
    states = replace(states_of(GPU), conditions=(replace(WELL, processes=1),))
    found = watch(shipped, options(machine, states, measure=True))
    assert found.unchecked == ()
    (said,) = [each for each in found.findings if each.check == "measured"]
    assert said.text == "nothing is measured, since processes use GPU 0"


@pytest.mark.usefixtures("named_nccl")
def test_a_lost_driver_is_one_change_and_not_one_for_each_link(
    shipped: Path, machine: Topology
) -> None:
    found = watch(shipped, options(machine, GpuStates(problem="Driver Not Loaded")))
    (lost,) = found.changes
    assert lost.text == "NVML does not answer: Driver Not Loaded"


def test_what_is_no_shipped_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing or names no table"):
        watch(tmp_path, WatchOptions())


@pytest.fixture
def watch_here(stand_ins: StandIns, run_tuccl: Run) -> WatchOf:
    """The command on two GPUs."""

    def run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {
            "PYTHONPATH": str(stand_ins.libraries),
            "STAND_IN_GPUS": "2",
            "STAND_IN_CHANNELS": "4",
            "STAND_IN_COUNTS_TIME": "1",
        }
        environment = os.environ | stand_ins.variables | own | variables
        return run_tuccl("watch", *words, env=environment)

    return run


def test_the_command_is_silent_names_a_change_and_writes_metrics(
    watch_here: WatchOf, stand_ins: StandIns, here: HostRecord, tmp_path: Path
) -> None:
    slow = replace(
        all_gather_entry(8, 1.0, SIZE), default_time_us=1e6, time_us=1e8, builtin_time_us=1e8
    )
    fine = watched_table(tmp_path / "fine", stand_ins, slow, record=here, graphs=False)
    done = watch_here(fine, "--textfile", "watch.prom", "--limit", "1s")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    metrics = (tmp_path / "watch.prom").read_text()
    assert "# TYPE tuccl_watch_unchanged gauge\n" in metrics
    assert f'tuccl_watch_unchanged{{directory="{fine}",bundle="' in metrics
    assert 'operation="all_gather",size_bytes="4096"} ' in metrics


def test_a_table_that_promises_too_much_is_named_after_a_second_look(
    watch_here: WatchOf, stand_ins: StandIns, here: HostRecord, tmp_path: Path
) -> None:
    much = all_gather_entry(8, 1e6, SIZE)
    broken = watched_table(tmp_path / "broken", stand_ins, much, record=here, graphs=False)
    done = watch_here(broken, "--json", "--limit", "1s")
    document = check("watch", done.stdout)
    assert done.returncode == 1, done.stderr
    assert (document["unchanged"], document["complete"]) == (False, True)
    phases = document["seconds_by_phase"]
    assert list(phases) == [
        "launching", "checking", "starting", "preparing", "timing", "ending",
    ]  # fmt: skip
    assert sum(phases.values()) == pytest.approx(document["seconds"])
    (key,) = document["keys"]
    assert (key["suspicion"], key["promised"]["ratio"]) == ("slower_than_promised", 1e6)
    (change,) = [each for each in document["findings"] if each["severity"] == "warning"]
    assert change["text"].startswith("all_gather 4K is ")
    assert change["text"].endswith("the table promises 1000000.000x")


@pytest.mark.slow
def test_communicators_are_held_to_the_promise_of_their_own_entry(
    watch_here: WatchOf, stand_ins: StandIns, here: HostRecord, tmp_path: Path
) -> None:
    neighbours, apart = placed_pairs((8,), (4,), size_bytes=SIZE)
    kept, broken = (
        replace(own, entries=(all_gather_entry(own.entries[0].builtin.nchannels, gain, SIZE),))
        for own, gain in ((neighbours, 1e-3), (apart, 1e6))
        if own.entries[0].builtin
    )
    entry = all_gather_entry(8, 1e6, SIZE)
    place = watched_table(
        tmp_path / "t", stand_ins, entry, record=here, graphs=False, placements=(kept, broken)
    )
    done = watch_here(place, "--json", "--limit", "1s", STAND_IN_GPUS="4")
    document = check("watch", done.stdout)
    found = {key["placement"]: key["suspicion"] for key in document["keys"]}
    assert found == {"gpu0 and gpu1": None, "gpu0 and gpu2": "slower_than_promised"}
    (change,) = [each for each in document["findings"] if each["severity"] == "warning"]
    assert change["text"].startswith("all_gather 4K, like gpu0 and gpu2 is ")


def test_a_job_that_cannot_run_is_unchecked(
    watch_here: WatchOf, stand_ins: StandIns, here: HostRecord, tmp_path: Path
) -> None:
    fine = watched_table(tmp_path / "fine", stand_ins, record=here)
    done = watch_here(fine, STAND_IN_GPUS="0")
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith(
        "unchecked  nothing could be measured: GPUs needed: 1, visible here: 0"
    )
    assert done.stdout.count("\n") == 1


def test_a_variable_that_the_table_was_not_measured_with_is_unchecked(
    watch_here: WatchOf, stand_ins: StandIns, here: HostRecord, tmp_path: Path
) -> None:
    fine = watched_table(tmp_path / "fine", stand_ins, record=here)
    done = watch_here(fine, NCCL_MAX_CTAS="4")
    assert (done.returncode, done.stderr) == (3, "")
    assert "NCCL_MAX_CTAS=4 is set in the environment, and the table was measured" in done.stdout


def test_entries_for_other_gpus_are_not_measured(
    watch_here: WatchOf, stand_ins: StandIns, here: HostRecord, tmp_path: Path
) -> None:
    entry = all_gather_entry(8, size_bytes=SIZE, shape=Shape(8, 1, 8))
    shipped = watched_table(tmp_path / "eight", stand_ins, entry, record=here)
    done = watch_here(shipped, "-v")
    assert done.returncode == 0, done.stdout
    assert "no entry with a stated gain is for the GPUs here" in done.stdout


def test_a_nic_that_slowed_is_named_by_the_command(
    run_inside: Run,
    stand_ins: StandIns,
    here: HostRecord,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUCCL_NCCL_LIBRARY", str(stand_ins.nccl))
    now = here.topology()
    if not now.nics:
        pytest.skip("this host has no NIC")
    devices = (replace(d, line_rate_gb_per_s=d.line_rate_gb_per_s * 10) for d in now.devices)
    record = recorded(replace(now, devices=tuple(devices)))
    watched_table(tmp_path / "slowed", stand_ins, record=record)
    words = ("watch", "slowed", "--no-measure")
    done = run_inside(*words)
    assert done.returncode == 1
    assert done.stdout.startswith("changed    machine: NIC n0/nic0 (")
    assert "`ethtool`; or, if it is to stay so: tuccl retune, and tuccl ship\n" in done.stdout
    shown = run_inside(*words, "-v").stdout.splitlines()
    assert shown[-1].startswith("1 changed, 0 unchecked, ")
    watched_table(tmp_path / "same", stand_ins, record=here)
    done = run_inside("watch", "same", "--no-measure", "--textfile", 'a "b".prom')
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "tuccl_watch_changes" in (tmp_path / 'a "b".prom').read_text()


@pytest.mark.parametrize("measures", [False, True])
@pytest.mark.parametrize("damage", LOST)
def test_a_lost_table_is_a_change_with_its_metrics_and_document(
    watch_here: WatchOf, shipped: Path, tmp_path: Path, damage: str, *, measures: bool
) -> None:
    crc = sourced_crc(shipped)
    bundle = lose_bundle(shipped, damage)
    words = () if measures else ("--no-measure",)
    done = watch_here(shipped, *words, "--textfile", "watch.prom")
    assert (done.returncode, done.stderr) == (1, "")
    changed, unchecked = done.stdout.splitlines()
    assert changed.startswith("changed    directory: ")
    assert str(bundle) in changed
    assert changed.endswith(f"; mend: tuccl ship {shipped}")
    assert unchecked.startswith("unchecked  ")
    metrics = (tmp_path / "watch.prom").read_text()
    table = f'directory="{shipped}",bundle="{crc}"'
    assert f"tuccl_watch_unchanged{{{table}}} 0\n" in metrics
    assert f"tuccl_watch_complete{{{table}}} 0\n" in metrics
    assert f'tuccl_watch_changes{{{table},check="directory"}} 1\n' in metrics
    found = watch_here(shipped, *words, "--json")
    document = check("watch", found.stdout)
    assert (found.returncode, document["unchanged"], document["bundle_crc"]) == (1, False, crc)
    refused = watch_here(shipped, "--accept")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


def test_a_change_that_is_accepted_is_none_any_more_also_after_another_ship(
    run_inside: Run,
    stand_ins: StandIns,
    here: HostRecord,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUCCL_NCCL_LIBRARY", str(stand_ins.nccl))
    run = run_of_one_rank(tmp_path / "run")
    other_control = replace(here, congestion_control="reno", host="before")
    run.host.write_text(host_record_text(other_control))
    ship(run, tmp_path / "shipped")
    before = read_manifest(tmp_path / "shipped")
    assert before is not None
    assert before.host == other_control
    done = run_inside("watch", "shipped", "--accept")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith("tuccl-manifest.json has this host as it is now\n")
    ship(run, tmp_path / "shipped")
    listed = read_manifest(tmp_path / "shipped")
    assert listed is not None
    assert listed.host == here
    without = {"host": None}
    assert listed.model_copy(update=without) == before.model_copy(update=without)


def test_a_host_without_the_machines_gpus_cannot_be_accepted(
    run_inside: Run, tmp_path: Path, finished_init: TunedWorkspace
) -> None:
    ship(Workspace(finished_init.root).current(), tmp_path / "shipped")
    manifest = tmp_path / "shipped" / MANIFEST_NAME
    text = manifest.read_text()
    done = run_inside("watch", "shipped", "--accept")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "no GPU of 10de:2335 is seen here; accept on a host of the machine" in done.stderr
    assert manifest.read_text() == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "is not a directory; name one that `tuccl ship` wrote"),
        (("nowhere", "--limit", "soon"), "--limit 'soon'"),
        (("nowhere", "--textfile", "x.txt"), "node_exporter reads files that end in .prom"),
        (("nowhere", "--textfile", "."), "is a directory"),
        (("nowhere", "--print", "cron"), "'cron' is not one of"),
        ((), "Missing argument 'DIR'"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    run_inside: Run, words: tuple[str, ...], said: str
) -> None:
    done = run_inside("watch", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_files_are_printed_for_a_directory_that_need_not_be_here(run_inside: Run) -> None:
    for kind, said in (("service", "ExecStart="), ("timer", "[Timer]"), ("slurm", "scontrol")):
        done = run_inside("watch", "/shared/tuccl", "--print", kind)
        assert (done.returncode, done.stderr) == (0, "")
        assert said in done.stdout
