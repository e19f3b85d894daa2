"""The network below the hosts: a bar for each switch, as wide as the picture.

Every NIC's wire runs straight down to the bars of its switches, over other bars; links between
switches are at the right end of the bars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from probes.drawing.host_panel import Panel
from probes.drawing.scene import GAP, Box, Scene, straight
from probes.topology.bandwidth_class import bandwidth_class
from probes.topology.figure_text import counted, device_facts
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Topology

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
