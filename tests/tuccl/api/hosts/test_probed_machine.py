"""`tuccl init` and `tuccl retune` without --topology: the machine is probed once and kept."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from probes.files.read import read_topology, shipped_machines
from probes.nvidia.nvml import read_nvml
from probes.topology.graph import Link
from tests.tuccl.conftest import TINY_RUN, Run, run_in
from tuccl.api.hosts import probing
from tuccl.api.hosts.probed_machine import keep, probe_again, probed_machine
from tuccl.crew.cluster_probe import ProbeResult
from tuccl.errors import InvalidTopologyError
from tuccl.options.run_options import RunOptions
from tuccl.search.trials.events import unseen
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

MEASURED = shipped_machines()["h200-4gpu-measured"]

requires_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")
without_gpus = pytest.mark.skipif(
    len(read_nvml().gpus) > 1, reason="this host has GPUs: what a host without them says is shown"
)


@without_gpus
def test_a_host_without_gpus_is_one_line_and_leaves_no_trace(
    run_tuccl: Run, tmp_path: Path
) -> None:
    done = run_tuccl("init", *TINY_RUN)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(
        "without GPUs: nothing to tune; it takes two or more"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_workspace_keeps_the_machine_that_was_probed_for_it(
    run_tuccl: Run, tmp_path: Path
) -> None:
    workspace = tmp_path / "tuccl-workspace"
    keep(read_topology(MEASURED), workspace)
    done = run_tuccl("init", *TINY_RUN)
    assert done.returncode == 0, done.stderr
    assert "probed.json; `tuccl retune` looks whether it changed" in done.stderr
    run = Workspace(workspace).current()
    assert read_topology(run.topology) == read_topology(MEASURED)
    again = run_tuccl("init", *TINY_RUN)
    assert "nothing to do" in again.stderr


@without_gpus
def test_retune_probes_again_and_a_machine_that_cannot_be_tuned_changes_nothing(
    run_tuccl: Run, tmp_path: Path
) -> None:
    workspace = tmp_path / "tuccl-workspace"
    keep(read_topology(MEASURED), workspace)
    assert run_tuccl("init", *TINY_RUN).returncode == 0
    before = Workspace(workspace).current().root
    done = run_tuccl("retune")
    assert done.returncode == 2
    assert "without GPUs" in done.stderr
    assert Workspace(workspace).current().root == before
    assert read_topology(workspace / "probed.json") == read_topology(MEASURED)


def test_the_kept_machine_is_read_before_anything_is_probed(tmp_path: Path) -> None:
    shutil.copy(MEASURED, tmp_path / "probed.json")
    assert probed_machine(tmp_path, None, unseen, print) == read_topology(MEASURED)


def test_what_is_to_be_noted_about_a_probed_machine_is_said_once(
    run_inside: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = "h1 has 3 GPUs, the others 4"
    machine = replace(read_topology(MEASURED), notes=(odd, "eth0 does not state its speed"))
    no_gpus = replace(machine, devices=(), links=())
    slower = replace(machine, links=tuple(map(halved, machine.links)))
    steps = [
        (no_gpus, ("init", *TINY_RUN), 2, "without GPUs: nothing to tune"),
        (machine, ("init", *TINY_RUN), 0, "table and bundle written"),
        (machine, ("init", *TINY_RUN), 0, "nothing to do"),
        (machine, ("retune",), 0, "the machine is as it was"),
        (slower, ("retune",), 0, "the old table is kept"),
        (no_gpus, ("retune",), 2, "without GPUs: nothing to tune"),
    ]
    for found, words, code, said in steps:
        result = ProbeResult(found, (), None, (), (odd,), {"look": 0.1})
        monkeypatch.setattr(probing, "probe_cluster", lambda *_, result=result: result)
        done = run_inside(*words)
        assert done.returncode == code, done.stderr
        assert said in done.stderr
        assert [done.stderr.count(f"note: {note}\n") for note in machine.notes] == [1, 1]


def test_a_host_with_one_gpu_is_tuned_as_one_of_several_nodes(
    run_inside: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = read_topology(MEASURED)
    gone = {gpu.name for gpu in pair.gpus[1:]}
    left = tuple(device for device in pair.devices if device.name not in gone)
    links = tuple(link for link in pair.links if not {link.src, link.dst} & gone)
    alone = ProbeResult(replace(pair, devices=left, links=links), (), None, (), (), {"look": 0.1})
    monkeypatch.setattr(probing, "probe_cluster", lambda *_: alone)
    refused = run_inside("init", *TINY_RUN)
    assert refused.returncode == 2
    assert "with one GPU: nothing to tune" in refused.stderr
    nodes = ("--nodes", "4", "--network-gbps", "100")
    assert run_inside("init", *TINY_RUN, *nodes).returncode == 0
    assert run_inside("retune").returncode == 0


def test_ranks_that_share_it_make_one_gpu_enough() -> None:
    shared = RunOptions(fake_nodes=True, share_gpus=True, node_gpus="4")
    assert shared.takes_one_gpu
    assert RunOptions(nodes=2).takes_one_gpu
    assert not replace(shared, share_gpus=False).takes_one_gpu
    assert not replace(shared, node_gpus=None).takes_one_gpu


def halved(link: Link) -> Link:
    return replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s / 2)


@without_gpus
def test_a_probe_without_gpus_is_refused() -> None:
    with pytest.raises(InvalidTopologyError, match="nothing to tune"):
        probe_again(None, unseen, print)


@requires_mpirun
def test_under_mpi_one_process_tunes_and_the_others_leave_with_its_code(
    tuccl_command: str, tmp_path: Path
) -> None:
    machine = ("--topology", "shipped:h200-4gpu", *TINY_RUN)
    argv = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", tuccl_command, "init")
    done = run_in(tmp_path, [*argv, *machine, "--json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["topology"] == "h200-4gpu"
