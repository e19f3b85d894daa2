"""The duty of a host that is probed: it describes itself and measures the network to others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from probes.cluster.racks import with_lldp
from probes.host.probe import HostProbeOptions, probe_host
from probes.host.report import report_to_json
from probes.network.instruments.endpoint import (
    PairTask,
    Server,
    ServerAnswer,
    ServerStartError,
    measure_bandwidth,
    measure_latency,
    start_server,
)
from probes.network.instruments.tools import Figure
from tuccl.crew.messages import Done, Failed, Request
from tuccl.errors import MachineError

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Served:
    """Answer to `Serve`, by task."""

    servers: tuple[ServerAnswer, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """Answer to `Measure`, by task."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class ProbeRequest(Request):
    """Root of the requests of a probe."""

    duty: ClassVar[str] = "probe"


@dataclass(frozen=True, slots=True)
class Look(ProbeRequest):
    """Probe the host; the answer's text is the report in the form of `probes.host.report`."""

    options: HostProbeOptions


@dataclass(frozen=True, slots=True)
class Serve(ProbeRequest):
    """Start a server for each task, in place of the previous servers."""

    answer: ClassVar[type[Served]] = Served
    tasks: tuple[PairTask, ...]


@dataclass(frozen=True, slots=True)
class Measure(ProbeRequest):
    """Run the clients of these tasks, all at once."""

    answer: ClassVar[type[Measured]] = Measured
    what: Literal["latency", "bandwidth"]
    tasks: tuple[PairTask, ...]


@dataclass(frozen=True, slots=True)
class Stop(ProbeRequest):
    """End the servers."""


class Station:
    """See `Duty`; its servers run until the next ones replace them."""

    def __init__(self, _: Mapping[str, str]) -> None:
        """Begin without servers."""
        self._servers: list[Server] = []

    def perform(self, request: Any) -> Any:
        """See `Duty`."""
        try:
            match request:
                case Look(options):
                    return Done(report_to_json(with_lldp(probe_host(options))))
                case Measure(what, tasks):
                    measure = measure_latency if what == "latency" else measure_bandwidth
                    return Measured(_all_at_once(measure, tasks))
            self.close()
            if isinstance(request, Serve):
                return Served(_all_at_once(self._start, request.tasks))
        except (MachineError, OSError) as error:
            return Failed(str(error))
        return Done()

    def close(self) -> None:
        """Stop all servers."""
        while self._servers:
            self._servers.pop().stop()

    def _start(self, task: PairTask) -> ServerAnswer:
        try:
            server = start_server(task)
        except ServerStartError as error:
            return ServerAnswer(failure=error.failure, detail=str(error))
        self._servers.append(server)
        return ServerAnswer(server.tcp_port)


def _all_at_once(
    work: Callable[[PairTask], _Answer], tasks: Sequence[PairTask]
) -> tuple[_Answer, ...]:
    with ThreadPoolExecutor(max(1, len(tasks))) as threads:
        return tuple(threads.map(work, tasks))
