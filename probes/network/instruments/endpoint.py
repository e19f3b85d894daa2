"""What one host does for a measurement between two ports: serve it, or be its client.

    server = start_server(task)                            # on the server's host
    figure = measure_bandwidth(replace(task, tcp_port=server.tcp_port))   # on the client's
    server.stop()

Real programs do the work: perftest between RDMA devices, else iperf3 and ping. Every one has a
deadline and is ended with all that it started. A ping that is filtered loses no figure: the TCP
handshake with the server's port then takes its place, and the figure says so.

Where a port of the pair has no IP address, perftest measures from LIDs (InfiniBand) or link-local
GIDs (RoCE), and its two ends find each other by the hosts' management addresses. TCP would measure
another network there, so nothing takes perftest's place.
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
from probes.network.errors import ServerStartError
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
from probes.network.instruments.tool_words import failure_in_words, last_words, one_line
from probes.network.instruments.tools import MEASURING_RDMA, Tool, ToolMissingError, require
from probes.network.ports import NetworkPort
from probes.network.results import Failure

TCP_CONNECT = "tcp connect"
"""`Figure.by` of a latency taken from TCP handshakes."""
START_S = 5.0
"""In which a server must listen."""
RDMA_ITERATIONS = 1000
_HANDSHAKE_S = 1.0
_MOST_LOST = 2
"""Handshakes that may fail before what was measured until then must do."""
_START_ATTEMPTS = 3
"""Somebody else may take a free port before the server does."""

_PING_INTERVALS_S = (0.01, 0.2)
"""Before 2021 iputils refuse all but root an interval below 0.2 s."""
_PORT_TAKEN = re.compile("already in use|couldn't listen", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PairTask:
    """One measurement, the same for both of its hosts but for the port that the server answers."""

    client: NetworkPort
    server: NetworkPort
    tool: Tool
    """As chosen by `bandwidth_tool` or `latency_tool`."""
    tcp_port: int = 0
    """For the client: where the server listens."""
    seconds: int = 2
    """How long a bandwidth counts."""
    omitted_s: int = 1
    """How long TCP may find its speed before it counts."""
    pings: int = 20
    timeout_s: float = 20.0
    """For the tool to end; a server lives no longer than that and `START_S` either."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What a host says of a server that it was asked for."""

    tcp_port: int = 0
    failure: Failure | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, in GB/s or µs; its value is None exactly when `failure` says why."""

    value: float | None
    by: str
    """The tool, or `tcp connect`."""
    failure: Failure | None = None
    detail: str = ""
    """The tool's own words about a failure, or what is particular about the figure; one line."""
    samples: tuple[float, ...] = ()
    """Single values of a latency in µs, where the tool gives them."""


class Server:
    """The listening end of a measurement; as a context manager it is stopped on the way out."""

    def __init__(self, tcp_port: int, held: Program | socket.socket) -> None:
        self.tcp_port = tcp_port
        self._held = held

    def stop(self) -> None:
        """End it with all that it started; again is no error."""
        if isinstance(self._held, Program):
            self._held.end()
        else:
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def bandwidth_tool(client: NetworkPort, server: NetworkPort, missing: Collection[str]) -> Tool:
    """The tool for a pair; `missing` names what either host lacks.

    Only perftest measures a port without an address, so it is the tool even where it is missing.
    """
    return Tool.IB_WRITE_BW if _both_rdma(client, server, missing) else Tool.IPERF3


def latency_tool(client: NetworkPort, server: NetworkPort, missing: Collection[str]) -> Tool:
    """As `bandwidth_tool`."""
    return Tool.IB_WRITE_LAT if _both_rdma(client, server, missing) else Tool.PING


def _both_rdma(client: NetworkPort, server: NetworkPort, missing: Collection[str]) -> bool:
    if _is_arranged(client, server):
        return True
    lacking = any(tool in missing for tool in MEASURING_RDMA)
    return bool(client.rdma_device and server.rdma_device) and not lacking


def _is_arranged(client: NetworkPort, server: NetworkPort) -> bool:
    """Whether the ends find each other by addresses that are not those of the ports."""
    return client.is_rdma_only or server.is_rdma_only


def start_server(task: PairTask) -> Server:
    """Start what the client will talk to; returns when it listens.

    For ping, which needs no server, that is a bare TCP port, for the case that pings are filtered.

    Raises:
        ServerStartError: the tool is missing, the address is not here, or nothing listens in time.
    """
    where = f"{task.server.label}: {task.tool} server"
    try:
        if task.tool is Tool.PING:
            listener = listening_socket(task.server.address, backlog=128)
            return Server(port_of(listener), listener)
        require(task.tool)
        for attempt in range(1, _START_ATTEMPTS + 1):
            port = free_port(_listens_at(task))
            program = Program(_server_command(task, port), task.timeout_s + START_S)
            if _comes_up(program, port):
                return Server(port, program)
            # What gave up has a reason of its own; only what hangs may be a way that is cut.
            otherwise = Failure.TIMEOUT if program.is_running else Failure.UNREADABLE
            said = program.end()
            if not _PORT_TAKEN.search(said) or attempt == _START_ATTEMPTS:
                failure, words = failure_in_words(said) or (otherwise, last_words(said))
                raise ServerStartError(f"{where} does not listen: {words}", failure)
    except ToolMissingError as error:
        raise ServerStartError(f"{where}: {error}", Failure.TOOL_MISSING) from error
    except OSError as error:
        told = f"{where} cannot start at {_listens_at(task) or 'no address'}: {error}"
        raise ServerStartError(told, Failure.UNREACHABLE) from error
    raise ServerStartError(f"{where} found no free port", Failure.TIMEOUT)


def _comes_up(program: Program, port: int) -> bool:
    def listens() -> bool:
        # Another server of this host may have got the same port, at another address.
        return program.holds_socket(listening_inodes(port))

    try:
        wait_until(lambda: listens() or not program.is_running, START_S)
        return program.is_running and listens()
    except BaseException:
        program.end()
        raise


def measure_bandwidth(task: PairTask) -> Figure:
    """What the client sends to the server, in GB/s; what goes wrong is in the figure."""
    if task.tool is Tool.IB_WRITE_BW:
        command = bandwidth_command(
            _rdma(task.client, task), task.tcp_port, task.seconds, _target(task)
        )
        output, problem = _output_of(command, task)
        read = parse_perftest(output)
        figure = Figure(read.bandwidth_gb_per_s, task.tool, read.failure, read.detail)
        return problem or _reconsidered(figure, task)
    command = iperf3_client_command(
        task.client.address,
        _target(task),
        task.tcp_port,
        streams_for(_line_rate_gb_per_s(task)),
        task.seconds,
        task.omitted_s,
    )
    output, problem = _output_of(command, task)
    result = parse_iperf3(output)
    figure = Figure(result.bandwidth_gb_per_s, task.tool, result.failure, result.detail)
    return problem or _reconsidered(figure, task)


def measure_latency(task: PairTask) -> Figure:
    """One way from the client to the server, in µs; what goes wrong is in the figure."""
    if task.tool is not Tool.IB_WRITE_LAT:
        figure = _ping(task)
        lost = figure.failure in (Failure.UNREACHABLE, Failure.FILTERED, Failure.TOOL_MISSING)
        return _by_handshakes(task, figure) if lost and task.tcp_port else figure
    command = latency_command(
        _rdma(task.client, task), task.tcp_port, RDMA_ITERATIONS, _target(task)
    )
    output, problem = _output_of(command, task)
    read = parse_perftest(output)
    figure = Figure(read.latency_us, task.tool, read.failure, read.detail)
    return problem or _reconsidered(figure, task)


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
    result = parse_ping(output)
    one_way_us = tuple(time_ms * 500 for time_ms in result.round_trips_ms)
    return Figure(result.latency_us, Tool.PING, result.failure, result.detail, one_way_us)


def _by_handshakes(task: PairTask, pinged: Figure) -> Figure:
    """Half the median TCP handshake where no ping comes through; else what ping found."""
    samples: list[float] = []
    lost = 0
    while len(samples) + lost < task.pings and lost <= min(_MOST_LOST, len(samples)):
        try:
            took = handshake_us(task.client.address, _target(task), task.tcp_port, _HANDSHAKE_S)
        except OSError:
            lost += 1
            continue
        samples.append(took / 2)
        time.sleep(0.001)
    if not samples:
        return pinged
    kind = "not usable" if pinged.failure is Failure.TOOL_MISSING else "filtered"
    told = one_line(f"ping is {kind} ({pinged.detail}), TCP handshakes instead")
    return Figure(median(samples), TCP_CONNECT, None, told, tuple(samples))


def _reconsidered(figure: Figure, task: PairTask) -> Figure:
    """Without a connection: traffic is filtered if the host answers pings, else it is away.

    A connection that only arranges the measurement says nothing about the ports.
    """
    lost = figure.failure in (Failure.UNREACHABLE, Failure.TIMEOUT)
    if not lost or "connect" not in figure.detail.lower():
        return figure
    if _is_arranged(task.client, task.server):
        told = f"the hosts do not find each other over {_listens_at(task)}: {figure.detail}"
        return replace(figure, failure=Failure.FILTERED, detail=one_line(told))
    pinged = _ping(task).failure
    if pinged is Failure.TOOL_MISSING:
        return figure
    told = one_line(f"{figure.detail} ({'nor does ping pass' if pinged else 'ping passes'})")
    failure = Failure.UNREACHABLE if pinged else Failure.FILTERED
    return replace(figure, failure=failure, detail=told)


def _output_of(
    command: list[str], task: PairTask, tool: Tool | None = None
) -> tuple[str, Figure | None]:
    """What a client printed, or the figure that says why it printed nothing of use."""
    tool = tool or task.tool
    try:
        require(tool)
        ended = run(command, task.timeout_s)
    except ToolMissingError as error:
        return "", Figure(None, tool, Failure.TOOL_MISSING, one_line(str(error)))
    except OSError as error:
        return "", Figure(None, tool, Failure.TOOL_MISSING, one_line(f"{tool}: {error}"))
    if ended.timed_out:
        told = f"no end within {task.timeout_s:g} s: {last_words(ended.output)}"
        failure = Failure.TIMEOUT
        if _is_arranged(task.client, task.server) and not ended.output.strip():
            # Most likely still looking for the other host, which tells nothing about the ports.
            told, failure = f"{told}, arranged over {_listens_at(task)}", Failure.FILTERED
        return ended.output, Figure(None, tool, failure, one_line(told))
    return ended.output, None


def _server_command(task: PairTask, port: int) -> list[str]:
    if task.tool is Tool.IB_WRITE_BW:
        return bandwidth_command(_rdma(task.server, task), port, task.seconds)
    if task.tool is Tool.IB_WRITE_LAT:
        return latency_command(_rdma(task.server, task), port, RDMA_ITERATIONS)
    return iperf3_server_command(task.server.address, port)


def _rdma(port: NetworkPort, task: PairTask) -> RdmaEnd:
    if _is_arranged(task.client, task.server):
        gid = link_local_gid_index(port.rdma_device, port.rdma_port)
    else:
        gid = gid_index(port.rdma_device, port.rdma_port, port.address)
    return RdmaEnd(port.rdma_device, port.rdma_port, gid, ":" in _listens_at(task))


def _listens_at(task: PairTask) -> str:
    arranged = _is_arranged(task.client, task.server)
    return task.server.management_address if arranged else task.server.address


def _target(task: PairTask) -> str:
    """The server's address as the client writes it: a link-local one on the client's interface."""
    bare, scoped, _ = _listens_at(task).partition("%")
    return f"{bare}%{task.client.interface}" if scoped else bare


def _line_rate_gb_per_s(task: PairTask) -> float:
    """Of the slower end, as far as known."""
    rates = [task.client.line_rate_gb_per_s, task.server.line_rate_gb_per_s]
    return min((rate for rate in rates if rate > 0), default=0.0)
