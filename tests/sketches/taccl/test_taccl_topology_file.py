"""TACCL's topology files: figures, assumptions and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from probes.topology.graph import LinkKind
from probes.topology.validation import validate
from sketches.taccl.records import is_taccl_sketch, is_taccl_topology
from sketches.taccl.topology_file import TacclNode, read_taccl_topology, taccl_cluster
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.sketches.taccl.files import LINKED, RELAYED, SWITCHED, text
from tuccl.errors import MachineError

NDV2 = {"gpus_per_node": 8, "node_betas_list": [20, 40], "node_invbws_list": None}


def read(fields: dict[str, Any], **changes: Any) -> TacclNode:
    return read_taccl_topology(text(fields, **changes), "box.json")


def test_betas_per_chunk_become_bandwidths() -> None:
    node = read(SWITCHED)
    assert (node.gpus, node.nics, node.links) == (4, 2, ())
    assert node.switch_gb_per_s == pytest.approx(131.072)
    assert node.nic_gb_per_s == pytest.approx(16.384)
    assert (node.alpha_us, node.nic_alpha_us) == (0.5, 2.0)
    (note,) = node.notes
    assert note.startswith("assumed: betas are per chunk of 1048576 bytes, by the end of the name")


def test_matrices_are_by_receiver_and_parallel_links_add_up() -> None:
    one_way = {"links": [[0, 0, 0], [2, 0, 1], [0, 1, 0]]}
    links = read(LINKED, **one_way).links
    assert [(link.src, link.dst, link.lanes) for link in links] == [(0, 1, 2), (1, 2, 1), (2, 1, 1)]
    assert [link.gb_per_s for link in links] == pytest.approx([32.768, 16.384, 16.384])


def test_two_betas_on_eight_gpus_are_the_nvlinks_of_an_ndv2() -> None:
    node = read(SWITCHED, **NDV2)
    assert len(node.links) == 32
    for gpu in range(8):
        mine = sorted(round(link.gb_per_s, 1) for link in node.links if link.src == gpu)
        assert mine == [26.2, 26.2, 52.4, 52.4]
        assert sum(link.lanes for link in node.links if link.src == gpu) == 6


def test_scaled_times_are_scaled_back_and_the_file_may_overrule_it() -> None:
    small = {"name": "Box_1KB", "alpha": 50, "node_betas_list": [0.78125], "remote_beta": 6.25}
    small |= {"node_invbws_list": [50.78], "remote_alpha": 200, "remote_invbw": 206.25}
    node = read(SWITCHED, **small)
    # 1024 bytes in 0.78125 us / 100.
    assert node.switch_gb_per_s == pytest.approx(131.072)
    assert node.nic_gb_per_s == pytest.approx(16.384)
    assert (node.alpha_us, node.nic_alpha_us) == (0.5, 2.0)
    assert "times in the file are 100 times the real ones" in node.notes[1]
    stated = read(SWITCHED, **small, time_scale=10, chunk_bytes=2048)
    assert stated.switch_gb_per_s == pytest.approx(26.2144)
    assert stated.alpha_us == 5.0
    assert stated.notes == (
        "betas are per chunk of 2048 bytes, as chunk_bytes says",
        "times are divided by 10, as time_scale says",
    )


def test_slow_links_alone_are_no_sign_of_scaled_times() -> None:
    # 10.49 GB/s: PCIe.
    assert read(SWITCHED, alpha=5, node_betas_list=[100], node_invbws_list=[105]).alpha_us == 5


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha": None},
        {"alpha": -1},
        {"node_betas_list": [0]},
        {"node_betas_list": None},
        {"node_betas_list": [8, 16]},
        NDV2 | {"node_betas_list": [40, 20]},
        {"gpus_per_node": 10**6},
        {"remote_beta": None},
        {"remote_beta": 0},
        {"links": [[0, 1], [1, 0]]},
        {**LINKED, "betas": [[0] * 3] * 3},
        {**LINKED, "betas": None},
        {**LINKED, "links": [[1, 0, 0]] * 3},
    ],
)
def test_a_wrong_file_is_refused_by_file_and_field(changes: dict[str, Any]) -> None:
    with pytest.raises(MachineError) as caught:
        read(SWITCHED, **changes)
    assert str(caught.value).startswith("box.json: ")
    assert "\n" not in str(caught.value)


def test_a_cluster_has_nodes_alike_on_one_fabric() -> None:
    topology = taccl_cluster(read(SWITCHED), 2)
    validate(topology)
    assert (len(topology.gpus), len(topology.nics), topology.node_count) == (8, 4, 2)
    (up,) = topology.links_between["n1/gpu3", "n1/nvswitch"]
    assert up.latency_us == 0.25
    assert up.bandwidth_gb_per_s == pytest.approx(131.072)
    paired = [
        (link.src, link.dst)
        for link in topology.links
        if link.kind is LinkKind.PCIE and link.src.startswith("n0/gpu")
    ]
    assert paired == [(f"n0/gpu{gpu}", f"n0/nic{gpu // 2}") for gpu in range(4)]


def test_files_are_told_apart() -> None:
    assert is_taccl_topology(text(SWITCHED))
    assert is_taccl_topology(text(LINKED))
    assert is_taccl_sketch(text(RELAYED))
    assert not is_taccl_sketch(text(SWITCHED))
    for content in ("", "[]", "3", "{", '{"schema_version": 1}', text(RELAYED)):
        assert not is_taccl_topology(content)


@requires_shared_data
def test_profiles_of_both_chunk_sizes_tell_the_same_machine() -> None:
    folder = SHARED_DATA / "taccl" / "topo"
    files = sorted(folder.iterdir())
    assert len(files) == 4
    nodes = {file.stem: read_taccl_topology(file.read_text(), file.name) for file in files}
    for machine in ("ndv2", "dgx2"):
        small, large = nodes[f"topo-{machine}-1KB"], nodes[f"topo-{machine}-1MB"]
        assert small.alpha_us == pytest.approx(large.alpha_us)
        assert small.nic_alpha_us == pytest.approx(large.nic_alpha_us)
        assert small.nic_gb_per_s == pytest.approx(large.nic_gb_per_s, rel=0.01)
        fingerprints = {taccl_cluster(node, 2).fingerprint() for node in (small, large)}
        assert len(small.links) == len(large.links)
        if machine == "ndv2":
            assert len(fingerprints) == 1
        else:
            # The 1KB profile rounds beta 0.78 to 1.
            assert small.switch_gb_per_s == pytest.approx(102.4)
            assert large.switch_gb_per_s == pytest.approx(131.072)
