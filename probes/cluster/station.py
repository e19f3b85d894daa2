"""Execution of requests on a host, however they arrive: `Station`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import psutil

from probes.cluster.messages import (
    Done,
    Failed,
    Look,
    Looked,
    Measure,
    Measured,
    Reply,
    Request,
    Serve,
    Served,
)
from probes.cluster.racks import with_lldp
from probes.host.probe import probe_host
from probes.host.report_json import report_to_json
from probes.network.instruments.endpoint import (
    PairTask,
    Server,
    ServerAnswer,
    ServerStartError,
    measure_bandwidth,
    measure_latency,
    start_server,
)
from tuccl.errors import MachineError

_Answer = TypeVar("_Answer")

_KILL_ATTEMPTS = 20
"""Attempts to kill all children: a task may start another process in the meantime."""


class Station:
    """Executes the requests to one host; its servers run until the next ones replace them."""

    def __init__(self) -> None:
        self._servers: list[Server] = []

    def perform(self, request: Request) -> Reply:
        """Execute a request; any error, also that of a defect, becomes a `Failed` reply."""
        try:
            return self.do(request)
        except (MachineError, OSError) as error:
            return Failed(reason=str(error))
        except Exception as error:  # noqa: BLE001 - without a reply the leader waits for minutes
            traceback.print_exc(file=sys.stderr)
            return Failed(reason=f"{type(error).__name__}: {error}")

    def do(self, request: Request) -> Reply:
        """Execute a request and return the reply.

        Raises:
            MachineError: this host cannot be probed.
        """
        if isinstance(request, Look):
            return Looked(report=report_to_json(with_lldp(probe_host(request.options))))
        if isinstance(request, Measure):
            measure = measure_latency if request.what == "latency" else measure_bandwidth
            return Measured(figures=_all_at_once(measure, request.tasks))
        self.close()
        if isinstance(request, Serve):
            return Served(servers=_all_at_once(self._start, request.tasks))
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


def kill_children() -> None:
    """Kill all descendants of this process."""
    for _ in range(_KILL_ATTEMPTS):
        children = psutil.Process().children(recursive=True)
        if not children:
            return
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=1.0)
