"""Real ping and iperf3 between hosts that are network namespaces, with known rates and delays."""

import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from probes.network.instruments.endpoint import TCP_CONNECT, PairTask
from probes.network.instruments.tools import Figure, Tool
from probes.network.ports import Failure, NetworkPort
from tests.network_namespaces import Interface, NetworkNamespaces, requires_namespaces

pytestmark = [pytest.mark.long, requires_namespaces]

HOST = Path(__file__).with_name("endpoint_host.py")
FAST_MBIT, SLOW_MBIT = 200, 50
HOSTS = [
    [Interface(rate_mbit=FAST_MBIT), Interface(subnet=2, rate_mbit=FAST_MBIT)],
    [Interface(rate_mbit=FAST_MBIT)],
    [Interface(rate_mbit=SLOW_MBIT)],
    [Interface(rate_mbit=FAST_MBIT)],
    [Interface(delay_us=1000, rate_mbit=None)],
    [Interface(delay_us=2500, rate_mbit=None)],
    [Interface(subnet=2, rate_mbit=FAST_MBIT)],
]


@pytest.fixture(scope="module")
def network() -> Iterator[NetworkNamespaces]:
    with NetworkNamespaces(HOSTS) as network:
        yield network
        assert network.processes() == []


def _port(network: NetworkNamespaces, host: int, nic: int = 0) -> NetworkPort:
    name = f"eth{nic}"
    address = network.address(host, nic)
    return NetworkPort(host, f"host{host}", nic, name, name, address=address, prefix_length=24)


def _task(network: NetworkNamespaces, client: int, server: int, tool: Tool) -> PairTask:
    ends = _port(network, client), _port(network, server)
    return PairTask(*ends, tool, seconds=1, omitted_s=1, timeout_s=10)


def _command(role: str, task: PairTask) -> list[str]:
    text = TypeAdapter(PairTask).dump_json(task).decode()
    return [sys.executable, str(HOST), role, text]


def _measure(network: NetworkNamespaces, tasks: Sequence[PairTask]) -> list[Figure]:
    """Run all tasks at once, each with its own server; output of a server's host is an error."""
    with ExitStack() as servers:
        ready = []
        for task in tasks:
            server = servers.enter_context(
                subprocess.Popen(
                    network.argv(task.server.host, _command("serve", task)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert server.stdout is not None
            ready.append((task, server.stdout))
        answered = [replace(task, tcp_port=int(line.readline())) for task, line in ready]
        return _be_clients(network, answered)


def _be_clients(network: NetworkNamespaces, tasks: Sequence[PairTask]) -> list[Figure]:
    def client(task: PairTask) -> Figure:
        role = "bandwidth" if task.tool is Tool.IPERF3 else "latency"
        done = network.run(task.client.host, _command(role, task))
        assert done.returncode == 0, done.stderr
        return TypeAdapter(Figure).validate_json(done.stdout)

    with ThreadPoolExecutor(len(tasks)) as clients:
        return list(clients.map(client, tasks))


def _is_near(figure: Figure, shaped_us: float) -> bool:
    """Whether the latency is that of the cable.

    Without a delay, a busy machine makes the median 85 to 150 us, which says nothing about the
    cable; the fastest message does.
    """
    assert figure.value is not None, figure
    assert figure.value == pytest.approx(statistics.median(figure.samples)), figure
    if shaped_us == 0:
        return min(figure.samples) <= 50
    return abs(figure.value - shaped_us) <= 0.2 * shaped_us


def _assert_latency(network: NetworkNamespaces, task: PairTask, shaped_us: float) -> None:
    """Check the latency of 20 pings, repeated at most twice on a busy machine."""
    figures: list[Figure] = []
    while len(figures) < 3 and not (figures and _is_near(figures[-1], shaped_us)):
        figures += _be_clients(network, [task])
        assert figures[-1].by == "ping"
    assert _is_near(figures[-1], shaped_us), figures


def test_bandwidth_is_that_of_the_shaping_and_a_slow_link_is_slow(
    network: NetworkNamespaces,
) -> None:
    tasks = [_task(network, *pair, Tool.IPERF3) for pair in ((0, 1), (3, 2))]
    fast, slow = _measure(network, tasks)
    for figure, mbit in ((fast, FAST_MBIT), (slow, SLOW_MBIT)):
        assert figure.value == pytest.approx(mbit / 8e3, rel=0.1), figure
        assert (figure.by, figure.failure, figure.detail) == ("iperf3", None, "")


def test_latency_is_that_of_the_cables(network: NetworkNamespaces) -> None:
    shaped_us = {(0, 1): 0, (0, 4): 1000, (5, 1): 2500, (4, 5): 3500}
    for pair, delay_us in shaped_us.items():
        _assert_latency(network, _task(network, *pair, Tool.PING), delay_us)


def test_hosts_of_different_subnets_reach_each_other(network: NetworkNamespaces) -> None:
    _assert_latency(network, _task(network, 1, 6, Tool.PING), 0)


def test_the_named_nic_is_the_one_that_sends(network: NetworkNamespaces) -> None:
    task = replace(_task(network, 0, 6, Tool.PING), client=_port(network, 0, 1))
    _assert_latency(network, task, 0)
    network.set_link(0, 1, up=False)
    try:
        (figure,) = _be_clients(network, [task])
    finally:
        network.set_link(0, 1, up=True)
    assert figure.value is None, figure


def test_a_filtered_ping_is_replaced_by_handshakes(network: NetworkNamespaces) -> None:
    shaped_us = {(0, 1): 0, (4, 5): 3500}
    tasks = [_task(network, *pair, Tool.PING) for pair in shaped_us]
    for _, server in shaped_us:
        network.ignore_ping(server)
    try:
        for _ in range(3):  # where the machine had other things to do
            figures = _measure(network, tasks)
            if all(map(_is_near, figures, shaped_us.values())):
                break
    finally:
        for _, server in shaped_us:
            network.ignore_ping(server, ignored=False)
    for figure, delay_us in zip(figures, shaped_us.values(), strict=True):
        assert (figure.by, figure.failure) == (TCP_CONNECT, None)
        assert figure.detail.startswith("ping is filtered (no reply to ")
        assert _is_near(figure, delay_us), figure


def test_a_host_whose_cable_is_out_is_unreachable(network: NetworkNamespaces) -> None:
    tasks = [
        replace(_task(network, 0, 3, tool), tcp_port=5201) for tool in (Tool.PING, Tool.IPERF3)
    ]
    network.set_link(3, 0, up=False)
    try:
        pinged, sent = _be_clients(network, tasks)
    finally:
        network.set_link(3, 0, up=True)
    assert (pinged.value, pinged.failure) == (None, Failure.UNREACHABLE)
    assert "100% packet loss" in pinged.detail or "Unreachable" in pinged.detail
    assert (sent.value, sent.failure) == (None, Failure.UNREACHABLE)
    assert sent.detail.startswith("unable to connect to server: ")


def test_a_host_without_a_server_refuses(network: NetworkNamespaces) -> None:
    task = replace(_task(network, 0, 1, Tool.IPERF3), tcp_port=5201)
    (figure,) = _be_clients(network, [task])
    assert (figure.value, figure.failure) == (None, Failure.FILTERED)
    assert figure.detail == "unable to connect to server: Connection refused"
