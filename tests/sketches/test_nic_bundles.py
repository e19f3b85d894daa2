from __future__ import annotations

from dataclasses import replace

import pytest

from probes.topology.graph import LinkKind
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.candidates import sketch_candidates
from sketches.nic_pools import bundle_nics
from sketches.sketch import EdgeKind
from tests.sketches.machines import cluster, virtual_machine


def test_one_nic_per_gpu_or_fewer_stay_as_they_are() -> None:
    for topology in (cluster(2, 4, 4), cluster(2, 4, 2), virtual_machine(2, 3)):
        assert bundle_nics(topology) == (topology, ())


def test_two_nics_per_gpu_become_one_with_the_bandwidth_of_both() -> None:
    bundled, notes = bundle_nics(virtual_machine(2, 4))
    assert [nic.name for nic in bundled.nics] == ["n0/nic0", "n0/nic2"]
    assert [link.bandwidth_gb_per_s for link in bundled.links_from["n0/nic2"]] == [24.0]
    assert notes == (
        "n0/nic0 stands for n0/nic0, n0/nic1 together",
        "n0/nic2 stands for n0/nic2, n0/nic3 together",
    )


@pytest.mark.parametrize("layout", NetworkLayout)
def test_a_bundle_sends_at_the_rate_of_all_its_nics(layout: NetworkLayout) -> None:
    topology = replicate(virtual_machine(2, 6), 2, Network(1.7, layout, 3.0))
    pruned = sketch_candidates(topology)[0]
    assert [binding.nic for binding in pruned.bindings] == [
        *("n0/nic0", "n0/nic3", "n1/nic0", "n1/nic3"),
    ]
    assert pruned.port["tx:n0/nic3"].bandwidth_gb_per_s == 9.0
    assert pruned.port["rx:n1/nic3"].bandwidth_gb_per_s == 9.0
    assert pruned.edge[1, 3].bandwidth_gb_per_s == 9.0
    assert "n1/nic3 stands for n1/nic3, n1/nic4, n1/nic5 together" in pruned.notes


def test_bundles_exchange_what_their_common_rails_carry() -> None:
    # 2 GPUs and 4 NICs of 12.5 GB/s per node; on node 1 NICs 1 and 2 exchange their cables, so
    # that the first bundles share rail 0 only, and the last rail 3 only.
    straight = replicate(virtual_machine(2, 4), 2, Network(1.7, NetworkLayout.RAILS, 12.5))
    swap = {"n1/nic1": "n1/nic2", "n1/nic2": "n1/nic1"}
    crossed = tuple(
        replace(link, src=swap.get(link.src, link.src), dst=swap.get(link.dst, link.dst))
        if link.kind is LinkKind.NETWORK
        else replace(link, bandwidth_gb_per_s=50.0)
        for link in straight.links
    )
    found = {sketch.name: sketch for sketch in sketch_candidates(replace(straight, links=crossed))}
    pruned, mesh = found["pruned"], found["full_mesh"]
    assert pruned.edge[0, 2].bandwidth_gb_per_s == 12.5
    assert pruned.edge[1, 3].bandwidth_gb_per_s == 12.5
    assert pruned.port["tx:n0/nic0"].bandwidth_gb_per_s == 25.0
    across = [edge for edge in mesh.edges if edge.kind is EdgeKind.NETWORK]
    assert [edge.bandwidth_gb_per_s for edge in across] == [12.5] * 8
