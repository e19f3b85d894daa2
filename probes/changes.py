"""What became different between two looks at a machine, in words: `describe_changes`.

Devices are matched by bus id where both looks know them, else by name, so that a missing NIC is
reported as that and not as a renumbering of all behind it. Speeds count by class (see
`probes.bandwidth_class`): noise is no change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from probes.bandwidth_class import bandwidth_class, limit_class, network_class
from probes.figure_text import speed
from probes.topology import Device, DeviceKind, Link, LinkKind, Topology

_Pair = tuple[str, str, LinkKind]

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


def describe_changes(old: Topology, new: Topology) -> tuple[str, ...]:
    """One sentence per change, empty when the fingerprints are equal.

    Both topologies must be valid. Devices come first, then where they sit, then links; each in the
    order of the old topology, what was added in the order of the new one. Names are those of the
    old topology.
    """
    if old.fingerprint() == new.fingerprint():
        return ()
    new = _with_old_names(old, new)
    changes = (
        *_devices_gone_or_new(old, new),
        *_devices_changed(old, new),
        *_links_changed(old, new),
        *_limits_changed(old, new),
    )
    if changes:
        return changes
    unexplained = (
        "The machine is wired differently, though no single device or link explains it: "
        "GPU ranks or NICs may have changed places."
    )
    return (unexplained,)


def describe_figures(old: Topology, new: Topology) -> tuple[str, ...]:
    """One sentence per link whose bandwidth reads differently though its class is the same.

    Both topologies must be valid. In the order of the links of the old topology and in its names.
    """
    before, after = _by_pair(old), _by_pair(_with_old_names(old, new))
    told: dict[_Pair, str] = {}
    for pair, links in before.items():
        others = after.get(pair, ())
        if others and _link_change(links, others) is None and _figures(links) != _figures(others):
            told[pair] = f"does {_figures(others)}, it did {_figures(links)}"
    sentences: dict[_Pair, str] = {}
    for (src, dst, kind), change in told.items():
        both = told.get((dst, src, kind)) == change
        if not (both and (dst, src, kind) in sentences):
            arrow = "<->" if both else "->"
            sentences[src, dst, kind] = f"{_LINK_NAMES[kind]} {src} {arrow} {dst} {change}."
    return tuple(sentences.values())


def _figures(links: tuple[Link, ...]) -> str:
    """`386 GB/s (measured)`."""
    sources = sorted({link.provenance.value for link in links})
    return f"{speed(sum(link.bandwidth_gb_per_s for link in links))} ({', '.join(sources)})"


def _with_old_names(old: Topology, new: Topology) -> Topology:
    """The new topology with the old names for every device that both have."""
    matched = _matched(old, new)
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


def _matched(old: Topology, new: Topology) -> dict[str, str]:
    """Names in the old topology by names in the new one, for the devices that both have."""
    by_bus = _match_by(old, new, lambda device: (device.node, device.kind, device.bus_id))
    by_bus = {now: was for now, was in by_bus.items() if old.device[was].bus_id}
    by_name = _match_by(old, new, lambda device: (device.name, device.kind))
    if 2 * len(by_bus) < sum(1 for device in old.devices if device.bus_id):
        # Buses were renumbered: their ids say nothing any more.
        return by_name
    without_bus = {
        now: was for now, was in by_name.items() if not (old.device[was].bus_id or now in by_bus)
    }
    return by_bus | without_bus


def _match_by(
    old: Topology, new: Topology, key: Callable[[Device], tuple[object, ...]]
) -> dict[str, str]:
    """Old names by new names of the devices whose key is unique on both sides and equal."""
    by_key = []
    for topology in (old, new):
        count = Counter(key(device) for device in topology.devices)
        by_key.append({key(d): d.name for d in topology.devices if count[key(d)] == 1})
    return {name: by_key[0][which] for which, name in by_key[1].items() if which in by_key[0]}


def _called(device: Device) -> str:
    details = ", ".join(part for part in (device.os_name, device.bus_id) if part)
    return f"{_KIND_NAMES[device.kind]} {device.name}" + (f" ({details})" if details else "")


def _devices_gone_or_new(old: Topology, new: Topology) -> Iterator[str]:
    for device in old.devices:
        if device.name not in new.device:
            yield f"{_called(device)} is missing."
    for device in new.devices:
        if device.name not in old.device:
            yield f"{_called(device)} is new."


def _devices_changed(old: Topology, new: Topology) -> Iterator[str]:
    # When a GPU or NIC is gone those behind it shift, which goes without saying.
    same_gpus = {gpu.name for gpu in old.gpus} == {gpu.name for gpu in new.gpus}
    same_nics = {nic.name for nic in old.nics} == {nic.name for nic in new.nics}
    for was in old.devices:
        now = new.device.get(was.name)
        if now is None:
            continue
        if was.kind is DeviceKind.GPU and _model(was) != _model(now):
            yield f"{_called(was)} is another model: {_model(now)}, it was {_model(was)}."
        if was.kind is DeviceKind.GPU and same_gpus and was.index != now.index:
            yield f"{_called(was)} has local rank {now.index}, it had {was.index}."
        if was.kind is DeviceKind.NIC and same_nics and was.index != now.index:
            yield f"{_called(was)} is NIC {now.index} of its node, it was NIC {was.index}."
        before, after = was.line_rate_gb_per_s, now.line_rate_gb_per_s
        if was.kind is DeviceKind.NIC and network_class(before) != network_class(after):
            yield f"{_called(was)} runs at {_speed(after)}, it ran at {_speed(before)}."
        if _moved(old, new, was.name):
            above, above_now = _parents(old, was.name), _parents(new, was.name)
            yield f"{_called(was)} moved from {_listed(old, above)} to {_listed(new, above_now)}."


def _model(gpu: Device) -> str:
    return f"{gpu.model or 'unknown'} with compute capability {gpu.compute_capability or 'unknown'}"


def _speed(gb_per_s: float) -> str:
    return f"{gb_per_s * 8:g} Gb/s" if gb_per_s > 0 else "an unknown speed"


def _listed(topology: Topology, names: tuple[str, ...]) -> str:
    return " and ".join(_called(topology.device[name]) for name in names)


def _parents(topology: Topology, name: str) -> tuple[str, ...]:
    """What a GPU or NIC hangs on by PCIe, and a NIC by network; nothing for other devices."""
    if topology.device[name].kind not in (DeviceKind.GPU, DeviceKind.NIC):
        return ()
    parents = {link.dst for link in topology.links_from[name] if link.kind in _HANGING_KINDS}
    return tuple(sorted(parents))


def _moved(old: Topology, new: Topology, name: str) -> bool:
    """Whether it hangs on another device, both of which exist before and after."""
    above, above_now = _parents(old, name), _parents(new, name)
    return (
        bool(above and above_now and above != above_now)
        and all(parent in new.device for parent in above)
        and all(parent in old.device for parent in above_now)
    )


def _links_changed(old: Topology, new: Topology) -> Iterator[str]:
    """Links between devices that both have, one sentence for both directions if alike."""
    before, after = _by_pair(old), _by_pair(new)
    told: set[_Pair] = set()
    for pair in {**before, **after}:
        src, dst, kind = pair
        change = _link_change(before.get(pair, ()), after.get(pair, ()))
        if change is None or pair in told or not _untold(old, new, pair):
            continue
        back = (dst, src, kind)
        both = _link_change(before.get(back, ()), after.get(back, ())) == change
        told |= {pair, back} if both else {pair}
        yield f"{_LINK_NAMES[kind]} {src} {'<->' if both else '->'} {dst} {change}."


def _limits_changed(old: Topology, new: Topology) -> Iterator[str]:
    """Pairs of devices that both have, limited otherwise than before."""
    for src, dst in {**old.limit_between, **new.limit_between}:
        if not all(name in old.device and name in new.device for name in (src, dst)):
            continue
        was, now = old.limit_between.get((src, dst)), new.limit_between.get((src, dst))
        if now is None:
            yield f"The pair {src} -> {dst} is not limited any more."
        elif was is None:
            yield f"The pair {src} -> {dst} is limited to {speed(now.bandwidth_gb_per_s)}."
        elif limit_class(was.bandwidth_gb_per_s) != limit_class(now.bandwidth_gb_per_s):
            speeds = speed(now.bandwidth_gb_per_s), speed(was.bandwidth_gb_per_s)
            yield f"The pair {src} -> {dst} is limited to {speeds[0]}, it was to {speeds[1]}."


def _untold(old: Topology, new: Topology, pair: _Pair) -> bool:
    """Whether the link tells something that no device's absence or move has told already."""
    src, dst, kind = pair
    if not all(name in old.device and name in new.device for name in (src, dst)):
        return False
    return kind not in _HANGING_KINDS or not (_moved(old, new, src) or _moved(old, new, dst))


def _by_pair(topology: Topology) -> dict[_Pair, tuple[Link, ...]]:
    pairs: dict[_Pair, tuple[Link, ...]] = {}
    for link in topology.links:
        key = (link.src, link.dst, link.kind)
        pairs[key] = (*pairs.get(key, ()), link)
    return pairs


def _link_change(before: tuple[Link, ...], after: tuple[Link, ...]) -> str | None:
    """What happened to the links of one pair, None if nothing but noise did."""
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
