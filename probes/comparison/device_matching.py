"""Matching of the devices of an old and a new topology of one machine: `match_devices`.

The devices of a host are matched in three ways: by bus id, and among ports that share one by name
and order; by name; and by position. Bus ids decide where they account for every GPU and NIC. Where
they do not (buses are renumbered when a card is taken out), the matching with the fewest changes
wins.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from difflib import SequenceMatcher

from probes.topology.bandwidth_class import network_class
from probes.topology.graph import NETWORK_NODE, Device, DeviceKind, LinkKind, Topology
from probes.topology.hosts import split_hosts

CountChanges = Callable[[Topology, Topology, Mapping[str, str]], float]
"""Counts the changes of a host that remain under a matching (old names by new names)."""

_Key = Callable[[Device], Hashable | None]

_ENDPOINTS = (DeviceKind.GPU, DeviceKind.NIC)


def match_devices(old: Topology, new: Topology, count_changes: CountChanges) -> dict[str, str]:
    """Return old names by new names, for the devices that both topologies have.

    Hosts are matched by node index.
    """
    before = split_hosts(old)
    names: dict[str, str] = {}
    for node, host in split_hosts(new).items():
        if node in before:
            names |= _match_host(before[node], host, count_changes)
    matching = _Matching(old, new, names)
    matching.by_neighbours((DeviceKind.NETWORK_SWITCH,))
    matching.by_key(lambda device: device.name if device.node == NETWORK_NODE else None)
    return matching.names


def _match_host(old: Topology, new: Topology, count_changes: CountChanges) -> dict[str, str]:
    by_bus_id, certain = _by_bus_id(old, new)
    if certain:
        return by_bus_id
    candidates = [by_bus_id, _by_name(old, new), _by_position(old, new)]
    if all(candidate == by_bus_id for candidate in candidates):
        return by_bus_id
    return min(candidates, key=lambda names: count_changes(old, new, names))


def _by_bus_id(old: Topology, new: Topology) -> tuple[dict[str, str], bool]:
    """Return the matching, and whether bus ids account for every GPU and NIC of both hosts."""
    matching = _Matching(old, new)
    matching.by_key(lambda d: (d.bus_id, d.os_name) if d.bus_id and d.os_name else None)
    matching.by_key(lambda d: d.bus_id or None)
    certain = not any(
        old.device[was].os_name != new.device[now].os_name for now, was in matching.names.items()
    )
    for kind in _ENDPOINTS:
        matched = sum(new.device[name].kind is kind for name in matching.names)
        certain = certain and matched == _count(old, kind) == _count(new, kind)
    matching.by_own_names()
    return matching.names, certain


def _by_name(old: Topology, new: Topology) -> dict[str, str]:
    matching = _Matching(old, new)
    matching.by_own_names()
    return matching.names


def _by_position(old: Topology, new: Topology) -> dict[str, str]:
    """Match GPUs by rank, forwarding devices by their GPUs, and NICs by their parent and order."""
    matching = _Matching(old, new)
    matching.by_key(lambda d: d.name if d.kind is DeviceKind.GPU else None)
    matching.by_neighbours()

    def parents_now(nic: Device) -> Hashable | None:
        return frozenset(matching.names.get(name, "") for name in matching.beside_now[nic.name])

    def parents_before(nic: Device) -> Hashable | None:
        return frozenset(matching.beside_before[nic.name])

    matching.by_key(
        lambda d: parents_before(d) if d.kind is DeviceKind.NIC else None,
        lambda d: parents_now(d) if d.kind is DeviceKind.NIC else None,
    )
    matching.by_own_names()
    return matching.names


def _count(topology: Topology, kind: DeviceKind) -> int:
    return sum(device.kind is kind for device in topology.devices)


class _Matching:
    """The pairs matched so far; a matched pair stays matched."""

    def __init__(
        self, old: Topology, new: Topology, names: Mapping[str, str] | None = None
    ) -> None:
        self.old = old
        self.new = new
        self.names: dict[str, str] = dict(names or {})
        """Old names by new names."""
        self.taken = set(self.names.values())
        self.beside_before, self.beside_now = _neighbours(old), _neighbours(new)

    def pair(self, before: Device, now: Device) -> None:
        self.names[now.name] = before.name
        self.taken.add(before.name)

    def by_key(self, key: _Key, key_now: _Key | None = None) -> None:
        """Match devices of one kind and key, by order if several share it.

        A device of the old topology whose key is None is left out; `key_now` gives the keys of the
        new topology, if it is another function.
        """
        groups: defaultdict[Hashable, tuple[list[Device], list[Device]]]
        groups = defaultdict(lambda: ([], []))
        for position, devices, key_of in (
            (0, self.old.devices, key),
            (1, self.new.devices, key_now or key),
        ):
            done = self.names if position else self.taken
            for device in devices:
                value = None if device.name in done else key_of(device)
                if value is not None:
                    groups[device.kind, value][position].append(device)
        for before, now in groups.values():
            for pair in _aligned(before, now):
                self.pair(*pair)

    def by_own_names(self) -> None:
        """Match the rest: NICs by the operating system's name, then all devices by their own.

        Names of GPUs and NICs follow the order of the file; those of forwarding devices mean less,
        so these are matched by their neighbours first.
        """
        self.by_key(lambda d: d.os_name or None)
        self.by_key(lambda d: d.name if d.kind in _ENDPOINTS else None)
        self.by_neighbours()
        self.by_key(lambda d: d.name)

    def by_neighbours(self, kinds: Sequence[DeviceKind] = ()) -> None:
        """Match forwarding devices by their number of common neighbours, the most first."""
        while True:
            votes = Counter[tuple[str, str]]()
            for device in self.new.devices:
                if device.name in self.names or device.kind in _ENDPOINTS:
                    continue
                if kinds and device.kind not in kinds:
                    continue
                for beside in self.beside_now[device.name]:
                    votes.update(
                        (device.name, candidate)
                        for candidate in self.beside_before.get(self.names.get(beside, ""), ())
                        if candidate not in self.taken
                        and self.old.device[candidate].kind is device.kind
                    )
            if not votes:
                return
            # Among equal votes, a pair of equal names comes first.
            for now, was in sorted(votes, key=lambda pair: (-votes[pair], pair[0] != pair[1])):
                if now not in self.names and was not in self.taken:
                    self.pair(self.old.device[was], self.new.device[now])


def _neighbours(topology: Topology) -> dict[str, dict[str, None]]:
    """Neighbours of each device, in the order of the links; links between CPUs do not count."""
    beside: dict[str, dict[str, None]] = {device.name: {} for device in topology.devices}
    for link in topology.links:
        if link.kind is not LinkKind.UPI:
            beside[link.src][link.dst] = None
            beside[link.dst][link.src] = None
    return beside


def _aligned(before: list[Device], now: list[Device]) -> list[tuple[Device, Device]]:
    """Pair devices by index order; if the counts differ, pair as many of equal model as possible.

    Devices of equal model and index are paired first: the file may not have renumbered them.
    """
    before, now = (sorted(devices, key=lambda d: d.index) for devices in (before, now))
    if len(before) == len(now):
        return list(zip(before, now, strict=True))
    alike = {(_make(device), device.index): device for device in before}
    kept = [(alike.pop(key), d) for d in now if (key := (_make(d), d.index)) in alike]
    done = {device.name for device, _ in kept}, {device.name for _, device in kept}
    before = [device for device in before if device.name not in done[0]]
    now = [device for device in now if device.name not in done[1]]
    makes, makes_now = ([_make(device) for device in devices] for devices in (before, now))
    blocks = SequenceMatcher(None, makes, makes_now, autojunk=False).get_opcodes()
    return kept + [
        pair
        for _, from_before, to_before, from_now, to_now in blocks
        for pair in zip(before[from_before:to_before], now[from_now:to_now], strict=False)
    ]


def _make(device: Device) -> tuple[str, int]:
    return device.model, network_class(device.line_rate_gb_per_s)
