"""One host as a panel: CPUs, below them PCIe switches, then GPUs and NICs, then the GPU links.

CPUs and switches are bars as wide as the devices below them, so every PCIe link is a short vertical
line and none cross. GPUs and NICs form one row, in the order of their switches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from probes.topology.bandwidth_class import bandwidth_class
from probes.topology.device_tree import Branch, host_trees
from probes.topology.figure_text import device_facts, link_text, short_name, speed
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Topology
from tuccl.views.drawing.scene import (
    BAR_HEIGHT,
    COLUMN,
    GAP,
    LEAF_HEIGHT,
    LEAF_WIDTH,
    Box,
    Scene,
    Wire,
    straight,
)

_PADDING = 22.0
_TITLE_HEIGHT = 34.0
"""Height of the panel's title."""
_LEVEL_PITCH = 70.0
"""Distance from the top of a bar to the top of the boxes below it."""
_CPU_GAP = 76.0
"""Distance between CPUs, with room for the speed of their link."""
_BUS_HEIGHT = 30.0
_PCIE_SHIFT = 18.0
"""Shift of a GPU's PCIe link to make room for its faster link to the CPU."""
_ARC_MIN, _ARC_PER_COLUMN, _ARC_SHIFT = 22.0, 16.0, 5.0
_FABRIC_KINDS = (LinkKind.NVLINK, LinkKind.XGMI)
_MAX_EQUAL_LABELS = 6
_MAX_FAN = 9.0
"""Largest distance of the ends of two arcs at one device."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A host that is drawn."""

    frame: Box
    boxes: dict[str, Box]
    """Boxes by device name."""


def draw_host(host: Topology, title: str, x: float, y: float, scene: Scene) -> Panel:
    """Draw a topology of one host with its upper left corner at `x`, `y`.

    Raises:
        InvalidTopologyError: PCIe switches are nested too deep.
    """
    return _Drawing(host, scene).draw(title, x, y)


class _Drawing:
    """State of the drawing of one host."""

    def __init__(self, host: Topology, scene: Scene) -> None:
        self.host = host
        self.scene = scene
        self.boxes: dict[str, Box] = {}
        self.lefts: dict[str, float] = {}
        self.rights: dict[str, float] = {}
        kinds = {device.name: device.kind for device in host.devices}
        self.linked_to_cpu = {
            link.src
            for link in host.links
            if kinds[link.src] is DeviceKind.GPU
            and kinds[link.dst] is DeviceKind.CPU
            and link.kind is not LinkKind.PCIE
        }
        self.leaf_row = 0.0
        self.next_x = 0.0

    def draw(self, title: str, x: float, y: float) -> Panel:
        trees = host_trees(self.host)
        roots = trees.roots
        cpus = [root.device for root in roots if root.device.kind is DeviceKind.CPU]
        space = self.height_above(cpus)
        top = y + _TITLE_HEIGHT + space
        self.leaf_row = top + _LEVEL_PITCH * max(map(_levels, roots), default=0)
        self.next_x = x + _PADDING
        for root in roots:
            self.assign_columns(root)
            self.next_x += _CPU_GAP - GAP if root.device.kind is DeviceKind.CPU else 0
        for root in roots:
            self.place(root, top, None)
        self.draw_cpu_links(cpus, top)
        self.draw_switch_links(trees.switch_links)
        bottom = self.draw_fabric(self.leaf_row + LEAF_HEIGHT)
        right = max((box.x + box.width for box in self.boxes.values()), default=x + COLUMN)
        width = max(right - x + _PADDING, 8.0 * len(title) + 2 * _PADDING)
        frame = Box(x, y, width, bottom + _PADDING - y, "panel", (title,))
        self.scene.panels.append(frame)
        return Panel(frame, self.boxes)

    def assign_columns(self, branch: Branch) -> None:
        """Assign columns to the branch and all below, from left to right."""
        name = branch.device.name
        self.lefts[name] = self.next_x
        for child in branch.children:
            self.assign_columns(child)
        if branch.children:
            self.rights[name] = self.rights[branch.children[-1].device.name]
            self.next_x += GAP
        else:
            self.rights[name] = self.next_x + LEAF_WIDTH
            self.next_x += COLUMN

    def place(self, branch: Branch, y: float, parent: Box | None) -> None:
        """Place the device's box, its wire to the parent, and all boxes below."""
        device = branch.device
        left, right = self.lefts[device.name], self.rights[device.name]
        if device.kind in (DeviceKind.CPU, DeviceKind.PCIE_SWITCH):
            box = _bar(device, left, y, right - left)
        else:
            facts = _leaf_lines(device)
            tip = _tip(device)
            box = Box(left, self.leaf_row, LEAF_WIDTH, LEAF_HEIGHT, device.kind.value, facts, tip)
        self.boxes[device.name] = box
        self.scene.boxes.append(box)
        if parent is not None and branch.uplink is not None:
            x = box.middle + (_PCIE_SHIFT if device.name in self.linked_to_cpu else 0)
            self.scene.wires.append(straight((x, parent.bottom), (x, box.y), branch.uplink))
        for child in branch.children:
            self.place(child, y + _LEVEL_PITCH, box)

    def height_above(self, cpus: Sequence[Device]) -> float:
        """Height of the links above the CPUs; two CPUs are linked sideways and need none."""
        if len(cpus) < 3 or all(link.kind is not LinkKind.UPI for link in self.host.links):
            return 0.0
        return _BUS_HEIGHT if self.is_uniform() else _ARC_MIN + _ARC_PER_COLUMN * len(cpus)

    def is_uniform(self) -> bool:
        """Whether every two CPUs have a link, all of one class."""
        links = [link for link in self.host.links if link.kind is LinkKind.UPI]
        cpus = sum(device.kind is DeviceKind.CPU for device in self.host.devices)
        classes = {bandwidth_class(link) for link in links}
        return len(links) == cpus * (cpus - 1) and len(classes) == 1

    def draw_cpu_links(self, cpus: Sequence[Device], top: float) -> None:
        boxes = [self.boxes[cpu.name] for cpu in cpus]
        pairs = list(_pairs(self.host, (LinkKind.UPI,)))
        if len(cpus) == 2:
            middle = top + BAR_HEIGHT / 2
            ends = (boxes[0].x + boxes[0].width, middle), (boxes[1].x, middle)
            self.scene.wires += [straight(*ends, link) for link, _ in pairs]
        elif pairs and self.is_uniform():
            link, bus = pairs[0][0], top - _BUS_HEIGHT / 2
            wire = straight((boxes[0].middle, bus), (boxes[-1].middle, bus), link)
            label = f"every pair of CPUs: {speed(link.bandwidth_gb_per_s)}"
            self.scene.wires.append(replace(wire, label=label))
            for box in boxes:
                drop = straight((box.middle, bus), (box.middle, box.y), link)
                self.scene.wires.append(replace(drop, label=""))
        elif pairs:
            pitch = (boxes[-1].middle - boxes[0].middle) / max(len(boxes) - 1, 1)
            self.scene.wires += self.arcs(pairs, top, direction=-1, pitch=pitch)

    def draw_switch_links(self, links: Sequence[Link]) -> None:
        """Draw direct PCIe links between switches, as arcs within a level."""
        for link in links:
            a, b = self.boxes[link.src], self.boxes[link.dst]
            wire = straight((a.middle + GAP, a.y), (b.middle + GAP, b.y), link)
            if a.y == b.y:
                wire = replace(wire, arc=-_ARC_MIN)
            # Off the middle, where a switch between them may have its uplink.
            at = (min(a.middle, b.middle) + LEAF_WIDTH, min(a.y, b.y) - 15)
            self.scene.wires.append(replace(wire, label_at=at, anchor="middle"))

    def draw_fabric(self, bottom: float) -> float:
        """Draw NVLink, xGMI and C2C below the row of GPUs and return their lowest y."""
        pairs = list(_pairs(self.host, (*_FABRIC_KINDS, LinkKind.C2C)))
        kinds = {device.name: device.kind for device in self.host.devices}
        mesh = [pair for pair in pairs if _ends(pair[0], kinds) == {DeviceKind.GPU}]
        arcs = _with_one_label(list(self.arcs(mesh, bottom, direction=1)))
        self.scene.wires += arcs
        lowest = max([bottom, *(bottom + wire.arc + 8 for wire in arcs)])
        switches = [d for d in self.host.devices if d.kind is DeviceKind.NVSWITCH]
        for switch in switches:
            lowest = self.draw_nvswitch(switch, bottom, lowest)
        for link, _ in pairs:
            if DeviceKind.CPU in _ends(link, kinds) and DeviceKind.GPU in _ends(link, kinds):
                self.draw_to_cpu(link, kinds)
        return lowest

    def draw_nvswitch(self, switch: Device, bottom: float, lowest: float) -> float:
        links = [link for link in self.host.links_to[switch.name] if link.src in self.boxes]
        ends = [self.boxes[link.src] for link in links] or list(self.boxes.values())
        left, right = min(box.x for box in ends), max(box.x + box.width for box in ends)
        band = replace(_bar(switch, left, lowest + 46, right - left), style="nvswitch")
        self.boxes[switch.name] = band
        self.scene.boxes.append(band)
        for link in links:
            x = self.boxes[link.src].middle
            self.scene.wires.append(straight((x, bottom), (x, band.y), link))
        return band.bottom

    def draw_to_cpu(self, link: Link, kinds: dict[str, DeviceKind]) -> None:
        """Draw a C2C or NVLink to the CPU, beside the PCIe link and over the switches between."""
        gpu, cpu = link.src, link.dst
        if kinds[gpu] is DeviceKind.CPU:
            gpu, cpu = cpu, gpu
        box, parent = self.boxes[gpu], self.boxes[cpu]
        x = min(max(box.middle - 2 * _PCIE_SHIFT, parent.x + 4), parent.x + parent.width - 4)
        wire = straight((x, parent.bottom), (x, box.y), link, over=True)
        self.scene.wires.append(replace(wire, label_at=(x + 6, box.y - 10)))

    def arcs(
        self,
        pairs: Sequence[tuple[Link, Link | None]],
        y: float,
        direction: int,
        pitch: float = COLUMN,
    ) -> Iterator[Wire]:
        """Yield an arc for each pair; longer arcs reach further, ends at one device are fanned out.

        `pitch` is the usual distance of two neighbours.
        """
        peers: dict[str, list[tuple[float, int]]] = {}
        for number, (link, _) in enumerate(pairs):
            for end, peer in ((link.src, link.dst), (link.dst, link.src)):
                peers.setdefault(end, []).append((self.boxes[peer].middle, number))

        def foot(end: str, number: int) -> float:
            order = sorted(peers[end])
            step = min(_MAX_FAN, (LEAF_WIDTH - 16) / len(order))
            index = next(i for i, (_, pair) in enumerate(order) if pair == number)
            return self.boxes[end].middle + step * (index - (len(order) - 1) / 2)

        of_length = Counter[int]()
        for number, (link, back) in enumerate(pairs):
            a, b = foot(link.src, number), foot(link.dst, number)
            columns = abs(self.boxes[link.src].middle - self.boxes[link.dst].middle) / pitch
            # Arcs of equal length would overlap at their middles.
            shift = _ARC_SHIFT * (of_length[round(columns)] % 3)
            of_length[round(columns)] += 1
            reach = direction * (_ARC_MIN + _ARC_PER_COLUMN * columns + shift)
            wire = straight((a, y), (b, y), link)
            label, tip = wire.label, wire.tip
            if back is not None and bandwidth_class(back) != bandwidth_class(link):
                label = f"{label} / {speed(back.bandwidth_gb_per_s)}"
                tip = f"{tip}; back: {link_text(back)}"
            at = ((a + b) / 2, y + reach + 3)
            yield replace(wire, arc=reach, label=label, tip=tip, label_at=at)


def _with_one_label(arcs: list[Wire]) -> list[Wire]:
    """Keep only the label of the lowest arc if there are many arcs with equal labels."""
    if len(arcs) <= _MAX_EQUAL_LABELS or len({(arc.label, arc.width) for arc in arcs}) > 1:
        return arcs
    lowest = max(range(len(arcs)), key=lambda number: arcs[number].arc)
    blank = [replace(arc, label="") for arc in arcs]
    blank[lowest] = replace(arcs[lowest], label=f"{len(arcs)} pairs, {arcs[lowest].label} each")
    return blank


def _levels(branch: Branch) -> int:
    """Levels from a root down to the row of GPUs and NICs."""
    if branch.device.kind in (DeviceKind.GPU, DeviceKind.NIC):
        return 0
    return 1 + max(map(_levels, branch.children), default=0)


def _pairs(host: Topology, kinds: Sequence[LinkKind]) -> Iterator[tuple[Link, Link | None]]:
    """Yield links of some kinds, each with its reverse link if there is one."""
    seen: set[tuple[str, str, LinkKind]] = set()
    for link in host.links:
        if link.kind not in kinds or (link.dst, link.src, link.kind) in seen:
            continue
        seen.add((link.src, link.dst, link.kind))
        back = host.links_between.get((link.dst, link.src), ())
        yield link, next((reverse for reverse in back if reverse.kind is link.kind), None)


def _ends(link: Link, kinds: dict[str, DeviceKind]) -> set[DeviceKind]:
    return {kinds[link.src], kinds[link.dst]}


def _bar(device: Device, x: float, y: float, width: float) -> Box:
    lines = (short_name(device), device.model)
    if device.kind is DeviceKind.NVSWITCH:
        lines = ("NVSwitch", "")
    tip = _tip(device)
    return Box(x, y, width, BAR_HEIGHT, device.kind.value, lines, tip, bar=True)


def _leaf_lines(device: Device) -> tuple[str, ...]:
    if device.kind is DeviceKind.NIC:
        rate = f"{device.line_rate_gb_per_s * 8:g} Gb/s" if device.line_rate_gb_per_s else ""
        return (short_name(device), device.os_name or device.model, rate)
    memory = f"{device.memory_bytes / 1e9:.0f} GB" if device.memory_bytes else ""
    return (short_name(device), device.model, memory)


def _tip(device: Device) -> str:
    return "  ".join((device.name, *device_facts(device)))
