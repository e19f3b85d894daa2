"""Machines with two NIC ports on one PCI bus id: generated and published ones."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from probes.files.bench_topologies import read_bench_topologies
from probes.files.read import read_topology, shipped_machines
from probes.nccl_xml.assembly import parse_nccl_xml
from probes.topology.graph import Topology
from tests.probes.machines import shipped_text
from tests.shared_data import SHARED_DATA
from tuccl.errors import MachineError

_FOLDERS = ("nccl_topo", "pci_sysfs", "replay")


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
    """Shipped, benchmark and shared machines that have two ports on a bus id."""
    paths = list(shipped_machines().values())
    for folder in _FOLDERS:
        paths += sorted(path for path in (SHARED_DATA / folder).rglob("*") if path.is_file())
    found = [machine for path in paths if (machine := _read(path)) is not None]
    bench = SHARED_DATA / "bench_topologies.json"
    if bench.is_file():
        found += [entry.topology for entry in read_bench_topologies(bench).values()]
    return tuple(machine for machine in found if has_two_ports_on_a_bus_id(machine))


def _read(path: Path) -> Topology | None:
    try:
        machine = read_topology(path)
    except MachineError:
        return None
    return machine if machine.gpus else None
