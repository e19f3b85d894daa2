"""NVLinks of an hwloc export: the matrix `NVLinkBandwidth` between GPUs and NVSwitches.

hwloc 2.4 and later write it if NVML is installed (topology-nvml.c): MB/s between each two objects,
summed over the links between them.
"""

from __future__ import annotations

import re

from probes.inputs.xml_tree import XmlElement
from probes.nccl_xml.records import GpuLinkRecord, GpuRecord
from probes.pci.listings.hwloc_objects import objects_below, read_hwloc
from probes.topology.link_figures import nvlink_gb_per_s
from tuccl.errors import MachineError

_MAX_OBJECTS = 512
_P100 = ("10de:15f7", "10de:15f8", "10de:15f9")
_ITSELF_MB_PER_S = 1_000_000
"""hwloc's value from an object to itself, and for an unlimited link."""


def hwloc_gpu_records(text: str, source: str) -> dict[str, GpuRecord]:
    """Return GPUs by PCI address with their NVLinks; empty where the export has no such matrix.

    The GPUs have CUDA's numbers if the export has them, else NVML's.

    Raises:
        MachineError: Not well-formed XML; not of hwloc, or the matrix is damaged.
    """
    root = read_hwloc(text, source)
    matrix = next((e for e in root.children if e.attributes.get("name") == "NVLinkBandwidth"), None)
    if matrix is None:
        return {}
    devices = _devices(root)
    ends = _indexes(matrix)
    values = [int(v) for v in _words(matrix, "u64values") if re.fullmatch(r"\d{1,12}", v)]
    if not ends or len(ends) > _MAX_OBJECTS or len(values) != len(ends) ** 2:
        raise MachineError(
            f"{source}:{matrix.line}: NVLinkBandwidth has {len(ends)} objects and {len(values)} "
            "figures; export the machine again"
        )
    records = {}
    for row, end in enumerate(ends):
        gpu = devices.get(end)
        if gpu is None or _is_switch(gpu):
            continue
        links = []
        for column, peer_end in enumerate(ends):
            peer = devices.get(peer_end)
            count = _link_count(gpu, values[row * len(ends) + column])
            if peer is not None and column != row and count:
                links.append(_link(peer, count))
        number = _number(gpu)
        records[_address(gpu)] = GpuRecord(number, None, 0, tuple(links))
    return records


def _devices(root: XmlElement) -> dict[str, XmlElement]:
    """Return PCI devices by their own index and that of every object below them."""
    found = {}
    for device in objects_below(root):
        if device.attributes.get("type") == "PCIDev":
            for element in (device, *objects_below(device)):
                found[element.attributes.get("gp_index", "")] = device
    return found


def _indexes(matrix: XmlElement) -> list[str]:
    """Global indexes of the objects: `OSDev:802` where kinds are mixed, else `802`."""
    return [word.rpartition(":")[2] for word in _words(matrix, "indexes")]


def _words(matrix: XmlElement, tag: str) -> list[str]:
    return " ".join("".join(e.pieces) for e in matrix.children_of(tag)).split()


def _is_switch(device: XmlElement) -> bool:
    return device.attributes.get("subtype") == "NVSwitch"


def _address(device: XmlElement) -> str:
    return device.attributes.get("pci_busid", "").lower()


def _number(gpu: XmlElement) -> int | None:
    names = [o.attributes.get("name", "") for o in objects_below(gpu)]
    for tool in ("cuda", "nvml"):
        for name in names:
            if re.fullmatch(tool + r"\d{1,4}", name):
                return int(name[4:])
    return None


def _link_count(gpu: XmlElement, mb_per_s: int) -> int:
    """Number of links of a bandwidth: 20 GB/s each on a P100, 25 on later GPUs."""
    if mb_per_s >= _ITSELF_MB_PER_S:
        return 0
    p100 = any(f"[{part}]" in gpu.attributes.get("pci_type", "") for part in _P100)
    return round(mb_per_s / 1000 / nvlink_gb_per_s(60 if p100 else 0))


def _link(peer: XmlElement, count: int) -> GpuLinkRecord:
    target_class = "068000" if _is_switch(peer) else "030200"
    return GpuLinkRecord("nvlink", _address(peer), target_class, count, 0)
