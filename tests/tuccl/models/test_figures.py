from dataclasses import replace

import pytest

from lookup_tables.table import Shape
from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import DeviceKind, LinkKind
from probes.topology.replicate import Network, NetworkLayout, replicate
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.sketches.machines import devices, machine, nvlink_path_with_pcie, two_sockets
from tuccl.models.figures import Fabric, Generation, figures_of, machine_figures


def test_four_h200_have_the_24_channels_that_nccl_finds_there() -> None:
    figures = machine_figures(read_topology(shipped_machines()["h200-4gpu"]))
    assert figures.shape == Shape(4, 1, 4)
    assert (figures.fabric, figures.generation) == (Fabric.NVLINK, Generation.HOPPER)
    assert figures.intra_gb_per_s == pytest.approx(450.0)
    assert (figures.channels, figures.channel_gb_per_s) == (24, 15.0)


@pytest.mark.parametrize(
    ("generation", "intra_gb_per_s", "channels"),
    [(Generation.VOLTA, 150.0, 12), (Generation.AMPERE, 300.0, 24), (Generation.HOPPER, 450.0, 24)],
)  # fmt: skip
def test_eight_gpus_have_the_channels_that_nccl_logs_there(
    generation: Generation, intra_gb_per_s: float, channels: int
) -> None:
    figures = figures_of(Shape(8, 1, 8), Fabric.NVLINK, generation, intra_gb_per_s)
    assert figures.channels == channels
    assert figures.graph_channels == channels // 2


def test_channels_over_the_network_are_as_many_as_nics_and_twice() -> None:
    # HDR behind PCIe of 24 GB/s: 8 x 24; 100 Gbit/s: 4 x 12.
    hdr = figures_of(Shape(16, 2, 8), Fabric.NVLINK, Generation.AMPERE, 300.0, 8, 24.0, 2.0)
    assert (hdr.channels, hdr.channel_gb_per_s) == (16, 12.0)
    efa = figures_of(Shape(16, 2, 8), Fabric.NVLINK, Generation.AMPERE, 300.0, 4, 12.5, 15.0)
    assert (efa.channels, efa.channel_gb_per_s) == (8, 6.0)


@pytest.mark.parametrize("layout", list(NetworkLayout))
def test_two_a100_machines_have_eight_nics_of_25_gb_per_s_a_node(layout: NetworkLayout) -> None:
    machine = read_topology(shipped_machines()["a100-8gpu-8nic"])
    figures = machine_figures(replicate(machine, 2, Network(latency_us=3.0, layout=layout)))
    assert figures.shape == Shape(16, 2, 8)
    assert figures.nics_per_node == 8
    assert figures.nic_gb_per_s == pytest.approx(24.0), "PCIe gen 4 x16 carries less than the NIC"
    assert figures.network_latency_us == pytest.approx(3.0)


def test_a_nic_that_no_gpu_reaches_counts_as_none() -> None:
    machine = read_topology(shipped_machines()["a100-8gpu-8nic"])
    nic = machine.nics[0].name
    links = tuple(link for link in machine.links if nic not in {link.src, link.dst})
    figures = machine_figures(replicate(replace(machine, links=links), 2, Network(latency_us=3.0)))
    assert figures.nics_per_node == 7
    assert figures.nic_gb_per_s == pytest.approx(24.0)


def test_pairs_share_the_link_between_sockets_and_the_host_without_nvlink() -> None:
    # Two GPUs under each socket: 4 of 12 messages cross 10 GB/s one way, where a GPU sends 3.
    sockets = machine_figures(two_sockets(4))
    assert sockets.pairs_gb_per_s == pytest.approx(10.0 * 3 / 4)
    # In a row of three by NVLink only the outer two use PCIe: each sends one of its 2 messages.
    assert machine_figures(nvlink_path_with_pcie()).pairs_gb_per_s == pytest.approx(24.0 * 2)
    switched = machine_figures(read_topology(shipped_machines()["a100-8gpu-8nic"]))
    assert switched.pairs_gb_per_s == switched.intra_gb_per_s == 300.0


def test_ports_of_a_card_divide_its_slot() -> None:
    # Two GPUs under switches of their own, two ports of 12.5 GB/s below one of PCIe gen 3 x8.
    gpus = ["n0/gpu0", "n0/gpu1"]
    members = [*devices(0, DeviceKind.GPU, 2), *devices(0, DeviceKind.NIC, 2)]
    members += [*devices(0, DeviceKind.PCIE_SWITCH, 3), *devices(0, DeviceKind.CPU, 1)]
    pcie = LinkKind.PCIE
    cables = [(gpu, f"n0/pcie_switch{at}", pcie, 24.0, 0.1) for at, gpu in enumerate(gpus)]
    cables += [(f"n0/nic{port}", "n0/pcie_switch2", pcie, 12.0, 0.1) for port in range(2)]
    cables += [(f"n0/pcie_switch{at}", "n0/cpu0", pcie, 24.0, 0.1) for at in range(2)]
    narrow, wide = (
        machine("card", members, [*cables, ("n0/pcie_switch2", "n0/cpu0", pcie, slot, 0.1)])
        for slot in (6.0, 24.0)
    )
    network = Network(bandwidth_gb_per_s=12.5, latency_us=2.0)
    figures = [machine_figures(replicate(each, 2, network)) for each in (narrow, wide)]
    assert [(each.nics_per_node, each.nic_gb_per_s) for each in figures] == [(2, 3.0), (2, 12.0)]


def test_nics_of_the_other_socket_do_not_divide_the_link_between_sockets() -> None:
    machine = read_topology(shipped_machines()["h100-8gpu-8nic"])
    uneven = replicate(machine, 2, Network(latency_us=2.0), (8, 4))
    figures = machine_figures(uneven)
    assert (figures.nics_per_node, figures.nic_gb_per_s) == (8, 22.0)


def test_more_equal_nodes_change_nothing_but_the_shape() -> None:
    machine = read_topology(shipped_machines()["a100-8gpu-8nic"])
    few, many = (replicate(machine, nodes, Network(latency_us=3.0)) for nodes in (2, 64))
    assert machine_figures(many) == replace(machine_figures(few), shape=Shape(512, 64, 8))


def test_the_figures_of_an_equal_machine_are_computed_once() -> None:
    machine = read_topology(shipped_machines()["a100-8gpu-8nic"])
    assert machine_figures(machine) is machine_figures(replace(machine))


@requires_shared_data
@pytest.mark.parametrize(
    ("file", "fabric"),
    [("rtx3090x8-dump.xml", Fabric.PCI), ("h800x8-dump.xml", Fabric.NVLINK),
     ("rccl/topo_4p1h.xml", Fabric.NVLINK), ("azure-ncv4-a100x4-pcie.xml", Fabric.PCI)],
)  # fmt: skip
def test_real_machines_are_told_apart_by_what_joins_their_gpus(file: str, fabric: Fabric) -> None:
    figures = machine_figures(read_topology(SHARED_DATA / "nccl_topo" / file))
    assert figures.fabric is fabric
    assert figures.channels >= 1
    assert figures.intra_gb_per_s > 0


def test_a_single_gpu_per_node_is_limited_by_its_nics_alone() -> None:
    """Nothing is sent inside the node, so what it could send there is without limit."""
    shape = Shape(4, 4, 1)
    figures = figures_of(shape, Fabric.PCI, Generation.HOPPER, float("inf"), 1, 25.0, 5.0)
    many = figures_of(shape, Fabric.PCI, Generation.HOPPER, 1000.0, 1, 25.0, 5.0)
    assert figures.channels == many.channels > 0
    assert figures.channel_gb_per_s == many.channel_gb_per_s
