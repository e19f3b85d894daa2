"""The measurement of a cluster's network: `run_campaign`, from ports to findings.

It has three stages, in rounds that use no port twice: pairs between subnets (if there are several),
every port with a few peers, and suspects again with normal ports. A suspect that is normal when
repeated is cleared: congestion, not a fault. Ports that share a PCIe link too narrow for them are
measured in different rounds, and together at the end; so are all ports of a rack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from probes.inputs.messages import listed
from probes.network.campaign.findings import Findings
from probes.network.campaign.idle_pairs import Utilisation
from probes.network.campaign.outliers import Diagnosis, End, Quantity, Role
from probes.network.campaign.rack_uplinks import (
    RackUplink,
    measured_uplinks,
    plan_alone,
    plan_at_once,
)
from probes.network.campaign.sampling import (
    MORE_FOR_RACKS,
    PER_PORT_LIMIT,
    Budget,
    plan_base,
    plan_between_racks,
    plan_reach,
    schedule,
)
from probes.network.campaign.uplinks import Conflicts, plan_together, together_notes
from probes.network.campaign.verdicts import (
    Evidence,
    conclude,
    dead_ports,
    diagnose_figures,
    diagnose_reach,
    is_reached,
    samples_of,
)
from probes.network.port_groups import NO_NETWORK, Distance, PortGroups, group_ports
from probes.network.ports import NetworkPort, PairResult, PortPair
from probes.network.racks.learned import LearnedRacks, learn_racks
from probes.topology.figure_text import three_digits
from probes.topology.hosts import folded

_CANDIDATES = 64
"""Most peers that are considered for a suspect; bounds the time when there are many suspects."""


def plan_repeats(
    groups: PortGroups,
    diagnoses: Sequence[Diagnosis],
    measured: Sequence[PortPair],
    repeated: AbstractSet[PortPair],
    budget: Budget,
) -> list[PortPair]:
    """Plan a measurement for every suspect end and every suspect path between two normal ends.

    The diagnoses are those of bandwidth, latency and reach; `repeated` has the pairs of earlier
    repetitions.

    A suspect is paired with a normal port that it was not measured with; if none has budget left,
    the suspect's own pair is measured again.
    """
    planned: dict[PortPair, None] = {}
    finder = _PeerFinder(groups, diagnoses, measured)
    done = {end for pair in repeated for end in _ends(pair)}
    for suspect in _suspects(diagnoses):
        if suspect.ends & done:
            continue
        for pair in (*finder.peers(suspect), *suspect.low_pairs):
            if budget.allows(pair) and pair not in planned:
                budget.spend(pair)
                planned[pair] = None
                done.update(_ends(pair))
                break
    for diagnosis in diagnoses:
        for pair in diagnosis.between:
            if pair not in repeated and pair not in planned and budget.allows(pair):
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

    def __init__(
        self, groups: PortGroups, diagnoses: Sequence[Diagnosis], measured: Sequence[PortPair]
    ) -> None:
        self.groups = groups
        self.suspects = {end for found in diagnoses for end in found.suspects}
        self.measured = {(pair.client, pair.server) for pair in measured}
        self.measured |= {(server, client) for client, server in self.measured}
        self.rails: dict[tuple[int, int], list[int]] = {}
        self.members: dict[int, list[int]] = {}
        self.position: dict[int, tuple[int, int]] = {}
        for port in groups.in_order:
            network = groups.networks[port]
            if network != NO_NETWORK:
                rail = self.rails.setdefault((network, groups.ports[port].nic), [])
                whole = self.members.setdefault(network, [])
                self.position[port] = (len(rail), len(whole))
                rail.append(port)
                whole.append(port)

    def peers(self, suspect: _Suspect) -> list[PortPair]:
        """Return pairs with ports that are normal in the opposite role, the nearest first."""
        port, role = suspect.end
        ports, network = self.groups.ports, self.groups.networks[port]
        in_rail, in_whole = self.position[port]
        rail, whole = self.rails[network, ports[port].nic], self.members[network]
        found: dict[PortPair, None] = {}
        for circle, position in ((rail, in_rail), (whole, in_whole)):
            for peer in _around(circle, position):
                if (
                    ports[peer].host != ports[port].host
                    and (port, peer) not in self.measured
                    and self._is_normal(peer, suspect)
                ):
                    ends = (port, peer) if role is Role.SENDS else (peer, port)
                    found[PortPair(*ends)] = None
        far = list(Distance)
        return sorted(found, key=lambda pair: far.index(self.groups.distance(pair)))

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


Measure = Callable[[Sequence[PortPair]], Sequence[PairResult]]
"""Measures one round, all pairs at once, and returns a result for each."""
Progress = Callable[[str, int, int], None]
"""Receives the stage, the number of rounds done, and the total."""

_REPETITIONS = 2
"""Two, since the first may clear a port and leave a slow path between two normal ports."""
_JOINED_FROM = 0.1
"""Share of the line rate from which subnets that reach each other are one network."""


def run_campaign(
    ports: Sequence[NetworkPort],
    measure: Measure,
    utilisation: Utilisation | None = None,
    on_progress: Progress | None = None,
    conflicts: Conflicts = (),
) -> Findings:
    """Measure a sample of pairs and locate faults.

    `utilisation` is from a traffic log. `on_progress` is called before each round and after the
    last. `conflicts` has the groups of ports that must not be measured at once, as from
    `shared_uplinks`.

    Raises:
        ValueError: `measure` returned results for other pairs than requested.
    """
    campaign = _Campaign(ports, measure, utilisation, on_progress, conflicts)
    return campaign.run()


class _Campaign:
    """State of a campaign."""

    def __init__(
        self,
        ports: Sequence[NetworkPort],
        measure: Measure,
        utilisation: Utilisation | None,
        on_progress: Progress | None,
        conflicts: Conflicts,
    ) -> None:
        self.measure = measure
        self.utilisation = utilisation
        self.on_progress = on_progress
        self.conflicts = conflicts
        self.groups = group_ports(ports)
        self.limit = PER_PORT_LIMIT
        self.networks_are_known = False
        self.results: list[PairResult] = []
        self.rounds = 0

    def run(self) -> Findings:
        self._measure("networks", [plan_reach(self.groups)])
        self.groups = self.groups.joined(r.pair for r in self.results if self._joins(r))
        self.networks_are_known = True
        plan = plan_base(self.groups, self.utilisation, [result.pair for result in self.results])
        self._measure("pairs", plan.by_distance)
        learned = [] if any(self.groups.racks) else self._learn_racks()
        planned = frozenset(result.pair for result in self.results)
        suspected: set[int] = set()
        repeated: set[PortPair] = set()
        for _ in range(_REPETITIONS):
            diagnoses = self._diagnoses(planned)
            suspected.update(end.port for found in diagnoses for end in found.suspects)
            measured = [result.pair for result in self.results]
            repeats = plan_repeats(
                self.groups, diagnoses, measured, repeated, self._budget(measured)
            )
            self._measure("suspects", [repeats])
            repeated.update(repeats)
        together = self._measure_together(suspected)
        uplinks = self._measure_rack_uplinks(suspected)
        evidence = Evidence(
            groups=self.groups,
            results=tuple(self.results),
            suspected=frozenset(suspected),
            planned=planned,
            repeated=frozenset(repeated),
            rounds=self.rounds,
            notes=(*plan.notes, *learned, *together),
            uplinks=uplinks,
        )
        return conclude(evidence)

    def _joins(self, result: PairResult) -> bool:
        ends = (result.pair.client, result.pair.server)
        rate = min(self.groups.ports[end].line_rate_gb_per_s for end in ends)
        bandwidth = result.bandwidth_gb_per_s
        return is_reached(result) and (bandwidth is None or bandwidth >= _JOINED_FROM * rate)

    def _budget(self, measured: Sequence[PortPair]) -> Budget:
        return Budget(len(self.groups.ports), self.limit, measured)

    def _diagnoses(self, planned: frozenset[PortPair]) -> tuple[Diagnosis, ...]:
        figures = (
            diagnose_figures(samples_of(self.groups, self.results, quantity), quantity, planned)
            for quantity in Quantity
        )
        return (*figures, diagnose_reach(self.groups, self.results))

    def _learn_racks(self) -> list[str]:
        """Learn racks from the latencies so far, and measure pairs of these racks; return notes."""
        learned = learn_racks(self._latency_us())
        if learned is None:
            return []
        without = self.groups
        self.groups = without.in_racks(self._rack_names(learned))
        self.limit += MORE_FOR_RACKS
        spent = [result.pair for result in self.results]
        self._measure("racks", plan_base(self.groups, self.utilisation, spent).by_distance)
        measured = [result.pair for result in self.results]
        self._measure("racks", [plan_between_racks(self.groups, self._budget(measured))])
        again = learn_racks(self._latency_us())
        if again is None or again.splits(learned):
            self.groups = without
            seen = f"Latencies looked like those of {len(learned.racks)} racks"
            return [f"{seen}, but not when more pairs were measured: no racks are assumed."]
        names = self._rack_names(again)
        self.groups = without.in_racks(names)
        near, far = three_digits(again.near_us), three_digits(again.far_us)
        found = f"{len(again.racks)} racks, learned from latencies of {near} us inside and {far} us"
        remedy = "name racks by --rack-map or --rack-prefix if they are others"
        return [f"{found} between them ({remedy}): {listed(dict.fromkeys(names.values()))}."]

    def _latency_us(self) -> dict[tuple[int, int], float]:
        """Return the least latency of each pair of hosts, over the rails."""
        ports = self.groups.ports
        found: dict[tuple[int, int], float] = {}
        for result in self.results:
            client, server = ports[result.pair.client], ports[result.pair.server]
            inside = client.nic == server.nic and self.groups.in_one_network(result.pair)
            if inside and result.latency_us is not None:
                ends = (min(client.host, server.host), max(client.host, server.host))
                found[ends] = min(result.latency_us, found.get(ends, math.inf))
        return found

    def _rack_names(self, learned: LearnedRacks) -> dict[int, str]:
        names = {port.host: port.host_name for port in self.groups.ports}
        return {
            host: folded(names[member] for member in hosts)
            for hosts in learned.racks
            for host in hosts
        }

    def _measure_together(self, suspected: Collection[int]) -> list[str]:
        """Measure ports with a common uplink at once; return notes, as no single port is tested."""
        budget = self._budget([result.pair for result in self.results])
        pairs = plan_together(self.groups, self.conflicts, budget, suspected)
        if not pairs:
            return []
        together = self._measure_rounds("shared uplinks", [pairs])
        return together_notes(self.groups.ports, self.conflicts, self.results, together)

    def _measure_rack_uplinks(self, suspected: Collection[int]) -> tuple[RackUplink, ...]:
        """Measure what leaves racks while all of their ports send; the results test no port."""
        rounds = plan_at_once(self.groups, self.conflicts, suspected)
        number = {pair: i for i, pairs in enumerate(rounds) for pair in pairs}
        at_once: list[list[PairResult]] = [[] for _ in rounds]
        for result in self._measure_rounds("racks at once", rounds):
            at_once[number[result.pair]].append(result)
        alone = self._measure_rounds("racks alone", plan_alone(rounds, self.groups))
        return measured_uplinks(self.groups, at_once, alone)

    def _measure(self, stage: str, batches: Sequence[Sequence[PortPair]]) -> None:
        count = len(self.groups.ports)
        rounds = [pairs for batch in batches for pairs in schedule(count, batch, self.conflicts)]
        self.results += self._measure_rounds(stage, rounds)

    def _measure_rounds(self, stage: str, rounds: Sequence[Sequence[PortPair]]) -> list[PairResult]:
        results: list[PairResult] = []
        for number, planned in enumerate(rounds):
            self._report_progress(stage, number, len(rounds))
            # A dead port would cost every later round a timeout.
            known = [*self.results, *results] if self.networks_are_known else []
            dead = dead_ports(self.groups, known)
            pairs = [pair for pair in planned if not {pair.client, pair.server} & dead]
            answers = self.measure(pairs) if pairs else []
            by_pair = {answer.pair: answer for answer in answers}
            if len(answers) != len(pairs) or by_pair.keys() != set(pairs):
                raise ValueError(f"a round of {len(pairs)} pairs was not answered pair by pair")
            results += [by_pair[pair] for pair in pairs]
        if rounds:
            self._report_progress(stage, len(rounds), len(rounds))
        self.rounds += len(rounds)
        return results

    def _report_progress(self, stage: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)
