"""A host that is probed: its servers, its measurements, and no process left behind."""

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest

from probes.network.instruments.endpoint import PairTask
from probes.network.instruments.tools import Tool
from probes.network.ports import NetworkPort
from tuccl.crew.asking import Lost
from tuccl.crew.launched import LaunchedPlaces
from tuccl.crew.messages import Done, Request
from tuccl.crew.probe_station import Measure, Serve, Stop

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("iperf3"), reason="iperf3 is not installed"),
]


@pytest.fixture
def host() -> Iterator[LaunchedPlaces]:
    with closing(LaunchedPlaces(["box"], "env HOST={host}")) as made:
        ask(made, Stop())
        yield made


def ask(host: LaunchedPlaces, request: Request, timeout_s: float = 60.0) -> Any:
    return host.ask({0: request}, timeout_s)[0]


def loopback_task() -> PairTask:
    client = NetworkPort(0, "a", 0, "lo", "lo", address="127.0.0.1", prefix_length=8)
    server = NetworkPort(1, "b", 0, "lo", "lo", address="127.0.0.2", prefix_length=8)
    return PairTask(client, server, Tool.IPERF3, seconds=30, timeout_s=40)


def process() -> psutil.Process:
    """The process of the host."""
    (found,) = [c for c in psutil.Process().children() if c.environ().get("HOST") == "box"]
    return found


def tools() -> list[psutil.Process]:
    return [child for child in process().children(recursive=True) if child.name() == "iperf3"]


@pytest.mark.parametrize("end", ["its input closes", "SIGTERM"])
def test_a_host_leaves_no_process_however_it_ends(host: LaunchedPlaces, end: str) -> None:
    task = loopback_task()
    served = ask(host, Serve((task, task)))
    assert len({server.tcp_port for server in served.servers}) == 2
    # A client in the middle of its work, too.
    busy = PairTask(task.client, task.server, task.tool, served.servers[0].tcp_port, 30)
    asked_for_s = 2.0
    own, started = process(), tools()
    if end == "SIGTERM":
        threading.Timer(asked_for_s, own.send_signal, (signal.SIGTERM,)).start()
        answer = ask(host, Measure("bandwidth", (busy,)), asked_for_s * 10)
        assert answer.reason.startswith("the launcher ended with exit 0")
    else:
        answer = ask(host, Measure("bandwidth", (busy,)), asked_for_s)
        assert answer.reason.startswith("no answer within 2 s")
    assert isinstance(answer, Lost)
    _, alive = psutil.wait_procs([own, *started], timeout=10)
    assert alive == []


def test_new_servers_replace_old_servers_and_tasks_run_at_once(host: LaunchedPlaces) -> None:
    task = loopback_task()
    ask(host, Serve((task,)))
    before = tools()
    short = PairTask(task.client, task.server, task.tool, seconds=2, omitted_s=0)
    served = ask(host, Serve((short, short, short)))
    assert psutil.wait_procs(before, timeout=5)[1] == []
    tasks = tuple(
        PairTask(task.client, task.server, task.tool, server.tcp_port, 2, 0)
        for server in served.servers
    )
    began = time.monotonic()
    measured = ask(host, Measure("bandwidth", tasks))
    assert time.monotonic() - began < 5.9, "six seconds would be one after the other"
    assert all(figure.value for figure in measured.figures), measured.figures
    assert ask(host, Stop()) == Done()
    assert tools() == []
