"""The pairs of ports to measure, and their rounds.

Every port sends to one or two ports of its rack and rail and receives from as many (the ports of a
rack form a circle in which each sends to the next), and likewise between racks, to the port at the
same position in the next rack. So the number of measurements grows with the ports, not with their
pairs; a slow port shows in all its pairs, a bad cable in one. NICs of different index are measured
in a few pairs per cluster. This is the hierarchy-aware sampling and the traffic filter of TuCCL's
paper (inter-node topology construction).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from probes.network.campaign.edge_colouring import colour_edges
from probes.network.campaign.idle_pairs import Utilisation, without_idle
from probes.network.port_groups import NO_NETWORK, Distance, PortGroups
from probes.network.ports import NetworkPort, PortPair

PER_PORT_LIMIT = 8
"""Most measurements of a port, repetitions included, without those of whole racks at once."""
MORE_FOR_RACKS = 6
"""Further measurements of a port where racks are learned from latencies."""
_KEPT_FOR_REPEATS = 2
"""Measurements of these that are reserved for suspects."""
_ALL_PAIRS_UP_TO_HOSTS = 4
"""Clusters of up to this many hosts are measured pair by pair, within the limit."""
_REACH_PER_PORT = 2
"""Measurements per port to find out whether subnets are joined."""
_FEW_RACKS = 16
"""Up to so many racks that latencies show, every two of them are compared again."""
_PAIRS_OF_RACKS = 4
"""Pairs that compare two racks."""
_SAMPLES_PER_RAIL = 4
"""Pairs of neighbouring rails measured in a network."""


class Budget:
    """Remaining measurements of each port."""

    def __init__(self, ports: int, limit: int, spent: Iterable[PortPair] = ()) -> None:
        self.left = [limit] * ports
        for pair in spent:
            self.spend(pair)

    def spend(self, pair: PortPair) -> None:
        """Count a measurement."""
        self.left[pair.client] -= 1
        self.left[pair.server] -= 1

    def allows(self, pair: PortPair, beyond: int = 0) -> bool:
        """Whether both ports have a measurement left, if the limit is exceeded by `beyond`."""
        return min(self.left[pair.client], self.left[pair.server]) > -beyond


@dataclass(frozen=True, slots=True)
class BasePlan:
    """Pairs by distance; pairs of different distance do not share a round."""

    by_distance: tuple[tuple[PortPair, ...], ...]
    notes: tuple[str, ...]


def plan_reach(groups: PortGroups) -> list[PortPair]:
    """Plan a few pairs between subnets that are neighbours by rail and address.

    Subnets whose pairs answer are one network. Every subnet is compared with the next two, by two
    pairs each, so that a few dead ports do not split a network.
    """
    members: dict[str, list[int]] = {}
    for port in groups.in_order:
        if groups.subnets[port]:
            members.setdefault(groups.subnets[port], []).append(port)
    circle = list(members.values())
    picker = _Picker(groups.ports, Budget(len(groups.ports), _REACH_PER_PORT))
    for step in range(1, min(3, len(circle) // 2 + 1)):
        for turn in range(2):
            for index in range(len(circle)):
                a, b = circle[index], circle[(index + step) % len(circle)]
                for pair in _crossing(a, b, 2 * index + turn):
                    if picker.pick(pair):
                        break
    return picker.pairs


def _crossing(a: Sequence[int], b: Sequence[int], shift: int) -> Iterator[PortPair]:
    """Yield pairs between two subnets, different pairs for different shifts."""
    for i in range(min(8, max(len(a), len(b)))):
        yield PortPair(a[(shift + i) % len(a)], b[(shift + i + 1) % len(b)])


def plan_base(
    groups: PortGroups, utilisation: Utilisation | None = None, spent: Sequence[PortPair] = ()
) -> BasePlan:
    """Plan the pairs inside every network; pairs in `spent` were measured before.

    Pairs that a traffic log lists as idle are left out; others are taken as used.
    """
    ports, networks = groups.ports, groups.networks
    picker = _Picker(ports, Budget(len(ports), PER_PORT_LIMIT - _KEPT_FOR_REPEATS, spent), spent)
    members: dict[int, list[int]] = {}
    for port in groups.in_order:
        if networks[port] != NO_NETWORK:
            members.setdefault(networks[port], []).append(port)
    for network in sorted(members):
        in_network = members[network]
        few = len({ports[port].host for port in in_network}) <= _ALL_PAIRS_UP_TO_HOSTS
        pairs = _all_pairs(ports, in_network) if few else _sampled(groups, in_network)
        for pair in itertools.chain(_rail_samples(ports, in_network), pairs):
            picker.pick(pair)
        _pair_unserved_ports(picker, in_network)
    kept, notes = without_idle(ports, picker.pairs, utilisation)
    return BasePlan(
        by_distance=tuple(
            tuple(pair for pair in kept if groups.distance(pair) is wanted) for wanted in Distance
        ),
        notes=notes,
    )


def plan_between_racks(groups: PortGroups, budget: Budget) -> list[PortPair]:
    """Plan a few pairs of every two racks, or of neighbours if there are many, by any rail.

    They show whether hosts that no measured pair joins are in two racks. Pairs that were measured
    before may be measured again.
    """
    members: dict[tuple[int, int], dict[str, list[int]]] = {}
    for port in groups.in_order:
        if groups.networks[port] != NO_NETWORK:
            key = (groups.networks[port], groups.ports[port].nic)
            members.setdefault(key, {}).setdefault(groups.racks[port], []).append(port)
    rails = list(members.values())
    racks = list(dict.fromkeys(rack for rail in rails for rack in rail))
    twos = list(itertools.combinations(range(len(racks)), 2))
    if len(racks) > _FEW_RACKS:
        twos = [(i, (i + 1) % len(racks)) for i in range(len(racks))]
    planned: dict[PortPair, None] = {}
    for turn in range(_PAIRS_OF_RACKS):
        for number, (a, b) in enumerate(twos):
            rail = rails[(turn + number) % len(rails)]
            near, far = rail.get(racks[a], []), rail.get(racks[b], [])
            for i in range(len(near) * len(far)):
                shift = i + turn + number
                pair = PortPair(near[shift % len(near)], far[(shift + i // len(near)) % len(far)])
                if pair not in planned and budget.allows(pair):
                    budget.spend(pair)
                    planned[pair] = None
                    break
    return list(planned)


def schedule(
    ports: int, pairs: Sequence[PortPair], conflicts: Sequence[Sequence[int]] = ()
) -> list[list[PortPair]]:
    """Return rounds that use no port twice; the two directions of a pair are two measurements.

    A round has at most one port of each of the disjoint groups in `conflicts`.
    """
    # Conflicting ports are one vertex, so two vertices may have several pairs.
    vertex = list(range(ports))
    for group in conflicts:
        for port in group:
            vertex[port] = min(group)
    layers: list[dict[tuple[int, int], PortPair]] = []
    seen: dict[tuple[int, int], int] = {}
    for pair in pairs:
        edge = (vertex[pair.client], vertex[pair.server])
        ends = (min(edge), max(edge))
        layer = seen[ends] = seen.get(ends, -1) + 1
        if layer == len(layers):
            layers.append({})
        layers[layer][edge] = pair
    return [
        [layer[edge] for edge in members]
        for layer in layers
        for members in colour_edges(ports, list(layer))
    ]


class _Picker:
    """Selects pairs: between two hosts, each once, within the budget."""

    def __init__(
        self, ports: Sequence[NetworkPort], budget: Budget, spent: Iterable[PortPair] = ()
    ) -> None:
        self.ports = ports
        self.budget = budget
        self.used = set(spent)
        self.pairs: list[PortPair] = []
        self.served: set[int] = set()
        """Ports of the selected pairs."""

    def pick(self, pair: PortPair, beyond: int = 0) -> bool:
        """Select the pair if allowed; the budget may be exceeded by `beyond` per port."""
        two_hosts = self.ports[pair.client].host != self.ports[pair.server].host
        if not two_hosts or pair in self.used or not self.budget.allows(pair, beyond):
            return False
        self.budget.spend(pair)
        self.used.add(pair)
        self.pairs.append(pair)
        self.served |= {pair.client, pair.server}
        return True


def _all_pairs(ports: Sequence[NetworkPort], members: Sequence[int]) -> Iterator[PortPair]:
    """Yield every pair in both directions, ordered by distance of the rails."""
    rails = sorted({ports[port].nic for port in members})
    number = {rail: i for i, rail in enumerate(rails)}
    for rail_distance in range(len(rails)):
        for step in range(1, len(members)):
            for i, client in enumerate(members):
                server = members[(i + step) % len(members)]
                ahead = number[ports[server].nic] - number[ports[client].nic]
                if ahead % len(rails) == rail_distance:
                    yield PortPair(client, server)


def _sampled(groups: PortGroups, members: Sequence[int]) -> Iterator[PortPair]:
    """Yield circles inside the racks of every rail, and between the racks."""
    for cell in _cells(groups.ports, members):
        racks: dict[tuple[str, str], list[int]] = {}
        for port in cell:
            racks.setdefault((groups.racks[port], groups.subnets[port]), []).append(port)
        for rack in racks.values():
            yield from _circle(rack, 1)
            if len(racks) == 1:
                yield from _circle(rack, 2)
        if len(racks) > 1:
            # A step of the largest rack's size leads to another rack (unless a rack has more than
            # half of all ports), and every port sends once and receives once even where racks
            # differ in size.
            step = max(len(rack) for rack in racks.values())
            for length in (step,) if step > 1 else (1, 2):
                yield from _circle(cell, length)


def _rail_samples(ports: Sequence[NetworkPort], members: Sequence[int]) -> Iterator[PortPair]:
    """Yield a few pairs of neighbouring rails."""
    cells = _cells(ports, members)
    for cell, following in zip(cells, [*cells[1:], *cells[:1]], strict=True):
        for i in range(_SAMPLES_PER_RAIL if len(cells) > 1 else 0):
            # Spread over the hosts, so that the samples of all rails fit in few rounds.
            index = (i * len(cell)) // _SAMPLES_PER_RAIL
            yield PortPair(cell[index], following[(index + 1) % len(following)])


def _cells(ports: Sequence[NetworkPort], members: Sequence[int]) -> list[list[int]]:
    """Ports by rail; rails of fewer than three hosts are one, as faults could not be located."""
    rails: dict[int, list[int]] = {}
    for port in members:
        rails.setdefault(ports[port].nic, []).append(port)
    small = [rail for rail in rails.values() if len({ports[i].host for i in rail}) < 3]
    cells = [rail for rail in rails.values() if len({ports[i].host for i in rail}) >= 3]
    rest = [port for rail in small for port in rail]
    return [*cells, rest] if rest else cells


def _circle(members: Sequence[int], step: int) -> Iterator[PortPair]:
    count = len(members)
    if count > step:
        for i in range(count):
            yield PortPair(members[i], members[(i + step) % count])


def _pair_unserved_ports(picker: _Picker, members: Sequence[int]) -> None:
    """Add two pairs for each port without a pair, with the next ports that have budget left.

    The reserve for repeats may be used, since an unmeasured port is worse.
    """
    for i, port in enumerate(members):
        if port in picker.served:
            continue
        count = 0
        for peer in [*members[i + 1 :], *members[:i]]:
            pair = PortPair(peer, port) if count else PortPair(port, peer)
            count += picker.pick(pair, _KEPT_FOR_REPEATS)
            if count == 2:
                break
