"""The machine that one communicator of a shape sees while its siblings are in use."""

from __future__ import annotations

from lookup_tables.table import Shape
from probes.topology.graph import NETWORK_NODE, Device, DeviceKind, LinkKind
from probes.topology.validation import check_structure
from tests.sketches.machines import Cable, cluster, devices, machine, pcie_box
from tuccl.models.figures import machine_figures
from tuccl.models.siblings import SiblingMachines

NODE, RAIL, PAIRS = Shape(8, 1, 8), Shape(2, 2, 1), Shape(2, 1, 2)


def test_the_communicator_of_all_gpus_has_the_whole_machine() -> None:
    hosts = cluster(2, 8, 8)
    siblings = SiblingMachines(hosts)
    assert siblings.topologies(Shape(16, 2, 8)) == (hosts,)
    assert siblings.figures(Shape(16, 2, 8)) == (machine_figures(hosts),)


def test_nodes_that_are_alike_are_one_and_share_nothing() -> None:
    hosts = cluster(2, 8, 8)
    (node,) = SiblingMachines(hosts).topologies(NODE)
    check_structure(node)
    assert [gpu.name for gpu in node.gpus] == [f"n0/gpu{i}" for i in range(8)]
    (figures,) = SiblingMachines(hosts).figures(NODE)
    assert figures.shape == NODE
    assert figures.intra_gb_per_s == machine_figures(hosts).intra_gb_per_s


def test_a_rail_has_the_nic_next_to_its_gpu_and_what_rails_share_is_divided() -> None:
    (own,) = SiblingMachines(cluster(2, 8, 8)).figures(RAIL)
    (shared,) = SiblingMachines(cluster(2, 8, 2)).figures(RAIL)
    (several,) = SiblingMachines(cluster(2, 2, 2)).figures(RAIL)
    assert (own.shape, own.nics_per_node, own.nic_gb_per_s) == (RAIL, 1, 24.0)
    # Four GPUs share a NIC of 24 GB/s, by its PCIe link.
    assert (shared.nics_per_node, shared.nic_gb_per_s) == (1, 6.0)
    assert (several.nics_per_node, several.nic_gb_per_s) == (1, 24.0)
    for rail in SiblingMachines(cluster(2, 8, 8, rails_only=True)).topologies(RAIL):
        check_structure(rail)
        assert len(rail.gpus) == 2
        assert {gpu.index for gpu in rail.gpus} == {nic.index for nic in rail.nics}


def test_rails_of_unequal_nics_have_figures_of_their_own() -> None:
    slow = {(node, 3): 15.0 for node in range(2)}
    found = SiblingMachines(cluster(2, 8, 8, nic_gb_per_s=slow)).figures(RAIL)
    assert sorted(figures.nic_gb_per_s for figures in found) == [15.0, 24.0]


def test_gpus_with_several_nics_have_a_part_each() -> None:
    members = [Device("fabric", DeviceKind.NETWORK_SWITCH, NETWORK_NODE)]
    cables: list[Cable] = []
    for node in range(2):
        gpus, nics = devices(node, DeviceKind.GPU, 2), devices(node, DeviceKind.NIC, 4)
        (switch,) = devices(node, DeviceKind.PCIE_SWITCH, 1)
        members += [*gpus, *nics, switch]
        cables += [(gpu.name, switch.name, LinkKind.PCIE, 48.0, 0.1) for gpu in gpus]
        cables += [(nic.name, switch.name, LinkKind.PCIE, 24.0, 0.1) for nic in nics]
        cables += [(nic.name, "fabric", LinkKind.NETWORK, 12.5, 0.85) for nic in nics]
    rails = SiblingMachines(machine("four NICs", members, cables)).topologies(Shape(2, 2, 1))
    assert [[nic.index for nic in rail.nics] for rail in rails] == [[0, 2] * 2, [1, 3] * 2]
    assert {machine_figures(rail).nic_gb_per_s for rail in rails} == {12.5}


def test_pairs_under_one_pcie_switch_have_links_of_their_own() -> None:
    (switched,) = SiblingMachines(cluster(2, 8, 8)).figures(PAIRS)
    assert (switched.shape, switched.intra_gb_per_s) == (PAIRS, 300.0)
    (box,) = SiblingMachines(pcie_box(4)).figures(PAIRS)
    assert box.intra_gb_per_s == machine_figures(pcie_box(4)).intra_gb_per_s
