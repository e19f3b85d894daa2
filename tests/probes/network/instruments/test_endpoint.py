"""Both ends of a measurement on one host, with scripts as perftest, since there is no RDMA."""

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pydantic import TypeAdapter

from probes.network.addresses import SYSFS_INFINIBAND
from probes.network.instruments.endpoint import (
    TCP_CONNECT,
    PairTask,
    ServerStartError,
    bandwidth_tool,
    latency_tool,
    measure_bandwidth,
    measure_latency,
    start_server,
)
from probes.network.instruments.tcp import (
    free_port,
    listening_inodes,
    listening_socket,
    port_of,
)
from probes.network.instruments.tools import Figure, Tool
from probes.network.ports import Failure, NetworkPort

pytestmark = pytest.mark.long
Play = Callable[[str, str], None]

HERE = NetworkPort(0, "here", 0, "lo", "lo", address="127.0.0.1", prefix_length=8)
BARE = replace(
    HERE,
    os_name="mlx5_1",
    rdma_device="mlx5_1",
    rdma_port=1,
    address="",
    management_address="127.0.0.1",
    rdma_subnet="InfiniBand fe80::/64",
)
RDMA = replace(HERE, os_name="mlx5_0", rdma_device="mlx5_0", rdma_port=1)
TASK = PairTask(HERE, HERE, Tool.IPERF3, seconds=1, omitted_s=0, pings=3, timeout_s=5)

requires_tools = pytest.mark.skipif(
    not (shutil.which("iperf3") and shutil.which("ping")), reason="iperf3 or ping is missing"
)


def test_perftest_measures_between_rdma_devices_if_both_hosts_have_it() -> None:
    assert bandwidth_tool(RDMA, RDMA, ()) is Tool.IB_WRITE_BW
    assert latency_tool(RDMA, RDMA, ["iperf3"]) is Tool.IB_WRITE_LAT
    assert bandwidth_tool(RDMA, HERE, ()) is Tool.IPERF3
    assert bandwidth_tool(RDMA, RDMA, ["ib_write_lat"]) is Tool.IPERF3
    assert latency_tool(RDMA, RDMA, ["ib_write_bw"]) is Tool.PING


def test_only_perftest_measures_what_has_no_address() -> None:
    # TCP would measure the management network instead of the port's.
    addressed = replace(RDMA, management_address="127.0.0.1")
    for pair in ((BARE, BARE), (BARE, addressed), (addressed, BARE)):
        for missing in ((), ("ib_write_bw", "ib_write_lat")):
            assert bandwidth_tool(*pair, missing) is Tool.IB_WRITE_BW
            assert latency_tool(*pair, missing) is Tool.IB_WRITE_LAT


def test_tasks_and_figures_travel_as_json() -> None:
    for value in (TASK, Figure(None, "ping", Failure.FILTERED, "a word"), Figure(1.5, "x")):
        adapter = TypeAdapter(type(value))
        assert adapter.validate_json(adapter.dump_json(value)) == value


@requires_tools
def test_a_measurement_on_one_host_leaves_nothing_behind() -> None:
    with start_server(TASK) as server:
        assert listening_inodes(server.tcp_port)
        figure = measure_bandwidth(replace(TASK, tcp_port=server.tcp_port))
    assert figure.value is not None
    assert figure.value > 0.01
    assert (figure.by, figure.failure) == ("iperf3", None)
    assert not listening_inodes(server.tcp_port)
    assert not [child for child in psutil.Process().children() if "iperf3" in child.name()]
    server.stop()


@requires_tools
def test_a_server_without_a_client_is_stopped() -> None:
    with start_server(TASK) as server:
        pass
    assert not listening_inodes(server.tcp_port)


@requires_tools
def test_a_port_in_use_by_another_process_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening_socket("127.0.0.1") as rival:
        ports = iter([port_of(rival), free_port("127.0.0.1")])
        monkeypatch.setattr("probes.network.instruments.endpoint.free_port", lambda _: next(ports))
        with start_server(TASK) as server:
            assert server.tcp_port != port_of(rival)
            assert measure_bandwidth(replace(TASK, tcp_port=server.tcp_port)).value is not None


@requires_tools
def test_ping_of_this_host() -> None:
    figure = measure_latency(replace(TASK, tool=Tool.PING))
    assert figure.value is not None
    assert 0 < figure.value < 1000
    assert len(figure.samples) == 3


def test_an_old_ping_is_repeated_with_a_longer_interval(play: Play) -> None:
    play(
        "ping",
        'case "$*" in *"-i 0.2"*) ;; *)\n'
        "echo 'ping: cannot flood; minimal interval allowed for user is 200ms'; exit 2;; esac\n"
        "echo '64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.100 ms'\n"
        "echo '1 packets transmitted, 1 received, 0% packet loss, time 0ms'",
    )
    assert measure_latency(replace(TASK, tool=Tool.PING)) == Figure(50.0, "ping", samples=(50.0,))


@requires_tools
def test_a_refused_connection_is_a_filter() -> None:
    figure = measure_bandwidth(replace(TASK, tcp_port=free_port("127.0.0.1")))
    assert (figure.value, figure.failure) == (None, Failure.FILTERED)
    assert figure.detail == "unable to connect to server: Connection refused"


@requires_tools
def test_a_dropped_connection_is_a_filter_if_ping_passes(full_listener: int) -> None:
    figure = measure_bandwidth(replace(TASK, tcp_port=full_listener))
    assert (figure.value, figure.failure) == (None, Failure.FILTERED)
    assert figure.detail.endswith("(ping passes)")


@requires_tools
def test_a_server_that_says_nothing_is_a_timeout() -> None:
    with listening_socket("127.0.0.1", backlog=8) as silent:
        figure = measure_bandwidth(replace(TASK, tcp_port=port_of(silent), timeout_s=0.5))
    assert (figure.value, figure.failure) == (None, Failure.TIMEOUT)
    assert figure.detail.startswith("no end within 0.5 s")


@requires_tools
def test_a_foreign_address_cannot_serve() -> None:
    elsewhere = replace(TASK, server=replace(HERE, address="192.0.2.1"))
    for tool in (Tool.IPERF3, Tool.PING):
        with pytest.raises(ServerStartError, match=r"cannot start at 192\.0\.2\.1") as caught:
            start_server(replace(elsewhere, tool=tool))
        assert caught.value.failure is Failure.UNREACHABLE


def test_missing_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerStartError, match="apt-get install iperf3") as caught:
        start_server(TASK)
    assert caught.value.failure is Failure.TOOL_MISSING
    figure = measure_bandwidth(replace(TASK, tcp_port=1))
    assert (figure.value, figure.failure) == (None, Failure.TOOL_MISSING)
    assert "apt-get install iperf3" in figure.detail


def test_without_ping_a_handshake_gives_the_latency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = replace(TASK, tool=Tool.PING)
    monkeypatch.setenv("PATH", str(tmp_path))
    with start_server(task) as server:
        figure = measure_latency(replace(task, tcp_port=server.tcp_port))
    assert figure.value is not None
    assert 0 < figure.value < 1000
    assert (figure.by, figure.failure) == (TCP_CONNECT, None)
    assert figure.detail.startswith("ping is not usable (ping is not installed")
    assert measure_latency(task).failure is Failure.TOOL_MISSING


@pytest.mark.skipif(not shutil.which("ib_write_bw"), reason="perftest is not installed")
@pytest.mark.skipif(SYSFS_INFINIBAND.exists(), reason="this host has RDMA devices")
def test_perftest_without_a_device_says_so() -> None:
    with pytest.raises(ServerStartError, match="Unable to find the Infiniband") as caught:
        start_server(PairTask(RDMA, RDMA, Tool.IB_WRITE_BW))
    assert caught.value.failure is Failure.UNREACHABLE


def test_a_server_that_ends_is_no_timeout(play: Play) -> None:
    play("ib_write_bw", 'echo "Couldn\'t allocate MR"; exit 1')
    with pytest.raises(ServerStartError, match="does not listen: Couldn't allocate MR") as caught:
        start_server(PairTask(RDMA, RDMA, Tool.IB_WRITE_BW))
    assert caught.value.failure is Failure.UNREADABLE


PERFTEST = """\
#!{python}
import socket, sys
words = sys.argv[1:]
open("{log}", "a").write(" ".join(["{tool}", *words]) + "\\n")
port = int(words[words.index("-p") + 1])
if words[-1] == "127.0.0.1":
    socket.create_connection(("127.0.0.1", port)).close()
    print('''{output}''')
else:
    with socket.create_server(("", port)) as server:
        server.accept()
"""
BANDWIDTH = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    5000             97.90              97.80              0.011659
---------------------------------------------------------------------------------------"""
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]
 8       1000          1.77           4.72         1.88
---------------------------------------------------------------------------------------"""


def play_perftest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install scripts in place of perftest and return their log."""
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for tool, output in (("ib_write_bw", BANDWIDTH), ("ib_write_lat", LATENCY)):
        script = PERFTEST.format(python=sys.executable, log=log, tool=tool, output=output)
        (tmp_path / tool).write_text(script)
        (tmp_path / tool).chmod(0o755)
    return log


def test_perftest_is_run_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = play_perftest(tmp_path, monkeypatch)
    found, ports = [], []
    for tool, measure in (
        (Tool.IB_WRITE_BW, measure_bandwidth),
        (Tool.IB_WRITE_LAT, measure_latency),
    ):
        task = PairTask(RDMA, RDMA, tool, seconds=3)
        with start_server(task) as server:
            found.append(measure(replace(task, tcp_port=server.tcp_port)))
            ports.append(server.tcp_port)
    assert found == [Figure(97.80 / 8, "ib_write_bw"), Figure(1.88, "ib_write_lat")]
    bandwidth = f"ib_write_bw -d mlx5_0 -i 1 -p {ports[0]} -F -s 1048576 -D 3 --report_gbits"
    latency = f"ib_write_lat -d mlx5_0 -i 1 -p {ports[1]} -F -s 8 -n 1000"
    assert log.read_text().splitlines() == [
        bandwidth,
        f"{bandwidth} 127.0.0.1",
        latency,
        f"{latency} 127.0.0.1",
    ]


@pytest.mark.parametrize(("subnet", "gid"), [("InfiniBand fe80::/64", ""), ("RoCE", " -x 1")])
def test_ports_without_an_address_are_measured_over_that_of_their_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subnet: str, gid: str
) -> None:
    log = play_perftest(tmp_path, monkeypatch)
    bare = replace(BARE, rdma_subnet=subnet)
    index = 1 if subnet == "RoCE" else None
    monkeypatch.setattr(
        "probes.network.instruments.endpoint.link_local_gid_index", lambda *_: index
    )
    client = replace(RDMA, address="192.0.2.1", management_address="127.0.0.1")
    for tool, measure in (
        (Tool.IB_WRITE_BW, measure_bandwidth),
        (Tool.IB_WRITE_LAT, measure_latency),
    ):
        task = PairTask(client, bare, tool, seconds=3)
        with start_server(task) as server:
            figure = measure(replace(task, tcp_port=server.tcp_port))
            assert (figure.failure, figure.by) == (None, tool)
    options = {
        "ib_write_bw": "-s 1048576 -D 3 --report_gbits",
        "ib_write_lat": "-s 8 -n 1000",
    }
    message = [re.sub(r" -p \d+", "", line) for line in log.read_text().splitlines()]
    assert message == [
        f"{tool} -d {device} -i 1{gid} -F {rest}{target}"
        for tool, rest in options.items()
        for device, target in (("mlx5_1", ""), ("mlx5_0", " 127.0.0.1"))
    ]


def test_a_failed_management_connection_says_nothing_about_the_ports(play: Play) -> None:
    play("ib_write_lat", 'echo "Couldn\'t connect to 127.0.0.1:1"; exit 1')
    figure = measure_latency(PairTask(BARE, BARE, Tool.IB_WRITE_LAT, tcp_port=1))
    assert figure.failure is Failure.FILTERED
    assert figure.detail.startswith("the hosts do not find each other over 127.0.0.1: Couldn't co")
    play("ib_write_lat", "exec sleep 30")
    silent = measure_latency(PairTask(BARE, BARE, Tool.IB_WRITE_LAT, tcp_port=1, timeout_s=0.3))
    assert silent.failure is Failure.FILTERED
    assert silent.detail == "no end within 0.3 s: no output, arranged over 127.0.0.1"
    own = measure_latency(PairTask(RDMA, RDMA, Tool.IB_WRITE_LAT, tcp_port=1, timeout_s=0.3))
    assert own.failure is Failure.TIMEOUT


def test_no_tool_replaces_a_missing_perftest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    task = PairTask(BARE, BARE, Tool.IB_WRITE_LAT, tcp_port=1)
    assert measure_latency(task).failure is Failure.TOOL_MISSING
    with pytest.raises(ServerStartError, match="install perftest"):
        start_server(task)
