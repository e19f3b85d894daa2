"""One host's side of a measurement between two ports, as server or client.

    server = start_server(task)                            # on the server's host
    figure = measure_bandwidth(replace(task, tcp_port=server.tcp_port))   # on the client's
    server.stop()

The tools are perftest between RDMA devices, else iperf3 and ping. Each has a deadline and ends with
all its children. If pings are filtered, TCP handshakes with the server's port replace them, which
the figure states.

Where a port of the pair has no IP address, perftest measures from LIDs (InfiniBand) or link-local
GIDs (RoCE), and its two ends connect over the hosts' management addresses. TCP would measure
another network there, so no tool replaces perftest.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from statistics import median
from typing import Self

from probes.network.addresses import gid_index, link_local_gid_index
from probes.network.instruments.iperf3 import (
    iperf3_client_command,
    iperf3_server_command,
    parse_iperf3,
    streams_for,
)
from probes.network.instruments.perftest import (
    RdmaEnd,
    bandwidth_command,
    latency_command,
    parse_perftest,
)
from probes.network.instruments.ping import parse_ping, ping_command
from probes.network.instruments.processes import Program, run
from probes.network.instruments.tcp import (
    free_port,
    handshake_us,
    listening_inodes,
    listening_socket,
    port_of,
    wait_until,
)
from probes.network.instruments.tools import (
    MEASURING_RDMA,
    Figure,
    Tool,
    failure_in_words,
    last_words,
    one_line,
    require,
)
from probes.network.ports import Failure, NetworkPort
from tuccl.errors import MachineError, ToolMissingError

TCP_CONNECT = "tcp connect"
"""`Figure.by` of a latency taken from TCP handshakes."""
START_S = 5.0
"""Time limit for a server to listen."""
RDMA_ITERATIONS = 1000
_HANDSHAKE_S = 1.0
_MAX_LOST = 2
"""Handshakes that may fail before the measurement ends with the samples so far."""
_START_ATTEMPTS = 3
"""Attempts to start a server: another process may take its port first."""

_PING_INTERVALS_S = (0.01, 0.2)
"""Intervals to try: iputils before 2021 allow less than 0.2 s to root only."""
_PORT_TAKEN = re.compile("already in use|couldn't listen", re.IGNORECASE)


class ServerStartError(MachineError):
    """The server of a measurement did not start; `failure` is the cause."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class PairTask:
    """A measurement; equal on both hosts but for `tcp_port`, which the server's answer gives."""

    client: NetworkPort
    server: NetworkPort
    tool: Tool
    """Result of `bandwidth_tool` or `latency_tool`."""
    tcp_port: int = 0
    """For the client: the port at which the server listens."""
    seconds: int = 2
    """Duration of a bandwidth measurement."""
    omitted_s: int = 1
    """Time in which TCP finds its speed, before the measurement."""
    pings: int = 20
    timeout_s: float = 20.0
    """Time limit of the client; a server ends after this and `START_S`."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """A host's answer to the request for a server."""

    tcp_port: int = 0
    failure: Failure | None = None
    detail: str = ""


class Server:
    """The listening end of a measurement; as a context manager it stops on exit."""

    def __init__(self, tcp_port: int, resource: Program | socket.socket) -> None:
        self.tcp_port = tcp_port
        self._resource = resource

    def stop(self) -> None:
        """End the server and all its children; may be called twice."""
        if isinstance(self._resource, Program):
            self._resource.end()
        else:
            self._resource.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def bandwidth_tool(client: NetworkPort, server: NetworkPort, missing: Collection[str]) -> Tool:
    """Return the bandwidth tool for a pair; `missing` names tools that either host lacks.

    Only perftest measures a port without an address, so it is the tool even if it is missing.
    """
    return Tool.IB_WRITE_BW if _both_rdma(client, server, missing) else Tool.IPERF3


def latency_tool(client: NetworkPort, server: NetworkPort, missing: Collection[str]) -> Tool:
    """Return the latency tool for a pair; see `bandwidth_tool`."""
    return Tool.IB_WRITE_LAT if _both_rdma(client, server, missing) else Tool.PING


def _both_rdma(client: NetworkPort, server: NetworkPort, missing: Collection[str]) -> bool:
    if _needs_management_address(client, server):
        return True
    lacking = any(tool in missing for tool in MEASURING_RDMA)
    return bool(client.rdma_device and server.rdma_device) and not lacking


def _needs_management_address(client: NetworkPort, server: NetworkPort) -> bool:
    """Whether the ends connect over management addresses, not those of the ports."""
    return client.is_rdma_only or server.is_rdma_only


def start_server(task: PairTask) -> Server:
    """Start the server of a task; returns when it listens.

    For ping, which needs no server, this is a bare TCP port, in case that pings are filtered.

    Raises:
        ServerStartError: the tool is missing, the address is not on this host, or the server does
            not listen in time.
    """
    where = f"{task.server.label}: {task.tool} server"
    try:
        if task.tool is Tool.PING:
            listener = listening_socket(task.server.address, backlog=128)
            return Server(port_of(listener), listener)
        require(task.tool)
        for attempt in range(1, _START_ATTEMPTS + 1):
            port = free_port(_server_address(task))
            program = Program(_server_command(task, port), task.timeout_s + START_S)
            if _waits_until_listening(program, port):
                return Server(port, program)
            # A server that ended states its reason; one that hangs may lack a path.
            fallback = Failure.TIMEOUT if program.is_running else Failure.UNREADABLE
            output = program.end()
            if not _PORT_TAKEN.search(output) or attempt == _START_ATTEMPTS:
                failure, words = failure_in_words(output) or (fallback, last_words(output))
                raise ServerStartError(f"{where} does not listen: {words}", failure)
    except ToolMissingError as error:
        raise ServerStartError(f"{where}: {error}", Failure.TOOL_MISSING) from error
    except OSError as error:
        problem = f"{where} cannot start at {_server_address(task) or 'no address'}: {error}"
        raise ServerStartError(problem, Failure.UNREACHABLE) from error
    raise ServerStartError(f"{where} found no free port", Failure.TIMEOUT)


def _waits_until_listening(program: Program, port: int) -> bool:
    def listens() -> bool:
        # Another server of this host may have the same port at another address.
        return program.holds_socket(listening_inodes(port))

    try:
        wait_until(lambda: listens() or not program.is_running, START_S)
        return program.is_running and listens()
    except BaseException:
        program.end()
        raise


def measure_bandwidth(task: PairTask) -> Figure:
    """Measure the bandwidth from client to server in GB/s; errors are in the figure."""
    if task.tool is Tool.IB_WRITE_BW:
        command = bandwidth_command(
            _rdma(task.client, task), task.tcp_port, task.seconds, _target(task)
        )
        output, problem = _output_of(command, task)
        perftest = parse_perftest(output)
        figure = Figure(perftest.bandwidth_gb_per_s, task.tool, perftest.failure, perftest.detail)
        return problem or _with_ping_check(figure, task)
    command = iperf3_client_command(
        task.client.address,
        _target(task),
        task.tcp_port,
        streams_for(_line_rate_gb_per_s(task)),
        task.seconds,
        task.omitted_s,
    )
    output, problem = _output_of(command, task)
    return problem or _with_ping_check(parse_iperf3(output), task)


def measure_latency(task: PairTask) -> Figure:
    """Measure the one-way latency from client to server in µs; errors are in the figure."""
    if task.tool is not Tool.IB_WRITE_LAT:
        figure = _ping(task)
        lost = figure.failure in (Failure.UNREACHABLE, Failure.FILTERED, Failure.TOOL_MISSING)
        return _by_handshakes(task, figure) if lost and task.tcp_port else figure
    command = latency_command(
        _rdma(task.client, task), task.tcp_port, RDMA_ITERATIONS, _target(task)
    )
    output, problem = _output_of(command, task)
    result = parse_perftest(output)
    figure = Figure(result.latency_us, task.tool, result.failure, result.detail)
    return problem or _with_ping_check(figure, task)


def _ping(task: PairTask) -> Figure:
    for interval_s in _PING_INTERVALS_S:
        deadline_s = max(1, min(int(task.timeout_s) - 1, int(task.pings * interval_s) + 1))
        command = ping_command(
            task.client.address, _target(task), task.pings, interval_s, deadline_s
        )
        output, problem = _output_of(command, task, Tool.PING)
        if problem:
            return problem
        if "minimal interval" not in output:
            break
    return parse_ping(output)


def _by_handshakes(task: PairTask, ping_figure: Figure) -> Figure:
    """Return half the median TCP handshake; ping's figure if no handshake succeeds."""
    samples: list[float] = []
    lost = 0
    while len(samples) + lost < task.pings and lost <= min(_MAX_LOST, len(samples)):
        try:
            round_trip_us = handshake_us(
                task.client.address, _target(task), task.tcp_port, _HANDSHAKE_S
            )
        except OSError:
            lost += 1
            continue
        samples.append(round_trip_us / 2)
        time.sleep(0.001)
    if not samples:
        return ping_figure
    kind = "not usable" if ping_figure.failure is Failure.TOOL_MISSING else "filtered"
    remark = one_line(f"ping is {kind} ({ping_figure.detail}), TCP handshakes instead")
    return Figure(median(samples), TCP_CONNECT, None, remark, tuple(samples))


def _with_ping_check(figure: Figure, task: PairTask) -> Figure:
    """Refine a connection failure: filtered if the host answers pings, else unreachable.

    A failed connection over management addresses says nothing about the ports.
    """
    lost = figure.failure in (Failure.UNREACHABLE, Failure.TIMEOUT)
    if not lost or "connect" not in figure.detail.lower():
        return figure
    if _needs_management_address(task.client, task.server):
        detail = f"the hosts do not find each other over {_server_address(task)}: {figure.detail}"
        return replace(figure, failure=Failure.FILTERED, detail=one_line(detail))
    ping_failure = _ping(task).failure
    if ping_failure is Failure.TOOL_MISSING:
        return figure
    detail = one_line(
        f"{figure.detail} ({'nor does ping pass' if ping_failure else 'ping passes'})"
    )
    failure = Failure.UNREACHABLE if ping_failure else Failure.FILTERED
    return replace(figure, failure=failure, detail=detail)


def _output_of(
    command: list[str], task: PairTask, tool: Tool | None = None
) -> tuple[str, Figure | None]:
    """Run a client and return its output, and a figure with the failure if it has no result."""
    tool = tool or task.tool
    try:
        require(tool)
        result = run(command, task.timeout_s)
    except ToolMissingError as error:
        return "", Figure(None, tool, Failure.TOOL_MISSING, one_line(str(error)))
    except OSError as error:
        return "", Figure(None, tool, Failure.TOOL_MISSING, one_line(f"{tool}: {error}"))
    if result.timed_out:
        problem = f"no end within {task.timeout_s:g} s: {last_words(result.output)}"
        failure = Failure.TIMEOUT
        if _needs_management_address(task.client, task.server) and not result.output.strip():
            # It most likely waits for the server's host, which says nothing about the ports.
            problem, failure = f"{problem}, arranged over {_server_address(task)}", Failure.FILTERED
        return result.output, Figure(None, tool, failure, one_line(problem))
    return result.output, None


def _server_command(task: PairTask, port: int) -> list[str]:
    if task.tool is Tool.IB_WRITE_BW:
        return bandwidth_command(_rdma(task.server, task), port, task.seconds)
    if task.tool is Tool.IB_WRITE_LAT:
        return latency_command(_rdma(task.server, task), port, RDMA_ITERATIONS)
    return iperf3_server_command(task.server.address, port)


def _rdma(port: NetworkPort, task: PairTask) -> RdmaEnd:
    if _needs_management_address(task.client, task.server):
        gid = link_local_gid_index(port.rdma_device, port.rdma_port)
    else:
        gid = gid_index(port.rdma_device, port.rdma_port, port.address)
    return RdmaEnd(port.rdma_device, port.rdma_port, gid, ":" in _server_address(task))


def _server_address(task: PairTask) -> str:
    uses_management = _needs_management_address(task.client, task.server)
    return task.server.management_address if uses_management else task.server.address


def _target(task: PairTask) -> str:
    """The server's address for the client: a link-local one gets the client's interface."""
    bare, scoped, _ = _server_address(task).partition("%")
    return f"{bare}%{task.client.interface}" if scoped else bare


def _line_rate_gb_per_s(task: PairTask) -> float:
    """Line rate of the slower port, as far as known; 0 when unknown."""
    rates = [task.client.line_rate_gb_per_s, task.server.line_rate_gb_per_s]
    return min((rate for rate in rates if rate > 0), default=0.0)
