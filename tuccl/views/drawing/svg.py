"""`draw_svg`: a picture of devices and links.

Hosts of equal fingerprint are drawn once with their number, up to four kinds of host side by side.
Equal topologies give equal text, byte for byte. The picture is self-contained: no script, no font,
no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from xml.sax.saxutils import escape

from probes.topology.bandwidth_class import bandwidth_class
from probes.topology.figure_text import LINK_NAMES, counted, device_facts, speed, summary
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Topology
from probes.topology.hosts import HostGroup, folded, host_name, hosts_alike
from tuccl.errors import MachineError
from tuccl.views.drawing.host_panel import Panel, draw_host
from tuccl.views.drawing.scene import GAP, Box, Scene, Text, Wire, straight

_BAR, _PITCH = 20.0, 30.0
_TOP_GAP = 46.0
"""Distance from the hosts to the first bar, with room for the speeds of the wires."""
_MAX_SWITCHES = 16
_MAX_TRUNKS = 24
_TRUNK_PITCH = 58.0


def draw_network(topology: Topology, panels: Sequence[Panel], y: float, scene: Scene) -> float:
    """Draw the switches that the drawn hosts reach and return the y below them."""
    switches = _reached(topology, panels)
    if not switches:
        return y
    left = panels[0].frame.x
    right = max(panel.frame.x + panel.frame.width for panel in panels)
    trunks = _trunks(topology, switches)
    bars: dict[str, Box] = {}
    for number, switch in enumerate(switches):
        width = right - left + _TRUNK_PITCH * len(trunks)
        top = y + _TOP_GAP + number * _PITCH
        ports = sum(
            topology.device[link.src].kind is DeviceKind.NIC
            for link in topology.links_to[switch.name]
        )
        lines = (f"{switch.name}: {counted(ports, 'NIC')}" if ports else switch.name, "")
        tip = "  ".join((switch.name, *device_facts(switch)))
        bars[switch.name] = Box(left, top, width, _BAR, "network_switch", lines, tip, bar=True)
    scene.boxes += bars.values()
    for panel in panels:
        _draw_cables(topology, panel, bars, scene)
    for number, link in enumerate(trunks):
        a, b = sorted((bars[link.src], bars[link.dst]), key=lambda bar: bar.y)
        x = right + _TRUNK_PITCH * (number + 0.5)
        wire = straight((x, a.y + _BAR / 2), (x, b.y + _BAR / 2), link, over=True)
        # In the gap below the upper bar.
        scene.wires.append(replace(wire, label_at=(x + 6, a.y + _BAR + 8), plugged_above=True))
    return y + _TOP_GAP + len(switches) * _PITCH


def network_remarks(topology: Topology, panels: Sequence[Panel]) -> list[str]:
    """Return a sentence for each kind of network device or cable that is not drawn."""
    remarks = []
    total = sum(device.kind is DeviceKind.NETWORK_SWITCH for device in topology.devices)
    hidden = total - len(_reached(topology, panels))
    if hidden:
        remarks.append(f"{counted(hidden, 'more network switch')} not drawn.")
    cables = {
        frozenset((link.src, link.dst))
        for link in topology.links
        if link.kind is LinkKind.NETWORK
        and topology.device[link.src].kind is DeviceKind.NIC
        and topology.device[link.dst].kind is DeviceKind.NIC
    }
    if cables:
        remarks.append(f"{counted(len(cables), 'cable')} from NIC to NIC not drawn.")
    return remarks


def _draw_cables(topology: Topology, panel: Panel, bars: dict[str, Box], scene: Scene) -> None:
    for name, box in panel.boxes.items():
        cables = [link for link in topology.links_from[name] if link.dst in bars]
        for number, link in enumerate(cables):
            bar = bars[link.dst]
            x = box.middle + GAP * (number - (len(cables) - 1) / 2)
            wire = straight((x, box.bottom), (x, bar.y + _BAR / 2), link, over=True)
            label = wire.label if number == 0 else ""
            at = (box.middle + 6, panel.frame.bottom + 24)
            scene.wires.append(replace(wire, label=label, label_at=at))


def _reached(topology: Topology, panels: Sequence[Panel]) -> list[Device]:
    """Return the switches next to the drawn NICs, then those behind, up to `_MAX_SWITCHES`."""
    found: dict[str, Device] = {}
    edge = [name for panel in panels for name in panel.boxes]
    while edge:
        reached = [
            link.dst
            for name in edge
            for link in topology.links_from.get(name, ())
            if topology.device[link.dst].kind is DeviceKind.NETWORK_SWITCH
        ]
        edge = [name for name in dict.fromkeys(reached) if name not in found]
        edge = edge[: _MAX_SWITCHES - len(found)]
        found |= {name: topology.device[name] for name in edge}
    return list(found.values())


def _trunks(topology: Topology, switches: Sequence[Device]) -> list[Link]:
    """Return one link per class for each pair of drawn switches."""
    drawn = {switch.name for switch in switches}
    pairs: dict[tuple[frozenset[str], int], Link] = {}
    for switch in switches:
        for link in topology.links_from[switch.name]:
            if link.dst in drawn:
                pairs.setdefault((frozenset((link.src, link.dst)), bandwidth_class(link)), link)
    return list(pairs.values())[:_MAX_TRUNKS]


MAX_HOST_DEVICES = 256
"""Most devices of one host in a picture."""
_MAX_HOSTS = 4
_MARGIN = 28.0
_HOST_GAP = 44.0
_HEADER = 76.0
_LINE = 19.0
"""Line pitch of the legend and the remarks."""
_CHAR_WIDTH = 0.58
"""Mean width of a character, in font heights."""

_COLOURS = {
    LinkKind.PCIE: "#64748b",
    LinkKind.NVLINK: "#4d8f0c",
    LinkKind.XGMI: "#c2410c",
    LinkKind.C2C: "#0f766e",
    LinkKind.UPI: "#7c3aed",
    LinkKind.NETWORK: "#0369a1",
}
_FILLS = {
    DeviceKind.GPU: ("#e7f5d3", "#4d8f0c"),
    DeviceKind.NIC: ("#dbeefb", "#0369a1"),
    DeviceKind.CPU: ("#ede9fe", "#7c3aed"),
    DeviceKind.PCIE_SWITCH: ("#e8edf3", "#64748b"),
    DeviceKind.NVSWITCH: ("#cdeaa6", "#4d8f0c"),
    DeviceKind.NETWORK_SWITCH: ("#c7e4f7", "#0369a1"),
}
_STYLE = """text{font-family:Inter,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;fill:#1e293b}
.panel{fill:#ffffff;stroke:#cbd5e1}
.head{font-size:20px;font-weight:bold}
.sub{font-size:12px;fill:#475569}
.title{font-size:13px;font-weight:bold;fill:#334155}
.name{font-size:12px;font-weight:bold}
.fact{font-size:10px;fill:#475569}
.speed{font-size:10px;fill:#334155}
.ground{fill:#ffffff;fill-opacity:.85}
.measured{font-weight:bold}
.assumed{font-style:italic;fill:#64748b}"""


def draw_svg(topology: Topology) -> str:
    """Draw a topology as SVG text, with a newline at the end. Link figures must be valid.

    Raises:
        MachineError: a host has more devices than a picture can show.
        InvalidTopologyError: PCIe switches are nested too deep.
    """
    groups = hosts_alike(topology)
    for group in groups:
        if len(group.example.devices) > MAX_HOST_DEVICES:
            raise MachineError(
                f"topology '{topology.name}': host {group.example.name} has "
                f"{len(group.example.devices):,} devices, a picture shows {MAX_HOST_DEVICES} at "
                "most; read it as a tree"
            )
    scene = Scene()
    panels: list[Panel] = []
    x = _MARGIN
    for group in groups[:_MAX_HOSTS]:
        panel = draw_host(group.example, _title(topology, group), x, _HEADER, scene)
        if len(group.nodes) > 1:
            scene.panels[-1:] = [*_cards(panel.frame), panel.frame]
        panels.append(panel)
        x += panel.frame.width + _HOST_GAP
    bottom = max((panel.frame.bottom for panel in panels), default=_HEADER)
    bottom = draw_network(topology, panels, bottom, scene)
    _add_heading(topology, scene)
    remarks = [*_remarks(topology, groups), *network_remarks(topology, panels)]
    return _document(topology.name, scene, bottom + 34, remarks)


def _title(topology: Topology, group: HostGroup) -> str:
    names = _cut(folded(host_name(topology, node) for node in group.nodes), 64)
    is_host = len(group.nodes) == 1 and group.example.host_count == 1
    return f"{group.kind}{'' if is_host else ':'} {names}"


def _cards(frame: Box) -> list[Box]:
    """Frames behind a panel, which show that it represents several hosts."""
    return [
        Box(frame.x + shift, frame.y + shift, frame.width, frame.height, "panel")
        for shift in (10.0, 5.0)
    ]


def _add_heading(topology: Topology, scene: Scene) -> None:
    text = f"{summary(topology.devices, topology.host_count)}; fingerprint {topology.fingerprint()}"
    scene.texts.append(Text(_MARGIN, 36, _cut(topology.name, 80), "head"))
    scene.texts.append(Text(_MARGIN, 56, text, "sub"))


def _remarks(topology: Topology, groups: tuple[HostGroup, ...]) -> Iterator[str]:
    hidden = groups[_MAX_HOSTS:]
    if hidden:
        hosts = sum(len(group.nodes) for group in hidden)
        yield f"{counted(hosts, 'host')} of {counted(len(hidden), 'more kind')} not drawn."
    if topology.limits:
        slowest = min(topology.limits, key=lambda limit: limit.bandwidth_gb_per_s)
        yield (
            f"{counted(len(topology.limits), 'pair')} measured slower than the links between them; "
            f"slowest: {slowest.src} to {slowest.dst}, {speed(slowest.bandwidth_gb_per_s)}."
        )


def _document(name: str, scene: Scene, bottom: float, remarks: list[str]) -> str:
    kinds = [kind for kind in LinkKind if any(w.link.kind is kind for w in scene.wires)]
    legend, end_of_legend = _legend(kinds, bottom)
    notes = [
        Text(_MARGIN, bottom + _LINE * (2.2 + i), text, "sub") for i, text in enumerate(remarks)
    ]
    boxes = [*scene.panels, *scene.boxes]
    right = max(
        end_of_legend,
        *(box.x + box.width for box in boxes),
        *(text.x + 7.2 * len(text.text) for text in (*notes, *scene.texts)),
        *(wire.label_at[0] + 48 for wire in scene.wires),
    )
    width, height = round(right + _MARGIN), round(bottom + _LINE * (2.6 + len(remarks)))
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">'
    )
    elements = [
        root,
        f"<title>{escape(name)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#f8fafc"/>',
        *map(_panel, scene.panels),
        *(_wire(wire) for wire in scene.wires if not wire.over),
        *map(_box, scene.boxes),
        *(_wire(wire) for wire in scene.wires if wire.over),
        *(_label(wire) for wire in scene.wires if wire.label),
        *legend,
        *map(_text, (*scene.texts, *notes)),
        "</svg>",
    ]
    return "\n".join(elements) + "\n"


def _panel(box: Box) -> str:
    rect = f'<rect class="panel" {_frame(box)} rx="10"/>'
    return rect + "".join(_text(Text(box.x + 20, box.y + 23, line, "title")) for line in box.lines)


def _box(box: Box) -> str:
    fill, stroke = _FILLS[DeviceKind(box.style)]
    elements = [
        f"<g><title>{escape(box.tip)}</title>",
        f'<rect {_frame(box)} rx="5" fill="{fill}" stroke="{stroke}"/>',
    ]
    if box.bar:
        name, fact = box.lines
        elements.append(_text(Text(box.x + 10, box.y + box.height / 2 + 4.5, name, "name")))
        max_chars = (box.width - 28) / (10 * _CHAR_WIDTH) - len(name) * 1.3
        if fact and len(fact) <= max_chars:
            style = f'class="fact" text-anchor="end" x="{_n(box.x + box.width - 10)}"'
            elements.append(
                f'<text {style} y="{_n(box.y + box.height / 2 + 4)}">{escape(fact)}</text>'
            )
    else:
        for row, line in enumerate(box.lines):
            style = "name" if row == 0 else "fact"
            size = 12 if row == 0 else 10
            cut = escape(_cut(line, int((box.width - 6) / (size * _CHAR_WIDTH))))
            position = f'x="{_n(box.middle)}" y="{_n(box.y + 16 + 13 * row)}"'
            elements.append(f'<text class="{style}" text-anchor="middle" {position}>{cut}</text>')
    return "".join(elements) + "</g>"


def _wire(wire: Wire) -> str:
    (x1, y1), (x2, y2) = wire.start, wire.end
    path = f"M{_n(x1)} {_n(y1)}"
    if wire.arc:
        # The curve reaches three quarters as far as its control points.
        y = y1 + wire.arc * 4 / 3
        path += f"C{_n(x1)} {_n(y)} {_n(x2)} {_n(y)} {_n(x2)} {_n(y2)}"
    else:
        path += f"L{_n(x2)} {_n(y2)}"
    colour = _COLOURS[wire.link.kind]
    dash = ' stroke-dasharray="5 4"' if wire.dashed else ""
    halo = ""
    if wire.over:
        halo = f'<path d="{path}" stroke="#ffffff" stroke-width="{_n(wire.width + 4)}"/>'
    line = f'<path d="{path}" stroke="{colour}" stroke-width="{_n(wire.width)}"{dash}/>'
    plug = ""
    if wire.over and wire.link.kind is LinkKind.NETWORK:
        plug = "".join(
            f'<circle cx="{_n(x)}" cy="{_n(y)}" r="4.5" fill="{colour}" stroke="#ffffff"/>'
            for x, y in (wire.start, wire.end)[not wire.plugged_above :]
        )
    tip = f"<title>{escape(wire.tip)}</title>"
    return f'<g fill="none">{tip}{halo}{line}{plug}</g>'


def _label(wire: Wire) -> str:
    x, y = wire.label_at
    width = 10 * _CHAR_WIDTH * len(wire.label) + 4
    left = x - 2 if wire.anchor == "start" else x - width / 2
    ground = Box(left, y - 9.5, width, 13, "")
    position = f'x="{_n(x)}" y="{_n(y)}" text-anchor="{wire.anchor}"'
    return (
        f'<rect class="ground" {_frame(ground)}/>'
        f'<text class="speed {wire.link.provenance.value}" {position}>{escape(wire.label)}</text>'
    )


def _legend(kinds: list[LinkKind], y: float) -> tuple[list[str], float]:
    """Draw a sample of every kind of link, and below it the text styles by provenance."""
    elements: list[str] = []
    x = _MARGIN
    for kind in kinds:
        elements += [
            _sample(x, y, _COLOURS[kind]),
            _text(Text(x + 34, y + 4, LINK_NAMES[kind], "sub")),
        ]
        x += 34 + 12 * _CHAR_WIDTH * len(LINK_NAMES[kind]) + 20
    right, x, y = x, _MARGIN, y + _LINE
    elements.append(_sample(x, y, "#64748b", ' stroke-dasharray="5 4"'))
    x += 34
    for text, style in (
        ("assumed", "speed assumed"),
        ("data sheet or system", "speed"),
        ("measured", "speed measured"),
        ("GB/s per direction; thicker is faster", "speed"),
    ):
        elements.append(_text(Text(x, y + 4, text, style)))
        x += 10 * _CHAR_WIDTH * len(text) + 22
    return elements, max(right, x)


def _sample(x: float, y: float, colour: str, dash: str = "") -> str:
    return f'<path d="M{_n(x)} {_n(y)}h28" stroke="{colour}" stroke-width="3"{dash}/>'


def _text(text: Text) -> str:
    return (
        f'<text class="{text.style}" x="{_n(text.x)}" y="{_n(text.y)}">{escape(text.text)}</text>'
    )


def _frame(box: Box) -> str:
    return f'x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}"'


def _n(number: float) -> str:
    """Format a coordinate with at most one decimal."""
    return f"{number:.1f}".removesuffix(".0")


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max(max_chars - 1, 1)]}…"
