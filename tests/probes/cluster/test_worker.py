"""The worker process: requests, replies, and no process left behind."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from probes.cluster.messages import (
    Bye,
    Done,
    Failed,
    Look,
    Measure,
    Measured,
    Reply,
    Request,
    Serve,
    Served,
    Stop,
    reply_from_line,
    request_to_line,
    version,
)
from probes.host.probe import HostProbeOptions
from probes.network.instruments.endpoint import PairTask
from probes.network.instruments.tools import Tool
from probes.network.ports import NetworkPort

pytestmark = pytest.mark.long

Worker = subprocess.Popen[bytes]

requires_iperf3 = pytest.mark.skipif(not shutil.which("iperf3"), reason="iperf3 is not installed")


@pytest.fixture
def worker() -> Iterator[Worker]:
    with subprocess.Popen(
        [sys.executable, "-m", "probes.cluster.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        yield process
        process.kill()


def ask(worker: Worker, request: Request, number: int = 1) -> Reply:
    assert worker.stdin is not None
    worker.stdin.write(request_to_line(number, request))
    worker.stdin.flush()
    return receive(worker, number)


def receive(worker: Worker, number: int) -> Reply:
    assert worker.stdout is not None
    got, reply = reply_from_line(worker.stdout.readline(), "the worker")
    assert got == number
    return reply


def loopback_task() -> PairTask:
    client = NetworkPort(0, "a", 0, "lo", "lo", address="127.0.0.1", prefix_length=8)
    server = NetworkPort(1, "b", 0, "lo", "lo", address="127.0.0.2", prefix_length=8)
    return PairTask(client, server, Tool.IPERF3, seconds=30, timeout_s=40)


def offspring(worker: Worker) -> list[psutil.Process]:
    return psutil.Process(worker.pid).children(recursive=True)


def tools(worker: Worker) -> list[int]:
    return [child.pid for child in offspring(worker) if child.name() == "iperf3"]


def all_gone(processes: list[psutil.Process]) -> bool:
    gone, alive = psutil.wait_procs(processes, timeout=5)
    return not alive and len(gone) == len(processes)


def test_requests_are_answered_by_number_until_bye(worker: Worker) -> None:
    assert ask(worker, Stop(), 7) == Done()
    assert ask(worker, Stop(), 8) == Done()
    assert worker.stdin is not None
    worker.stdin.write(request_to_line(9, Bye()))
    worker.stdin.flush()
    assert worker.wait(10) == 0


def test_a_failed_probe_is_a_reply(worker: Worker, tmp_path: Path) -> None:
    folder = tmp_path / "nothing"
    reply = ask(worker, Look(options=HostProbeOptions(root=folder)))
    assert isinstance(reply, Failed)
    assert str(folder) in reply.reason


def test_another_version_is_refused_with_both_named(worker: Worker) -> None:
    message = {"version": "TuCCL 9.9, messages 8", "number": 1, "body": {"request": "stop"}}
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(message).encode() + b"\n")
    worker.stdin.flush()
    reply = receive(worker, 0)
    assert isinstance(reply, Failed)
    assert f"the leader runs TuCCL 9.9, messages 8, this side {version()}" in reply.reason
    assert worker.wait(10) == 0


@requires_iperf3
@pytest.mark.parametrize("end", ["stdin closes", "bye", "SIGTERM"])
def test_the_worker_leaves_no_process_however_it_ends(worker: Worker, end: str) -> None:
    task = loopback_task()
    served = ask(worker, Serve(tasks=(task, task)))
    assert isinstance(served, Served)
    assert len({server.tcp_port for server in served.servers}) == 2
    assert worker.stdin is not None
    # A client in the middle of its work, too.
    busy = PairTask(task.client, task.server, task.tool, served.servers[0].tcp_port, 30)
    worker.stdin.write(request_to_line(2, Measure(what="bandwidth", tasks=(busy,))))
    worker.stdin.flush()
    deadline = time.monotonic() + 10
    while len(tools(worker)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    started = offspring(worker)
    assert len(tools(worker)) == 3, "two servers and the client"
    if end == "bye":
        worker.stdin.write(request_to_line(3, Bye()))
        worker.stdin.flush()
    elif end == "SIGTERM":
        worker.send_signal(signal.SIGTERM)
    else:
        worker.stdin.close()
    assert worker.wait(10) == 0
    assert all_gone(started)


@requires_iperf3
def test_new_servers_replace_old_servers_and_tasks_run_at_once(worker: Worker) -> None:
    task = loopback_task()
    ask(worker, Serve(tasks=(task,)), 1)
    before = offspring(worker)
    short = PairTask(task.client, task.server, task.tool, seconds=2, omitted_s=0)
    served = ask(worker, Serve(tasks=(short, short, short)), 2)
    assert all_gone(before)
    assert isinstance(served, Served)
    tasks = tuple(
        PairTask(task.client, task.server, task.tool, server.tcp_port, 2, 0)
        for server in served.servers
    )
    started = time.monotonic()
    measured = ask(worker, Measure(what="bandwidth", tasks=tasks), 3)
    assert time.monotonic() - started < 5.9, "six seconds would be one after the other"
    assert isinstance(measured, Measured)
    assert all(figure.value for figure in measured.figures), measured.figures
    assert ask(worker, Stop(), 4) == Done()
    assert not offspring(worker)
