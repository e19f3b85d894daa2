"""`parse_lspci`: the PCI functions of one host from the output of lspci.

`lspci -vvv -nn -D`, run as root, has almost all facts of sysfs: the bridge tree (bus numbers of
every bridge), NUMA nodes, links and BARs, but neither names nor speeds of network ports. -D and -nn
may be missing: the domain is 0000 then, and numbers follow from unambiguous names. Format: pciutils
3.7 to 3.10, lspci.c, ls-caps.c, ls-kernel.c.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from probes.errors import MachineFileError
from probes.nccl_xml.nics import shortened
from probes.pci.address import address_key
from probes.pci.inventory import (
    BarRange,
    Gap,
    NicPort,
    NumaNode,
    PcieLink,
    PciFunction,
    PciInventory,
)
from probes.pci.listings.lspci_names import CLASS_OF_NAME, vendor_and_device
from probes.pci.listings.lspci_tree import BusTree

COMMAND = "lspci -vvv -nn -D (as root)"

HEADER = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7]) (\S.*)", re.I)
"""First line of a function: `0000:3b:00.0 3D controller [0302]: NVIDIA ...`."""
TREE_LINE = re.compile(r"[\s|+\\-]*-\[[0-9a-f]{4,8}:[0-9a-f]{2}")
"""First lines of `lspci -t`."""

_TITLE = re.compile(r"(?P<name>[^:\[]*?)\s*(?:\[(?P<bracket>[0-9a-f]{4})\])?: (?P<rest>.*)")
_TAIL = re.compile(r"\s*\((?:rev|prog-if) [^()]*\)")
_PROG_IF = re.compile(r"\(prog-if ([0-9a-f]{2})\b")
_IDS = re.compile(r"(?:^|\[)([0-9a-f]{4}):([0-9a-f]{4})\]?$")
_BUS = re.compile(r"Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})")
_REGION = re.compile(
    r"Region (\d): (Memory|I/O ports) at ([0-9a-f]{1,16}) (.*)\[size=(\d{1,9})([KMGT]?)\]"
)
_LINK = re.compile(r"Speed (\d{1,3}(?:\.\d{1,3})?)\s?GT/s.*?Width x(\d{1,3})")
_NO_DETAILS = Gap(
    "lspci",
    f"without -v it tells no bridge tree, NUMA nodes, links and BARs; {COMMAND} tells them",
)
_NUMA_NODE = re.compile(r"NUMA node: (\d{1,5})")
_MAX_LINE = 1000
"""Characters read of a line; lspci's lines are shorter."""
_SIZE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MAX_FUNCTIONS = 65_536


@dataclass(slots=True)
class _Entry:
    """A function while its lines are read."""

    address: str
    title: str
    verbose: bool = False
    numa_node: int | None = None
    bars: list[BarRange] = field(default_factory=list)
    buses: tuple[int, int] | None = None
    """Secondary and subordinate bus of a bridge."""
    capable: PcieLink | None = None
    now: PcieLink | None = None
    denied: bool = False


def parse_lspci(text: str, source: str) -> PciInventory:
    """Parse the output of `lspci -vvv`, or of `lspci -nn`, which has no bridge tree.

    A NIC function becomes one port named after its address (`nic@0000:1a:00.0`), without a speed.

    Args:
        text: the output; it may have prompts and other lines around it.
        source: its name in errors, usually the path.

    Raises:
        MachineFileError: not output of lspci, its form -t or -m, or with a repeated function.
    """
    entries = _entries(text, source)
    verbose = any(entry.verbose for entry in entries)
    gaps = [] if verbose else [_NO_DETAILS]
    classes = {entry.address: _class_code(entry.title) for entry in entries}
    tree = BusTree(
        addresses=[entry.address for entry in entries],
        bridges={e.address: e.buses for e in entries if (classes[e.address] or 0) >> 8 == 0x0604},
        has_buses=verbose,
    )
    by_address = {entry.address: entry for entry in entries}
    functions = []
    for entry in sorted(entries, key=lambda e: address_key(e.address)):
        parent = tree.parent.get(entry.address)
        functions.append(_function(entry, parent, tree, classes, by_address))
    if verbose:
        gaps += [*tree.gaps, *_detail_gaps(entries, functions)]
    gaps += _cut_gap(text, entries, verbose=verbose)
    numbers = sorted({e.numa_node for e in entries if e.numa_node is not None})
    return PciInventory(
        source=source,
        functions=tuple(functions),
        ports=tuple(_port(f) for f in functions if _is_nic(f.class_code)),
        numa_nodes=tuple(NumaNode(number) for number in numbers),
        gaps=tuple(gaps),
    )


def _entries(text: str, source: str) -> list[_Entry]:
    entries: list[_Entry] = []
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        header = HEADER.fullmatch(line.rstrip())
        if header is not None:
            if header[5].startswith('"'):
                raise _other_form("the form of lspci -m", source, number)
            address = _address(header)
            if address in seen:
                raise MachineFileError(
                    f"{source}:{number}: {address} is listed a second time; give the output of one "
                    "lspci run on one host"
                )
            seen.add(address)
            entries.append(_Entry(address, header[5][:_MAX_LINE]))
        elif TREE_LINE.match(line):
            raise _other_form("the tree of lspci -t", source, number)
        elif entries and line[:1] in ("\t", " "):
            _read_detail(entries[-1], line)
        if len(entries) > _MAX_FUNCTIONS:
            raise MachineFileError(f"{source}: more than {_MAX_FUNCTIONS:,} PCI functions")
    if not entries:
        raise MachineFileError(
            f"{source}: no line of it describes a PCI function; give the output of {COMMAND}"
        )
    return entries


def _other_form(form: str, source: str, number: int) -> MachineFileError:
    return MachineFileError(
        f"{source}:{number}: this is {form}, which tells neither links nor NUMA nodes; give the "
        f"output of {COMMAND}"
    )


def _address(header: re.Match[str]) -> str:
    domain, bus, device, function = header.group(1, 2, 3, 4)
    return f"{domain or '0000'}:{bus}:{device}.{function}".lower()


def _read_detail(entry: _Entry, line: str) -> None:
    """Read an indented line; deeper lines are of capabilities, where SR-IOV has its own Regions."""
    entry.verbose = True
    deep = line.startswith(("\t\t", "                "))
    text = line[:_MAX_LINE].strip()
    if deep:
        if text.startswith("LnkCap:") and entry.capable is None:
            entry.capable = _link(text)
        elif text.startswith("LnkSta:") and entry.now is None:
            entry.now = _link(text)
    elif (node := _NUMA_NODE.fullmatch(text)) is not None:
        entry.numa_node = int(node[1])
    elif (bus := _BUS.match(text)) is not None:
        entry.buses = int(bus[2], 16), int(bus[3], 16)
    elif (region := _REGION.match(text)) is not None:
        entry.bars.append(_bar(region))
    elif text.startswith("Capabilities: <access denied>"):
        entry.denied = True


def _bar(region: re.Match[str]) -> BarRange:
    """Parse a region, with flags as in Linux' `resource` files (include/linux/ioport.h)."""
    kind, attributes = region[2], region[4]
    flags = 0x100 if kind == "I/O ports" else 0x200
    flags |= 0x2000 if "(" in attributes and " prefetchable" in attributes else 0
    flags |= 0x100000 if "64-bit" in attributes else 0
    start = int(region[3], 16)
    return BarRange(int(region[1]), start, start + int(region[5]) * _SIZE[region[6]] - 1, flags)


def _link(text: str) -> PcieLink | None:
    match = _LINK.search(text)
    return PcieLink(float(match[1]), int(match[2])) if match else None


def _class_code(title: str) -> int | None:
    match = _TITLE.match(title)
    if match is None:
        return None
    name = match["name"]
    if match["bracket"]:
        code: int | None = int(match["bracket"], 16)
    elif re.fullmatch(r"[0-9a-f]{4}", name):  # lspci -n
        code = int(name, 16)
    else:
        code = CLASS_OF_NAME.get(name)
    interface = _PROG_IF.search(title)
    return None if code is None else code << 8 | (int(interface[1], 16) if interface else 0)


def _function(
    entry: _Entry,
    parent: str | None,
    tree: BusTree,
    classes: dict[str, int | None],
    by_address: dict[str, _Entry],
) -> PciFunction:
    match = _TITLE.match(entry.title)
    description = _TAIL.sub("", match["rest"] if match else entry.title).strip()
    numbers = _IDS.search(description)
    vendor, device = vendor_and_device(description)
    if numbers is not None:
        vendor, device = int(numbers[1], 16), int(numbers[2], 16)
    return PciFunction(
        address=entry.address,
        root=tree.root(entry.address),
        parent=parent,
        class_code=classes[entry.address],
        vendor=vendor,
        device=device,
        numa_node=entry.numa_node,
        link=_effective_link(
            entry, by_address[parent] if parent else None, is_nic=_is_nic(classes[entry.address])
        ),
        bars=tuple(entry.bars),
        label=description,
    )


def _is_nic(class_code: int | None) -> bool:
    return (class_code or 0) >> 16 == 0x02


def _effective_link(entry: _Entry, above: _Entry | None, *, is_nic: bool) -> PcieLink | None:
    """Return the lesser capable speed of both ends, and the lesser current width.

    An idle link slows down, except that of a NIC, whose current speed counts. A link does not widen
    by itself, so the current width counts.
    """
    ends = [end for end in (entry, above) if end is not None and (end.capable or end.now)]
    if entry not in ends:
        return None
    speeds = [link.gt_per_s for end in ends if (link := end.capable or end.now)]
    widths = [
        link.width
        for end in ends
        if (link := end.now if end.now and end.now.width else end.capable) and link.width
    ]
    if is_nic and entry.now is not None and entry.now.gt_per_s > 0:
        speeds.append(entry.now.gt_per_s)
    return PcieLink(min(speeds), min(widths, default=0))


def _port(function: PciFunction) -> NicPort:
    """Return a port named by its address; the class shows its link layer."""
    layer = {0x0200: "Ethernet", 0x0207: "InfiniBand"}.get((function.class_code or 0) >> 8, "")
    name = f"nic@{function.address}"
    return NicPort(name=name, function=function.address, link_layer=layer)


def _slow_nics(by_address: dict[str, _Entry], functions: list[PciFunction]) -> list[str]:
    """Return NICs whose link is slower than both of its ends allow."""
    slow = []
    for function in functions:
        own, above = by_address[function.address], by_address.get(function.parent or "")
        ends = [end.capable for end in (own, above) if end is not None and end.capable]
        maximum = min((end.gt_per_s for end in ends), default=0.0)
        if _is_nic(function.class_code) and own.now and 0 < own.now.gt_per_s < maximum:
            slow.append(f"{function.address} {own.now.gt_per_s:g} of {maximum:g} GT/s")
    return slow


def _detail_gaps(entries: list[_Entry], functions: list[PciFunction]) -> list[Gap]:
    hidden = "capabilities, and so its link, were hidden: run lspci -vvv as root"
    unnamed = "class not known by its name; lspci -nn prints its number"
    gaps = [Gap(entry.address, hidden) for entry in entries if entry.denied]
    gaps += [Gap(f.address, unnamed) for f in functions if f.class_code is None]
    narrow = [
        f"{entry.address} x{entry.now.width} of x{entry.capable.width}"
        for entry in entries
        if entry.now and entry.capable and 0 < entry.now.width < entry.capable.width
    ]
    if narrow:
        gaps.append(Gap("lspci", f"links narrower than the device could do: {shortened(narrow)}"))
    slow = _slow_nics({entry.address: entry for entry in entries}, functions)
    if slow:
        gaps.append(
            Gap("lspci", f"links of NICs slower than both ends could do: {shortened(slow)}")
        )
    if all(f.numa_node is None for f in functions):
        gaps.append(Gap("lspci", "no function has a NUMA node here: where CPUs sit is not known"))
    if any(_is_nic(f.class_code) for f in functions):
        unknown = "it tells neither names nor speeds of network ports; a probe on the host does"
        gaps.append(Gap("lspci", unknown))
    return gaps


def _cut_gap(text: str, entries: list[_Entry], *, verbose: bool) -> list[Gap]:
    """Return a gap if the text may be cut: lspci ends each line, and with -v each function."""
    lines = text.splitlines()
    ended = text.endswith("\n") and (not verbose or not lines[-1].strip())
    last = entries[-1].address
    return [] if ended else [Gap("lspci", f"the text ends inside {last}: it may be cut there")]
