"""Measuring a cluster's network: `run_campaign`, from ports to findings.

Three stages, each in rounds that use no port twice: which subnets reach each other (only where
there are several), every port against a few others, and suspects once more against ports that are
known to be fine. A suspect that is fine the second time is cleared: congestion, not a fault. Ports
that share a PCIe link too narrow for them take turns; what they do together is asked last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from probes.network.campaign.findings import Findings
from probes.network.campaign.outliers import Diagnosis, Quantity
from probes.network.campaign.repeats import RepeatRequest, plan_repeats
from probes.network.campaign.sampling import (
    Budget,
    SamplingOptions,
    plan_base,
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
from probes.network.port_groups import PortGroups, group_ports, join_networks
from probes.network.ports import NetworkPort
from probes.network.results import PairResult, PortPair

Measure = Callable[[Sequence[PortPair]], Sequence[PairResult]]
"""Measures one round, all pairs at once, and answers for each."""
Progress = Callable[[str, int, int], None]
"""What is going on, rounds done, rounds in all."""

_REPETITIONS = 2
"""A second one, since the first may clear a port and leave a way between two good ports."""
_JOINED_FROM = 0.1
"""Subnets that reach each other at less than this share of the line rate are no one network."""


def run_campaign(
    ports: Sequence[NetworkPort],
    measure: Measure,
    options: SamplingOptions | None = None,
    on_progress: Progress | None = None,
    conflicts: Conflicts = (),
) -> Findings:
    """Measure what matters, say what is out of line and who is to blame.

    Args:
        ports: all ports of the cluster.
        measure: measures one round.
        options: how much to measure.
        on_progress: called before each round and after the last.
        conflicts: places of ports that are not to be measured at once, as of `shared_uplinks`.

    Raises:
        ValueError: `measure` answered for other pairs than it was asked for.
    """
    campaign = _Campaign(ports, measure, options or SamplingOptions(), on_progress, conflicts)
    return campaign.run()


class _Campaign:
    """What has been measured so far."""

    def __init__(
        self,
        ports: Sequence[NetworkPort],
        measure: Measure,
        options: SamplingOptions,
        on_progress: Progress | None,
        conflicts: Conflicts,
    ) -> None:
        self.ports = tuple(ports)
        self.measure = measure
        self.options = options
        self.on_progress = on_progress
        self.conflicts = conflicts
        self.groups: PortGroups = group_ports(ports, options.rack_prefix_length)
        self.networks: tuple[int, ...] = ()
        """Network of every port; empty until it is known which subnets reach each other."""
        self.results: list[PairResult] = []
        self.rounds = 0

    def run(self) -> Findings:
        self._measure("networks", [plan_reach(self.ports, self.groups)])
        joined = [result.pair for result in self.results if self._joins(result)]
        networks = self.networks = join_networks(self.groups, joined)
        spent = [result.pair for result in self.results]
        plan = plan_base(self.ports, self.groups, networks, self.options, spent)
        self._measure("pairs", plan.by_distance)
        planned = frozenset(result.pair for result in self.results)
        suspected: set[int] = set()
        repeated: set[PortPair] = set()
        for _ in range(_REPETITIONS):
            diagnoses = self._diagnoses(networks, planned)
            suspected.update(end.port for found in diagnoses for end in found.suspects)
            measured = [result.pair for result in self.results]
            request = RepeatRequest(
                self.ports, self.groups, networks, diagnoses, measured, repeated
            )
            limit = self.options.per_port_limit
            again = plan_repeats(request, Budget(len(self.ports), limit, measured))
            self._measure("suspects", [again])
            repeated.update(again)
        together = self._measure_together(networks, suspected)
        evidence = Evidence(
            ports=self.ports,
            groups=self.groups,
            networks=networks,
            results=tuple(self.results),
            suspected=frozenset(suspected),
            planned=planned,
            repeated=frozenset(repeated),
            rounds=self.rounds,
            notes=(*plan.notes, *together),
        )
        return conclude(evidence)

    def _joins(self, result: PairResult) -> bool:
        ends = (self.ports[result.pair.client], self.ports[result.pair.server])
        rate = min(port.line_rate_gb_per_s for port in ends)
        bandwidth = result.bandwidth_gb_per_s
        return is_reached(result) and (bandwidth is None or bandwidth >= _JOINED_FROM * rate)

    def _diagnoses(
        self, networks: Sequence[int], planned: frozenset[PortPair]
    ) -> tuple[Diagnosis, ...]:
        known = (self.ports, self.groups, networks, self.results)
        figures = (
            diagnose_figures(samples_of(*known, quantity), quantity, planned)
            for quantity in Quantity
        )
        return (*figures, diagnose_reach(networks, self.results))

    def _measure_together(self, networks: Sequence[int], suspected: Collection[int]) -> list[str]:
        """What ports with a common uplink do at once, which tells nothing about any of them."""
        measured = [result.pair for result in self.results]
        budget = Budget(len(self.ports), self.options.per_port_limit, measured)
        pairs = plan_together(self.ports, networks, self.conflicts, budget, suspected)
        if not pairs:
            return []
        together = self._measure_rounds("shared uplinks", [pairs])
        return together_notes(self.ports, self.conflicts, self.results, together)

    def _measure(self, what: str, batches: Sequence[Sequence[PortPair]]) -> None:
        count = len(self.ports)
        rounds = [pairs for batch in batches for pairs in schedule(count, batch, self.conflicts)]
        self.results += self._measure_rounds(what, rounds)

    def _measure_rounds(self, what: str, rounds: Sequence[Sequence[PortPair]]) -> list[PairResult]:
        results: list[PairResult] = []
        for number, planned in enumerate(rounds):
            self._tell(what, number, len(rounds))
            # A dead port costs every later round the time of an answer that does not come.
            dead = dead_ports(self.networks, [*self.results, *results])
            pairs = [pair for pair in planned if not {pair.client, pair.server} & dead]
            answers = self.measure(pairs) if pairs else []
            by_pair = {answer.pair: answer for answer in answers}
            if len(answers) != len(pairs) or by_pair.keys() != set(pairs):
                raise ValueError(f"a round of {len(pairs)} pairs was not answered pair by pair")
            results += [by_pair[pair] for pair in pairs]
        if rounds:
            self._tell(what, len(rounds), len(rounds))
        self.rounds += len(rounds)
        return results

    def _tell(self, what: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(what, done, total)
