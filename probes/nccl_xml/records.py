"""An NCCL or RCCL topology file as records, without interpretation.

    <system> <cpu> <pci> ... <gpu> <nvlink|xgmi|c2c>
                             <nic> <net>
                             <pcilink>
                   <nic> <net>

NCCL_TOPO_DUMP_FILE writes such a file, or a vendor for NCCL_TOPO_FILE; attributes as in NCCL 2.30
src/graph/xml.cc. The other modules of `probes.nccl_xml` interpret the records.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from probes.inputs.messages import shortened
from probes.inputs.xml_tree import XmlElement, read_xml
from probes.topology.figure_text import gfx_name, gfx_number
from tuccl.errors import MachineError

KNOWN_VERSIONS = ("1", "2")
"""NCCL writes 1, RCCL 2; they differ in the attributes of AMD GPUs only."""

_CHILDREN = {
    "system": ("cpu",),
    "cpu": ("pci", "nic"),
    "pci": ("pci", "gpu", "nic", "pcilink"),
    "gpu": ("nvlink", "xgmi", "c2c"),
    "nic": ("net",),
}
"""Elements that are read, by the element that they are in."""
_MAX_NUMBER = 2**31 - 1
_AMD_VENDOR = "1002"


@dataclass(frozen=True, slots=True)
class GpuLinkRecord:
    """`<nvlink>`, `<xgmi>` or `<c2c>` below a `<gpu>`."""

    tag: str
    target: str
    """Bus id of the remote device in lower case; empty for c2c."""
    target_class: str
    count: int
    mb_per_s: int
    """Bandwidth of one link, for c2c only."""


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """`<gpu>`."""

    dev: int | None
    rank: int | None
    compute_capability: int
    """Number of `gcn` (AMD, see `probes.topology.figure_text`) where the file has it, else
    `sm`."""
    links: tuple[GpuLinkRecord, ...]
    lacks_multicast: bool = False
    """`multicast="0"`, which NCCL ignores: the driver offers none."""


@dataclass(frozen=True, slots=True)
class NetRecord:
    """`<net>`: one port of a NIC, or a network interface of the host."""

    name: str
    dev: int | None
    speed_mbps: int | None
    is_port: bool = False
    """Whether it is known to be a port, whatever its name."""
    network_sums: bool = False
    """`coll="1"`: the network plugin has collectives for it, as SHARP's."""


@dataclass(frozen=True, slots=True)
class PciRecord:
    """`<pci>`: a bridge or an endpoint."""

    bus_id: str
    pci_class: str
    """PCI class, six digits of lower-case hex; empty when missing or invalid."""
    vendor: str
    device: str
    """Vendor and device: four digits of lower-case hex; empty when missing or invalid."""
    link_speed: str
    link_width: int
    children: tuple[PciRecord, ...]
    gpu: GpuRecord | None
    nets: tuple[NetRecord, ...]
    pci_links: tuple[str, ...]
    """Bus ids of switches with a direct link to this one (`<pcilink>`)."""
    unreadable: tuple[str, ...]
    """Those of class, vendor and device that the file has, but not as a valid number."""

    @property
    def model(self) -> str:
        """`vendor:device`; empty when unknown or the filler `ffff`."""
        known = self.vendor and self.device and self.vendor != "ffff"
        return f"{self.vendor}:{self.device}" if known else ""


@dataclass(frozen=True, slots=True)
class CpuRecord:
    """`<cpu>`: one NUMA node."""

    host: str
    arch: str
    vendor: str
    family: int
    model: int
    pcis: tuple[PciRecord, ...]
    nets: tuple[NetRecord, ...]
    """Interfaces without a PCI device."""


def read_records(text: str, source: str, notes: list[str]) -> tuple[CpuRecord, ...]:
    """Parse the file, and note the elements that are left out.

    Raises:
        MachineError: not XML, another kind of file, or an attribute is not a number.
    """
    root = read_xml(text, source)
    _check_root(root, source)
    unknown = Counter(_unknown(root))
    if unknown:
        named = shortened(f"<{tag:.20}> in <{parent}>" for parent, tag in sorted(unknown))
        notes.append(
            f"Elements of no known kind were left out ({unknown.total()}), with the links "
            f"that they may state: {named}."
        )
    return tuple(_cpu(element, source) for element in root.children_of("cpu"))


def _unknown(element: XmlElement) -> Iterator[tuple[str, str]]:
    """Yield element and child for each child that is not read; what is in it is not looked at."""
    for child in element.children:
        if child.tag in _CHILDREN.get(element.tag, ()):
            yield from _unknown(child)
        else:
            yield element.tag, child.tag


def _check_root(root: XmlElement, source: str) -> None:
    if root.tag == "system":
        version = root.attributes.get("version", "1")
        if version not in KNOWN_VERSIONS:
            raise MachineError(
                f"{source}:{root.line}: NCCL topology of version {version!a:.40}; "
                f"known are {' and '.join(KNOWN_VERSIONS)}"
            )
        return
    description = {
        "graphs": "an NCCL graph file (rings and trees that a search found)",
        "graph": "an NCCL graph file (rings and trees that a search found)",
        "algo": "an MSCCL schedule",
    }.get(root.tag, f"an XML file with root <{root.tag:.40}>")
    raise MachineError(
        f"{source}: this is {description}, not a topology; run any NCCL job with "
        "NCCL_TOPO_DUMP_FILE=FILE and give that file"
    )


def _cpu(element: XmlElement, source: str) -> CpuRecord:
    return CpuRecord(
        host=element.attributes.get("host_hash", ""),
        arch=element.attributes.get("arch", ""),
        vendor=element.attributes.get("vendor", ""),
        family=_number(element, "familyid", source) or 0,
        model=_number(element, "modelid", source) or 0,
        pcis=tuple(_pci(child, source) for child in element.children_of("pci")),
        nets=_nets(element, source),
    )


def _pci(element: XmlElement, source: str) -> PciRecord:
    gpus = element.children_of("gpu")
    vendor = _hex(element, "vendor", digits=4)
    bus_id = element.attributes.get("busid", "").strip().lower()
    if not bus_id:
        raise MachineError(f"{source}:{element.line}: a <pci> without busid; give each one")
    if len(gpus) > 1:
        raise MachineError(
            f"{source}:{gpus[1].line}: a second <gpu> in <pci busid={bus_id!a}>: several ranks "
            "share this GPU (MLOPart, or several ranks on a device with NCCL 2.30), and a topology "
            "has one rank on each; dump it from a job that has one"
        )
    return PciRecord(
        bus_id=bus_id,
        pci_class=_class(element, "class"),
        vendor=vendor,
        device=_hex(element, "device", digits=4),
        link_speed=element.attributes.get("link_speed", ""),
        link_width=max(0, _number(element, "link_width", source) or 0),
        children=tuple(_pci(child, source) for child in element.children_of("pci")),
        gpu=_gpu(gpus[0], vendor, source) if gpus else None,
        nets=_nets(element, source),
        pci_links=tuple(
            child.attributes.get("target", "").strip().lower()
            for child in element.children_of("pcilink")
        ),
        unreadable=tuple(
            attribute
            for attribute, digits in (("class", 6), ("vendor", 4), ("device", 4))
            if element.attributes.get(attribute, "").strip()
            and not _hex(element, attribute, digits)
        ),
    )


def _gpu(element: XmlElement, vendor: str, source: str) -> GpuRecord:
    capability = _gcn(element, source) or _number(element, "sm", source) or 0
    if capability < 0:
        raise MachineError(f"{source}:{element.line}: <gpu> with sm or gcn below zero")
    if vendor == _AMD_VENDOR and not gfx_name(capability):
        # RCCL's `sm` is the number of compute units; in its first files it was the architecture.
        capability = 0
    return GpuRecord(
        dev=_number(element, "dev", source),
        rank=_number(element, "rank", source),
        compute_capability=capability,
        links=tuple(
            _gpu_link(child, source)
            for child in element.children
            if child.tag in ("nvlink", "xgmi", "c2c")
        ),
        lacks_multicast=element.attributes.get("multicast", "").strip() == "0",
    )


def _gcn(element: XmlElement, source: str) -> int:
    """Return AMD's architecture from its name (`gfx90a`) or number (`910`); 0 if missing.

    RCCL with MI300 support writes the name and reads both; earlier versions have the number only.
    """
    text = element.attributes.get("gcn", "").strip()
    number = gfx_number(text)
    if number is not None:
        return number
    if text.lower().startswith("gfx"):
        raise MachineError(
            f"{source}:{element.line}: <gpu gcn={text!a:.40}>: not the name of an architecture of "
            "AMD; give a name like gfx942, or leave gcn out"
        )
    return _number(element, "gcn", source) or 0


def _gpu_link(element: XmlElement, source: str) -> GpuLinkRecord:
    count = _number(element, "count", source)
    if count is None:
        count = 1
    if not 0 <= count <= 1024:
        raise MachineError(
            f"{source}:{element.line}: <{element.tag} count='{count}'>; expected 0 to 1024"
        )
    return GpuLinkRecord(
        tag=element.tag,
        target=element.attributes.get("target", "").strip().lower(),
        target_class=_class(element, "tclass"),
        count=count,
        mb_per_s=_number(element, "bw", source) or 0,
    )


def _nets(element: XmlElement, source: str) -> tuple[NetRecord, ...]:
    return tuple(
        NetRecord(
            name=net.attributes.get("name", "").strip(),
            dev=_number(net, "dev", source),
            speed_mbps=_number(net, "speed", source),
            network_sums=bool(_number(net, "coll", source)),
        )
        for nic in element.children_of("nic")
        for net in nic.children_of("net")
    )


def _number(element: XmlElement, attribute: str, source: str) -> int | None:
    """Parse an attribute as a number (decimal, or hex with 0x); None when missing or empty."""
    text = element.attributes.get(attribute, "").strip()
    if not text:
        return None
    try:
        number = int(text, 0) if text.lower().startswith("0x") else int(text)
    except ValueError:
        number = _MAX_NUMBER + 1
    if abs(number) > _MAX_NUMBER:
        raise MachineError(
            f"{source}:{element.line}: <{element.tag} {attribute}={text!a:.40}>: "
            "expected a whole number"
        )
    return number


def _class(element: XmlElement, attribute: str) -> str:
    """Parse class, subclass and interface; four digits are class and subclass, as in lspci."""
    text = element.attributes.get(attribute, "").strip().lower().removeprefix("0x")
    number = _hex(element, attribute, digits=6)
    return f"{text}00" if number and len(text) == 4 else number


def _hex(element: XmlElement, attribute: str, digits: int) -> str:
    """Parse an attribute as a number of at most `digits` hex digits; empty when invalid."""
    text = element.attributes.get(attribute, "").strip().lower()
    number = re.fullmatch(r"(?:0x)?0*([0-9a-f]+)", text)
    if number is None or len(number[1]) > digits:
        return ""
    return number[1].zfill(digits)
