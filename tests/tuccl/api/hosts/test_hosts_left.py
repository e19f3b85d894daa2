"""Runs that go on without hosts that are lost, over ssh's stand-in: hosts are this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from probes.topology.hosts import only_nodes
from probes.topology.json_form import topology_to_json
from tests.sketches.machines import cluster
from tests.tuccl.crew.test_places import ROOT
from tuccl.api.hosts.hosts_left import HostsLeft
from tuccl.errors import MachineError

TUNE = ("tune", "--topology", "box.json", "--operations", "all_reduce", "--min-size", "1M",
        "--max-size", "1M", "--shapes", "whole,node", "--hosts", "hostfile",
        "--launcher", "./launch {host}")  # fmt: skip
LAUNCH = """\
#!/bin/sh
test -e "$1-is-down" && { echo "no route to $1" >&2; exit 255; }
shift
exec "$@"
"""
UNEVEN = cluster(3, 2, 2, nic_gb_per_s={(1, 0): 12.5, (1, 1): 12.5})


def test_a_part_has_its_nodes_their_figures_and_the_switch_between_them() -> None:
    assert only_nodes(cluster(3, 2, 2), [0, 2]).fingerprint() == cluster(2, 2, 2).fingerprint()
    alone = only_nodes(cluster(3, 2, 2), [1])
    assert alone.fingerprint() == only_nodes(cluster(1, 2, 2), [0]).fingerprint()
    assert {gpu.node for gpu in alone.gpus} == {0}
    without_slow, with_slow = only_nodes(UNEVEN, [0, 2]), only_nodes(UNEVEN, [0, 1])
    assert without_slow.fingerprint() == cluster(2, 2, 2).fingerprint() != with_slow.fingerprint()


@pytest.mark.parametrize(
    ("asked", "left", "nodes"),
    [
        (("n0", "n1", "n2"), ("n0", "n2"), [0, 2]),
        (("n2", "n1", "n0"), ("n2", "n0"), [0, 2]),
        (("a", "b", "c"), ("b", "c"), [1, 2]),
    ],
)
def test_hosts_are_known_by_name_or_place(
    asked: tuple[str, ...], left: tuple[str, ...], nodes: list[int]
) -> None:
    assert HostsLeft(asked, left).part_of(UNEVEN) == only_nodes(UNEVEN, nodes)


def test_hosts_that_nothing_tells_apart_are_any_of_equal_ones_and_else_refused() -> None:
    alike, left = cluster(3, 2, 2), HostsLeft(("a", "b"), ("a", "b"))
    assert left.part_of(alike) == only_nodes(alike, [0, 1])
    with pytest.raises(MachineError, match="a, b of a machine of 3 nodes are here"):
        left.part_of(UNEVEN)
    assert HostsLeft(("a", "b"), ("a", "b")).part_of(cluster(2, 2, 2)) == cluster(2, 2, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "box.json").write_text(topology_to_json(cluster(3, 2, 2)))
    (tmp_path / "hostfile").write_text("node[0-2] slots=2\n")
    (tmp_path / "launch").write_text(LAUNCH)
    (tmp_path / "launch").chmod(0o755)
    return tmp_path


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tuccl", *TUNE, *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def told(folder: Path, *words: str) -> tuple[int, str]:
    run = started(folder, *words)
    _, errors = run.communicate(timeout=120)
    return run.returncode, errors


def bundles(workspace: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in workspace.glob("runs/*/bundle.tuccl")}


@pytest.mark.long
def test_the_rest_takes_over_what_counts_for_it_and_makes_the_table_of_a_new_run(
    folder: Path,
) -> None:
    code, _ = told(folder, "--workspace", "lost")
    assert code == 0
    ((whole, first),) = bundles(folder / "lost").items()
    (folder / "node1-is-down").touch()
    code, errors = told(folder, "--workspace", "lost", "--allow-missing")
    assert code == 0, errors
    assert "note: node1 is missing (the launcher ended with exit 255: no route to node1)" in errors
    assert "of 3 nodes 2 are left: " in errors
    assert told(folder, "--workspace", "new", "--allow-missing")[0] == 0
    found = bundles(folder / "lost")
    assert found.pop(whole) == first
    assert found == bundles(folder / "new")


@pytest.mark.long
def test_where_no_host_is_left_one_line_says_so(folder: Path) -> None:
    for number in range(3):
        (folder / f"node{number}-is-down").touch()
    code, errors = told(folder, "--workspace", "none", "--allow-missing")
    why = "the launcher ended with exit 255: no route to node0"
    assert (code, errors) == (3, f"tuccl: no host answers (node0: {why}): mend them\n")


@pytest.mark.slow
def test_a_host_that_is_lost_while_it_measures_ends_the_run_and_the_rest_continues(
    folder: Path,
) -> None:
    words = ("--backend", "sockets", "--budget", "10s", "--workspace", "lost")
    run, log = started(folder, *words), folder / "lost" / "runs"
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 2000 for path in log.glob("*/measurements.jsonl")):
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    hosts = [each for each in psutil.Process(run.pid).children() if each.cmdline()[-1] == "host"]
    hosts[1].send_signal(signal.SIGKILL)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 3
    (line,) = (line for line in errors.splitlines() if line.startswith("tuccl: "))
    assert line.startswith("tuccl: node1 is lost (the launcher was killed by signal 9 (SIGKILL))")
    ((name, before),) = ((path.parent.name, path.read_bytes()) for path in log.glob("*/*.jsonl"))
    (folder / "node1-is-down").touch()
    assert told(folder, *words)[0] == 3
    code, errors = told(folder, *words, "--allow-missing")
    assert code == 0, errors
    assert "is missing" in errors
    (folder / "node1-is-down").unlink()
    code, errors = told(folder, *words)
    assert code == 0, errors
    assert (log / name / "measurements.jsonl").read_bytes().startswith(before)
    assert len(bundles(folder / "lost")) == 2
