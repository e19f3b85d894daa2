"""`host_topology`: the topology of an inventory, as NCCL would see the machine.

NCCL 2.30 src/graph/xml.cc (ncclTopoGetXmlFromSys) walks from every GPU and NIC two bridges up at a
time: a switch is its upstream port, downstream ports and root ports vanish, and a CPU is a NUMA
node. The records are reduced in the same way, so that a machine has the same fingerprint from
TuCCL's probe and from NCCL's dump.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from probes.inputs.messages import shortened
from probes.nccl_xml.assembly import assemble
from probes.nccl_xml.records import CpuRecord, GpuRecord, PciRecord
from probes.pci.address import address_key
from probes.pci.endpoints import Endpoints, endpoints
from probes.pci.inventory import Gap, PcieLink, PciFunction, PciInventory
from probes.pci.relation import bridges_above, numa_node_of
from probes.topology.graph import Topology

_MAX_NOTED_GAPS = 50

SILENT_TREE = (
    "The PCI tree is silent about which NIC is close to which GPU: every device sits in a domain "
    "of its own or straight on the root bus, as virtual machines show them; let a measurement "
    "decide, or give the topology file that the cloud supplies for NCCL_TOPO_FILE."
)
"""Note of a machine whose tree shows no proximity; see `is_tree_silent`."""


def host_topology(
    inventory: PciInventory, name: str, gpus: Mapping[str, GpuRecord] | None = None
) -> Topology:
    """Return the host's topology, with a note for every gap.

    `gpus` has the driver's records by PCI address; if it is empty, GPUs are identified by class.

    Raises:
        InvalidTopologyError: the machine cannot exist.
    """
    records, notes = _records(inventory, gpus or {})
    topology = assemble(records, name, inventory.source, [*notes, *gap_notes(inventory.gaps)])
    return replace(topology, hosts=(inventory.hostname,)) if inventory.hostname else topology


def gap_notes(gaps: Iterable[Gap]) -> list[str]:
    """Return a sentence for each kind of gap, with all its places."""
    places: dict[str, list[str]] = {}
    for gap in gaps:
        places.setdefault(gap.what, []).append(gap.where)
    notes = [
        Gap(where[0] if len(where) == 1 else shortened(where), missing).sentence()
        for missing, where in places.items()
    ]
    more = len(notes) - _MAX_NOTED_GAPS
    return [*notes[:_MAX_NOTED_GAPS], f"{more} more gaps of this kind."] if more > 0 else notes


def is_tree_silent(functions: Iterable[PciFunction]) -> bool:
    """Whether the tree shows no proximity between these devices, as in many VMs.

    This is so if each device has its own domain, or if all are directly on root buses, one for all
    or one for each.
    """
    devices = list(functions)
    if len(devices) < 2:
        return False
    roots = {device.root for device in devices}
    if all(device.parent is None for device in devices):
        return len(roots) in {1, len(devices)}
    domains = {address_key(device.address)[0] for device in devices}
    nodes = {device.numa_node for device in devices}
    return len(domains) == len(devices) and len(nodes) == 1


@dataclass(slots=True)
class _Node:
    """A PCI record while its children are collected."""

    function: PciFunction
    children: set[str] = field(default_factory=set)


def _records(
    inventory: PciInventory, gpus: Mapping[str, GpuRecord]
) -> tuple[tuple[CpuRecord, ...], list[str]]:
    notes: list[str] = []
    host = endpoints(inventory, gpus, notes)
    tops, nodes = _reduced_tree(inventory, host)
    by_numa: dict[int, list[str]] = {}
    for address in sorted(tops, key=address_key):
        by_numa.setdefault(_numa_of_tree(inventory, address, nodes), []).append(address)
    first = _first_cpu(inventory, host, by_numa)
    records = tuple(
        CpuRecord(
            host="",
            arch=inventory.cpu.arch,
            vendor=inventory.cpu.vendor,
            family=inventory.cpu.family,
            model=inventory.cpu.model,
            pcis=tuple(_pci_record(address, nodes, host) for address in by_numa.get(number, ())),
            nets=host.unplaced if number == first else (),
        )
        for number in sorted({first, *by_numa})
    )
    _note_unplaced(inventory, host, by_numa, notes)
    return records, notes


def _reduced_tree(inventory: PciInventory, host: Endpoints) -> tuple[list[str], dict[str, _Node]]:
    """Return the addresses directly below a CPU, and the nodes from them to the GPUs and NICs."""
    tops: dict[str, None] = {}
    nodes: dict[str, _Node] = {}
    for address in sorted({*host.gpus, *host.nets}, key=address_key):
        function = inventory.by_address.get(address) or PciFunction(address, root="")
        below = nodes.setdefault(address, _Node(function))
        for bridge in bridges_above(inventory, function)[1::2]:
            node = nodes.setdefault(bridge.address, _Node(bridge))
            node.children.add(below.function.address)
            below = node
        tops[below.function.address] = None
    return list(tops), nodes


def _numa_of_tree(inventory: PciInventory, top: str, nodes: Mapping[str, _Node]) -> int:
    """NUMA node of a device directly below a CPU, else of the first device below it; else -1."""
    number = numa_node_of(inventory, nodes[top].function)
    if number is not None:
        return number
    below = (_numa_of_tree(inventory, child, nodes) for child in _ordered(nodes[top].children))
    return next((number for number in below if number >= 0), -1)


def _ordered(addresses: Iterable[str]) -> list[str]:
    return sorted(addresses, key=address_key)


def _first_cpu(
    inventory: PciInventory, host: Endpoints, by_numa: Mapping[int, Sequence[str]]
) -> int:
    """NUMA node of the first GPU, whose CPU NCCL puts first."""
    if not host.gpus:
        nodes = inventory.numa_nodes
        return min(by_numa, default=nodes[0].number if nodes else -1)
    devs = {address: record.dev if record else None for address, record in host.gpus.items()}
    known = {address: dev for address, dev in devs.items() if dev is not None}
    gpu = min(known, key=known.__getitem__) if known else next(iter(devs))
    function = inventory.by_address.get(gpu)
    above = bridges_above(inventory, function) if function else []
    path = {gpu, *(bridge.address for bridge in above)}
    return next(number for number, tops in by_numa.items() if path & set(tops))


def _pci_record(address: str, nodes: Mapping[str, _Node], host: Endpoints) -> PciRecord:
    function = nodes[address].function
    link = function.link or PcieLink(0.0, 0)
    return PciRecord(
        bus_id=address,
        pci_class=_hex(function.class_code, 6),
        vendor=_hex(function.vendor, 4),
        device=_hex(function.device, 4),
        link_speed=f"{link.gt_per_s:g} GT/s" if link.gt_per_s else "",
        link_width=link.width,
        children=tuple(
            _pci_record(child, nodes, host) for child in _ordered(nodes[address].children)
        ),
        gpu=host.gpus.get(address),
        nets=host.nets.get(address, ()),
        pci_links=(),
        unreadable=(),
    )


def _hex(number: int | None, digits: int) -> str:
    return "" if number is None else f"{number:0{digits}x}"


def _note_unplaced(
    inventory: PciInventory, host: Endpoints, by_numa: Mapping[int, Sequence[str]], notes: list[str]
) -> None:
    devices = {*host.gpus, *host.nets}
    not_shown = sorted(devices - inventory.by_address.keys())
    if not_shown:
        notes.append(
            f"GPUs that the PCI tree does not show are taken as straight below a CPU: "
            f"{shortened(not_shown)}."
        )
    if -1 in by_numa and len(by_numa) > 1:
        notes.append(
            "PCI devices that state no NUMA node are taken as below a CPU of their own, as NCCL "
            f"does: {shortened(list(by_numa[-1]))}."
        )
    functions = [inventory.by_address[address] for address in devices - set(not_shown)]
    if host.gpus and is_tree_silent(functions):
        notes.append(SILENT_TREE)
