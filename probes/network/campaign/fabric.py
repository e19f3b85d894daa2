"""The network between hosts as devices and links: `attach_network`.

One switch per network that the measurements show: `fabric` where NICs of every index reach each
other, `rail0`, `rail1`, ... where each index is a network of its own (as
`probes.topology.replicate` builds them, so that a cluster that was probed equals one that was
described). Where two racks or more are known, a network has a leaf switch per rack and a spine.

A NIC's link has the figure of its class, since one measurement scatters more than the class does;
only a port that is out of line has its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from probes.network.campaign.findings import Findings
from probes.network.campaign.outliers import Role
from probes.network.campaign.port_figures import LinkFigures, PortFigures
from probes.network.port_groups import NO_NETWORK
from probes.network.ports import NetworkPort
from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)

_SHOWN = 6
"""Names in a note before the rest is counted."""


def attach_network(
    topology: Topology, ports: Sequence[NetworkPort], findings: Findings
) -> Topology:
    """Connect the NICs of a cluster's hosts by what was measured.

    Args:
        topology: the hosts, with NICs named `n{host}/nic{nic}` and no network between them.
        ports: what was measured, as it was given to the campaign.
        findings: of the campaign.

    Returns:
        The cluster with network switches and links, and the findings' notes. A single host stays
        as it is, without a network.
    """
    notes = [*topology.notes, *findings.notes]
    if len({port.host for port in ports}) < 2:
        return replace(topology, notes=tuple(notes))
    known = _ports_of_nics(topology, ports, findings)
    networks = _networks(ports, findings, known)
    figures = PortFigures(ports, findings, networks)
    attached = [place for place in known if figures.link(place, Role.SENDS) is not None]
    notes += _port_notes(topology, ports, findings, known, figures)
    devices: list[Device] = []
    links: list[Link] = []
    for network, name in _switch_names(ports, networks, attached).items():
        members = [place for place in attached if networks[place] == network]
        racks = findings.groups.racks
        leaves = _leaves(name, sorted({racks[place] for place in members}))
        devices += [_switch(leaf, len(devices) + i) for i, leaf in enumerate(leaves.values())]
        for place in members:
            links += _cable(ports[place], leaves.get(racks[place], name), place, figures)
        if len(set(leaves.values())) > 1:
            devices.append(_switch(f"{name}-spine", len(devices)))
            links += _uplinks(f"{name}-spine", leaves, members, racks, figures)
            notes.append(
                f"{name}: the links of its {len(leaves)} leaf switches are taken as wide as what "
                "the ports of a rack did together, which is the least that they can be."
            )
    return replace(
        topology,
        devices=(*topology.devices, *devices),
        links=(*topology.links, *links),
        notes=tuple(notes),
    )


def _ports_of_nics(
    topology: Topology, ports: Sequence[NetworkPort], findings: Findings
) -> list[int]:
    """One reachable port for every NIC of the topology that has any; measured ones first."""
    unreachable, unmeasured = set(findings.unreachable_ports), set(findings.unmeasured_ports)
    chosen: dict[str, int] = {}
    for place in sorted(range(len(ports)), key=lambda i: (i in unmeasured, i)):
        name = _nic(ports[place])
        if name in topology.device and place not in unreachable:
            chosen.setdefault(name, place)
    return sorted(chosen.values())


def _nic(port: NetworkPort) -> str:
    return f"n{port.host}/nic{port.nic}"


def _networks(
    ports: Sequence[NetworkPort], findings: Findings, known: Iterable[int]
) -> tuple[int, ...]:
    """Networks of all ports; one that could not be measured is where most of its rail are."""
    networks = list(findings.networks)
    of_rail: dict[int, Counter[int]] = {}
    for place in known:
        if networks[place] != NO_NETWORK:
            of_rail.setdefault(ports[place].nic, Counter())[networks[place]] += 1
    everywhere = {network for network in networks if network != NO_NETWORK}
    following = max(everywhere, default=NO_NETWORK) + 1
    for place in known:
        if networks[place] != NO_NETWORK:
            continue
        rail = ports[place].nic
        if rail not in of_rail:
            # Nobody knows this rail: the only network there is, else one of its own.
            of_rail[rail] = Counter(everywhere if len(everywhere) == 1 else {following: 1})
            following += 1
        networks[place] = of_rail[rail].most_common(1)[0][0]
    return tuple(networks)


def _switch_names(
    ports: Sequence[NetworkPort], networks: Sequence[int], attached: Iterable[int]
) -> dict[int, str]:
    """By network, in the order of rails."""
    rails: dict[int, set[int]] = {}
    for place in attached:
        rails.setdefault(networks[place], set()).add(ports[place].nic)
    order = sorted(rails, key=lambda network: (min(rails[network]), network))
    one_rail_each = all(len(members) == 1 for members in rails.values())
    if one_rail_each and len(set().union(*rails.values())) == len(rails):
        return {network: f"rail{min(rails[network])}" for network in order}
    if len(rails) == 1:
        return {order[0]: "fabric"}
    return {network: f"network{number}" for number, network in enumerate(order)}


def _leaves(name: str, racks: Sequence[str]) -> dict[str, str]:
    """Switch of every rack; the same for all where less than two racks are known."""
    if sum(1 for rack in racks if rack) < 2:
        return {racks[0]: name}
    return {rack: f"{name}-leaf{number}" for number, rack in enumerate(racks)}


def _switch(name: str, index: int) -> Device:
    return Device(name, DeviceKind.NETWORK_SWITCH, NETWORK_NODE, index)


def _link(src: str, dst: str, figures: LinkFigures) -> Link:
    return Link(
        src,
        dst,
        LinkKind.NETWORK,
        figures.bandwidth_gb_per_s,
        figures.latency_us,
        figures.provenance,
        latency_provenance=figures.latency_provenance,
        spread=figures.spread,
    )


def _cable(port: NetworkPort, switch: str, place: int, figures: PortFigures) -> Iterable[Link]:
    up, down = figures.link(place, Role.SENDS), figures.link(place, Role.RECEIVES)
    if up is not None and down is not None:
        yield _link(_nic(port), switch, up)
        yield _link(switch, _nic(port), down)


def _uplinks(
    spine: str,
    leaves: dict[str, str],
    members: Sequence[int],
    racks: Sequence[str],
    figures: PortFigures,
) -> Iterable[Link]:
    of_rack: dict[str, list[int]] = {}
    for place in members:
        of_rack.setdefault(racks[place], []).append(place)
    for rack, leaf in leaves.items():
        across = figures.uplink(of_rack[rack])
        for src, dst in ((leaf, spine), (spine, leaf)):
            yield replace(_link(src, dst, across), lanes=len(of_rack[rack]))


def _port_notes(
    topology: Topology,
    ports: Sequence[NetworkPort],
    findings: Findings,
    known: Sequence[int],
    figures: PortFigures,
) -> Iterable[str]:
    """What was assumed of which ports."""
    served = {_nic(ports[place]) for place in known}
    listed = {_nic(port) for port in ports}
    cut = [nic.name for nic in topology.nics if nic.name in listed - served]
    absent = [nic.name for nic in topology.nics if nic.name not in listed]
    links = {place: figures.link(place, Role.SENDS) for place in known}
    mute = [ports[place].label for place, link in links.items() if link is None]
    by_rate = [
        ports[place].label
        for place, link in links.items()
        if link is not None and link.provenance is Provenance.SYSFS
    ]
    unmeasured = set(findings.unmeasured_ports)
    by_class = [
        ports[place].label
        for place, link in links.items()
        if place in unmeasured and link is not None and link.provenance is Provenance.MEASURED
    ]
    for names, what in (
        (cut, "have no network link, because nothing reaches them"),
        (absent, "have no network link, because they have no port that is up"),
        (mute, "have no network link, because neither a measurement nor they tell a speed"),
        (by_rate, "have the bandwidth of their line rate, because nothing measured it"),
        (by_class, "were not measured and have the figures of their class"),
    ):
        if names:
            rest = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            yield f"NICs that {what}: {', '.join(names[:_SHOWN])}{rest}."
