"""`read_sysfs`: the PCI functions of a host as the kernel shows them below /sys.

The path of a device's folder shows its position: `pci0000:3a/0000:3a:00.0/0000:3b:00.0` is a
function below a bridge below the root bus. An invalid value is dropped with a gap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from probes.pci.address import address_key, is_address, is_root, root_of
from probes.pci.inventory import (
    DISPLAY,
    MAX_FUNCTIONS,
    NETWORK,
    CpuModel,
    NumaNode,
    PcieLink,
    PciFunction,
    PciInventory,
)
from probes.pci.ports import read_ports
from probes.pci.tree import FileTree
from probes.pci.values import (
    ValueReader,
    hexadecimal,
    link_rate,
    link_width,
    number_or_none,
    whole_number,
)
from tuccl.errors import MachineError, TreeError

_DEVICES = "sys/bus/pci/devices"
_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"
_MAX_RANGES = 64
_MAX_DEPTH = 64
"""Nested bridges; real trees have fewer than ten."""
_SLOT = "look at its slot and riser if that is not on purpose"
_UNASSIGNED = 0x20000000
"""IORESOURCE_UNSET of Linux's include/linux/ioport.h: the range has no address yet."""
_DATA_CLASSES = frozenset({NETWORK, DISPLAY, 0x0B, 0x12})
"""Base classes of devices in collectives: network, display, processor, accelerator."""


@dataclass(frozen=True, slots=True)
class _Position:
    """Position of a function in the tree."""

    folder: str
    root: str
    parent: str | None
    listed: bool = True
    """Whether the bus lists it; else only its children show that it exists."""


@dataclass(frozen=True, slots=True)
class _StatedLink:
    """A function's statement about its link; 0 when unknown."""

    gt_per_s: float = 0.0
    width: int = 0
    max_width: int = 0


def read_sysfs(tree: FileTree, source: str, interfaces: Sequence[str] = ()) -> PciInventory:
    """Read a host's inventory; `source` names the tree in errors and in the inventory.

    Network interfaces whose name matches a pattern in `interfaces` (`veth*`) count as NICs although
    they look like pseudo devices.

    Raises:
        MachineError: there are neither PCI devices nor network ports, or too many devices.
    """
    reader = ValueReader(tree)
    positions = _positions(reader, source)
    stated = {
        address: _stated_link(reader, position.folder)
        for address, position in positions.items()
        if position.listed
    }
    functions = tuple(
        _function(reader, address, positions[address], stated)
        for address in sorted(positions, key=address_key)
    )
    ports = read_ports(reader, positions, interfaces)
    if not functions and not ports:
        raise MachineError(
            f"{source}: no PCI devices below {_DEVICES} and no network ports; give the root "
            "directory of a Linux system, or an archive of its /sys"
        )
    return PciInventory(
        source=source,
        functions=functions,
        ports=ports,
        numa_nodes=_numa_nodes(reader),
        cpu=_cpu_model(reader),
        hostname=_hostname(reader),
        gaps=tuple(reader.gaps),  # last, when everything has been read
    )


def _positions(reader: ValueReader, source: str) -> dict[str, _Position]:
    names = reader.names(_DEVICES)
    if len(names) > MAX_FUNCTIONS:
        raise MachineError(
            f"{source}: {len(names):,} PCI devices, at most {MAX_FUNCTIONS:,} are read; this is no "
            "machine's /sys"
        )
    positions = dict(_listed(reader, names))
    for position in list(positions.values()):
        _add_unlisted_bridges(reader, position, positions)
    for address, position in positions.items():
        above = positions.get(position.parent or "")
        if above is not None and above.folder != position.folder.rpartition("/")[0]:
            reader.gap(address, f"hangs below {position.parent}, which lies elsewhere itself")
            positions[address] = replace(position, parent=None)
    return positions


def _listed(reader: ValueReader, names: Sequence[str]) -> Iterator[tuple[str, _Position]]:
    for name in names:
        path = f"{_DEVICES}/{name}"
        if not is_address(name):
            reader.gap(path, "its name is not a PCI address; it was left out")
            continue
        try:
            folder = reader.tree.resolve(path)
        except TreeError as error:
            reader.gap(path, f"cannot be followed ({error}); it was left out")
            continue
        root, *chain = _path_from_root(folder)
        if chain[-1:] != [name]:
            reader.gap(name, "its folder does not show what it hangs below")
            root, chain = root_of(name), [name]
        yield name, _Position(folder, root, chain[-2] if len(chain) > 1 else None)


def _add_unlisted_bridges(
    reader: ValueReader, position: _Position, positions: dict[str, _Position]
) -> None:
    """Add bridges above devices that the bus does not list."""
    while position.parent is not None and position.parent not in positions:
        bridge, folder = position.parent, position.folder.rpartition("/")[0]
        above = folder.split("/")[-2]
        reader.gap(bridge, f"devices hang below it, but it is not listed in {_DEVICES}")
        position = _Position(
            folder, position.root, above if is_address(above) else None, listed=False
        )
        positions[bridge] = position


def _path_from_root(folder: str) -> list[str]:
    """Return the root bus and the functions below it; an empty name if the path shows none."""
    names = folder.split("/")
    roots = [index for index, name in enumerate(names) if is_root(name)]
    path = names[roots[-1] :] if roots else [""]
    is_valid = len(path) <= _MAX_DEPTH and all(is_address(name) for name in path[1:])
    return path if is_valid else [""]


def _function(
    reader: ValueReader, address: str, position: _Position, stated: dict[str, _StatedLink]
) -> PciFunction:
    folder = position.folder
    if not position.listed:
        return PciFunction(address, position.root, position.parent)
    own = stated[address]
    function = PciFunction(
        address=address,
        root=position.root,
        parent=position.parent,
        class_code=reader.value(f"{folder}/class", hexadecimal(6), needed=True),
        vendor=reader.value(f"{folder}/vendor", hexadecimal(4), needed=True),
        device=reader.value(f"{folder}/device", hexadecimal(4), needed=True),
        numa_node=reader.value(f"{folder}/numa_node", number_or_none),
        link=_lesser(own, stated.get(position.parent or "", _StatedLink())),
        window_bytes=_largest_range(reader, f"{folder}/resource"),
        is_virtual=reader.is_there(f"{folder}/physfn"),
    )
    if function.base_class == NETWORK and function.link is not None:
        function = replace(function, link=_as_trained(reader, address, folder, function.link))
    if function.base_class in _DATA_CLASSES and 0 < own.width < own.max_width:
        reader.gap(address, f"runs at x{own.width} of x{own.max_width}; {_SLOT}")
    return function


def _stated_link(reader: ValueReader, folder: str) -> _StatedLink:
    """Read the maximum rate, because an idle GPU slows its link down, and the current width."""
    rate = reader.value(f"{folder}/max_link_speed", link_rate)
    if not rate:
        rate = reader.value(f"{folder}/current_link_speed", link_rate)
    max_width = reader.value(f"{folder}/max_link_width", link_width) or 0
    width = reader.value(f"{folder}/current_link_width", link_width) or max_width
    return _StatedLink(rate or 0.0, width, max_width)


def _as_trained(reader: ValueReader, address: str, folder: str, maximum: PcieLink) -> PcieLink:
    """Return the link of a NIC, which does not slow down when idle, at its current rate."""
    rate = reader.value(f"{folder}/current_link_speed", link_rate)
    if not rate or rate >= maximum.gt_per_s:
        return maximum
    reader.gap(address, f"runs at {rate:g} of {maximum.gt_per_s:g} GT/s; {_SLOT}")
    return replace(maximum, gt_per_s=rate)


def _lesser(own: _StatedLink, port: _StatedLink) -> PcieLink | None:
    rate = min((rate for rate in (own.gt_per_s, port.gt_per_s) if rate), default=0.0)
    width = min((width for width in (own.width, port.width) if width), default=0)
    return PcieLink(rate, width) if rate or width else None


def _largest_range(reader: ValueReader, path: str) -> int:
    """Parse lines `start end flags`, the end inclusive; an unused range is all zero."""
    largest = 0
    text = reader.text(path, needed=True) or ""
    for index, line in enumerate(text.splitlines()[:_MAX_RANGES]):
        if re.fullmatch(r"0x[0-9a-f]{1,16} 0x[0-9a-f]{1,16} 0x[0-9a-f]{1,16}", line) is None:
            reader.gap(path, f"line {index + 1} is {line!a:.60}, which is not an address range")
            continue
        start, end, flags = (int(number, 16) for number in line.split())
        if (start == 0 and end == 0) or flags & _UNASSIGNED:
            continue
        if end < start:
            reader.gap(path, f"line {index + 1} ends before it starts; the range was left out")
            continue
        largest = max(largest, end - start + 1)
    return largest


def _numa_nodes(reader: ValueReader) -> tuple[NumaNode, ...]:
    names = (re.fullmatch(r"node([0-9]{1,5})", name) for name in reader.names(_NODES))
    nodes = []
    for number in sorted(int(match[1]) for match in names if match):
        cpu = _first_cpu(reader, f"{_NODES}/node{number}")
        package = None
        if cpu is not None:
            path = f"{_CPUS}/cpu{cpu}/topology/physical_package_id"
            package = reader.value(path, number_or_none)
        nodes.append(NumaNode(number, package))
    return tuple(nodes)


def _first_cpu(reader: ValueReader, folder: str) -> int | None:
    """First CPU of a NUMA node; None for a node with memory only."""
    match = re.match(r"[0-9]{1,6}(?![0-9])", reader.quiet_text(f"{folder}/cpulist"))
    if match:
        return int(match[0])
    names = (re.fullmatch(r"cpu([0-9]{1,6})", name) for name in reader.names(folder))
    return min((int(match[1]) for match in names if match), default=None)


def _cpu_model(reader: ValueReader) -> CpuModel:
    """Return the CPU's model as NCCL 2.30 src/graph/xml.cc records it."""
    text = reader.text("proc/cpuinfo", needed=True) or ""
    fields: dict[str, str] = {}
    for line in text.split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if "cpu family" in fields:
        return _x86_model(reader, fields)
    if "CPU implementer" in fields:
        return CpuModel(arch="arm64")
    if "POWER" in fields.get("cpu", ""):
        return CpuModel(arch="ppc64")
    if text:
        reader.gap("proc/cpuinfo", "does not say what CPU this is; links between sockets unknown")
    return CpuModel()


def _x86_model(reader: ValueReader, fields: dict[str, str]) -> CpuModel:
    try:
        family = whole_number(fields["cpu family"], high=4095)
        model = whole_number(fields.get("model", ""), high=4095)
    except ValueError:
        reader.gap("proc/cpuinfo", "family and model of the CPU are not numbers and stay unknown")
        return CpuModel(arch="x86_64")
    # The kernel adds the extended family, NCCL puts it before the four bits of the base family.
    recorded = family if family < 15 else 15 + ((family - 15) << 4)
    vendor = fields.get("vendor_id", "")
    if re.fullmatch(r"[A-Za-z ]{1,12}", vendor) is None:
        reader.gap("proc/cpuinfo", f"names {vendor!a:.40} as the CPU's vendor, which is none")
        vendor = ""
    return CpuModel("x86_64", vendor, recorded, model)


def _hostname(reader: ValueReader) -> str:
    for path in ("proc/sys/kernel/hostname", "etc/hostname"):
        name = reader.quiet_text(path)
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", name):
            return name
        if name:
            reader.gap(path, f"holds {name!a:.40}, which is not a host name")
    return ""
