"""A table that jobs on this host refuse, from `init` on stand-ins with a file of other GPUs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from probes.topology.graph import DeviceKind
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns


@pytest.mark.slow
def test_a_table_that_this_host_refuses_is_left_empty(
    stand_ins: StandIns, run_tuccl: Run, tmp_path: Path
) -> None:
    machine = cluster(2, 2, 2)
    devices = tuple(
        replace(each, model="10de:2330") if each.kind is DeviceKind.GPU else each
        for each in machine.devices
    )
    text = topology_to_json(replace(machine, devices=devices))
    (tmp_path / "machine.json").write_text(text, encoding="utf-8")
    device = tmp_path / "sys" / "bus" / "pci" / "devices" / "0000:01:00.0"
    device.mkdir(parents=True)
    for file, value in (("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2901")):
        (device / file).write_text(value + "\n")
    variables = {**stand_ins.slow_variables(4), "TUCCL_SYSFS": str(tmp_path / "sys")}
    words = ("init", "--backend", "nccl,executor", "--topology", "machine.json", "--fake-nodes")
    keys = ("--operations", "all_gather", "--min-size", "16K", "--max-size", "16K", "--plain")
    done = run_tuccl(
        *words, *keys, "--shapes", "whole", "--budget", "60s", env=os.environ | variables
    )
    assert done.returncode == 0, done.stderr
    assert (
        "The table is left empty: jobs do not run with it: the whole table: the job" in done.stdout
    )
    table = json.loads(run_tuccl("table", "--json").stdout)
    assert not table["entries"]
    assert (table["whole"]["rounds"], table["whole"]["dropped"]) == (0, "table")
    assert "does not start: ncclCommInitRank failed" in table["whole"]["dropped_why"]
