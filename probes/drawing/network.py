"""The network below the hosts: a bar for each switch, as wide as the picture.

Every NIC's wire runs straight down to the bars that it is plugged into, over those that it is not;
links between switches stand at the right end of the bars.
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
_ABOVE = 46.0
"""From the hosts to the first bar: room for the speeds of the wires."""
_MOST_SWITCHES = 16
_MOST_TRUNKS = 24
_TRUNK_PITCH = 58.0


def draw_network(topology: Topology, panels: Sequence[Panel], y: float, scene: Scene) -> float:
    """Draw the switches that the drawn hosts reach; the y below all of it."""
    switches = _reached(topology, panels)
    if not switches:
        return y
    left = panels[0].frame.x
    right = max(panel.frame.x + panel.frame.width for panel in panels)
    trunks = _trunks(topology, switches)
    bars: dict[str, Box] = {}
    for number, switch in enumerate(switches):
        width = right - left + _TRUNK_PITCH * len(trunks)
        top = y + _ABOVE + number * _PITCH
        ports = sum(
            topology.device[link.src].kind is DeviceKind.NIC
            for link in topology.links_to[switch.name]
        )
        lines = (f"{switch.name}: {counted(ports, 'NIC')}" if ports else switch.name, "")
        tip = "  ".join((switch.name, *device_facts(switch)))
        bars[switch.name] = Box(left, top, width, _BAR, "network_switch", lines, tip, bar=True)
    scene.boxes += bars.values()
    for panel in panels:
        _plug(topology, panel, bars, scene)
    for number, link in enumerate(trunks):
        a, b = sorted((bars[link.src], bars[link.dst]), key=lambda bar: bar.y)
        x = right + _TRUNK_PITCH * (number + 0.5)
        wire = straight((x, a.y + _BAR / 2), (x, b.y + _BAR / 2), link, over=True)
        # In the gap below the upper bar.
        scene.wires.append(replace(wire, label_at=(x + 6, a.y + _BAR + 8), plugged_above=True))
    return y + _ABOVE + len(switches) * _PITCH


def network_remarks(topology: Topology, panels: Sequence[Panel]) -> list[str]:
    """What of the network is not drawn, a sentence each."""
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


def _plug(topology: Topology, panel: Panel, bars: dict[str, Box], scene: Scene) -> None:
    for name, box in panel.places.items():
        cables = [link for link in topology.links_from[name] if link.dst in bars]
        for number, link in enumerate(cables):
            bar = bars[link.dst]
            x = box.middle + GAP * (number - (len(cables) - 1) / 2)
            wire = straight((x, box.bottom), (x, bar.y + _BAR / 2), link, over=True)
            label = wire.label if number == 0 else ""
            at = (box.middle + 6, panel.frame.bottom + 24)
            scene.wires.append(replace(wire, label=label, label_at=at))


def _reached(topology: Topology, panels: Sequence[Panel]) -> list[Device]:
    """Switches at the NICs that are drawn, then those behind them, so many as a picture bears."""
    found: dict[str, Device] = {}
    edge = [name for panel in panels for name in panel.places]
    while edge:
        reached = [
            link.dst
            for name in edge
            for link in topology.links_from.get(name, ())
            if topology.device[link.dst].kind is DeviceKind.NETWORK_SWITCH
        ]
        edge = [name for name in dict.fromkeys(reached) if name not in found]
        edge = edge[: _MOST_SWITCHES - len(found)]
        found |= {name: topology.device[name] for name in edge}
    return list(found.values())


def _trunks(topology: Topology, switches: Sequence[Device]) -> list[Link]:
    """One link for each pair of drawn switches."""
    drawn = {switch.name for switch in switches}
    pairs: dict[tuple[frozenset[str], int], Link] = {}
    for switch in switches:
        for link in topology.links_from[switch.name]:
            if link.dst in drawn:
                pairs.setdefault((frozenset((link.src, link.dst)), bandwidth_class(link)), link)
    return list(pairs.values())[:_MOST_TRUNKS]
