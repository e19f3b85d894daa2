"""scripts/bench_faked_nodes.sh from tuning to bench, over stand-ins of CUDA and NCCL."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probes.topology.json_form import topology_to_json
from tests.sketches.machines import virtual_machine
from tests.tuccl.engines.nccl_stand_ins import ROOT, StandIns

Bench = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def bench(stand_ins: StandIns, tmp_path: Path) -> Bench:
    """The script with these words, on a host of two GPUs that MPS shares, where one channel is slow
    and stock NCCL takes one."""
    command = tmp_path / "bin" / "tuccl"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tuccl "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    variables = {
        **stand_ins.variables,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{stand_ins.libraries}",
        "STAND_IN_GPUS": "2",
        "STAND_IN_MPS": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "STAND_IN_CHANNELS": "1",
        "STAND_IN_SLOW_MS": "2",
    }

    def run(*words: object, **given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", ROOT / "scripts" / "bench_faked_nodes.sh", *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, **variables, **given},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    return run


@pytest.mark.slow
def test_two_nodes_that_share_gpus_are_tuned_and_the_table_benched(
    bench: Bench, tmp_path: Path
) -> None:
    node = tmp_path / "two.json"
    node.write_text(topology_to_json(virtual_machine(2, 1)), encoding="utf-8")
    short = ("--share-gpus", "--to", "1K", "--budget", "1s", "--seconds", "1")
    done = bench("out", "--topology", node, *short)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out"
    assert (folder / "SHIPPED" / "tuccl.env").is_file()
    summary = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    assert (summary["ranks"], summary["nodes"], summary["gpus"]) == (4, 2, 2)
    assert summary["pinned"] is True
    assert summary["call"]["use_graph"] is False
    rows = summary["keys"]
    assert [row["size_bytes"] for row in rows] == [1024] * 3
    tuned = [row for row in rows if row["has_entry"]]
    assert tuned
    # So much is certain; what the table's calls take is not, on a busy host.
    assert min(min(row["stock"]["rounds_us"]) for row in rows) > 2000
    told = f"the table has an entry for {len(tuned)} of 3 keys"
    assert told in (folder / "bench.txt").read_text(encoding="utf-8")
    again = bench("out", "--topology", node, *short)
    assert again.returncode == 2
    assert again.stderr.endswith("out exists; name a new one\n")


@pytest.mark.parametrize(
    ("shown", "visible", "said"),
    [
        ("0\\n1\\n2\\n", "", "an odd number of GPUs (3) cannot be halved"),
        ("0\\n1\\n", "1", "an odd number of GPUs (1) cannot be halved"),
        ("", "", "no GPUs are visible"),
    ],
)
def test_halves_need_an_even_number_of_visible_gpus(
    bench: Bench, tmp_path: Path, shown: str, visible: str, said: str
) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '{shown}'\n", encoding="utf-8")
    tool.chmod(0o755)
    done = bench("out", CUDA_VISIBLE_DEVICES=visible)
    assert (done.returncode, (tmp_path / "out").exists()) == (2, False)
    assert done.stderr.endswith(f"{said}\n")


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this host has nvidia-smi")
def test_without_gpus_a_topology_is_asked_for(bench: Bench, tmp_path: Path) -> None:
    done = bench("out")
    assert (done.returncode, (tmp_path / "out").exists()) == (2, False)
    assert done.stderr.endswith("no nvidia-smi, so no GPUs to probe; give --topology\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "usage: "),
        (("out", "--seconds"), "--seconds is unknown, or lacks its value"),
        (("out", "--rounds", "3"), "unknown option --rounds"),
        (("out", "--topology", "nowhere.json"), "cannot read --topology nowhere.json"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    bench: Bench, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = bench(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
