"""Machines with two NIC ports on one PCI bus id: generated and published ones."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from probes.files.read import read_topology
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.topology.graph import Topology
from tests.probes.machines import shipped_text
from tests.shared_data import SHARED_DATA

_TWO_PORTS = (
    "nccl_topo/a100x2-pcie-nvlinkbridge-dump.xml",
    "nccl_topo/a100x2-pcie-nvlinkbridge-edited-fault.xml",
    "nccl_topo/oci-h100x8-baremetal.xml",
    "nccl_topo/rccl/topo_8p_rome_n2_2.xml",
    "nccl_topo/rccl/topo_8p_rome_pcie.xml",
    "pci_sysfs/hwloc_xml/24em64t-2n6c2t-pci.xml",
    "pci_sysfs/hwloc_xml/coral-lassen.xml",
    "pci_sysfs/hwloc_xml/sierra-node0.xml",
    "pci_sysfs/hwloc_xml/sierra-node1.xml",
)


def has_two_ports_on_a_bus_id(machine: Topology) -> bool:
    """Whether any two NICs of a host have one bus id."""
    ports = Counter((nic.node, nic.bus_id) for nic in machine.nics if nic.bus_id)
    return max(ports.values(), default=0) > 1


def with_second_ports(text: str, name: str = "mlx5_%d") -> str:
    """Add a second port to every NIC in NCCL's XML of a machine.

    Args:
        text: the XML.
        name: of a port, with a place for its number.
    """
    ports = 0

    def doubled(net: re.Match[str]) -> str:
        nonlocal ports
        ports += 2
        both = ""
        for number in (ports - 2, ports - 1):
            renumbered = re.sub(r'dev="\d+"', f'dev="{number}"', net.group())
            called = name % number if "%" in name else name
            both += re.sub(r'name="\w+"', f'name="{called}"', renumbered)
        return both

    return re.sub(r"<net [^>]*/>", doubled, text)


def two_port_a100(name: str = "mlx5_%d") -> Topology:
    """The shipped machine with eight A100, its eight NICs with two ports each."""
    return parse_nccl_xml(with_second_ports(shipped_text(), name), "a100-two-ports.xml")


@cache
def published_two_port_machines() -> tuple[Topology, ...]:
    """Shared machines that have two ports on a bus id."""
    paths = (SHARED_DATA / name for name in _TWO_PORTS)
    found = tuple(read_topology(path) for path in paths if path.is_file())
    assert all(map(has_two_ports_on_a_bus_id, found))
    return found
