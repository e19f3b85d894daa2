"""Classes of a shape's communicators by where their ranks sit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.table import Shape
from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import LinkKind, Topology
from probes.topology.paths import Proximity
from tests.sketches.machines import bench_topologies, cluster, hybrid_mesh, two_sockets
from tuccl.models.placements import placements
from tuccl.search.trials.placement import Placement

PAIRS, QUADS, RAILS = Shape(2, 1, 2), Shape(4, 1, 4), Shape(2, 2, 1)


def scaled(topology: Topology, factors: dict[str, float]) -> Topology:
    """The machine with the NVLinks of some GPUs at another speed, as a probe measures them."""
    links = tuple(
        replace(
            link,
            bandwidth_gb_per_s=link.bandwidth_gb_per_s
            * factors.get(link.src, factors.get(link.dst, 1.0)),
        )
        if link.kind is LinkKind.NVLINK
        else link
        for link in topology.links
    )
    return replace(topology, links=links)


@pytest.mark.parametrize("shape", [PAIRS, QUADS, Shape(8, 1, 8), RAILS, Shape(8, 2, 4)])
def test_behind_nvswitches_with_a_nic_for_each_gpu_all_places_are_one_class(shape: Shape) -> None:
    assert len(placements(cluster(2, 8, 8), shape)) == 1


@pytest.mark.parametrize("name", ["a100-8gpu-8nic", "h200-4gpu", "h200-4gpu-measured"])
def test_shipped_machines_are_even(name: str) -> None:
    machine = read_topology(shipped_machines()[name])
    for shape in (PAIRS, QUADS):
        assert len(placements(machine, shape)) == 1


def test_measured_bandwidths_of_equal_links_are_one_class() -> None:
    found = placements(scaled(cluster(1, 4, 4), {"n0/gpu1": 1.04, "n0/gpu2": 0.97}), PAIRS)
    assert len(found) == 1
    slow = placements(scaled(cluster(1, 4, 4), {"n0/gpu1": 0.5}), PAIRS)
    assert len(slow) == 2


def test_pairs_of_a_hybrid_mesh_differ_by_their_links() -> None:
    found = placements(hybrid_mesh(), PAIRS)
    # Neighbours (0, 1) and (4, 5) have a link, (2, 3) and (6, 7) have two, as (0, 4) and (1, 5).
    assert [own.placement for own in found] == [Placement(1, (0, 2)), Placement(1, (1, 3))]
    assert [own.figures.intra_gb_per_s for own in found] == [25.0, 50.0]
    assert found[0].example == ("n0/gpu0", "n0/gpu1")
    assert found[0].text.endswith("that of n0/gpu0 and n0/gpu1")
    quads = placements(hybrid_mesh(), QUADS)
    assert [own.placement.stride for own in quads] == [1, 2]


def test_pairs_across_sockets_share_what_is_between_them() -> None:
    near, far = placements(two_sockets(8), PAIRS)
    assert (near.placement, far.placement) == (
        Placement(1, (0, 1, 2, 3)),
        Placement(4, (0, 1, 2, 3)),
    )
    assert (near.proximity, far.proximity) == (Proximity.SWITCH, Proximity.SOCKETS)
    assert (near.figures.intra_gb_per_s, far.figures.intra_gb_per_s) == (24.0, 2.5)
    assert far.alone.intra_gb_per_s == 10.0, "NCCL does not know of siblings"


def test_rails_that_share_a_nic_are_a_class_of_their_own_that_nccl_does_not_see() -> None:
    shared, own = placements(cluster(2, 4, 3), RAILS)
    assert (shared.placement, own.placement) == (Placement(1, (0, 1)), Placement(1, (2, 3)))
    assert (shared.figures.nic_gb_per_s, own.figures.nic_gb_per_s) == (12.0, 24.0)
    assert shared.alone.nic_gb_per_s == own.alone.nic_gb_per_s == 24.0


def test_a_gpu_without_a_path_to_a_nic_has_no_rail() -> None:
    lacking = frozenset({"n0/nic7", "n1/nic7"})
    (found,) = placements(cluster(2, 8, 8, absent=lacking), RAILS)
    assert found.placement == Placement(1, tuple(range(7)))


def test_communicators_without_a_path_are_in_no_class() -> None:
    machines = bench_topologies()
    if not machines:
        pytest.skip("shared data not present")
    # g0 and g2, a pair two apart, have no link.
    assert len(placements(machines["torus_4x4"][0], PAIRS)) == 1


def test_a_shape_that_leaves_gpus_over_has_no_classes() -> None:
    assert placements(cluster(2, 8, 8), Shape(3, 1, 3)) == ()


def test_hosts_of_two_kinds_have_classes_of_each() -> None:
    hosts = cluster(2, 4, 4)
    factors = {f"n1/gpu{gpu}": 0.5 for gpu in range(4)}
    fast, slow = placements(scaled(hosts, factors), PAIRS)
    assert fast.placement == Placement(1, (0, 1))
    assert slow.placement == Placement(1, (2, 3)), "numbered as on the whole machine"
