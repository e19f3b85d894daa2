"""`parse_nccl_xml`: a topology from a file of NCCL or RCCL, or of a vendor for them.

The file becomes records (`probes.nccl_xml.records`), and these a topology
(`probes.nccl_xml.assembly`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from probes.nccl_xml.assembly import assemble
from probes.nccl_xml.records import CpuRecord, PciRecord, read_records
from probes.topology.graph import Topology
from tuccl.errors import MachineError


def parse_nccl_xml(text: str, source: str) -> Topology:
    """Parse a topology file of NCCL or RCCL.

    Args:
        text: the XML text.
        source: its name in errors, usually the path; its stem names the topology.

    Raises:
        MachineError: another kind of file, malformed, or without GPUs.
        InvalidTopologyError: the machine cannot exist, for example two GPUs of one bus id.
    """
    records = read_records(text, source)
    topology = assemble(records, PurePath(source).stem, source)
    if not topology.gpus:
        raise MachineError(f"{source}: {_reason_without_gpu(records)}")
    return topology


def _reason_without_gpu(cpus: Sequence[CpuRecord]) -> str:
    def lacks_class(pci: PciRecord) -> bool:
        return not pci.pci_class or any(lacks_class(child) for child in pci.children)

    if any(lacks_class(pci) for cpu in cpus for pci in cpu.pcis):
        return (
            "its <pci> elements have no readable class, so nothing says which are GPUs; add class "
            "attributes (0x030200 for a GPU), or give a file that NCCL_TOPO_DUMP_FILE wrote"
        )
    return "there is no GPU in this topology; give one with two or more"
