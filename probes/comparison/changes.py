"""Differences between two topologies of a machine, in sentences: `describe_changes`.

Devices are matched first (see `probes.comparison.device_matching`), so that a missing NIC is
reported as such and not as a renumbering of the NICs after it. Bandwidths are compared by class
(see `probes.topology.bandwidth_class`), so noise is no change. Consequences of a change are
not reported: the links of a missing device, a bridge with nothing else below it, a network link
that slowed down with its port.

A card with several functions is a PCIe switch with a port per function in a topology. A card that
loses its second port loses this switch, though no switch left the machine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from probes.comparison.device_matching import match_devices
from probes.topology.bandwidth_class import bandwidth_class, limit_class, network_class
from probes.topology.figure_text import gpu_architecture, speed
from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from probes.topology.hosts import folded, host_name

_LinkKey = tuple[str, str, LinkKind, int]


def with_figures_of(measured: Topology, probed: Topology) -> Topology:
    """Return a measured topology with the bandwidths that the probe gives for measured links.

    A link has its bandwidth where the probe has one between the same devices, of the same kind and
    with as many lanes. Measured limits of pairs are left out.
    """
    given: defaultdict[_LinkKey, list[Link]] = defaultdict(list)
    for link in with_old_names(measured, probed).links:
        given[_key(link)].append(link)
    links = tuple(
        replace(link, bandwidth_gb_per_s=given[_key(link)].pop(0).bandwidth_gb_per_s)
        if link.provenance is Provenance.MEASURED and given[_key(link)]
        else link
        for link in measured.links
    )
    return replace(measured, links=links, limits=())


def _key(link: Link) -> _LinkKey:
    return link.src, link.dst, link.kind, link.lanes


def functions_of_card(topology: Topology, name: str) -> tuple[str, ...]:
    """Names of the GPU and ports of the card that this switch models; none for a real switch."""
    switch = topology.device[name]
    if switch.kind is not DeviceKind.PCIE_SWITCH or not switch.bus_id:
        return ()
    linked = (topology.device[link.src] for link in topology.links_to[name])
    return tuple(d.name for d in linked if d.kind in _ENDPOINTS and d.bus_id == switch.bus_id)


def without_lone_cards(topology: Topology, reference: Topology) -> Topology:
    """Attach ports to the device above their card, where the reference has no switch for the card.

    Devices of equal name are the same device in both topologies.
    """
    above = {
        device.name: parent
        for device in topology.devices
        if device.name not in reference.device
        and any(name in reference.device for name in functions_of_card(topology, device.name))
        and (parent := _parent(topology, device.name))
    }
    if not above:
        return topology
    moved = (
        replace(link, src=above.get(link.src, link.src), dst=above.get(link.dst, link.dst))
        for link in topology.links
        if not _is_uplink(link, above)
    )
    return replace(
        topology,
        devices=tuple(device for device in topology.devices if device.name not in above),
        links=tuple(moved),
    )


def _parent(topology: Topology, card: str) -> str:
    """Name of the CPU or switch above the card; empty if there is none."""
    for link in topology.links_from[card]:
        kind = topology.device[link.dst].kind
        if link.kind is LinkKind.PCIE and kind in (DeviceKind.CPU, DeviceKind.PCIE_SWITCH):
            return link.dst
    return ""


def _is_uplink(link: Link, above: dict[str, str]) -> bool:
    return above.get(link.src) == link.dst or above.get(link.dst) == link.src


_Pair = tuple[str, str, LinkKind]

_ENDPOINTS = (DeviceKind.GPU, DeviceKind.NIC)
_HANGING_KINDS = (LinkKind.PCIE, LinkKind.NETWORK)

_KIND_NAMES = {
    DeviceKind.GPU: "GPU",
    DeviceKind.NIC: "NIC",
    DeviceKind.PCIE_SWITCH: "PCIe switch",
    DeviceKind.CPU: "CPU",
    DeviceKind.NVSWITCH: "NVSwitch",
    DeviceKind.NETWORK_SWITCH: "network switch",
}
_LINK_NAMES = {
    LinkKind.NVLINK: "NVLink",
    LinkKind.C2C: "C2C",
    LinkKind.XGMI: "xGMI",
    LinkKind.PCIE: "PCIe link",
    LinkKind.UPI: "socket link",
    LinkKind.NETWORK: "network link",
}


@dataclass(frozen=True, slots=True)
class _Change:
    node: int
    """Host of the change; `NETWORK_NODE` for none or several."""
    sentence: str


def describe_changes(old: Topology, new: Topology) -> tuple[str, ...]:
    """Return one sentence per change, none when the fingerprints are equal.

    Both topologies must be valid. Devices come first, then their positions, then links; each in the
    order of the old topology, additions in the order of the new one. Names are those of the old
    topology. Equal changes on several hosts are one sentence.
    """
    if old.fingerprint() == new.fingerprint():
        return ()
    changes = _changes(old, with_old_names(old, new))
    if changes:
        return tuple(_merged_over_hosts(old, changes))
    unexplained = (
        "The machine is wired differently, though no single device or link explains it: "
        "GPU ranks or NICs may have changed places."
    )
    return (unexplained,)


def _changes(old: Topology, new: Topology) -> list[_Change]:
    """Return all changes; devices of the new topology have their old names."""
    old, new = without_lone_cards(old, new), without_lone_cards(new, old)
    return [
        *_devices_removed_or_added(old, new),
        *_devices_changed(old, new),
        *_links_changed(old, new),
        *_limits_changed(old, new),
    ]


def _merged_over_hosts(old: Topology, changes: Iterable[_Change]) -> Iterator[str]:
    """Yield the sentences, equal ones about several hosts as one, at the place of the first."""
    by_sentence: dict[str, list[_Change]] = {}
    for change in changes:
        of_this_host = f"n{change.node}/"
        common = change.sentence.replace(of_this_host, "")
        by_sentence.setdefault(common if change.node >= 0 else change.sentence, []).append(change)
    for common, group in by_sentence.items():
        if len(group) == 1:
            yield group[0].sentence
        else:
            names = folded(host_name(old, change.node) for change in group)
            yield f"On {len(group)} hosts ({names}): {common}"


def describe_figures(old: Topology, new: Topology) -> tuple[str, ...]:
    """Return one sentence per link whose bandwidth changed within its class.

    Both topologies must be valid. Order and names are those of the old topology.
    """
    before, after = _by_pair(old), _by_pair(with_old_names(old, new))
    changes: dict[_Pair, str] = {}
    for pair, links in before.items():
        new_links = after.get(pair, ())
        if (
            new_links
            and _link_change(links, new_links) is None
            and _figures(links) != _figures(new_links)
        ):
            changes[pair] = f"does {_figures(new_links)}, it did {_figures(links)}"
    sentences: dict[_Pair, str] = {}
    for (src, dst, kind), change in changes.items():
        both = changes.get((dst, src, kind)) == change
        if not (both and (dst, src, kind) in sentences):
            arrow = "<->" if both else "->"
            sentences[src, dst, kind] = f"{_LINK_NAMES[kind]} {src} {arrow} {dst} {change}."
    return tuple(sentences.values())


def _figures(links: tuple[Link, ...]) -> str:
    """Format the total bandwidth and its provenance: `386 GB/s (measured)`."""
    sources = sorted({link.provenance.value for link in links})
    return f"{speed(sum(link.bandwidth_gb_per_s for link in links))} ({', '.join(sources)})"


def with_old_names(old: Topology, new: Topology) -> Topology:
    """Return the new topology with the old names of all devices that both have."""
    return _renamed(old, new, match_devices(old, new, _count_changes))


def _count_changes(old: Topology, new: Topology, matched: Mapping[str, str]) -> float:
    """Count the changes of a host under this matching; infinite if it explains nothing."""
    count = len(_changes(old, _renamed(old, new, matched)))
    return count if count or old.fingerprint() == new.fingerprint() else math.inf


def _renamed(old: Topology, new: Topology, matched: Mapping[str, str]) -> Topology:
    names = {
        name: matched.get(name, f"{name} (new)" if name in old.device else name)
        for name in new.device
    }
    return Topology(
        name=new.name,
        devices=tuple(replace(device, name=names[device.name]) for device in new.devices),
        links=tuple(replace(link, src=names[link.src], dst=names[link.dst]) for link in new.links),
        limits=tuple(
            replace(limit, src=names[limit.src], dst=names[limit.dst]) for limit in new.limits
        ),
    )


def _device_name(device: Device) -> str:
    details = ", ".join(detail for detail in (device.os_name, device.bus_id) if detail)
    return f"{_KIND_NAMES[device.kind]} {device.name}" + (f" ({details})" if details else "")


def _devices_removed_or_added(old: Topology, new: Topology) -> Iterator[_Change]:
    for device in _not_in(old, new):
        yield _Change(device.node, f"{_device_name(device)} is missing.")
    for device in _not_in(new, old):
        yield _Change(device.node, f"{_device_name(device)} is new.")


def _not_in(topology: Topology, reference: Topology) -> Iterator[Device]:
    """Devices that the reference lacks, without switches and CPUs with only such devices below.

    Readers leave out forwarding devices with nothing below, so these come and go with the rest.
    """
    lacking = [device for device in topology.devices if device.name not in reference.device]
    endpoints = {device.name for device in lacking if device.kind in _ENDPOINTS}
    implied: set[str] = set()
    found = -1
    while found != len(implied):
        found = len(implied)
        missing = endpoints | implied
        implied |= {
            d.name for d in lacking if _only_served(topology, reference, d, missing)
        } - endpoints
    return (device for device in lacking if device.name not in implied)


def _only_served(
    topology: Topology, reference: Topology, device: Device, missing: set[str]
) -> bool:
    """Whether all devices below this one are missing; one link may lead up from it."""
    links = (*topology.links_from[device.name], *topology.links_to[device.name])
    beside = {
        name for link in links if link.kind is not LinkKind.UPI for name in (link.src, link.dst)
    }
    staying = [topology.device[name].kind for name in beside if name in reference.device]
    max_uplinks = 0 if device.kind is DeviceKind.CPU else 1
    return (
        not beside.isdisjoint(missing)
        and len(staying) <= max_uplinks
        and not any(kind in _ENDPOINTS for kind in staying)
    )


def _devices_changed(old: Topology, new: Topology) -> Iterator[_Change]:
    members, members_now = _members(old), _members(new)
    one_host = len({node for node, _ in members}) == 1
    for was in old.devices:
        now = new.device.get(was.name)
        if now is None:
            continue
        # A missing GPU or NIC shifts the indices after it, which is not reported; indices of NICs
        # matter between hosts only (see `probes.topology.fingerprint`).
        shifted = members[was.node, was.kind] != members_now.get((now.node, now.kind))
        idle = was.kind is DeviceKind.NIC and one_host
        keeps_number = shifted or idle or was.index == now.index
        for change in _device_changes(was, now, keeps_number=keeps_number):
            yield _Change(was.node, f"{_device_name(was)} {change}.")
        if _moved(old, new, was.name):
            above, above_now = _parents(old, was.name), _parents(new, was.name)
            move = f"moved from {_listed(old, above)} to {_listed(new, above_now)}"
            yield _Change(was.node, f"{_device_name(was)} {move}.")


def _members(topology: Topology) -> dict[tuple[int, DeviceKind], set[str]]:
    """Names by host and kind."""
    members: dict[tuple[int, DeviceKind], set[str]] = {}
    for device in topology.devices:
        members.setdefault((device.node, device.kind), set()).add(device.name)
    return members


def _device_changes(was: Device, now: Device, *, keeps_number: bool) -> Iterator[str]:
    """Changes of a GPU or NIC itself."""
    if was.kind is DeviceKind.GPU:
        if _model(was) != _model(now):
            yield f"is another model: {_model(now)}, it was {_model(was)}"
        if not keeps_number:
            yield f"has local rank {now.index}, it had {was.index}"
    if was.kind is DeviceKind.NIC:
        if not keeps_number:
            yield f"is NIC {now.index} of its node, it was NIC {was.index}"
        if _rate_changed(was, now):
            before, after = was.line_rate_gb_per_s, now.line_rate_gb_per_s
            yield f"runs at {_speed(after)}, it ran at {_speed(before)}"


def _rate_changed(was: Device, now: Device) -> bool:
    return network_class(was.line_rate_gb_per_s) != network_class(now.line_rate_gb_per_s)


def _model(gpu: Device) -> str:
    words = "compute capability "
    return f"{gpu.model or 'unknown'} with {gpu_architecture(gpu, words) or f'{words}unknown'}"


def _speed(gb_per_s: float) -> str:
    return f"{gb_per_s * 8:g} Gb/s" if gb_per_s > 0 else "an unknown speed"


def _listed(topology: Topology, names: tuple[str, ...]) -> str:
    return " and ".join(_device_name(topology.device[name]) for name in names)


def _parents(topology: Topology, name: str) -> tuple[str, ...]:
    """Devices that a GPU or NIC is attached to by PCIe or network; none for other devices."""
    if topology.device[name].kind not in _ENDPOINTS:
        return ()
    parents = {link.dst for link in topology.links_from[name] if link.kind in _HANGING_KINDS}
    return tuple(sorted(parents))


def _moved(old: Topology, new: Topology, name: str) -> bool:
    """Whether the device is attached elsewhere, and both parents exist before and after."""
    above, above_now = _parents(old, name), _parents(new, name)
    return (
        bool(above and above_now and above != above_now)
        and all(parent in new.device for parent in above)
        and all(parent in old.device for parent in above_now)
    )


def _links_changed(old: Topology, new: Topology) -> Iterator[_Change]:
    """Changes of links between common devices; equal ones of both directions are one sentence."""
    before, after = _by_pair(old), _by_pair(new)
    changes = {
        pair: change
        for pair in {**before, **after}
        if (change := _link_change(before.get(pair, ()), after.get(pair, ()))) is not None
        and _is_unexplained(old, new, pair)
    }
    reported: set[_Pair] = set()
    for pair, change in changes.items():
        src, dst, kind = pair
        follows = _follows_port(old, new, before.get(pair, ()), after.get(pair, ()))
        if pair in reported or follows or _follows_card(old, pair, changes):
            continue
        back = (dst, src, kind)
        both = changes.get(back) == change
        reported |= {pair, back} if both else {pair}
        sentence = f"{_LINK_NAMES[kind]} {src} {'<->' if both else '->'} {dst} {change}."
        yield _Change(_host_of(old, src, dst), sentence)


def _host_of(topology: Topology, *names: str) -> int:
    """The only host of these devices; `NETWORK_NODE` for several."""
    nodes = {topology.device[name].node for name in names} - {NETWORK_NODE}
    return nodes.pop() if len(nodes) == 1 else NETWORK_NODE


def _is_unexplained(old: Topology, new: Topology, pair: _Pair) -> bool:
    """Whether no missing, new or moved device explains the change of the link."""
    src, dst, kind = pair
    if not all(name in old.device and name in new.device for name in (src, dst)):
        return False
    return kind not in _HANGING_KINDS or not (_moved(old, new, src) or _moved(old, new, dst))


def _follows_port(
    old: Topology, new: Topology, before: tuple[Link, ...], after: tuple[Link, ...]
) -> bool:
    """Whether a link always ran at the rate of its port, whose change is reported."""
    if len(before) != 1 or len(after) != 1:
        return False
    for name in (before[0].src, before[0].dst):
        was, now = old.device[name], new.device[name]
        if was.kind is DeviceKind.NIC and _rate_changed(was, now):
            return _as_fast(before[0], was) and _as_fast(after[0], now)
    return False


def _as_fast(link: Link, port: Device) -> bool:
    return math.isclose(link.bandwidth_gb_per_s, port.line_rate_gb_per_s, rel_tol=1e-6)


def _follows_card(old: Topology, pair: _Pair, changes: Mapping[_Pair, str]) -> bool:
    """Whether a link inside a card changed like the card's own link, from which it is derived."""
    src, dst, kind = pair
    for port, card in ((src, dst), (dst, src)):
        ports = functions_of_card(old, card)
        if port in ports:
            return any(
                changes.get((card, link.dst, kind)) == changes[pair]
                for link in old.links_from[card]
                if link.dst not in ports
            )
    return False


def _limits_changed(old: Topology, new: Topology) -> Iterator[_Change]:
    """Changes of the measured limits between common devices."""
    for src, dst in {**old.limit_between, **new.limit_between}:
        if not all(name in old.device and name in new.device for name in (src, dst)):
            continue
        was, now = old.limit_between.get((src, dst)), new.limit_between.get((src, dst))
        if now is None:
            change = "not limited any more"
        elif was is None:
            change = f"limited to {speed(now.bandwidth_gb_per_s)}"
        elif limit_class(was.bandwidth_gb_per_s) != limit_class(now.bandwidth_gb_per_s):
            speeds = speed(now.bandwidth_gb_per_s), speed(was.bandwidth_gb_per_s)
            change = f"limited to {speeds[0]}, it was to {speeds[1]}"
        else:
            continue
        yield _Change(_host_of(old, src, dst), f"The pair {src} -> {dst} is {change}.")


def _by_pair(topology: Topology) -> dict[_Pair, tuple[Link, ...]]:
    pairs: dict[_Pair, tuple[Link, ...]] = {}
    for link in topology.links:
        key = (link.src, link.dst, link.kind)
        pairs[key] = (*pairs.get(key, ()), link)
    return pairs


def _link_change(before: tuple[Link, ...], after: tuple[Link, ...]) -> str | None:
    """Change of the links of one pair; None if there is none but noise."""
    was = sum(link.bandwidth_gb_per_s for link in before)
    now = sum(link.bandwidth_gb_per_s for link in after)
    if not before or not after:
        return f"is new ({now:g} GB/s)" if after else "is missing" if before else None
    lanes, lanes_now = sum(link.lanes for link in before), sum(link.lanes for link in after)
    speeds = f"{now:g} GB/s, it did {was:g} ({now / was:.0%})"
    if lanes != lanes_now:
        return f"has {lanes_now} lanes, it had {lanes}: {speeds}"
    if sorted(map(bandwidth_class, before)) == sorted(map(bandwidth_class, after)):
        return None
    return f"is {'slower' if now < was else 'faster'}: {speeds}"
