"""`init` with a file of another machine, on stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from probes.topology.graph import DeviceKind
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.conftest import Run
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tuccl.errors import ExitCode

KEYS = ("--operations", "all_gather", "--min-size", "16K", "--max-size", "16K")
Init = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def init(stand_ins: StandIns, run_tuccl: Run, tmp_path: Path) -> Init:
    """Return `init` of two nodes of two H100 on a host with another GPU."""
    machine = cluster(2, 2, 2)
    devices = tuple(
        replace(each, model="10de:2330") if each.kind is DeviceKind.GPU else each
        for each in machine.devices
    )
    text = topology_to_json(replace(machine, devices=devices))
    (tmp_path / "machine.json").write_text(text, encoding="utf-8")
    device = tmp_path / "sys" / "bus" / "pci" / "devices" / "0000:01:00.0"
    device.mkdir(parents=True)
    variables = {**stand_ins.slow_variables(4), "TUCCL_SYSFS": str(tmp_path / "sys")}

    for file, value in (("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2901")):
        (device / file).write_text(value + "\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        given = ("init", "--topology", "machine.json", *KEYS, *words)
        return run_tuccl(*given, env=os.environ | variables)

    return run


def test_a_file_of_other_gpus_is_refused_before_anything_is_measured(
    init: Init, run_tuccl: Run
) -> None:
    done = init("--fake-nodes", "--backend", "nccl,executor")
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.endswith(
        "machine.json has GPUs 10de:2330, and 10de:2901 is here: no job would load the table; "
        "leave it out, or tune in a model with --backend simulated\n"
    )
    assert run_tuccl("table").returncode != 0


def test_a_model_of_other_gpus_is_tuned(init: Init) -> None:
    done = init("--backend", "simulated", "--budget", "5s")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_table_that_jobs_refuse_is_left_empty(init: Init, run_tuccl: Run, tmp_path: Path) -> None:
    # The GPU of the file is here at first, so that the tuning begins.
    (model,) = tmp_path.rglob("device")
    strange = model.read_text()
    model.write_text("0x2330\n")
    swap = threading.Timer(10.0, model.write_text, [strange])
    swap.start()
    words = ("--fake-nodes", "--backend", "nccl,executor", "--shapes", "whole", "--plain")
    done = init(*words, "--budget", "60s")
    swap.join()
    assert done.returncode == 0, done.stderr
    assert (
        "The table is left empty: jobs do not run with it: the whole table: the job" in done.stdout
    )
    table = json.loads(run_tuccl("table", "--json").stdout)
    assert not table["entries"]
    assert (table["whole"]["rounds"], table["whole"]["dropped"]) == (0, "table")
    assert "does not start: ncclCommInitRank failed" in table["whole"]["dropped_why"]
