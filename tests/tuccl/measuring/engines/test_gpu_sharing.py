"""Sharing of GPUs by ranks of several faked nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from probes.topology.json_form import topology_to_json
from tests.kept_builds import ROOT
from tests.sketches.machines import virtual_machine
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tuccl.reports.report import read_report
from tuccl.workspace.runs import Workspace

pytestmark = pytest.mark.long

LOOK = """
from tuccl.errors import MeasurementError
from tuccl.measuring.engines.nccl_workers import require_mps
try:
    print(require_mps({gpus}))
except MeasurementError as error:
    print(error)
"""


def run_python(
    stand_ins: StandIns, *words: str | Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """On two GPUs, as far as the stand-in for CUDA says."""
    path = f"{ROOT}{os.pathsep}{stand_ins.libraries}"
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={
            **os.environ,
            **stand_ins.variables,
            "PYTHONPATH": path,
            "STAND_IN_GPUS": "2",
            "STAND_IN_COUNTS_TIME": "1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("mps", "gpus", "told"),
    [
        ("2", 2, "None"),
        ("1", 1, "None"),
        (
            "1",
            2,
            "MPS does not share GPU 1, so its ranks would wait for their turns: start",
        ),
        ("0", 2, "MPS does not share GPU 0"),
        (
            "unknown",
            2,
            "this driver does not say whether MPS lets ranks share GPU 0 (CUDA error 1)",
        ),
    ],
)
def test_the_driver_is_asked_about_each_gpu_that_is_needed(
    stand_ins: StandIns, mps: str, gpus: int, told: str
) -> None:
    done = run_python(stand_ins, "-c", LOOK.replace("{gpus}", str(gpus)), STAND_IN_MPS=mps)
    assert done.stdout.startswith(told), done.stderr
    assert ("nvidia-cuda-mps-control -d" in done.stdout) == told.startswith("MPS does not")


SHARE = """
from pathlib import Path
from tuccl.errors import MeasurementError
from tuccl.measuring.engines.nccl_workers import sharing_variables
from tuccl.measuring.engines.nccl_library import NcclLibrary
try:
    print(sharing_variables(NcclLibrary(Path("libnccl.so.2"), {version}, "named"), {ranks}, 2))
except MeasurementError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("version", "ranks", "told"),
    [
        # Three quarters of 132 multiprocessors, for two and for three ranks of a GPU.
        (23003, 4, "{'NCCL_MULTI_RANK_GPU_ENABLE': '1', 'NCCL_MAX_CTAS': '49'}"),
        (23203, 5, "{'NCCL_MULTI_RANK_GPU_ENABLE': '1', 'NCCL_MAX_CTAS': '33'}"),
        (22909, 4, "NCCL 2.29.9 takes no two ranks of a node on one GPU: use 2.30.3 or newer"),
    ],
)
def test_nccl_is_told_that_ranks_of_a_node_share_a_gpu(
    stand_ins: StandIns, version: int, ranks: int, told: str
) -> None:
    program = SHARE.replace("{version}", str(version)).replace("{ranks}", str(ranks))
    done = run_python(stand_ins, "-c", program)
    assert done.stdout.startswith(told), done.stdout + done.stderr


SINGLE = {"STAND_IN_GPUS": "1", "STAND_IN_MPS": "1"}


def init_on_one_gpu(tmp_path: Path, *words: str) -> list[str]:
    machine = tmp_path / "node.json"
    machine.write_text(topology_to_json(virtual_machine(1, 1)))
    begin = ["-c", "from tuccl.cli.app import main; main()", "init", "--topology", str(machine)]
    begin += ["--fake-nodes", "--share-gpus", "--backend", "nccl", "--plain", "--budget", "1s"]
    begin += ["--operations", "all_gather", "--min-size", "1K", "--max-size", "1K"]
    begin += ["--shapes", "whole"]
    return [*begin, "--workspace", str(tmp_path / "w"), *words]


@pytest.mark.slow
def test_one_gpu_is_tuned_as_two_nodes_of_two(stand_ins: StandIns, tmp_path: Path) -> None:
    words = ("--nodes", "2", "--node-gpus", "2,2", "--network-gbps", "20")
    command = init_on_one_gpu(tmp_path, *words)
    done = run_python(stand_ins, *command, STAND_IN_NCCL_VERSION="23007", **SINGLE)
    assert done.returncode == 0, done.stderr
    assert "all ranks, also those of one node, share 1 GPU of this host" in done.stderr
    assert read_report(Workspace(tmp_path / "w").current()).laboratory.gpus == 1
    assert ", ranks of a node shared a GPU, --budget 1 s" in done.stdout.replace("\n", " ")


def test_one_gpu_is_tuned_as_a_host_of_four(stand_ins: StandIns, tmp_path: Path) -> None:
    command = init_on_one_gpu(tmp_path, "--node-gpus", "4")
    done = run_python(stand_ins, *command, STAND_IN_NCCL_VERSION="23007", **SINGLE)
    assert done.returncode == 0, done.stderr
    assert "vm with 4 GPUs: 4 GPUs on 1 node(s)" in done.stderr
    without = [word for word in init_on_one_gpu(tmp_path) if word != "--share-gpus"]
    refused = run_python(stand_ins, *without, "--node-gpus", "4", **SINGLE)
    assert "nodes of 4 GPUs cannot be made of 'vm', whose nodes have 1" in refused.stderr


def test_two_gpus_are_tuned_as_two_nodes_of_two(stand_ins: StandIns, tmp_path: Path) -> None:
    """A rank that took the third GPU would find none."""
    machine = tmp_path / "node.json"
    machine.write_text(topology_to_json(virtual_machine(2, 1)))
    words: tuple[str | Path, ...]
    words = ("-c", "from tuccl.cli.app import main; main()", "init", "--topology", machine)
    words = (*words, "--nodes", "2", "--network-gbps", "20", "--backend", "nccl", "--plain")
    words = (*words, "--operations", "all_gather", "--min-size", "1K", "--max-size", "1K")
    words = (*words, "--budget", "1s", "--workspace", tmp_path / "w", "--fake-nodes")
    words = (*words, "--shapes", "whole")
    done = run_python(stand_ins, *words, "--share-gpus", STAND_IN_MPS="2")
    assert done.returncode == 0, done.stderr
    assert "each GPU is used by 2 ranks, one of each faked node" in done.stderr
    run = Workspace(tmp_path / "w").current()
    report = read_report(run)
    assert len(report.keys) == 1
    assert report.laboratory.share_gpus
    assert ", faked nodes shared the GPUs, --budget 1 s" in done.stdout.replace("\n", " ")
    record = run.record()
    assert record is not None
    assert record.options["share_gpus"] is True
