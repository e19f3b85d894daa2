"""Which pairs of ports to measure, and in which rounds.

Every port sends to one or two others of its rack and rail and receives from as many (the ports of a
rack stand in a circle, each sends to the next), and the same between racks: each sends to the port
in its own place one rack further. So the number of measurements grows with the ports, not with
their pairs; a port that is slow shows in all its pairs, a bad cable in one. How NICs of different
index reach each other is asked of a few pairs per cluster. This is the hierarchy-aware sampling and
the traffic filter of TuCCL's paper (inter-node topology construction).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from probes.network.campaign.edge_colouring import colour_edges
from probes.network.campaign.idle_pairs import Utilisation, without_idle
from probes.network.port_groups import NO_NETWORK, Distance, PortGroups, distance
from probes.network.ports import NetworkPort
from probes.network.results import PortPair

_REACH_PER_PORT = 2
"""Measurements that asking whether subnets are joined may cost a port."""
_SAMPLES_PER_RAIL = 4
"""Pairs of neighbouring rails measured in a network."""


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How much to measure."""

    per_port_limit: int = 8
    """Measurements that a port takes part in at most, repetitions included."""
    kept_for_repeats: int = 2
    """How many of these are left for suspects."""
    all_pairs_up_to_hosts: int = 4
    """Clusters of so many hosts are measured pair by pair, within the limit."""
    rack_prefix_length: int = 0
    """Bits of an IP address that tell racks apart where nothing else does; 0: none."""
    utilisation: Utilisation | None = None
    """From a traffic log; pairs that it does not list are taken as used."""
    idle_below: float = 0.01
    """A pair used less than this share of the line rate is idle."""

    def __post_init__(self) -> None:
        """Raises ValueError for limits that leave nothing to measure."""
        if self.kept_for_repeats < 0 or self.per_port_limit < self.kept_for_repeats + 2:
            raise ValueError(
                f"per_port_limit {self.per_port_limit}: a port takes 2 measurements at least, and "
                f"{self.kept_for_repeats} are kept for repeats"
            )
        if not 0 <= self.rack_prefix_length <= 128:
            raise ValueError(f"rack_prefix_length {self.rack_prefix_length}: use 0 to 128 bits")

    @property
    def planned_limit(self) -> int:
        """Measurements per port before anything is repeated."""
        return self.per_port_limit - self.kept_for_repeats


class Budget:
    """How many more measurements each port may take part in."""

    def __init__(self, ports: int, limit: int, spent: Iterable[PortPair] = ()) -> None:
        self.left = [limit] * ports
        for pair in spent:
            self.spend(pair)

    def spend(self, pair: PortPair) -> None:
        """Count a measurement."""
        self.left[pair.client] -= 1
        self.left[pair.server] -= 1

    def allows(self, pair: PortPair, beyond: int = 0) -> bool:
        """Whether both ports may take part in one more, `beyond` so many over the limit."""
        return min(self.left[pair.client], self.left[pair.server]) > -beyond


@dataclass(frozen=True, slots=True)
class BasePlan:
    """Pairs by how far they are apart; those of one kind share no round with others."""

    by_distance: tuple[tuple[PortPair, ...], ...]
    notes: tuple[str, ...]


def plan_reach(ports: Sequence[NetworkPort], groups: PortGroups) -> list[PortPair]:
    """A few pairs between subnets that neighbour each other by rail and address.

    Which of them answer decides what is one network. Every subnet is compared with the next two,
    by two pairs each, so that a few dead ports do not part a network.
    """
    members: dict[str, list[int]] = {}
    for place in in_order(ports, groups):
        if groups.subnets[place]:
            members.setdefault(groups.subnets[place], []).append(place)
    circle = list(members.values())
    picked = _Picker(ports, Budget(len(ports), _REACH_PER_PORT))
    for step in range(1, min(3, len(circle) // 2 + 1)):
        for turn in range(2):
            for here in range(len(circle)):
                one, other = circle[here], circle[(here + step) % len(circle)]
                for pair in _crossing(one, other, 2 * here + turn):
                    if picked.pick(pair):
                        break
    return picked.pairs


def _crossing(one: Sequence[int], other: Sequence[int], shift: int) -> Iterator[PortPair]:
    """Pairs between two subnets, different ones for different shifts."""
    for i in range(min(8, max(len(one), len(other)))):
        yield PortPair(one[(shift + i) % len(one)], other[(shift + i + 1) % len(other)])


def plan_base(
    ports: Sequence[NetworkPort],
    groups: PortGroups,
    networks: Sequence[int],
    options: SamplingOptions,
    spent: Sequence[PortPair] = (),
) -> BasePlan:
    """Pairs inside every network, after it is known what is one network.

    Args:
        ports: all ports of the cluster.
        groups: of `group_ports`.
        networks: of `join_networks`.
        options: how much to measure.
        spent: what was measured before.
    """
    picked = _Picker(ports, Budget(len(ports), options.planned_limit, spent), spent)
    members: dict[int, list[int]] = {}
    for place in in_order(ports, groups):
        if networks[place] != NO_NETWORK:
            members.setdefault(networks[place], []).append(place)
    for network in sorted(members):
        here = members[network]
        few = len({ports[place].host for place in here}) <= options.all_pairs_up_to_hosts
        pairs = _all_pairs(ports, here) if few else _sampled(ports, groups, here)
        for pair in itertools.chain(_rail_samples(ports, here), pairs):
            picked.pick(pair)
        _serve_the_lonely(picked, here, options.kept_for_repeats)
    kept, notes = without_idle(ports, picked.pairs, options.utilisation, options.idle_below)
    return BasePlan(
        by_distance=tuple(
            tuple(pair for pair in kept if distance(ports, groups, pair) is apart)
            for apart in Distance
        ),
        notes=notes,
    )


def schedule(
    ports: int, pairs: Sequence[PortPair], conflicts: Sequence[Sequence[int]] = ()
) -> list[list[PortPair]]:
    """Rounds in which no port takes part twice; both directions of a pair are two measurements.

    Args:
        ports: how many there are.
        pairs: what to measure.
        conflicts: groups of ports of which a round has one at most; no port is in two of them.
    """
    # Ports that take turns are one vertex, so pairs may be many between the same two.
    vertex = list(range(ports))
    for group in conflicts:
        for place in group:
            vertex[place] = min(group)
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


def in_order(ports: Sequence[NetworkPort], groups: PortGroups) -> list[int]:
    """Places by rail, rack, subnet and host: neighbours in this order are close in the network."""
    return sorted(
        range(len(ports)),
        key=lambda i: (ports[i].nic, groups.racks[i], groups.subnets[i], ports[i].host, i),
    )


class _Picker:
    """The pairs chosen so far: between two hosts, each once, within the budget."""

    def __init__(
        self, ports: Sequence[NetworkPort], budget: Budget, spent: Iterable[PortPair] = ()
    ) -> None:
        self.ports = ports
        self.budget = budget
        self.taken = set(spent)
        self.pairs: list[PortPair] = []
        self.served: set[int] = set()
        """Ports that are in any of the pairs."""

    def pick(self, pair: PortPair, beyond: int = 0) -> bool:
        """Choose the pair if it may be; the budget may be exceeded by `beyond` per port."""
        apart = self.ports[pair.client].host != self.ports[pair.server].host
        if not apart or pair in self.taken or not self.budget.allows(pair, beyond):
            return False
        self.budget.spend(pair)
        self.taken.add(pair)
        self.pairs.append(pair)
        self.served |= {pair.client, pair.server}
        return True


def _all_pairs(ports: Sequence[NetworkPort], members: Sequence[int]) -> Iterator[PortPair]:
    """Every pair in both directions, those of one rail first, then by how far rails are apart."""
    rails = sorted({ports[place].nic for place in members})
    number = {rail: i for i, rail in enumerate(rails)}
    for apart in range(len(rails)):
        for step in range(1, len(members)):
            for i, client in enumerate(members):
                server = members[(i + step) % len(members)]
                ahead = number[ports[server].nic] - number[ports[client].nic]
                if ahead % len(rails) == apart:
                    yield PortPair(client, server)


def _sampled(
    ports: Sequence[NetworkPort], groups: PortGroups, members: Sequence[int]
) -> Iterator[PortPair]:
    """Circles through the racks of every rail, and from rack to rack."""
    cells = _cells(ports, members)
    for cell in cells:
        racks: dict[tuple[str, str], list[int]] = {}
        for place in cell:
            racks.setdefault((groups.racks[place], groups.subnets[place]), []).append(place)
        for rack in racks.values():
            yield from _circle(rack, 1)
            if len(racks) == 1:
                yield from _circle(rack, 2)
        if len(racks) > 1:
            # A step as long as the largest rack leads to another one (but inside a rack that has
            # more than half of all), and every port sends once and receives once even where racks
            # differ in size.
            step = max(len(rack) for rack in racks.values())
            for length in (step,) if step > 1 else (1, 2):
                yield from _circle(cell, length)


def _rail_samples(ports: Sequence[NetworkPort], members: Sequence[int]) -> Iterator[PortPair]:
    """A few pairs of neighbouring rails."""
    cells = _cells(ports, members)
    for cell, following in zip(cells, [*cells[1:], *cells[:1]], strict=True):
        for i in range(_SAMPLES_PER_RAIL if len(cells) > 1 else 0):
            # Spread over the hosts, so that the samples of all rails fit in few rounds.
            place = (i * len(cell)) // _SAMPLES_PER_RAIL
            yield PortPair(cell[place], following[(place + 1) % len(following)])


def _cells(ports: Sequence[NetworkPort], members: Sequence[int]) -> list[list[int]]:
    """Ports by rail; rails of less than three hosts are one, since they could not be told apart."""
    rails: dict[int, list[int]] = {}
    for place in members:
        rails.setdefault(ports[place].nic, []).append(place)
    small = [rail for rail in rails.values() if len({ports[i].host for i in rail}) < 3]
    cells = [rail for rail in rails.values() if len({ports[i].host for i in rail}) >= 3]
    rest = [place for rail in small for place in rail]
    return [*cells, rest] if rest else cells


def _circle(members: Sequence[int], step: int) -> Iterator[PortPair]:
    count = len(members)
    if count > step:
        for i in range(count):
            yield PortPair(members[i], members[(i + step) % count])


def _serve_the_lonely(picked: _Picker, members: Sequence[int], kept: int) -> None:
    """Two pairs each for ports that no circle reached, with whoever is next and has room.

    What is kept for repeats counts as room: a port that nobody measured is worse.
    """
    for i, place in enumerate(members):
        if place in picked.served:
            continue
        mine = 0
        for peer in [*members[i + 1 :], *members[:i]]:
            mine += picked.pick(PortPair(peer, place) if mine else PortPair(place, peer), kept)
            if mine == 2:
                break
