"""Rounds of measurements of the network between hosts: `CrewMeasurement`.

The latency of all pairs is measured first, without other traffic, then the bandwidth. For each, the
hosts start the servers of their pairs, then the clients measure on all hosts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from probes.network.instruments.endpoint import (
    START_S,
    PairTask,
    ServerAnswer,
    bandwidth_tool,
    latency_tool,
)
from probes.network.instruments.tools import Figure, Tool
from probes.network.ports import Failure, NetworkPort, PairResult, PortPair
from tuccl.crew.asking import Lost
from tuccl.crew.messages import Failed, Request
from tuccl.crew.places import Places
from tuccl.crew.probe_station import Measure, Serve, Stop

_TOOL_TIME_S = 12.0
"""Time of a tool beyond the measured seconds; less than its timeout for an answer."""
_GRACE_S = 15.0
"""Time of a host beyond its tools: after a failure it sends a ping."""

_Item = TypeVar("_Item")


@dataclass
class CrewMeasurement:
    """Measures rounds of pairs; see `probes.network.campaign.run.Measure`."""

    places: Places
    """Places of the hosts that measure."""
    ports: Sequence[NetworkPort]
    """Ports of all hosts."""
    hosts: Sequence[int]
    """A place of each host."""
    missing_tools: Sequence[Sequence[str]]
    """Names of missing tools, by index of the host."""
    seconds: int
    """Duration of a bandwidth measurement."""
    lost: dict[int, str] = field(default_factory=dict)
    """Reasons of the hosts that no longer answer, by index."""

    def __call__(self, pairs: Sequence[PortPair]) -> list[PairResult]:
        """Measure a round of pairs and return their results in order."""
        latencies = self._figures("latency", [self._task(pair, latency_tool) for pair in pairs])
        unreachable = {
            index: replace(figure, value=None)
            for index, figure in enumerate(latencies)
            if figure.failure is Failure.UNREACHABLE
        }
        # A port that answers neither pings nor connections would only cost another timeout.
        tasks = [self._task(pair, bandwidth_tool) for pair in pairs]
        reachable = [index for index in range(len(pairs)) if index not in unreachable]
        figures = self._figures("bandwidth", [tasks[index] for index in reachable])
        measured = dict(zip(reachable, figures, strict=True))
        bandwidths = [
            measured.get(index) or replace(unreachable[index], by=tasks[index].tool)
            for index in range(len(pairs))
        ]
        return [_result(*items) for items in zip(pairs, bandwidths, latencies, strict=True)]

    def stop(self) -> None:
        """End the servers of the last round."""
        hosts = [host for host in range(len(self.hosts)) if host not in self.lost]
        self._ask({host: Stop() for host in hosts}, START_S + _GRACE_S)

    def _task(
        self, pair: PortPair, choose_tool: Callable[[NetworkPort, NetworkPort, Sequence[str]], Tool]
    ) -> PairTask:
        client, server = self.ports[pair.client], self.ports[pair.server]
        missing = [*self.missing_tools[client.host], *self.missing_tools[server.host]]
        return PairTask(
            client=client,
            server=server,
            tool=choose_tool(client, server, missing),
            seconds=self.seconds,
            timeout_s=self.seconds + _TOOL_TIME_S,
        )

    def _figures(
        self, quantity: Literal["latency", "bandwidth"], tasks: Sequence[PairTask]
    ) -> list[Figure]:
        """Start servers, run clients, and return a figure for each task, in order."""
        timeout_s = self.seconds + _TOOL_TIME_S + _GRACE_S
        figures: dict[int, Figure] = {}
        ready: dict[int, PairTask] = {}
        hosts = {index: task.server.host for index, task in enumerate(tasks)}
        started = self._ask_about(hosts, tasks, Serve, lambda served: served.servers, timeout_s)
        for index, server in started.items():
            if isinstance(server, ServerAnswer) and server.failure is None:
                ready[index] = replace(tasks[index], tcp_port=server.tcp_port)
            else:
                figures[index] = _no_figure(tasks[index], server)
        hosts = {index: task.client.host for index, task in ready.items()}
        ended = self._ask_about(
            hosts,
            ready,
            lambda of_host: Measure(quantity, of_host),
            lambda measured: measured.figures,
            timeout_s,
        )
        for index, figure in ended.items():
            figures[index] = (
                figure if isinstance(figure, Figure) else _no_figure(tasks[index], figure)
            )
        return [figures[index] for index in range(len(tasks))]

    def _ask_about(
        self,
        hosts: Mapping[int, int],
        tasks: Sequence[PairTask] | Mapping[int, PairTask],
        request: Callable[[tuple[PairTask, ...]], Request],
        items: Callable[[Any], Sequence[_Item]],
        timeout_s: float,
    ) -> dict[int, _Item | Lost]:
        """Ask each host once about its tasks and return the answers by index of the task."""
        indices_of: dict[int, list[int]] = {}
        for index, host in hosts.items():
            indices_of.setdefault(host, []).append(index)
        answers = self._ask(
            {
                host: request(tuple(tasks[i] for i in indices))
                for host, indices in indices_of.items()
            },
            timeout_s,
        )
        found: dict[int, _Item | Lost] = {}
        for host, indices in indices_of.items():
            answer = answers[host]
            if isinstance(answer, Lost):
                found.update(dict.fromkeys(indices, answer))
            else:
                found.update(zip(indices, items(answer), strict=True))
        return found

    def _ask(self, requests: Mapping[int, Request], timeout_s: float) -> dict[int, Any]:
        """Ask hosts by index, and record the lost ones; a failure counts as a lost host's."""
        places = {self.hosts[host]: request for host, request in requests.items()}
        answers = self.places.ask(places, timeout_s) if places else {}
        found = {}
        for host in requests:
            answer = answers[self.hosts[host]]
            if isinstance(answer, Failed):
                answer = Lost(self.places.places[self.hosts[host]].host, answer.reason)
            if isinstance(answer, Lost):
                self.lost.setdefault(host, answer.reason)
            found[host] = answer
        return found


def _no_figure(task: PairTask, cause: ServerAnswer | Figure | Lost) -> Figure:
    if isinstance(cause, Lost):
        return Figure(None, task.tool, Failure.HOST_LOST, f"{cause.name}: {cause.reason}")
    return Figure(None, task.tool, cause.failure, cause.detail)


def _result(pair: PortPair, bandwidth: Figure, latency: Figure) -> PairResult:
    return PairResult(
        pair=pair,
        bandwidth_gb_per_s=bandwidth.value,
        latency_us=latency.value,
        bandwidth_by=bandwidth.by,
        latency_by=latency.by,
        bandwidth_failure=bandwidth.failure,
        latency_failure=latency.failure,
        detail=bandwidth.detail or latency.detail,
    )
