"""Repeated measurements: suspects with ports that are known to be normal."""

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
"""Most peers that are considered for a suspect; bounds the time when there are many suspects."""


_DISTANCES = tuple(Distance)
"""Distances from near to far."""


@dataclass(frozen=True)
class RepeatRequest:
    """Input of the planning of repetitions."""

    ports: Sequence[NetworkPort]
    groups: PortGroups
    networks: Sequence[int]
    diagnoses: Sequence[Diagnosis]
    """Diagnoses of bandwidth, latency and reach."""
    measured: Sequence[PortPair]
    repeated: AbstractSet[PortPair]
    """Measured pairs of earlier repetitions."""


def plan_repeats(request: RepeatRequest, budget: Budget) -> list[PortPair]:
    """Plan a measurement for every suspect end and every suspect path between two normal ends.

    A suspect is paired with a normal port that it was not measured with; if none has budget left,
    the suspect's own pair is measured again.
    """
    planned: dict[PortPair, None] = {}
    finder = _PeerFinder(request)
    done = {end for pair in request.repeated for end in _ends(pair)}
    for suspect in _suspects(request.diagnoses):
        if suspect.ends & done:
            continue
        for pair in (*finder.peers(suspect), *suspect.low_pairs):
            if budget.allows(pair) and pair not in planned:
                budget.spend(pair)
                planned[pair] = None
                done.update(_ends(pair))
                break
    for diagnosis in request.diagnoses:
        for pair in diagnosis.between:
            if pair not in request.repeated and pair not in planned and budget.allows(pair):
                budget.spend(pair)
                planned[pair] = None
    return list(planned)


@dataclass(frozen=True, slots=True)
class _Suspect:
    end: End
    needed: float
    """Score that a peer must have reached to count as normal."""
    low_pairs: tuple[PortPair, ...]
    diagnosis: Diagnosis

    @property
    def ends(self) -> set[End]:
        """Ends that one more measurement tests."""
        if self.end.role is not Role.EITHER:
            return {self.end}
        return {End(self.end.port, Role.SENDS), End(self.end.port, Role.RECEIVES)}


def _suspects(diagnoses: Sequence[Diagnosis]) -> list[_Suspect]:
    """Return the suspects, those with a direction first: they test a round trip as well."""
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
    """Finds normal ports, the nearest to a suspect first."""

    def __init__(self, request: RepeatRequest) -> None:
        self.request = request
        self.suspects = {end for found in request.diagnoses for end in found.suspects}
        self.measured = {(pair.client, pair.server) for pair in request.measured}
        self.measured |= {(server, client) for client, server in self.measured}
        self.rails: dict[tuple[int, int], list[int]] = {}
        self.members: dict[int, list[int]] = {}
        self.position: dict[int, tuple[int, int]] = {}
        for port in in_order(request.ports, request.groups):
            network = request.networks[port]
            if network != NO_NETWORK:
                rail = self.rails.setdefault((network, request.ports[port].nic), [])
                whole = self.members.setdefault(network, [])
                self.position[port] = (len(rail), len(whole))
                rail.append(port)
                whole.append(port)

    def peers(self, suspect: _Suspect) -> list[PortPair]:
        """Return pairs with ports that are normal in the opposite role, the nearest first."""
        port, role = suspect.end
        host, network = self.request.ports[port].host, self.request.networks[port]
        in_rail, in_whole = self.position[port]
        rail, whole = self.rails[network, self.request.ports[port].nic], self.members[network]
        found: dict[PortPair, None] = {}
        for circle, position in ((rail, in_rail), (whole, in_whole)):
            for peer in _around(circle, position):
                if (
                    self.request.ports[peer].host != host
                    and (port, peer) not in self.measured
                    and self._is_normal(peer, suspect)
                ):
                    ends = (port, peer) if role is Role.SENDS else (peer, port)
                    found[PortPair(*ends)] = None
        ports, groups = self.request.ports, self.request.groups
        return sorted(found, key=lambda pair: _DISTANCES.index(distance(ports, groups, pair)))

    def _is_normal(self, peer: int, suspect: _Suspect) -> bool:
        opposite = {Role.SENDS: Role.RECEIVES, Role.RECEIVES: Role.SENDS}
        end = End(peer, opposite.get(suspect.end.role, Role.EITHER))
        trusted = suspect.diagnosis.best.get(end, -math.inf) >= suspect.needed
        return trusted and end not in self.suspects and End(peer, Role.EITHER) not in self.suspects


def _around(circle: Sequence[int], position: int) -> Iterator[int]:
    """Yield the neighbours of a position on both sides, the nearest first."""
    for step in range(1, min(_CANDIDATES, len(circle))):
        side = (step + 1) // 2 * (1 if step % 2 else -1)
        yield circle[(position + side) % len(circle)]
