"""What TCP's congestion control makes of loopback, over which the faked nodes of a host talk.

Two processes poll, as NCCL's proxies do, each on a core of its own if there are two, and exchange
messages both ways at once over one connection each way, or two, as over one channel or two. Every
round makes new connections for each congestion control in turn: what differs from one connection to
the next differs from job to job. Needs no GPU and changes no setting.

    bench_loopback.py [--controls bbr cubic] [--sizes 128K 1M] [--connections 8] [--json FILE]

First messages of each size over one channel. Then `--last` over two, after messages of 32 KB to 512
KB that used both, or only the first: what a call finds of connections that others left alone.
Exit code 0 when everything ran, 2 when something could not, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tuccl.errors import TucclError  # noqa: E402
from tuccl.measuring.congestion import congestion_control  # noqa: E402
from tuccl.words.sizes import format_size, parse_size  # noqa: E402
from tuccl.workspace.atomic_file import require_writable  # noqa: E402

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
K = 1 << 10
SLOT_BYTES = 512 * K
"""What NCCL's proxies hand to TCP at a time: an eighth of a buffer of 4 MB."""
BEFORE = (32 * K, 64 * K, 128 * K, 256 * K, 512 * K)
TRAFFIC_BYTES = 256 << 20
"""Of a message's size, each way."""
FEWEST, MOST = 64, 2000
"""Messages of a size."""
WARM_UP = 0.25
LARGEST = 256 << 20
LIMIT_S = 60.0


class LoopbackError(Exception):
    """A connection could not be made, or its other end is gone."""


@dataclass(frozen=True)
class Step:
    """Messages of a size over so many channels."""

    size_bytes: int
    channels: int

    @property
    def messages(self) -> int:
        """How many, the same in both processes."""
        return min(MOST, max(FEWEST, TRAFFIC_BYTES // self.size_bytes))


class Channel:
    """A connection each way."""

    def __init__(self, out: socket.socket, into: socket.socket) -> None:
        for connection in (out, into):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
        self._out, self._into = out, into
        self._sent = memoryview(bytes(SLOT_BYTES))
        self._received = memoryview(bytearray(SLOT_BYTES))
        self._to_send = self._to_receive = 0

    def begin(self, size_bytes: int) -> None:
        """With the next message."""
        self._to_send = self._to_receive = size_bytes

    def progress(self) -> bool:
        """Send and receive what can be; whether the message is through both ways.

        Raises:
            LoopbackError: The other end is gone.
        """
        if self._to_send:
            try:
                # To the end of a slot: no call mixes two.
                most = (self._to_send - 1) % SLOT_BYTES + 1
                self._to_send -= self._out.send(self._sent[:most])
            except BlockingIOError:
                pass
        if self._to_receive:
            try:
                got = self._into.recv_into(self._received, min(self._to_receive, SLOT_BYTES))
            except BlockingIOError:
                got = -1
            if got == 0:
                raise LoopbackError("the other end is gone")
            self._to_receive -= max(0, got)
        return not self._to_send and not self._to_receive


def run(channels: Sequence[Channel], step: Step) -> list[float]:
    """The time of each message in us."""
    used = channels[: step.channels]
    times_us = []
    for _ in range(step.messages):
        begin = time.perf_counter()
        left = list(used)
        for channel in left:
            channel.begin(step.size_bytes // step.channels)
        while left:
            left = [channel for channel in left if not channel.progress()]
        times_us.append((time.perf_counter() - begin) * 1e6)
    return times_us


@contextmanager
def channels_of(connections: Sequence[socket.socket], *, first: bool) -> Iterator[list[Channel]]:
    """Of two connections each: what is one process's way out is the other's way in."""
    with ExitStack() as stack:
        for connection in connections:
            stack.enter_context(connection)
        pairs = list(pairwise(connections))[::2]
        yield [Channel(*(pair if first else pair[::-1])) for pair in pairs]


def open_socket(control: str) -> socket.socket:
    """Whose connections have this congestion control.

    Raises:
        LoopbackError: The kernel does not have it, or keeps it for root.
    """
    opened = socket.socket()
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    except OSError as error:
        opened.close()
        raise LoopbackError(f"congestion control {control}: {error.strerror}") from error
    return opened


def answer(port: int, control: str, steps: Sequence[Step], core: int) -> None:
    """The other process."""
    os.sched_setaffinity(0, {core})
    connections = []
    for _ in range(2 * max(step.channels for step in steps)):
        connection = open_socket(control)
        connection.connect(("127.0.0.1", port))
        connections.append(connection)
    with channels_of(connections, first=False) as channels:
        for step in steps:
            run(channels, step)


def time_last(control: str, steps: Sequence[Step], cores: Sequence[int]) -> float:
    """Median time of the last step's messages, in us, over new connections."""
    before = os.sched_getaffinity(0)
    with open_socket(control) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(LIMIT_S)
        words = (listener.getsockname()[1], control, list(steps), cores[1])
        other = get_context("spawn").Process(target=answer, args=words, daemon=True)
        other.start()
        os.sched_setaffinity(0, {cores[0]})
        try:
            number = 2 * max(step.channels for step in steps)
            connections = [listener.accept()[0] for _ in range(number)]
            with channels_of(connections, first=True) as channels:
                for step in steps:
                    times_us = run(channels, step)
        except TimeoutError as error:
            raise LoopbackError(f"nobody connected within {LIMIT_S:.0f} s") from error
        finally:
            other.join(1)
            other.kill()
            os.sched_setaffinity(0, before)
    return statistics.median(times_us[int(WARM_UP * len(times_us)) :])


def plans(sizes_bytes: Sequence[int], last_bytes: int) -> dict[str, list[Step]]:
    """What new connections are used for, by what it is called."""
    found = {f"{format_size(size)}": [Step(size, 1)] for size in sizes_bytes}
    for name, channels in (("both", 2), ("first", 1)):
        steps = [*(Step(size, channels) for size in BEFORE), Step(last_bytes, 2)]
        found[f"{format_size(last_bytes)} over two after {name}"] = steps
    return found


def tell(times_us: dict[str, dict[str, list[float]]]) -> None:
    """One row for each control and plan."""
    print(f"{'control':<10}{'messages':<27}{'us, median':>12}{'least':>9}{'most':>9}")
    for control, by_plan in times_us.items():
        for name, found in by_plan.items():
            middle = statistics.median(found)
            print(f"{control:<10}{name:<27}{middle:>12.1f}{min(found):>9.1f}{max(found):>9.1f}")


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--controls", nargs="+", help="default: all that the kernel has loaded and lets us use"
    )
    parser.add_argument("--sizes", nargs="+", default=["128K", "512K", "1M", "4M"])
    parser.add_argument("--last", default="1M", help="over two channels after others")
    parser.add_argument("--connections", type=int, default=8, help="rounds of new connections")
    parser.add_argument("--json", type=Path, help="write the time of every round to this file")
    return parser.parse_args()


def bench(arguments: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """By congestion control and plan the median time of each round, in us."""
    cores = two_cpus()
    sizes_bytes = [parse_size(text) for text in arguments.sizes]
    wanted = plans(sizes_bytes, parse_size(arguments.last))
    if arguments.connections < 1 or not all(2 <= size <= LARGEST for size in sizes_of(wanted)):
        raise LoopbackError(
            f"use at least one of --connections, and sizes from 2 bytes to {format_size(LARGEST)}"
        )
    if arguments.json is not None:
        require_writable(arguments.json)
    times_us: dict[str, dict[str, list[float]]] = {
        control: {name: [] for name in wanted}
        for control in arguments.controls or usable_controls()
    }
    for _ in range(arguments.connections):
        for control, by_plan in times_us.items():
            for name, steps in wanted.items():
                by_plan[name].append(time_last(control, steps, cores))
    return times_us


def sizes_of(wanted: Mapping[str, Sequence[Step]]) -> list[int]:
    """Of all messages."""
    return [step.size_bytes for steps in wanted.values() for step in steps]


def two_cpus() -> tuple[int, int]:
    """That this process may run on: of two cores, if there are two.

    Raises:
        LoopbackError: There is only one.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise LoopbackError("two processes that poll need two CPUs, here is one")
    first = siblings(cpus[0])
    return cpus[0], next((cpu for cpu in cpus[1:] if siblings(cpu) != first), cpus[1])


def siblings(cpu: int) -> str:
    """The CPUs of a core, as the kernel writes them; another word for each where it does not."""
    try:
        return Path(SIBLINGS.format(cpu)).read_text(encoding="ascii")
    except OSError:
        return str(cpu)


def usable_controls() -> list[str]:
    """Of those that the kernel has loaded; some may be for root alone."""
    usable = []
    for control in AVAILABLE.read_text(encoding="ascii").split():
        try:
            open_socket(control).close()
        except LoopbackError as error:
            print(f"left out: {error}", file=sys.stderr)
        else:
            usable.append(control)
    return usable


def main() -> int:
    """Exit code 0, or 2 with one line on what could not run."""
    arguments = parse_arguments()
    try:
        times_us = bench(arguments)
    except KeyboardInterrupt:
        return 130
    except (LoopbackError, TucclError, OSError, ValueError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    own = congestion_control()
    print(f"this host's congestion control: {own}; {arguments.connections} rounds")
    tell(times_us)
    if arguments.json is not None:
        report = json.dumps({"own": own, "times_us": times_us}, indent=1)
        arguments.json.write_text(report, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
