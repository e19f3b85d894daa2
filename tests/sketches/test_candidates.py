from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.files.read import read_topology
from probes.topology.graph import LinkKind, Topology
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import EdgeKind, PruningStage, Sketch
from sketches.symmetry import is_symmetry
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.sketches.machines import bench_topologies, cluster, nvlink_path_with_pcie, pcie_box
from tuccl.errors import MachineError

pytestmark = pytest.mark.long


def _by_name(topology: Topology) -> dict[str, Sketch]:
    return {sketch.name: sketch for sketch in sketch_candidates(topology)}


def _reach(sketch: Sketch) -> list[tuple[int, int, EdgeKind, float]]:
    return [(edge.src, edge.dst, edge.kind, edge.bandwidth_gb_per_s) for edge in sketch.edges]


def test_pruned_keeps_the_rails_and_names_the_ports_of_the_way() -> None:
    found = _by_name(cluster(2, 2, 2))
    assert list(found) == ["pruned", "one_nic", "full_mesh"]
    pruned = found["pruned"]
    assert [(edge.src, edge.dst) for edge in pruned.edges] == [
        *((0, 1), (0, 2), (1, 0), (1, 3), (2, 0), (2, 3), (3, 1), (3, 2)),
    ]
    local, across = pruned.edge[0, 1], pruned.edge[0, 2]
    assert local.kind is EdgeKind.NVLINK
    assert local.alpha_us == pytest.approx(0.7)
    assert local.bandwidth_gb_per_s == 300.0
    assert local.ports == ("out:n0/gpu0", "in:n0/gpu1")
    assert across.kind is EdgeKind.NETWORK
    assert across.alpha_us == pytest.approx(0.1 + 0.1 + 0.85 + 0.85 + 0.1 + 0.1)
    assert across.bandwidth_gb_per_s == 24.0
    assert across.ports == ("tx:n0/nic0", "rx:n1/nic0")
    assert pruned.port["tx:n0/nic0"].bandwidth_gb_per_s == 25.0
    dropped = [edge for edge in pruned.dropped if edge.stage is PruningStage.GROUPING]
    assert [(edge.src, edge.dst) for edge in dropped] == [
        ("n0/gpu0", "n1/gpu1"),
        ("n0/gpu1", "n1/gpu0"),
        ("n1/gpu0", "n0/gpu1"),
        ("n1/gpu1", "n0/gpu0"),
    ]


def test_gpus_that_share_a_nic_share_its_ports_and_one_of_them_relays() -> None:
    found = _by_name(cluster(2, 2, 1))
    assert list(found) == ["pruned", "relay"]
    across = [edge for edge in found["pruned"].edges if edge.kind is EdgeKind.NETWORK]
    assert len(across) == 8
    assert all("tx:n0/nic0" in edge.ports or "tx:n1/nic0" in edge.ports for edge in across)
    relays = [edge for edge in found["relay"].edges if edge.kind is EdgeKind.NETWORK]
    assert [(edge.src, edge.dst) for edge in relays] == [(0, 2), (2, 0)]


def test_a_shared_pcie_uplink_narrower_than_its_nics_is_a_port() -> None:
    fast = {(node, nic): 100.0 for node in range(3) for nic in range(2)}
    edge = _by_name(cluster(3, 4, 2, nic_gb_per_s=fast))["pruned"].edge[0, 4]
    assert edge.bandwidth_gb_per_s == 24.0
    # Each GPU's own uplink carries a share of the traffic on the switch's link to the NIC.
    assert edge.ports == (
        "pcie:n0/pcie_switch0>n0/nic0",
        "tx:n0/nic0",
        "rx:n1/nic0",
        "pcie:n1/nic0>n1/pcie_switch0",
    )


def test_a_nic_down_leaves_its_rail_and_the_gpus_share_what_is_left() -> None:
    topology = cluster(2, 2, 2, absent=frozenset({"n1/nic1", "n1/pcie_switch1"}))
    pruned = _by_name(topology)["pruned"]
    assert [binding.nic for binding in pruned.bindings[2:]] == ["n1/nic0", "n1/nic0"]
    assert [edge.dst for edge in pruned.edges if edge.src == 0] == [1, 2, 3]
    assert [edge.dst for edge in pruned.edges if edge.src == 1] == [0]


def test_a_gpu_that_has_lost_its_nic_may_borrow_those_of_all_its_neighbours() -> None:
    topology = cluster(2, 3, 3, absent=frozenset({"n1/nic2"}))
    found = _by_name(topology)
    assert list(found) == ["pruned", "relay", "one_nic", "borrowed", "full_mesh"]
    borrowed = found["borrowed"]
    ways = {
        (edge.src, edge.dst): tuple(port for port in edge.ports if "x:" in port)
        for edge in borrowed.edges
        if edge.kind is EdgeKind.NETWORK
    }
    # Rails 0 and 1 are as they were. GPU 2 of node 1 is rank 5; rank 2 has lost its peer.
    assert ways == {
        (0, 3): ("tx:n0/nic0", "rx:n1/nic0"),
        (3, 0): ("tx:n1/nic0", "rx:n0/nic0"),
        (1, 4): ("tx:n0/nic1", "rx:n1/nic1"),
        (4, 1): ("tx:n1/nic1", "rx:n0/nic1"),
        (0, 5): ("tx:n0/nic0", "rx:n1/nic0"),
        (5, 0): ("tx:n1/nic0", "rx:n0/nic0"),
        (1, 5): ("tx:n0/nic1", "rx:n1/nic1"),
        (5, 1): ("tx:n1/nic1", "rx:n0/nic1"),
        (2, 3): ("tx:n0/nic2", "rx:n1/nic0"),
        (3, 2): ("tx:n1/nic0", "rx:n0/nic2"),
        (2, 4): ("tx:n0/nic2", "rx:n1/nic1"),
        (4, 2): ("tx:n1/nic1", "rx:n0/nic2"),
        (2, 5): ("tx:n0/nic2", "rx:n1/nic0"),
        (5, 2): ("tx:n1/nic0", "rx:n0/nic2"),
    }
    assert [binding.nic for binding in borrowed.bindings] == [
        binding.nic for binding in found["pruned"].bindings
    ]


def test_many_dropped_pairs_are_counted_per_node() -> None:
    pruned = _by_name(cluster(8, 8, 8))["pruned"]
    counted = [edge for edge in pruned.dropped if edge.stage is PruningStage.GROUPING]
    assert len(counted) == 8
    assert counted[0].reason == "392 pairs: their NICs are in different bandwidth groups"


def test_pcie_is_dropped_where_nvlink_relays_and_kept_by_the_second_candidate() -> None:
    found = _by_name(nvlink_path_with_pcie())
    assert list(found) == ["direct", "direct+pcie"]
    assert (0, 2) not in found["direct"].edge
    assert [edge.stage for edge in found["direct"].dropped] == [PruningStage.INTRA_NODE] * 2
    assert found["direct+pcie"].edge[0, 2].kind is EdgeKind.PCIE


def test_pcie_boxes_use_all_pairs_over_shared_uplinks() -> None:
    (sketch,) = sketch_candidates(pcie_box(4))
    assert len(sketch.edges) == 12
    assert sketch.edge[0, 1].ports == (
        "pcie:n0/gpu0>n0/pcie_switch0",
        "pcie:n0/pcie_switch0>n0/gpu1",
    )
    assert sketch.symmetries == ((1, 2, 3, 0),)


def test_one_gpu_and_separated_nodes_are_refused_by_name() -> None:
    with pytest.raises(MachineError, match=r"has 1 GPU\(s\)"):
        sketch_candidates(pcie_box(1))
    apart = cluster(2, 2, 1, absent=frozenset({"n1/nic0"}))
    with pytest.raises(MachineError, match=r"no path from rank 0 \(n0/gpu0\) to rank 2"):
        sketch_candidates(apart)
    with pytest.raises(MachineError, match="no path from rank 0"):
        whole_machine(apart)


@given(st.permutations(range(3)), st.permutations(range(3)), st.permutations(range(3)))
def test_clusters_of_one_fingerprint_have_one_sketch(
    cables: list[int], gpus: list[int], nics: list[int]
) -> None:
    whole = cluster(2, 3, 3, rails_only=True)
    number = {f"n1/gpu{i}": gpus[i] for i in range(3)} | {f"n1/nic{i}": nics[i] for i in range(3)}
    cable = {f"n1/nic{i}": f"n1/nic{cables[i]}" for i in range(3)}
    recabled = Topology(
        "recabled",
        tuple(replace(part, index=number.get(part.name, part.index)) for part in whole.devices),
        tuple(
            replace(link, src=cable.get(link.src, link.src), dst=cable.get(link.dst, link.dst))
            if link.kind is LinkKind.NETWORK
            else link
            for link in whole.links
        ),
    )
    if recabled.fingerprint() == whole.fingerprint():
        pairs = zip(sketch_candidates(recabled), sketch_candidates(whole), strict=True)
        assert all(_reach(sketch) == _reach(same) for sketch, same in pairs)


@requires_shared_data
@pytest.mark.parametrize("name", bench_topologies())
def test_benchmark_machines_have_sketches_whose_symmetries_hold(name: str) -> None:
    topology, _ = bench_topologies()[name]
    for sketch in sketch_candidates(topology):
        assert sketch.symmetries, sketch.name
        assert all(is_symmetry(sketch, symmetry) for symmetry in sketch.symmetries)


def _xml_files() -> list[Path]:
    return sorted((SHARED_DATA / "nccl_topo").rglob("*.xml"))


@requires_shared_data
@pytest.mark.parametrize("file", _xml_files(), ids=lambda file: file.stem)
def test_every_real_machine_has_connected_sketches_alone_and_as_a_pair(file: Path) -> None:
    try:
        alone = read_topology(file)
    except MachineError as error:
        pytest.skip(str(error))
    networks = [Network(1.7, layout, 25.0) for layout in NetworkLayout if alone.nics]
    for topology in (alone, *(replicate(alone, 2, network) for network in networks)):
        found = sketch_candidates(topology)
        assert any(sketch.symmetries for sketch in found) or topology is alone
        for sketch in found:
            assert sketch.ranks == len(topology.gpus)
            used = {port for edge in sketch.edges for port in edge.ports}
            assert used == set(sketch.port)
            assert all(edge.bandwidth_gb_per_s > 0 for edge in sketch.edges)
    assert sketch_candidates(alone) == sketch_candidates(read_topology(file))
