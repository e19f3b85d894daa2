"""Comparison of a host's topology with `nvidia-smi topo -m`: `check_with_nvidia_smi`.

The table is independent evidence: the driver counts NVLinks and walks the PCI tree itself. With an
inventory, connections are compared with the PCI tree, which distinguishes PIX from PXB and PHB from
NODE; else with the topology, which distinguishes switches, one CPU and several.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.inputs.messages import printable
from probes.network.instruments.processes import run
from probes.nvidia.nvml import NvmlFacts
from probes.nvidia.topo_matrix import Cell, Connection, TopoMatrix, parse_topo_matrix
from probes.pci.inventory import Gap, PciInventory
from probes.pci.relation import Relation, relation
from probes.topology.graph import Device, DeviceKind, LinkKind, Topology
from probes.topology.paths import Proximity, pcie_distance
from tuccl.errors import MachineError

PROGRAM = "nvidia-smi"
DEADLINE_S = 10.0
_COMMAND = f"{PROGRAM} topo -m"
_MAX_REPORTED = 4
_MAX_WORDS = 160
_NO_CHECK = "so the topology was not compared with it"

_EXPECTED = {
    Relation.SAME_DEVICE: (Connection.PIX,),
    Relation.SWITCH: (Connection.PIX,),
    Relation.SWITCHES: (Connection.PXB,),
    # It depends on bridges that the tree hides.
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
"""Proximities by connection; other connections pass several CPUs."""
_PROXIMITY_WORDS = {
    Proximity.SWITCH: "PCIe switches only",
    Proximity.HOST_BRIDGE: "one CPU",
    Proximity.SOCKETS: "two CPUs or more",
    Proximity.UNKNOWN: "no known path",
}


def check_with_nvidia_smi(
    topology: Topology, inventory: PciInventory, facts: NvmlFacts
) -> tuple[str, ...]:
    """Return the differences between topology and table as notes; none without nvidia-smi.

    The table has all GPUs by NVML's numbers, whatever CUDA_VISIBLE_DEVICES is. Without NVML's facts
    GPUs are numbered in the order of their addresses.
    """
    if shutil.which(PROGRAM) is None:
        return ()
    output = _run_nvidia_smi()
    if isinstance(output, Gap):
        return (output.sentence(),)
    try:
        matrix = parse_topo_matrix(output, "its table")
    except MachineError as error:
        return (Gap(_COMMAND, f"{error}; {_NO_CHECK}").sentence(),)
    addresses = {f"GPU{gpu.index}": gpu.address for gpu in facts.gpus}
    differences = compare_with_matrix(topology, matrix, inventory, addresses)
    notes = [f"{PROGRAM} says otherwise: {sentence}" for sentence in differences[:_MAX_REPORTED]]
    more = len(differences) - _MAX_REPORTED
    return (*notes, *([f"{PROGRAM} says otherwise of {more} more."] if more > 0 else []))


def _run_nvidia_smi() -> str | Gap:
    """Run the program and return its output, or a gap with the reason of its failure."""
    try:
        result = run([PROGRAM, "topo", "-m"], DEADLINE_S)
    except OSError as error:
        return Gap(_COMMAND, f"cannot be started ({error.strerror}), {_NO_CHECK}")
    if result.timed_out:
        reason = (
            f"did not end within {DEADLINE_S:g} s, {_NO_CHECK}; see dmesg for the driver's words"
        )
        return Gap(_COMMAND, reason)
    if result.exit_code:
        text = printable(" ".join(result.output.split()), _MAX_WORDS) or "nothing"
        return Gap(_COMMAND, f"exit code {result.exit_code}, it said '{text}', {_NO_CHECK}")
    return result.output


@dataclass(frozen=True, slots=True)
class _End:
    """A device of the table in the topology and the PCI tree."""

    device: Device
    function: str
    """PCI address; empty when unknown."""

    @property
    def name(self) -> str:
        """Name for a sentence."""
        return self.device.os_name or self.device.name.rpartition("/")[2]


def compare_with_matrix(
    topology: Topology,
    matrix: TopoMatrix,
    inventory: PciInventory | None = None,
    addresses: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Compare the table with the topology's first host; return one sentence per differing pair.

    NICs are matched by name, GPUs by their PCI addresses in `addresses`, or in the order of their
    addresses if it is None. GPUs and ports that only the topology lacks are no difference.
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
    differences: list[str] = []
    for a, b in itertools.combinations(ends, 2):
        differences += _compare(topology, inventory, matrix.cells[a, b], ends[a], ends[b])
    nics = {nic.os_name: nic for nic in topology.nics if nic.node == node}
    functions = {port.name: port.function for port in (inventory.ports if inventory else ())}
    for column in matrix.nics:
        name = matrix.nic_name(column)
        if name in nics:
            nic = _End(nics[name], functions.get(name) or "")
            for gpu, end in ends.items():
                differences += _compare(topology, inventory, matrix.cells[gpu, column], end, nic)
        elif name not in functions:
            differences.append(f"{name}: in the matrix, not in the topology.")
    return tuple(differences)


def _in_bus_order(gpus: list[Device]) -> list[Device]:
    if not all(gpu.bus_id for gpu in gpus):
        return gpus
    # Domains may have more than four digits; these come last.
    return sorted(gpus, key=lambda gpu: (len(gpu.bus_id), gpu.bus_id))


def _compare(
    topology: Topology, inventory: PciInventory | None, cell: Cell, a: _End, b: _End
) -> Iterator[str]:
    prefix = f"{a.name} - {b.name}: the matrix says {cell}"
    nvlinks = _nvlinks(topology, a.device.name, b.device.name)
    if nvlinks != cell.nvlinks:
        yield f"{prefix}, the topology has {nvlinks} NVLinks."
        return
    if nvlinks:
        return
    tree_relation = Relation.UNKNOWN
    if inventory is not None and {a.function, b.function} <= inventory.by_address.keys():
        tree_relation = relation(inventory, a.function, b.function)
    if tree_relation is not Relation.UNKNOWN:
        if cell.connection not in _EXPECTED[tree_relation]:
            yield f"{prefix}, the PCI tree has {_RELATION_WORDS[tree_relation]} between them."
        return
    distance = pcie_distance(topology, a.device.name, b.device.name)
    if distance is not _PROXIMITIES.get(cell.connection, Proximity.SOCKETS):
        yield f"{prefix}, the topology has {_PROXIMITY_WORDS[distance]} between them."


def _nvlinks(topology: Topology, a: str, b: str) -> int:
    """Number of direct links, else of links to the NVSwitches between them."""

    def lanes(src: str, dst: str) -> int:
        links = topology.links_between.get((src, dst), ())
        return sum(link.lanes for link in links if link.kind is LinkKind.NVLINK)

    switches = [d.name for d in topology.devices if d.kind is DeviceKind.NVSWITCH]
    return lanes(a, b) or sum(min(lanes(a, switch), lanes(switch, b)) for switch in switches)
