"""`tuccl retune`: tunes again only when the machine changed, and keeps the old table."""

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from probes.files.read import read_topology, shipped_machines
from tests.probes.two_port_machines import with_second_ports
from tests.tuccl.conftest import TINY_RUN, Run, TunedWorkspace
from tests.tuccl.measuring.engines.nccl_stand_ins import ROOT, StandIns, build_stand_ins
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.options.machine import load_machine
from tuccl.options.machine_options import MachineOptions
from tuccl.reports.report import read_report
from tuccl.reports.tuning_result import read_machine
from tuccl.tuning.pipeline.retuning import changes_since, compare, nccl_change
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long


def test_the_same_machine_renumbered_needs_nothing(
    run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    machine = tmp_path / "machine.xml"
    machine.write_text(h200.read_text())
    assert run_tuccl("init", "--topology", machine, *TINY_RUN).returncode == 0
    run = Workspace(tmp_path / "tuccl-workspace").current()
    bundle = run.bundle.read_bytes()
    machine.write_text(h200.read_text().replace("0000:0", "0000:a"))
    done = run_tuccl("retune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["changes"] == []
    assert document["tuned"] is False
    assert Workspace(tmp_path / "tuccl-workspace").current().root == run.root
    assert run.bundle.read_bytes() == bundle


def test_what_is_to_be_noted_about_a_machine_is_said_once(run_tuccl: Run) -> None:
    noted = read_topology(shipped_machines()["h200-4gpu-measured"]).notes
    assert noted
    tune = ("init", "--topology", "shipped:h200-4gpu-measured", *TINY_RUN)
    for words in (tune, ("retune",)):
        done = run_tuccl(*words)
        assert done.returncode == 0, done.stderr
        assert [done.stderr.count(f"note: {note}\n") for note in noted] == [1] * len(noted)


def test_a_slower_link_is_named_the_old_table_kept_and_a_new_one_made(
    run_tuccl: Run, h200: Path, tmp_path: Path
) -> None:
    machine = tmp_path / "machine.xml"
    machine.write_text(h200.read_text())
    assert run_tuccl("init", "--topology", machine, *TINY_RUN).returncode == 0
    workspace = Workspace(tmp_path / "tuccl-workspace")
    old = workspace.current()
    old_bundle = old.bundle.read_bytes()
    machine.write_text(h200.read_text().replace('count="18"', 'count="9"', 1))
    done = run_tuccl("retune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert any("gpu0" in change for change in document["changes"])
    assert document["tuned"] is True
    assert document["before"] != document["now"] == document["fingerprint"]
    assert (tmp_path / document["kept"] / "bundle.tuccl").read_bytes() == old_bundle
    assert workspace.current().root != old.root
    assert workspace.current().bundle.read_bytes() != old_bundle
    again = json.loads(run_tuccl("retune", "--json").stdout)
    assert again["changes"] == []


def test_four_nodes_with_two_port_nics_tell_a_slower_link_once(a100: Path, tmp_path: Path) -> None:
    text = with_second_ports(a100.read_text())
    machines = []
    for name, links in (("old", "12"), ("new", "6")):
        path = tmp_path / f"{name}.xml"
        path.write_text(text.replace('count="12"', f'count="{links}"', 1))
        machines.append(load_machine(MachineOptions(str(path), nodes=4)))
    assert compare(*machines).changes == (
        (
            "On 4 hosts (n[0-3]): NVLink gpu0 <-> nvswitch0 has 6 lanes, it had 12: 150 GB/s, "
            "it did 300 (50%)."
        ),
    )


@pytest.mark.usefixtures("tuned")
def test_a_link_to_a_missing_device_in_the_runs_machine_is_one_line(
    run_inside: Run, tmp_path: Path
) -> None:
    path = Workspace(tmp_path / "tuccl-workspace").current().topology
    topology = json.loads(path.read_text())
    topology["links"][0]["dst"] = "n0/none"
    path.write_text(json.dumps(topology))
    done = run_inside("retune")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert f"{path.name}: topology " in done.stderr
    assert "there is no device 'n0/none'; run `tuccl init` again" in done.stderr


def test_nothing_to_retune_is_one_line(run_tuccl: Run, tmp_path: Path) -> None:
    done = run_tuccl("retune")
    assert done.returncode == 3
    assert "run `tuccl init` there first" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_killed_in_the_middle_the_old_table_stays_and_the_same_command_continues(
    tuccl_command: str, run_tuccl: Run, h200: Path, tmp_path: Path, kills: int
) -> None:
    machine = tmp_path / "machine.xml"
    machine.write_text(h200.read_text())
    mine = tmp_path / "notes.txt"
    mine.write_text("mine")
    here = ("--workspace", ".")
    assert run_tuccl("init", "--topology", machine, *TINY_RUN, *here).returncode == 0
    workspace = Workspace(tmp_path)
    old = workspace.current()
    old_bundle = old.bundle.read_bytes()
    machine.write_text(h200.read_text().replace('count="18"', 'count="9"', 1))
    rng = random.Random(0)
    for _ in range(kills):
        process = subprocess.Popen(
            [tuccl_command, "retune", *here],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(rng.uniform(0.2, 1.2))
        process.kill()
        process.wait()
        assert run_tuccl("table", ".").returncode == 0, "there is a table at any moment"
    done = run_tuccl("retune", *here)
    assert done.returncode == 0, done.stderr
    assert workspace.current().root != old.root
    assert old.bundle.read_bytes() == old_bundle
    assert mine.read_text() == "mine"


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    return build_stand_ins(tmp_path_factory.getbasetemp())


def run_tuccl(
    folder: Path, stand_ins: StandIns, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """On stand-ins of CUDA and NCCL, whose calls say how long they take and do not wait."""
    done = subprocess.run(
        [sys.executable, "-c", "from tuccl.cli.app import main; main()", *words],
        cwd=folder,
        env={
            **os.environ,
            **stand_ins.variables,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{stand_ins.libraries}",
            "STAND_IN_GPUS": "4",
            "STAND_IN_COUNTS_TIME": "1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_another_nccl_is_named_and_everything_measured_again(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    def run(version: str, *words: str) -> tuple[dict[str, object], str]:
        done = run_tuccl(tmp_path, stand_ins, *words, "--json", STAND_IN_NCCL_VERSION=version)
        return json.loads(done.stdout), done.stderr

    tune = ("tune", "--topology", "shipped:h200-4gpu", "--backend", "nccl", "--floor", "none")
    one_key = ("--operations", "all_gather", "--min-size", "4K", "--max-size", "4K")
    run("22809", *tune, *one_key, "--budget", "1s")
    old = Workspace(tmp_path / "tuccl-workspace").current().root
    document, said = run("22809", "retune")
    assert document["tuned"] is False
    assert ", NCCL 2.28.9): the table stands" in said
    document, said = run("22903", "retune")
    assert document["changes"] == list(nccl_change("2.28.9", "2.29.3"))
    assert "changed: NCCL is 2.29.3, the table was measured with 2.28.9: every key is" in said
    assert document["tuned"] is True
    assert document["kept"] == str(old.relative_to(tmp_path))
    document, said = run("100", "retune")
    assert document["changes"] == []
    assert "no NCCL found here to hold against 2.29.3): the table stands" in said


def test_calls_are_timed_as_asked_and_the_same_again(stand_ins: StandIns, tmp_path: Path) -> None:
    one_key = ("--operations", "all_gather", "--min-size", "4K", "--max-size", "4K")
    machine = ("--topology", "shipped:h200-4gpu", "--backend", "nccl", "--floor", "none")
    how = ("--budget", "1s", "--plain", "--in-place")
    tuned = run_tuccl(tmp_path, stand_ins, "tune", *machine, *one_key, *how)
    said = tuned.stdout + tuned.stderr
    assert "of the machine, calls one by one, in place, --budget 1 s" in said
    log = Workspace(tmp_path / "tuccl-workspace").current().measurements.read_text()
    timing = json.loads(log.splitlines()[1])["timing"]
    assert (timing["graph"], timing["in_place"]) == (False, True)
    assert "the table stands" in run_tuccl(tmp_path, stand_ins, "retune").stderr


def test_faked_nodes_under_another_congestion_control_are_measured_again(
    tuned: TunedWorkspace,
) -> None:
    """The finished run is one of the simulated backend, its report as workers would have it."""
    run = Workspace(tuned.root).current()
    report = json.loads(run.report.read_text())
    report["laboratory"] |= {"nodes": 2, "congestion_control": "bbr", "share_gpus": True}
    run.report.write_text(json.dumps(report))
    assert read_report(run).laboratory.conditions() == [
        "nodes faked over TCP with bbr",
        "faked nodes shared the GPUs",
    ]
    settings = RunSettings(
        (Collective.ALL_REDUCE,), (1024,), laboratory=Laboratory(2, congestion_control="cubic")
    )
    machine = read_machine(run)
    (change,) = changes_since(run, machine, settings).changes
    assert "is cubic, the table's faked nodes were measured under bbr" in change
    for laboratory in (Laboratory(2, congestion_control="bbr"), Laboratory()):
        assert changes_since(run, machine, replace(settings, laboratory=laboratory)).changes == ()
    assert Laboratory(2, congestion_control="cubic").changes_since(Laboratory(2)) == ()
    (unknown,) = Laboratory(2).changes_since(Laboratory(2, congestion_control="bbr"))
    assert "is not known" in unknown


def test_variables_that_the_site_sets_otherwise_touch_every_key(tuned: TunedWorkspace) -> None:
    """The finished run is one of the simulated backend, its report as workers would have it."""
    run = Workspace(tuned.root).current()
    report = json.loads(run.report.read_text())
    report["base"] = {"NCCL_IB_TC": "106", "NCCL_MAX_CTAS": "8", "NCCL_CROSS_NIC": "1"}
    run.report.write_text(json.dumps(report))
    now = (("NCCL_CROSS_NIC", "1"), ("NCCL_MAX_CTAS", "16"), ("NCCL_P2P_DISABLE", "1"))
    settings = RunSettings((Collective.ALL_REDUCE,), (1024,), base=now)
    change = changes_since(run, read_machine(run), settings)
    assert (
        change.changes
        == change.everywhere
        == (
            "NCCL_IB_TC is not set, the table was measured with NCCL_IB_TC=106",
            "NCCL_MAX_CTAS=16 is set, the table was measured with NCCL_MAX_CTAS=8",
            "NCCL_P2P_DISABLE=1 is set, the table was measured without it",
        )
    )
    for base in (None, tuple(sorted(report["base"].items()))):
        assert changes_since(run, read_machine(run), replace(settings, base=base)).changes == ()


def test_the_same_nccl_or_one_that_is_not_known_changes_nothing() -> None:
    assert nccl_change("", "2.28.9") == nccl_change("2.28.9", "2.28.9") == ()
