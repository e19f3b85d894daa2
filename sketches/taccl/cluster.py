"""A cluster of equal nodes from TACCL's topology file, as a `Topology`.

Devices that the file leaves out are added without limits: each GPU has a NIC (or several) beside
it, in order, and all NICs are on one fabric without a limit of its own. TACCL has no model of PCIe.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from probes.topology.validation import check_structure
from sketches.taccl.topology_file import TacclNode
from tuccl.errors import MachineError

_FABRIC = "fabric"


def taccl_cluster(node: TacclNode, nodes: int) -> Topology:
    """Return the machine of `nodes` such nodes.

    Raises:
        MachineError: There are several nodes, and the file describes no network.
        InvalidTopologyError: The figures are impossible, or there are too many devices.
    """
    if nodes > 1 and not node.nics:
        raise MachineError(
            f"TACCL topology {node.name!a:.60}: {nodes} nodes and no network; add nics_per_node, "
            f"remote_alpha and remote_beta to its file"
        )
    devices: list[Device] = []
    links: list[Link] = []
    for number in range(nodes):
        devices += _devices(node, number)
        links += _local_links(node, number)
        if nodes > 1:
            links += _network_links(node, number)
    notes = node.notes
    if nodes > 1:
        devices.append(Device(_FABRIC, DeviceKind.NETWORK_SWITCH, NETWORK_NODE))
        how = "GPUs and NICs of a node are paired in order, and all NICs reach each other"
        notes += (f"assumed: {how}, as TACCL's file has neither PCIe nor network switches",)
    topology = Topology(node.name, tuple(devices), tuple(links), notes)
    check_structure(topology)
    return topology


def _devices(node: TacclNode, number: int) -> Iterator[Device]:
    for gpu in range(node.gpus):
        yield Device(f"n{number}/gpu{gpu}", DeviceKind.GPU, number, gpu)
    for nic in range(node.nics):
        yield Device(
            f"n{number}/nic{nic}",
            DeviceKind.NIC,
            number,
            nic,
            line_rate_gb_per_s=node.nic_gb_per_s,
        )
    if node.switch_gb_per_s:
        yield Device(f"n{number}/nvswitch", DeviceKind.NVSWITCH, number)


def _local_links(node: TacclNode, number: int) -> Iterator[Link]:
    def nvlink(src: str, dst: str, gb_per_s: float, alpha_us: float, lanes: int = 1) -> Link:
        measured = Provenance.MEASURED
        ends = (f"n{number}/{src}", f"n{number}/{dst}")
        return Link(*ends, LinkKind.NVLINK, gb_per_s, alpha_us, measured, lanes, measured)

    for link in node.links:
        src, dst = f"gpu{link.src}", f"gpu{link.dst}"
        yield nvlink(src, dst, link.gb_per_s, node.alpha_us, link.lanes)
    if node.switch_gb_per_s:
        for gpu in range(node.gpus):
            for src, dst in ((f"gpu{gpu}", "nvswitch"), ("nvswitch", f"gpu{gpu}")):
                yield nvlink(src, dst, node.switch_gb_per_s, node.alpha_us / 2)


def _network_links(node: TacclNode, number: int) -> Iterator[Link]:
    rate, measured = node.nic_gb_per_s, Provenance.MEASURED
    for nic in range(node.nics):
        name = f"n{number}/nic{nic}"
        for src, dst in ((name, _FABRIC), (_FABRIC, name)):
            half_us = node.nic_alpha_us / 2
            yield Link(src, dst, LinkKind.NETWORK, rate, half_us, measured, 1, measured)
    for gpu in range(node.gpus):
        first = gpu * node.nics // node.gpus
        for nic in range(first, max(first + 1, (gpu + 1) * node.nics // node.gpus)):
            a, b = f"n{number}/gpu{gpu}", f"n{number}/nic{nic}"
            for src, dst in ((a, b), (b, a)):
                yield Link(src, dst, LinkKind.PCIE, rate, 0.0, Provenance.ASSUMED)
