"""Benchmark machines: devices by name, links by their ends, and refused files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from probes.files.bench_topologies import (
    bench_topology_reference,
    parse_bench_topologies,
    read_bench_topologies,
    read_bench_topology,
)
from probes.topology.graph import DeviceKind, LinkKind
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.errors import MachineError


def _pair(a: str, b: str, gb_per_s: float, latency_us: float) -> list[dict[str, Any]]:
    return [
        {"src": src, "dst": dst, "bandwidth_gb_per_s": gb_per_s, "latency_us": latency_us}
        for src, dst in ((a, b), (b, a))
    ]


def _two_nodes() -> dict[str, Any]:
    links = []
    for node in (0, 1):
        links += _pair(f"n{node}g0", f"n{node}nvs", 300.0, 0.35)
        links += _pair(f"n{node}g1", f"n{node}nvs", 300.0, 0.35)
        links += _pair(f"n{node}g0", f"n{node}nic0", 25.0, 0.0)
        links += _pair(f"n{node}nic0", "fabric", 25.0, 0.85)
    gpus = [f"n{node}g{index}" for node in (0, 1) for index in (0, 1)]
    return {"gpus": gpus, "links": links, "allgather_bound_gb_per_s": 50.0}


def test_names_tell_kinds_nodes_and_indices() -> None:
    bench = parse_bench_topologies(json.dumps({"pair": _two_nodes()}), "f.json")["pair"]
    topology = bench.topology
    assert bench.all_gather_bound_gb_per_s == 50.0
    assert topology.name == "pair"
    assert topology.node_of_rank == (0, 0, 1, 1)
    assert [nic.name for nic in topology.nics] == ["n0nic0", "n1nic0"]
    assert topology.device["n1g1"].index == 1
    assert topology.device["n0nvs"].kind is DeviceKind.NVSWITCH
    assert topology.device["fabric"].kind is DeviceKind.NETWORK_SWITCH
    kinds = {(link.src, link.dst): link.kind for link in topology.links}
    assert kinds["n0g0", "n0nvs"] is LinkKind.NVLINK
    assert kinds["n0g0", "n0nic0"] is LinkKind.PCIE
    assert kinds["n0nic0", "fabric"] is LinkKind.NETWORK


def test_a_machine_without_nodes_is_one_node() -> None:
    entry = {
        "gpus": ["g0", "g1"],
        "links": _pair("g0", "g1", 50.0, 0.7),
        "allgather_bound_gb_per_s": 100.0,
    }
    topology = parse_bench_topologies(json.dumps({"two": entry}), "f.json")["two"].topology
    assert topology.node_of_rank == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"links": [{"src": "n0g0"}]},
        {"gpus": []},
        {"gpus": ["n0g0"]},
        {"extra": 1},
        {"allgather_bound_gb_per_s": 0},
        {"links": _pair("n0g0", "toaster", 1.0, 0.0)},
        {"links": _pair("n0g0", "n0g1", float("inf"), 0.0)},
    ],
)
def test_other_files_are_refused_in_one_line(change: dict[str, Any]) -> None:
    text = json.dumps({"two": _two_nodes() | change})
    with pytest.raises(MachineError) as error:
        parse_bench_topologies(text, "f.json")
    assert "\n" not in str(error.value)


def test_an_entry_is_named_after_a_hash(tmp_path: Path) -> None:
    assert bench_topology_reference("a/b.json#x") == (Path("a/b.json"), "x")
    assert bench_topology_reference("b.json") is None
    assert bench_topology_reference("b.xml#x") is None
    assert bench_topology_reference("b.json#") is None
    file = tmp_path / "b.json"
    file.write_text(json.dumps({"two": _two_nodes()}))
    assert read_bench_topology(file, "two").topology.name == "two"
    with pytest.raises(MachineError, match="no entry three; it has two"):
        read_bench_topology(file, "three")
    with pytest.raises(MachineError, match="cannot be read: No such file"):
        read_bench_topologies(tmp_path / "none.json")


@requires_shared_data
def test_every_published_entry_is_read() -> None:
    entries = read_bench_topologies(SHARED_DATA / "bench_topologies.json")
    assert len(entries) == 12
    dgx2 = entries["dgx2_2x16"].topology
    assert (len(dgx2.gpus), len(dgx2.nics), dgx2.node_count) == (32, 16, 2)
