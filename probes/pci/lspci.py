"""`parse_lspci`: the PCI functions of one host from the output of lspci.

`lspci -vvv -nn -D`, run as root, has almost all facts of sysfs: the bridge tree (bus numbers of
every bridge), NUMA nodes and links, but neither names nor speeds of network ports. -D and -nn
may be missing: the domain is 0000 then, and numbers follow from unambiguous names. Format: pciutils
3.7 to 3.10, lspci.c, ls-caps.c, ls-kernel.c.

Without -nn lspci prints names of the PCI ID database (pci-ids.ucw.cz) and no numbers. Names that
matter for a topology are listed here; others stay unknown. A bridge's secondary bus has a higher
number than its own bus (PCI Local Bus 3.0, 3.2.2.3.1; Linux follows this), so the bridge tree has
no loops.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probes.inputs.messages import shortened
from probes.pci.address import address_key, root_of
from probes.pci.inventory import (
    MAX_FUNCTIONS,
    NETWORK,
    Gap,
    NicPort,
    NumaNode,
    PcieLink,
    PciFunction,
    PciInventory,
)
from tuccl.errors import MachineError

CLASS_OF_NAME = {
    "SCSI storage controller": 0x0100,
    "RAID bus controller": 0x0104,
    "SATA controller": 0x0106,
    "Serial Attached SCSI controller": 0x0107,
    "Non-Volatile memory controller": 0x0108,
    "Mass storage controller": 0x0180,
    "Ethernet controller": 0x0200,
    "Infiniband controller": 0x0207,
    "Fabric controller": 0x0208,
    "Network controller": 0x0280,
    "VGA compatible controller": 0x0300,
    "XGA compatible controller": 0x0301,
    "3D controller": 0x0302,
    "Display controller": 0x0380,
    "Audio device": 0x0403,
    "RAM memory": 0x0500,
    "CXL": 0x0502,
    "Memory controller": 0x0580,
    "Host bridge": 0x0600,
    "ISA bridge": 0x0601,
    "PCI bridge": 0x0604,
    "Bridge": 0x0680,
    "Communication controller": 0x0780,
    "Generic system peripheral": 0x0800,
    "IOMMU": 0x0806,
    "System peripheral": 0x0880,
    "Co-processor": 0x0B40,
    "USB controller": 0x0C03,
    "SMBus": 0x0C05,
    "Serial bus controller": 0x0C80,
    "Encryption controller": 0x1080,
    "Performance counters": 0x1101,
    "Signal processing controller": 0x1180,
    "Processing accelerators": 0x1200,
}
"""Class and subclass by name; an NVSwitch is a `Bridge`."""

VENDOR_OF_NAME = (
    ("NVIDIA Corporation", 0x10DE),
    ("nVidia Corporation", 0x10DE),
    ("Mellanox Technologies", 0x15B3),
    ("Advanced Micro Devices, Inc. [AMD/ATI]", 0x1002),
    ("Advanced Micro Devices, Inc. [AMD]", 0x1022),
    ("Intel Corporation", 0x8086),
    ("Broadcom / LSI", 0x1000),
    ("LSI Logic / Symbios Logic", 0x1000),
    ("Broadcom Inc. and subsidiaries", 0x14E4),
    ("PLX Technology, Inc.", 0x10B5),
    ("Matrox Electronics Systems Ltd.", 0x102B),
    ("ASPEED Technology, Inc.", 0x1A03),
    ("NEC Corporation", 0x1033),
    ("Amazon.com, Inc.", 0x1D0F),
    ("Google, Inc.", 0x1AE0),
    ("Microsoft Corporation", 0x1414),
    ("Cray Inc", 0x17DB),
    ("Red Hat, Inc.", 0x1AF4),
)
"""Beginning of a description, and the vendor's id."""

DEVICE_OF_NAME = {
    (0x10DE, "GP100GL [Tesla P100 SXM2 16GB]"): 0x15F9,
    (0x10DE, "GV100GL [Tesla V100 SXM3 32GB]"): 0x1DB8,
    (0x10DE, "GA100 [A100 SXM4 40GB]"): 0x20B0,
    (0x10DE, "GA100 [A100 SXM4 80GB]"): 0x20B2,
    (0x10DE, "GA100 [A800 SXM4 80GB]"): 0x20F3,
    (0x10DE, "GH100 [H100 SXM5 80GB]"): 0x2330,
    (0x10DE, "GH100 [H100 PCIe]"): 0x2331,
    (0x10DE, "GH100 [H200 SXM 141GB]"): 0x2335,
    (0x15B3, "MT28908 Family [ConnectX-6]"): 0x101B,
    (0x15B3, "MT2892 Family [ConnectX-6 Dx]"): 0x101D,
    (0x15B3, "MT2910 Family [ConnectX-7]"): 0x1021,
}
"""Device ids of GPUs and NICs whose name belongs to one id only."""


def vendor_and_device(description: str) -> tuple[int | None, int | None]:
    """Return vendor and device id by name; None if the name does not determine it.

    A device that is not in the database is printed as `Device 2330`, its number in hex.
    """
    for name, vendor in VENDOR_OF_NAME:
        if description.startswith(name):
            rest = description[len(name) :].strip()
            word, _, number = rest.partition(" ")
            if word == "Device" and len(number) == 4 and set(number) <= set("0123456789abcdef"):
                return vendor, int(number, 16)
            return vendor, DEVICE_OF_NAME.get((vendor, rest))
    return None, None


_Bus = tuple[str, int]
"""Domain and bus number."""


class BusTree:
    """Parents and root buses of functions."""

    def __init__(
        self,
        addresses: Sequence[str],
        bridges: Mapping[str, tuple[int, int] | None],
        *,
        has_buses: bool = True,
    ) -> None:
        """Connect functions and bridges.

        `bridges` has the secondary and subordinate bus by address, None if unknown. If the source
        has no bus numbers, roots are not known either.
        """
        self.gaps: list[Gap] = []
        self.has_buses = has_buses
        self._bridge_to: dict[_Bus, str] = {}
        for address, buses in bridges.items():
            if buses is None:
                if has_buses:
                    problem = "a bridge without bus numbers: what is below it is not known"
                    self.gaps.append(Gap(address, problem))
            elif buses[0]:  # 0: switched off, nothing below
                self._add(address, *buses)
        self.parent: dict[str, str] = {
            address: bridge
            for address in addresses
            if (bridge := self._bridge_to.get(_bus(address))) is not None
        }

    def root(self, address: str) -> str:
        """Return the root bus of a function: `pci0000:15`."""
        while (bridge := self.parent.get(address)) is not None:
            address = bridge
        return root_of(address)

    def _add(self, address: str, secondary: int, subordinate: int) -> None:
        domain, bus = _bus(address)
        if not bus < secondary <= subordinate:
            problem = f"buses {secondary:02x} to {subordinate:02x} cannot lie below bus {bus:02x}"
            self.gaps.append(Gap(address, f"{problem}: what is below it is not known"))
        elif (rival := self._bridge_to.get((domain, secondary))) is not None:
            problem = f"leads to bus {secondary:02x} as {rival} does, which was taken"
            self.gaps.append(Gap(address, problem))
        else:
            self._bridge_to[domain, secondary] = address


def _bus(address: str) -> _Bus:
    domain, bus, _ = address.split(":")
    return domain, int(bus, 16)


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
_LINK = re.compile(r"Speed (\d{1,3}(?:\.\d{1,3})?)\s?GT/s.*?Width x(\d{1,3})")
_NO_DETAILS = Gap(
    "lspci",
    f"without -v it shows no bridge tree, NUMA nodes and links; {COMMAND} shows them",
)
_NUMA_NODE = re.compile(r"NUMA node: (\d{1,5})")
_MAX_LINE = 1000
"""Characters read of a line; lspci's lines are shorter."""


@dataclass(slots=True)
class _Entry:
    """A function while its lines are read."""

    address: str
    title: str
    verbose: bool = False
    numa_node: int | None = None
    buses: tuple[int, int] | None = None
    """Secondary and subordinate bus of a bridge."""
    capable: PcieLink | None = None
    now: PcieLink | None = None
    denied: bool = False


def parse_lspci(text: str, source: str) -> PciInventory:
    """Parse the output of `lspci -vvv`, or of `lspci -nn`, which has no bridge tree.

    A NIC function becomes one port named after its address (`nic@0000:1a:00.0`), without a speed.
    The text may have prompts and other lines around the output.

    Raises:
        MachineError: not output of lspci, its form -t or -m, or with a repeated function.
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
        ports=tuple(_port(f) for f in functions if f.base_class == NETWORK),
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
                raise MachineError(
                    f"{source}:{number}: {address} is listed a second time; give the output of one "
                    "lspci run on one host"
                )
            seen.add(address)
            entries.append(_Entry(address, header[5][:_MAX_LINE]))
        elif TREE_LINE.match(line):
            raise _other_form("the tree of lspci -t", source, number)
        elif entries and line[:1] in ("\t", " "):
            _read_detail(entries[-1], line)
        if len(entries) > MAX_FUNCTIONS:
            raise MachineError(f"{source}: more than {MAX_FUNCTIONS:,} PCI functions")
    if not entries:
        raise MachineError(
            f"{source}: no line of it describes a PCI function; give the output of {COMMAND}"
        )
    return entries


def _other_form(form: str, source: str, number: int) -> MachineError:
    return MachineError(
        f"{source}:{number}: this is {form}, which has neither links nor NUMA nodes; give the "
        f"output of {COMMAND}"
    )


def _address(header: re.Match[str]) -> str:
    domain, bus, device, function = header.group(1, 2, 3, 4)
    return f"{domain or '0000'}:{bus}:{device}.{function}".lower()


def _read_detail(entry: _Entry, line: str) -> None:
    """Read an indented line; deeper lines are of capabilities."""
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
    elif text.startswith("Capabilities: <access denied>"):
        entry.denied = True


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
    )


def _is_nic(class_code: int | None) -> bool:
    return (class_code or 0) >> 16 == NETWORK


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
    name = f"nic@{function.address}"
    return NicPort(name=name, function=function.address, link_layer=function.link_layer)


def _slow_nics(by_address: dict[str, _Entry], functions: list[PciFunction]) -> list[str]:
    """Return NICs whose link is slower than both of its ends allow."""
    slow = []
    for function in functions:
        own, above = by_address[function.address], by_address.get(function.parent or "")
        ends = [end.capable for end in (own, above) if end is not None and end.capable]
        maximum = min((end.gt_per_s for end in ends), default=0.0)
        if function.base_class == NETWORK and own.now and 0 < own.now.gt_per_s < maximum:
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
    if any(f.base_class == NETWORK for f in functions):
        unknown = "it shows neither names nor speeds of network ports; a probe on the host does"
        gaps.append(Gap("lspci", unknown))
    return gaps


def _cut_gap(text: str, entries: list[_Entry], *, verbose: bool) -> list[Gap]:
    """Return a gap if the text may be cut: lspci ends each line, and with -v each function."""
    lines = text.splitlines()
    ended = text.endswith("\n") and (not verbose or not lines[-1].strip())
    last = entries[-1].address
    return [] if ended else [Gap("lspci", f"the text ends inside {last}: it may be cut there")]
