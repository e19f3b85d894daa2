"""`tuccl init` on two racks of two nodes, in the model."""

import json
from pathlib import Path

import pytest

from probes.files.read import read_topology
from tests.tuccl.conftest import Run
from tuccl.workspace.runs import Workspace


def stock_us(run_tuccl: Run, *words: str) -> float:
    done = run_tuccl(
        "init", "--topology", "shipped:a100-8gpu-8nic", "--nodes", "4", "--shapes", "whole",
        "--operations", "all_gather", "--min-size", "256M", "--max-size", "256M", "--json", *words,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (key,) = json.loads(done.stdout)["keys"]
    return float(key["stock_us"])


@pytest.mark.slow
def test_an_oversubscribed_spine_slows_down_what_crosses_it(run_tuccl: Run, tmp_path: Path) -> None:
    whole = stock_us(run_tuccl, "--racks", "2,2")
    narrow = stock_us(run_tuccl, "--racks", "2,2", "--oversubscription", "4")
    # A ring carries 31 of 32 parts over an uplink of 2 x 25 / 4 GB/s on each of eight rails; the
    # model gives the network 7 % more than its nominal bandwidth.
    uplinks_us = 31 / 32 * (256 << 20) / (8 * 12.5e3 * 1.07)
    assert whole < uplinks_us < narrow < 1.2 * uplinks_us
    machine = read_topology(Workspace(tmp_path / "tuccl-workspace").current().topology)
    (uplink,) = machine.links_between["rail0-leaf1", "rail0-spine"]
    assert uplink.bandwidth_gb_per_s == 12.5


def test_racks_of_a_single_node_are_refused(run_tuccl: Run) -> None:
    machine = ("--topology", "shipped:a100-8gpu-8nic", "--racks", "4,4")
    for command in (("init",), ("synthesize", "--operation", "all_gather", "--size", "1M")):
        refused = run_tuccl(*command, *machine)
        assert refused.returncode == 2
        assert "--racks '4,4': give the number of nodes in each rack" in refused.stderr
