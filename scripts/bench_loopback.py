"""What TCP's congestion control makes of loopback, over which the faked nodes of a host talk.

Messages go to and fro between two processes that poll, as NCCL's proxies do, each on a core of its
own. Every round makes new connections for each congestion control and size in turn: what differs
from one connection to the next differs from job to job. Needs no GPU and changes no setting.

    bench_loopback.py [--controls bbr cubic] [--sizes 128K 1M] [--connections 8] [--json FILE]

Exit code 0 when everything ran, 2 when something could not.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tuccl.measuring.congestion import congestion_control  # noqa: E402
from tuccl.sizes import format_size, parse_size  # noqa: E402

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
TRAFFIC_BYTES = 256 << 20
"""Of a connection, each way."""
MOST_MESSAGES = 2000
WARM_UP = 0.25
LIMIT_S = 60


class LoopbackError(Exception):
    """A connection could not be made, or its other end is gone."""


def listen(control: str) -> socket.socket:
    """A socket whose connections have this congestion control.

    Raises:
        LoopbackError: The kernel does not have it, or keeps it for root.
    """
    listener = socket.socket()
    try:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    except OSError as error:
        listener.close()
        raise LoopbackError(f"congestion control {control}: {error.strerror}") from error
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    listener.settimeout(LIMIT_S)
    return listener


def prepare(connection: socket.socket, core: int) -> None:
    """As NCCL's proxies: no delay, no blocking, and here a core of its own."""
    os.sched_setaffinity(0, {core})
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)


def send(connection: socket.socket, data: memoryview) -> None:
    """All of it, polling."""
    while data:
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            continue


def receive(connection: socket.socket, data: memoryview) -> None:
    """Fill it, polling.

    Raises:
        LoopbackError: The other end is gone.
    """
    while data:
        try:
            got = connection.recv_into(data)
        except BlockingIOError:
            continue
        if got == 0:
            raise LoopbackError("the other end is gone")
        data = data[got:]


def answer(port: int, control: str, size_bytes: int, messages: int, core: int) -> None:
    """The other process: every message comes back."""
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        connection.connect(("127.0.0.1", port))
        prepare(connection, core)
        data = memoryview(bytearray(size_bytes))
        for _ in range(messages):
            receive(connection, data)
            send(connection, data)


def time_connection(control: str, size_bytes: int, cores: Sequence[int]) -> float:
    """Median time of a message one way, in us, over a new connection."""
    messages = min(MOST_MESSAGES, max(16, TRAFFIC_BYTES // size_bytes))
    before = os.sched_getaffinity(0)
    with listen(control) as listener:
        words = (listener.getsockname()[1], control, size_bytes, messages, cores[1])
        other = get_context("spawn").Process(target=answer, args=words, daemon=True)
        other.start()
        try:
            connection, _ = listener.accept()
            with connection:
                prepare(connection, cores[0])
                times_us = exchange(connection, size_bytes, messages)
        except TimeoutError as error:
            raise LoopbackError(f"nobody connected within {LIMIT_S} s") from error
        finally:
            other.join(1)
            other.kill()
            os.sched_setaffinity(0, before)
    return statistics.median(times_us[int(WARM_UP * messages) :])


def exchange(connection: socket.socket, size_bytes: int, messages: int) -> list[float]:
    """Half the time from sending a message to having it back, in us, message by message."""
    data = memoryview(bytearray(size_bytes))
    times_us = []
    for _ in range(messages):
        begin = time.perf_counter()
        send(connection, data)
        receive(connection, data)
        times_us.append((time.perf_counter() - begin) * 1e6 / 2)
    return times_us


def tell(times_us: dict[str, dict[int, list[float]]]) -> None:
    """One row for each control and size."""
    print(f"{'control':<10}{'message':>8}{'us, median':>12}{'least':>9}{'most':>9}{'GB/s':>7}")
    for control, by_size in times_us.items():
        for size_bytes, found in by_size.items():
            middle = statistics.median(found)
            print(
                f"{control:<10}{format_size(size_bytes):>8}{middle:>12.1f}{min(found):>9.1f}"
                f"{max(found):>9.1f}{size_bytes / middle / 1e3:>7.1f}"
            )


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--controls", nargs="+", help="default: all that the kernel has loaded")
    parser.add_argument("--sizes", nargs="+", default=["128K", "512K", "1M", "4M"])
    parser.add_argument("--connections", type=int, default=8, help="of each control and size")
    parser.add_argument("--json", type=Path, help="write every connection's time to this file")
    return parser.parse_args()


def main() -> int:
    """Exit code 0, or 2 with one line on what could not run."""
    arguments = parse_arguments()
    try:
        controls = arguments.controls or AVAILABLE.read_text(encoding="ascii").split()
        cores = sorted(os.sched_getaffinity(0))[:2]
        if len(cores) < 2:
            raise LoopbackError("two processes that poll need two cores, here is one")
        sizes_bytes = [parse_size(text) for text in arguments.sizes]
        times_us: dict[str, dict[int, list[float]]] = {
            control: {size: [] for size in sizes_bytes} for control in controls
        }
        for _ in range(arguments.connections):
            for control in controls:
                for size_bytes in sizes_bytes:
                    found = time_connection(control, size_bytes, cores)
                    times_us[control][size_bytes].append(found)
    except (LoopbackError, OSError, ValueError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    print(
        f"congestion control of this host: {congestion_control()}; {arguments.connections} rounds"
    )
    tell(times_us)
    if arguments.json is not None:
        report: dict[str, Any] = {"own": congestion_control(), "times_us": times_us}
        arguments.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
