"""The elements of hwloc's XML: the root, objects, infos, CPU and node sets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.inputs.xml_tree import XmlElement, read_xml
from tuccl.errors import MachineError

COMMAND = "`lstopo --of xml --whole-io FILE`"


def read_hwloc(text: str, source: str) -> XmlElement:
    """Parse an hwloc export and return its root.

    Raises:
        MachineError: Not well-formed XML, or another kind of XML file.
    """
    root = read_xml(text, source, "topology", frozenset({"indexes", "u64values"}))
    if root.tag != "topology":
        raise MachineError(
            f"{source}: an XML file with root <{root.tag:.40}>, hwloc's is <topology>; give a file "
            f"that {COMMAND} wrote"
        )
    return root


def objects_below(element: XmlElement) -> Iterator[XmlElement]:
    """Iterate over all objects of the tree, parents before children."""
    for child in element.children_of("object"):
        yield child
        yield from objects_below(child)


def infos_of(element: XmlElement) -> dict[str, str]:
    """Return the name-value pairs of an object."""
    return {
        info.attributes.get("name", ""): info.attributes.get("value", "")
        for info in element.children_of("info")
    }


def attribute_bits(element: XmlElement, name: str) -> int:
    """Parse a CPU or node set as a number; hwloc prints words of 32 bits, the highest first.

    `0xf0000000,,0x00000101`: an empty word is zero. 0 when the attribute is missing or invalid.
    """
    words = element.attributes.get(name, "").split(",")
    if len(words) > 4096 or not all(re.fullmatch(r"(0x[0-9a-f]{1,8})?", word) for word in words):
        return 0
    bits = 0
    for word in words:
        bits = bits << 32 | int(word or "0", 16)
    return bits


def os_device_kind(element: XmlElement, version: str) -> str:
    """Return `network`, `rdma` or empty; the type is an enumeration in hwloc 1 and 2, bits in 3."""
    text = element.attributes.get("osdev_type", "")
    number = int(text) if re.fullmatch(r"\d{1,4}", text) else 0
    if version.startswith("3"):
        return "rdma" if number & 32 else "network" if number & 16 else ""
    return {2: "network", 3: "rdma"}.get(number, "")
