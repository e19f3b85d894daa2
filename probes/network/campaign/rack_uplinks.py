"""What leaves a rack while all of its ports send: measured at once, and alone.

Pairs of other campaigns' rounds have half of a rack's ports send and the other half receive, so an
uplink at 2:1 looks as fast as the ports. Here all ports of a rack send to another rack in one
round (`plan_at_once`), and in another round one of them does (`plan_alone`). If each gets less at
once than alone, the links between the racks are the limit: contention. Else the uplinks carry at
least what was measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from probes.network.campaign.uplinks import FALLS_SHORT, Conflicts
from probes.network.port_groups import NO_NETWORK, PortGroups
from probes.network.ports import PairResult, PortPair

_ALONE = 2
"""Ports of each rack that are measured alone."""


@dataclass(frozen=True, slots=True)
class RackUplink:
    """Bandwidth between a rack and the others in one direction, while all of its ports use it."""

    network: int
    rack: str
    sends: bool
    ports: int
    """Ports that were measured at once."""
    at_once_gb_per_s: float
    """Bandwidth of all of them together."""
    alone_gb_per_s: float
    """Bandwidth of one that is measured alone; 0 if unknown."""

    @property
    def is_contended(self) -> bool:
        """Whether ports get less at once than alone."""
        return self.at_once_gb_per_s < FALLS_SHORT * self.ports * self.alone_gb_per_s

    @property
    def score(self) -> float:
        """Congestion score: the share of what the ports send alone that is lost at once."""
        alone_gb_per_s = self.ports * self.alone_gb_per_s
        return 1.0 - self.at_once_gb_per_s / alone_gb_per_s if self.is_contended else 0.0


def plan_at_once(
    groups: PortGroups, conflicts: Conflicts, suspected: Collection[int]
) -> list[list[PortPair]]:
    """Plan rounds in which all ports of a rack send to the next rack, then receive from it.

    Racks are taken in twos; the last of an odd number meets the first again. So a port takes part
    in two rounds, or four. Suspects are left out; ports that share an uplink of their host are in
    different rounds.
    """
    turn = {port: number for group in conflicts for number, port in enumerate(sorted(group))}
    rounds: dict[tuple[int, int, int], list[PortPair]] = {}
    for racks in _racks(groups, suspected).values():
        members = list(racks.values())
        twos = [(i, i + 1, 0) for i in range(0, len(members) - 1, 2)]
        if len(members) % 2 and len(members) > 1:
            twos.append((len(members) - 1, 0, 1))
        for a, b, last in twos:
            ways = ((members[a], members[b]), (members[b], members[a]))
            for back, (clients, servers) in enumerate(ways):
                for pair in _matched(groups, clients, servers):
                    number = turn.get(pair.client, 0)
                    if number == turn.get(pair.server, 0):
                        rounds.setdefault((last, back, number), []).append(pair)
    return [rounds[key] for key in sorted(rounds)]


def plan_alone(at_once: Sequence[Sequence[PortPair]], groups: PortGroups) -> list[list[PortPair]]:
    """Plan rounds of a few of the same pairs, of which no two leave or enter one rack at a time.

    They are from the first round of each network.
    """
    of_rack: dict[tuple[int, str], tuple[int, list[PortPair]]] = {}
    first_round: dict[int, int] = {}
    for number, pairs in enumerate(at_once):
        for pair in pairs:
            network = groups.networks[pair.client]
            if first_round.setdefault(network, number) == number:
                key = (network, groups.racks[pair.client])
                of_rack.setdefault(key, (number, []))[1].append(pair)
    rounds = (
        [pairs[turn] for number, pairs in of_rack.values() if number == wanted and pairs[turn:]]
        for wanted in range(len(at_once))
        for turn in range(_ALONE)
    )
    return [pairs for pairs in rounds if pairs]


def measured_uplinks(
    groups: PortGroups,
    at_once: Iterable[Sequence[PairResult]],
    alone: Iterable[PairResult],
) -> tuple[RackUplink, ...]:
    """Return what was measured of every rack in each direction, in the round that gave most."""
    single: dict[int, list[float]] = {}
    for result in alone:
        if result.bandwidth_gb_per_s is not None:
            network = groups.networks[result.pair.client]
            single.setdefault(network, []).append(result.bandwidth_gb_per_s)
    found: dict[tuple[int, str, bool], RackUplink] = {}
    for results in at_once:
        together: dict[tuple[int, str, bool], list[float]] = {}
        for result in results:
            for end, sends in ((result.pair.client, True), (result.pair.server, False)):
                if result.bandwidth_gb_per_s is not None:
                    key = (groups.networks[end], groups.racks[end], sends)
                    together.setdefault(key, []).append(result.bandwidth_gb_per_s)
        for key, figures in together.items():
            alone_gb_per_s = statistics.median(single.get(key[0], (0.0,)))
            uplink = RackUplink(*key, len(figures), sum(figures), alone_gb_per_s)
            if key not in found or uplink.at_once_gb_per_s > found[key].at_once_gb_per_s:
                found[key] = uplink
    return tuple(found[key] for key in sorted(found))


def _racks(groups: PortGroups, suspected: Collection[int]) -> dict[int, dict[str, list[int]]]:
    """Return the ports of each known rack, by network."""
    found: dict[int, dict[str, list[int]]] = {}
    for port in groups.in_order:
        network, rack = groups.networks[port], groups.racks[port]
        if network != NO_NETWORK and rack and port not in suspected:
            found.setdefault(network, {}).setdefault(rack, []).append(port)
    return found


def _matched(
    groups: PortGroups, clients: Sequence[int], servers: Sequence[int]
) -> Iterable[PortPair]:
    """Yield pairs of NICs of one index, each port at most once."""
    waiting: dict[int, list[int]] = {}
    for server in servers:
        waiting.setdefault(groups.ports[server].nic, []).append(server)
    for client in clients:
        of_rail = waiting.get(groups.ports[client].nic)
        if of_rail:
            yield PortPair(client, of_rail.pop(0))
