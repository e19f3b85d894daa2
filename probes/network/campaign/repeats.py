"""Which measurements to make again: suspects against ports that are known to be fine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from probes.network.campaign.outliers import Diagnosis, End, Role
from probes.network.campaign.sampling import Budget, in_order
from probes.network.port_groups import NO_NETWORK, Distance, PortGroups, distance
from probes.network.ports import NetworkPort
from probes.network.results import PortPair

_CANDIDATES = 64
"""Peers that are looked at for one suspect; bounds the time when half of a cluster is suspect."""


_DISTANCES = tuple(Distance)
"""From near to far."""


@dataclass(frozen=True)
class RepeatRequest:
    """What is known when repetitions are planned."""

    ports: Sequence[NetworkPort]
    groups: PortGroups
    networks: Sequence[int]
    diagnoses: Sequence[Diagnosis]
    """Of bandwidth, latency and reach."""
    measured: Sequence[PortPair]
    repeated: AbstractSet[PortPair]
    """Of the measured pairs, those of earlier repetitions."""


def plan_repeats(request: RepeatRequest, budget: Budget) -> list[PortPair]:
    """One measurement for every suspect end and every suspect way between two good ends.

    A suspect meets a port that is fine and that it has not met; where there is none with room, the
    suspect's own pair is measured again.
    """
    chosen: dict[PortPair, None] = {}
    finder = _PeerFinder(request)
    done = {end for pair in request.repeated for end in _ends(pair)}
    for suspect in _suspects(request.diagnoses):
        if suspect.ends & done:
            continue
        for pair in (*finder.peers(suspect), *suspect.low_pairs):
            if budget.allows(pair) and pair not in chosen:
                budget.spend(pair)
                chosen[pair] = None
                done.update(_ends(pair))
                break
    for diagnosis in request.diagnoses:
        for pair in diagnosis.between:
            if pair not in request.repeated and pair not in chosen and budget.allows(pair):
                budget.spend(pair)
                chosen[pair] = None
    return list(chosen)


@dataclass(frozen=True, slots=True)
class _Suspect:
    end: End
    needed: float
    """What a peer must have done to be known as fine."""
    low_pairs: tuple[PortPair, ...]
    diagnosis: Diagnosis

    @property
    def ends(self) -> set[End]:
        """In which roles one more measurement serves."""
        if self.end.role is not Role.EITHER:
            return {self.end}
        return {End(self.end.port, Role.SENDS), End(self.end.port, Role.RECEIVES)}


def _suspects(diagnoses: Sequence[Diagnosis]) -> list[_Suspect]:
    """Those with a direction first: their measurement serves a round trip as well."""
    suspects = [
        _Suspect(
            end, max(item.needed for item in items), tuple(item.pair for item in items), diagnosis
        )
        for diagnosis in diagnoses
        for end, items in diagnosis.suspects.items()
    ]
    return sorted(suspects, key=lambda suspect: suspect.end.role is Role.EITHER)


def _ends(pair: PortPair) -> tuple[End, End]:
    return End(pair.client, Role.SENDS), End(pair.server, Role.RECEIVES)


class _PeerFinder:
    """Ports that are fine, the nearest to a suspect first."""

    def __init__(self, request: RepeatRequest) -> None:
        self.request = request
        self.bad = {end for found in request.diagnoses for end in found.suspects}
        self.met = {(pair.client, pair.server) for pair in request.measured}
        self.met |= {(server, client) for client, server in self.met}
        self.rails: dict[tuple[int, int], list[int]] = {}
        self.members: dict[int, list[int]] = {}
        self.position: dict[int, tuple[int, int]] = {}
        for place in in_order(request.ports, request.groups):
            network = request.networks[place]
            if network != NO_NETWORK:
                rail = self.rails.setdefault((network, request.ports[place].nic), [])
                whole = self.members.setdefault(network, [])
                self.position[place] = (len(rail), len(whole))
                rail.append(place)
                whole.append(place)

    def peers(self, suspect: _Suspect) -> list[PortPair]:
        """Pairs with ports that are fine in the role needed, those of its rail and rack first."""
        place, role = suspect.end
        port, network = self.request.ports[place], self.request.networks[place]
        in_rail, in_whole = self.position[place]
        rail, whole = self.rails[network, port.nic], self.members[network]
        found: dict[PortPair, None] = {}
        for circle, here in ((rail, in_rail), (whole, in_whole)):
            for peer in _around(circle, here):
                if (
                    self.request.ports[peer].host != port.host
                    and (place, peer) not in self.met
                    and self._is_fine(peer, suspect)
                ):
                    ends = (place, peer) if role is Role.SENDS else (peer, place)
                    found[PortPair(*ends)] = None
        ports, groups = self.request.ports, self.request.groups
        return sorted(found, key=lambda pair: _DISTANCES.index(distance(ports, groups, pair)))

    def _is_fine(self, peer: int, suspect: _Suspect) -> bool:
        opposite = {Role.SENDS: Role.RECEIVES, Role.RECEIVES: Role.SENDS}
        end = End(peer, opposite.get(suspect.end.role, Role.EITHER))
        trusted = suspect.diagnosis.best.get(end, -math.inf) >= suspect.needed
        return trusted and end not in self.bad and End(peer, Role.EITHER) not in self.bad


def _around(circle: Sequence[int], here: int) -> Iterator[int]:
    """The others by how near they stand, on both sides."""
    for step in range(1, min(_CANDIDATES, len(circle))):
        side = (step + 1) // 2 * (1 if step % 2 else -1)
        yield circle[(here + side) % len(circle)]
