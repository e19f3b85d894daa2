"""Whether `nvidia-smi topo -m` says of a host what its topology says: `check_with_nvidia_smi`.

The table is a second opinion: the driver counts NVLinks and walks the PCI tree on its own. How near
two devices are is compared with the PCI tree where an inventory is at hand, which tells PIX from
PXB and PHB from NODE; else with the topology, which tells switches, one CPU and several apart.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.errors import MachineFileError
from probes.inputs.printable import printable
from probes.network.instruments.processes import run
from probes.nvidia.nvml import NvmlFacts
from probes.nvidia.topo_matrix import Cell, Connection, TopoMatrix, parse_topo_matrix
from probes.pci.inventory import Gap, PciInventory
from probes.pci.relation import Relation, relation
from probes.topology.graph import Device, DeviceKind, LinkKind, Topology
from probes.topology.paths import Proximity, pcie_distance

PROGRAM = "nvidia-smi"
DEADLINE_S = 10.0
_COMMAND = f"{PROGRAM} topo -m"
_MOST_TOLD = 4
_MAX_WORDS = 160
_NO_CHECK = "so the topology was not compared with it"

_EXPECTED = {
    Relation.SAME_DEVICE: (Connection.PIX,),
    Relation.SWITCH: (Connection.PIX,),
    Relation.SWITCHES: (Connection.PXB,),
    # Bridges that a tree hides decide which.
    Relation.ROOT_PORT: (Connection.PIX, Connection.PXB, Connection.PHB),
    Relation.HOST_BRIDGE: (Connection.PHB,),
    Relation.NUMA_NODE: (Connection.NODE,),
    Relation.SOCKET: (Connection.SYS,),
    Relation.SYSTEM: (Connection.SYS,),
}
_RELATION_WORDS = {
    Relation.SAME_DEVICE: "one device",
    Relation.SWITCH: "one PCIe switch",
    Relation.SWITCHES: "several PCIe switches",
    Relation.ROOT_PORT: "one root port",
    Relation.HOST_BRIDGE: "one host bridge",
    Relation.NUMA_NODE: "host bridges of one NUMA node",
    Relation.SOCKET: "NUMA nodes of one socket",
    Relation.SYSTEM: "the link between sockets",
}
_PROXIMITIES = {
    Connection.PIX: Proximity.SWITCH,
    Connection.PXB: Proximity.SWITCH,
    Connection.PHB: Proximity.HOST_BRIDGE,
    Connection.NODE: Proximity.HOST_BRIDGE,
}
"""Any other connection passes several CPUs."""
_PROXIMITY_WORDS = {
    Proximity.SWITCH: "PCIe switches only",
    Proximity.HOST_BRIDGE: "one CPU",
    Proximity.SOCKETS: "two CPUs or more",
    Proximity.UNKNOWN: "no way known",
}


def check_with_nvidia_smi(
    topology: Topology, inventory: PciInventory, facts: NvmlFacts
) -> tuple[str, ...]:
    """What the driver's table says otherwise, for the topology's notes.

    Nothing where the program is not installed. It shows all GPUs whatever CUDA_VISIBLE_DEVICES
    says, by NVML's numbers.

    Args:
        topology: of this host, as it looks.
        inventory: of this host.
        facts: what NVML says; without it GPUs are numbered in the order of their addresses.
    """
    if shutil.which(PROGRAM) is None:
        return ()
    answer = _ask()
    if isinstance(answer, Gap):
        return (answer.sentence(),)
    try:
        matrix = parse_topo_matrix(answer, "its table")
    except MachineFileError as error:
        return (Gap(_COMMAND, f"{error}; {_NO_CHECK}").sentence(),)
    addresses = {f"GPU{gpu.index}": gpu.address for gpu in facts.gpus}
    found = compare_with_matrix(topology, matrix, inventory, addresses)
    told = [f"{PROGRAM} says otherwise: {sentence}" for sentence in found[:_MOST_TOLD]]
    more = len(found) - _MOST_TOLD
    return (*told, *([f"{PROGRAM} says otherwise of {more} more."] if more > 0 else []))


def _ask() -> str | Gap:
    """What the program prints, or why it does not."""
    try:
        ended = run([PROGRAM, "topo", "-m"], DEADLINE_S)
    except OSError as error:
        return Gap(_COMMAND, f"cannot be started ({error.strerror}), {_NO_CHECK}")
    if ended.timed_out:
        why = f"did not end within {DEADLINE_S:g} s, {_NO_CHECK}; see dmesg for the driver's words"
        return Gap(_COMMAND, why)
    if ended.exit_code:
        said = printable(" ".join(ended.output.split()), _MAX_WORDS) or "nothing"
        return Gap(_COMMAND, f"exit code {ended.exit_code}, it said '{said}', {_NO_CHECK}")
    return ended.output


@dataclass(frozen=True, slots=True)
class _End:
    """A device of the table as the topology and the PCI tree know it."""

    device: Device
    function: str
    """PCI address; empty when unknown."""

    @property
    def name(self) -> str:
        """For a sentence."""
        return self.device.os_name or self.device.name.rpartition("/")[2]


def compare_with_matrix(
    topology: Topology,
    matrix: TopoMatrix,
    inventory: PciInventory | None = None,
    addresses: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """What the table says otherwise than the topology's first host, one sentence per pair.

    Args:
        topology: NICs are known by name.
        matrix: the table.
        inventory: of that host, for the places of devices in the PCI tree. Ports that it knows and
            the topology leaves out are no difference.
        addresses: PCI address by the table's name of each GPU; those of them that the topology
            leaves out are no difference. Without, GPUs are taken in the order of their addresses.
    """
    node = topology.gpus[0].node if topology.gpus else 0
    gpus = _in_bus_order([gpu for gpu in topology.gpus if gpu.node == node])
    count = len(addresses or gpus)
    if count != len(matrix.gpus):
        return (f"The matrix has {len(matrix.gpus)} GPUs, the topology's host {count}.",)
    by_address = {gpu.bus_id: gpu for gpu in gpus}
    known = (
        {name: by_address.get(addresses.get(name, "")) for name in matrix.gpus}
        if addresses
        else dict(zip(matrix.gpus, gpus, strict=True))
    )
    ends = {name: _End(gpu, gpu.bus_id) for name, gpu in known.items() if gpu is not None}
    found: list[str] = []
    for a, b in itertools.combinations(ends, 2):
        found += _compared(topology, inventory, matrix.cells[a, b], ends[a], ends[b])
    nics = {nic.os_name: nic for nic in topology.nics if nic.node == node}
    functions = {port.name: port.function for port in (inventory.ports if inventory else ())}
    for column in matrix.nics:
        name = matrix.nic_name(column)
        if name in nics:
            nic = _End(nics[name], functions.get(name) or "")
            for gpu, end in ends.items():
                found += _compared(topology, inventory, matrix.cells[gpu, column], end, nic)
        elif name not in functions:
            found.append(f"{name}: in the matrix, not in the topology.")
    return tuple(found)


def _in_bus_order(gpus: list[Device]) -> list[Device]:
    if not all(gpu.bus_id for gpu in gpus):
        return gpus
    # Domains may have more digits than four, and come later then.
    return sorted(gpus, key=lambda gpu: (len(gpu.bus_id), gpu.bus_id))


def _compared(
    topology: Topology, inventory: PciInventory | None, cell: Cell, one: _End, other: _End
) -> Iterator[str]:
    said = f"{one.name} - {other.name}: the matrix says {cell}"
    nvlinks = _nvlinks(topology, one.device.name, other.device.name)
    if nvlinks != cell.nvlinks:
        yield f"{said}, the topology has {nvlinks} NVLinks."
        return
    if nvlinks:
        return
    place = Relation.UNKNOWN
    if inventory is not None and {one.function, other.function} <= inventory.by_address.keys():
        place = relation(inventory, one.function, other.function)
    if place is not Relation.UNKNOWN:
        if cell.connection not in _EXPECTED[place]:
            yield f"{said}, the PCI tree has {_RELATION_WORDS[place]} between them."
        return
    distance = pcie_distance(topology, one.device.name, other.device.name)
    if distance is not _PROXIMITIES.get(cell.connection, Proximity.SOCKETS):
        yield f"{said}, the topology has {_PROXIMITY_WORDS[distance]} between them."


def _nvlinks(topology: Topology, a: str, b: str) -> int:
    """Direct links, else links to the NVSwitch between them."""

    def lanes(src: str, dst: str) -> int:
        links = topology.links_between.get((src, dst), ())
        return sum(link.lanes for link in links if link.kind is LinkKind.NVLINK)

    switches = [d.name for d in topology.devices if d.kind is DeviceKind.NVSWITCH]
    return lanes(a, b) or sum(min(lanes(a, switch), lanes(switch, b)) for switch in switches)
