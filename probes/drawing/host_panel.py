"""One host as a panel: CPUs at the top, PCIe switches below, GPUs and NICs, then what joins GPUs.

A CPU and a switch are bars as wide as all that hangs below them, so every PCIe link is a short
vertical line and none cross. GPUs and NICs stand in one row, in the order of their switches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from probes.drawing.scene import (
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
from probes.topology.bandwidth_class import bandwidth_class
from probes.topology.device_tree import Branch, host_trees
from probes.topology.figure_text import device_facts, link_text, short_name, speed
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Topology

_PADDING = 22.0
_HEAD = 34.0
"""Room for the title of the panel."""
_STOREY = 70.0
"""From the top of a bar to the top of what is below it."""
_CPU_GAP = 76.0
"""Between CPUs, with room for the speed of their link."""
_BUS_HEIGHT = 30.0
_BESIDE = 18.0
"""How far the PCIe link of a GPU moves aside for a faster way to its CPU."""
_ARC_LEAST, _ARC_PER_COLUMN, _ARC_SHIFT = 22.0, 16.0, 5.0
_FABRIC_KINDS = (LinkKind.NVLINK, LinkKind.XGMI)
_MOST_LABELS_ALIKE = 6
_MOST_FAN = 9.0
"""Between the ends of two arcs at one device."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A host drawn at its place."""

    frame: Box
    places: dict[str, Box]
    """Boxes by device name."""


def draw_host(host: Topology, title: str, x: float, y: float, scene: Scene) -> Panel:
    """Draw a topology of one host with its upper left corner there.

    Raises:
        InvalidTopologyError: PCIe switches are nested too deep to be a machine's.
    """
    return _Drawing(host, scene).draw(title, x, y)


class _Drawing:
    """A host while it is drawn."""

    def __init__(self, host: Topology, scene: Scene) -> None:
        self.host = host
        self.scene = scene
        self.places: dict[str, Box] = {}
        self.lefts: dict[str, float] = {}
        self.rights: dict[str, float] = {}
        kinds = {device.name: device.kind for device in host.devices}
        self.near_cpu = {
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
        above = self.room_above(cpus)
        top = y + _HEAD + above
        self.leaf_row = top + _STOREY * max(map(_storeys, roots), default=0)
        self.next_x = x + _PADDING
        for root in roots:
            self.spread(root)
            self.next_x += _CPU_GAP - GAP if root.device.kind is DeviceKind.CPU else 0
        for root in roots:
            self.hang(root, top, None)
        self.draw_cpu_links(cpus, top)
        self.draw_switch_links(trees.switch_links)
        bottom = self.draw_fabric(self.leaf_row + LEAF_HEIGHT)
        right = max((box.x + box.width for box in self.places.values()), default=x + COLUMN)
        width = max(right - x + _PADDING, 8.0 * len(title) + 2 * _PADDING)
        frame = Box(x, y, width, bottom + _PADDING - y, "panel", (title,))
        self.scene.panels.append(frame)
        return Panel(frame, self.places)

    def spread(self, branch: Branch) -> None:
        """Give every device its columns, from left to right."""
        name = branch.device.name
        self.lefts[name] = self.next_x
        for child in branch.children:
            self.spread(child)
        if branch.children:
            self.rights[name] = self.rights[branch.children[-1].device.name]
            self.next_x += GAP
        else:
            self.rights[name] = self.next_x + LEAF_WIDTH
            self.next_x += COLUMN

    def hang(self, branch: Branch, y: float, parent: Box | None) -> None:
        """Place the box, its wire to the parent, and all that is below."""
        device = branch.device
        left, right = self.lefts[device.name], self.rights[device.name]
        if device.kind in (DeviceKind.CPU, DeviceKind.PCIE_SWITCH):
            box = _bar(device, left, y, right - left)
        else:
            facts = _leaf_lines(device)
            tip = _tip(device)
            box = Box(left, self.leaf_row, LEAF_WIDTH, LEAF_HEIGHT, device.kind.value, facts, tip)
        self.places[device.name] = box
        self.scene.boxes.append(box)
        if parent is not None and branch.uplink is not None:
            x = box.middle + (_BESIDE if device.name in self.near_cpu else 0)
            self.scene.wires.append(straight((x, parent.bottom), (x, box.y), branch.uplink))
        for child in branch.children:
            self.hang(child, y + _STOREY, box)

    def room_above(self, cpus: Sequence[Device]) -> float:
        """Height that the links between CPUs take above them: two CPUs are linked sideways."""
        if len(cpus) < 3 or all(link.kind is not LinkKind.UPI for link in self.host.links):
            return 0.0
        return _BUS_HEIGHT if self.is_uniform() else _ARC_LEAST + _ARC_PER_COLUMN * len(cpus)

    def is_uniform(self) -> bool:
        """Whether every CPU reaches every other equally fast."""
        links = [link for link in self.host.links if link.kind is LinkKind.UPI]
        cpus = sum(device.kind is DeviceKind.CPU for device in self.host.devices)
        classes = {bandwidth_class(link) for link in links}
        return len(links) == cpus * (cpus - 1) and len(classes) == 1

    def draw_cpu_links(self, cpus: Sequence[Device], top: float) -> None:
        boxes = [self.places[cpu.name] for cpu in cpus]
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
        """Direct PCIe links between switches, as arcs between those of one level."""
        for link in links:
            one, other = self.places[link.src], self.places[link.dst]
            wire = straight((one.middle + GAP, one.y), (other.middle + GAP, other.y), link)
            if one.y == other.y:
                wire = replace(wire, arc=-_ARC_LEAST)
            # Not at the middle, where the uplink of a switch between may be.
            at = (min(one.middle, other.middle) + LEAF_WIDTH, min(one.y, other.y) - 15)
            self.scene.wires.append(replace(wire, label_at=at, anchor="middle"))

    def draw_fabric(self, bottom: float) -> float:
        """NVLink, xGMI and C2C below the row of GPUs; the lowest y that they need."""
        pairs = list(_pairs(self.host, (*_FABRIC_KINDS, LinkKind.C2C)))
        kinds = {device.name: device.kind for device in self.host.devices}
        mesh = [pair for pair in pairs if _ends(pair[0], kinds) == {DeviceKind.GPU}]
        arcs = _told_once(list(self.arcs(mesh, bottom, direction=1)))
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
        links = [link for link in self.host.links_to[switch.name] if link.src in self.places]
        ends = [self.places[link.src] for link in links] or list(self.places.values())
        left, right = min(box.x for box in ends), max(box.x + box.width for box in ends)
        band = replace(_bar(switch, left, lowest + 46, right - left), style="nvswitch")
        self.places[switch.name] = band
        self.scene.boxes.append(band)
        for link in links:
            x = self.places[link.src].middle
            self.scene.wires.append(straight((x, bottom), (x, band.y), link))
        return band.bottom

    def draw_to_cpu(self, link: Link, kinds: dict[str, DeviceKind]) -> None:
        """C2C (or NVLink) to the CPU, beside the PCIe link and over the switches between."""
        gpu, cpu = link.src, link.dst
        if kinds[gpu] is DeviceKind.CPU:
            gpu, cpu = cpu, gpu
        box, parent = self.places[gpu], self.places[cpu]
        x = min(max(box.middle - 2 * _BESIDE, parent.x + 4), parent.x + parent.width - 4)
        wire = straight((x, parent.bottom), (x, box.y), link, over=True)
        self.scene.wires.append(replace(wire, label_at=(x + 6, box.y - 10)))

    def arcs(
        self,
        pairs: Sequence[tuple[Link, Link | None]],
        y: float,
        direction: int,
        pitch: float = COLUMN,
    ) -> Iterator[Wire]:
        """An arc for each pair, longer ones reach further; ends at one device are fanned out.

        `pitch` is the usual distance of two neighbours.
        """
        peers: dict[str, list[tuple[float, int]]] = {}
        for number, (link, _) in enumerate(pairs):
            for end, other in ((link.src, link.dst), (link.dst, link.src)):
                peers.setdefault(end, []).append((self.places[other].middle, number))

        def foot(end: str, number: int) -> float:
            order = sorted(peers[end])
            step = min(_MOST_FAN, (LEAF_WIDTH - 16) / len(order))
            place = next(i for i, (_, which) in enumerate(order) if which == number)
            return self.places[end].middle + step * (place - (len(order) - 1) / 2)

        alike = Counter[int]()
        for number, (link, back) in enumerate(pairs):
            a, b = foot(link.src, number), foot(link.dst, number)
            columns = abs(self.places[link.src].middle - self.places[link.dst].middle) / pitch
            # Arcs as long as each other would run into one at their middles.
            shift = _ARC_SHIFT * (alike[round(columns)] % 3)
            alike[round(columns)] += 1
            reach = direction * (_ARC_LEAST + _ARC_PER_COLUMN * columns + shift)
            wire = straight((a, y), (b, y), link)
            label, tip = wire.label, wire.tip
            if back is not None and bandwidth_class(back) != bandwidth_class(link):
                label = f"{label} / {speed(back.bandwidth_gb_per_s)}"
                tip = f"{tip}; back: {link_text(back)}"
            at = ((a + b) / 2, y + reach + 3)
            yield replace(wire, arc=reach, label=label, tip=tip, label_at=at)


def _told_once(arcs: list[Wire]) -> list[Wire]:
    """One label at the lowest of many arcs if all say the same."""
    if len(arcs) <= _MOST_LABELS_ALIKE or len({(arc.label, arc.width) for arc in arcs}) > 1:
        return arcs
    lowest = max(range(len(arcs)), key=lambda number: arcs[number].arc)
    blank = [replace(arc, label="") for arc in arcs]
    blank[lowest] = replace(arcs[lowest], label=f"{len(arcs)} pairs, {arcs[lowest].label} each")
    return blank


def _storeys(branch: Branch) -> int:
    """Levels from a root down to the row of GPUs and NICs."""
    if branch.device.kind in (DeviceKind.GPU, DeviceKind.NIC):
        return 0
    return 1 + max(map(_storeys, branch.children), default=0)


def _pairs(host: Topology, kinds: Sequence[LinkKind]) -> Iterator[tuple[Link, Link | None]]:
    """Links of some kinds, both directions together."""
    told: set[tuple[str, str, LinkKind]] = set()
    for link in host.links:
        if link.kind not in kinds or (link.dst, link.src, link.kind) in told:
            continue
        told.add((link.src, link.dst, link.kind))
        back = host.links_between.get((link.dst, link.src), ())
        yield link, next((other for other in back if other.kind is link.kind), None)


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
