"""Rounds of network measurements on a crew: `CrewMeasurement`.

Latency of all pairs comes first, while nothing else is on the wires, then bandwidth. For either the
hosts start the servers of their pairs, then the clients measure, on all hosts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from probes.cluster.crew import Crew, HostFailure
from probes.cluster.messages import Measure, Measured, Reply, Request, Serve, Served, Stop
from probes.network.instruments.endpoint import (
    START_S,
    Figure,
    PairTask,
    ServerAnswer,
    bandwidth_tool,
    latency_tool,
)
from probes.network.instruments.tools import Tool
from probes.network.ports import NetworkPort
from probes.network.results import Failure, PairResult, PortPair

_TOOL_TIME_S = 12.0
"""What a tool may take beyond the seconds that count, and less than it waits for an answer."""
_PATIENCE_S = 15.0
"""What a host may take beyond its tools, which look again with a ping when something fails."""

_Item = TypeVar("_Item")


class CrewMeasurement:
    """Measures rounds of pairs; see `probes.network.campaign.run.Measure`."""

    def __init__(
        self,
        crew: Crew,
        ports: Sequence[NetworkPort],
        places: Sequence[int],
        missing_tools: Sequence[Sequence[str]],
        seconds: int,
    ) -> None:
        """Prepare to measure.

        Args:
            crew: who measures.
            ports: of all hosts.
            places: index in the crew by index of the host.
            missing_tools: by index of the host.
            seconds: how long a bandwidth counts.
        """
        self.lost: dict[int, str] = {}
        """Hosts that fell silent, and why."""
        self._crew = crew
        self._ports = ports
        self._places = places
        self._missing_tools = missing_tools
        self._seconds = seconds

    def __call__(self, pairs: Sequence[PortPair]) -> list[PairResult]:
        """Measure a round."""
        latencies = self._figures("latency", [self._task(pair, latency_tool) for pair in pairs])
        away = {
            place: replace(figure, value=None)
            for place, figure in enumerate(latencies)
            if figure.failure is Failure.UNREACHABLE
        }
        # Whoever answers neither pings nor connections would only cost its timeout once more.
        tasks = [self._task(pair, bandwidth_tool) for pair in pairs]
        rest = [place for place in range(len(pairs)) if place not in away]
        measured = self._figures("bandwidth", [tasks[place] for place in rest])
        found = dict(zip(rest, measured, strict=True))
        bandwidths = [
            found.get(place) or replace(away[place], by=tasks[place].tool)
            for place in range(len(pairs))
        ]
        return [_result(*each) for each in zip(pairs, bandwidths, latencies, strict=True)]

    def stop(self) -> None:
        """End the servers of the last round."""
        hosts = [host for host in range(len(self._places)) if host not in self.lost]
        self._ask({host: Stop() for host in hosts}, START_S + _PATIENCE_S)

    def _task(
        self, pair: PortPair, choose: Callable[[NetworkPort, NetworkPort, Sequence[str]], Tool]
    ) -> PairTask:
        client, server = self._ports[pair.client], self._ports[pair.server]
        missing = [*self._missing_tools[client.host], *self._missing_tools[server.host]]
        return PairTask(
            client=client,
            server=server,
            tool=choose(client, server, missing),
            seconds=self._seconds,
            timeout_s=self._seconds + _TOOL_TIME_S,
        )

    def _figures(
        self, what: Literal["latency", "bandwidth"], tasks: Sequence[PairTask]
    ) -> list[Figure]:
        """Of every task, in their order."""
        patience_s = self._seconds + _TOOL_TIME_S + _PATIENCE_S
        figures: dict[int, Figure] = {}
        ready: dict[int, PairTask] = {}
        hosts = {place: task.server.host for place, task in enumerate(tasks)}
        started = self._each(hosts, tasks, lambda mine: Serve(tasks=mine), _servers, patience_s)
        for place, server in started.items():
            if isinstance(server, ServerAnswer) and server.failure is None:
                ready[place] = replace(tasks[place], tcp_port=server.tcp_port)
            else:
                figures[place] = _no_figure(tasks[place], server)
        hosts = {place: task.client.host for place, task in ready.items()}
        ended = self._each(
            hosts, ready, lambda mine: Measure(what=what, tasks=mine), _measured, patience_s
        )
        for place, figure in ended.items():
            told = figure if isinstance(figure, Figure) else _no_figure(tasks[place], figure)
            figures[place] = told
        return [figures[place] for place in range(len(tasks))]

    def _each(
        self,
        hosts: Mapping[int, int],
        tasks: Sequence[PairTask] | Mapping[int, PairTask],
        request: Callable[[tuple[PairTask, ...]], Request],
        items: Callable[[Reply], Sequence[_Item]],
        timeout_s: float,
    ) -> dict[int, _Item | HostFailure]:
        """What hosts answer to tasks, by the places of these; each host is asked once."""
        places_of: dict[int, list[int]] = {}
        for place, host in hosts.items():
            places_of.setdefault(host, []).append(place)
        answers = self._ask(
            {host: request(tuple(tasks[i] for i in mine)) for host, mine in places_of.items()},
            timeout_s,
        )
        found: dict[int, _Item | HostFailure] = {}
        for host, places in places_of.items():
            answer = answers[host]
            if isinstance(answer, HostFailure):
                found.update(dict.fromkeys(places, answer))
            else:
                found.update(zip(places, items(answer), strict=True))
        return found

    def _ask(
        self, requests: Mapping[int, Request], timeout_s: float
    ) -> dict[int, Reply | HostFailure]:
        """The same as `Crew.ask`, by index of the host; remembers who is lost."""
        by_place = {self._places[host]: request for host, request in requests.items()}
        answers = self._crew.ask(by_place, timeout_s) if by_place else {}
        for host in requests:
            answer = answers[self._places[host]]
            if isinstance(answer, HostFailure):
                self.lost.setdefault(host, answer.reason)
        return {host: answers[self._places[host]] for host in requests}


def _servers(reply: Reply) -> Sequence[ServerAnswer]:
    return reply.servers if isinstance(reply, Served) else ()


def _measured(reply: Reply) -> Sequence[Figure]:
    return reply.figures if isinstance(reply, Measured) else ()


def _no_figure(task: PairTask, why: ServerAnswer | Figure | HostFailure) -> Figure:
    if isinstance(why, HostFailure):
        return Figure(None, task.tool, Failure.HOST_LOST, f"{why.name}: {why.reason}")
    return Figure(None, task.tool, why.failure, why.detail)


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
