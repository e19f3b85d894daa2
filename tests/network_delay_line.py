"""Delay frames between pairs of TAP devices, as a long cable does.

Run inside a network namespace as `python network_delay_line.py NEAR FAR MICROSECONDS ...` with any
number of triples. It prints `ready` once the devices exist, and ends when its standard input does,
so that it ends with the tests. netem would do the same, but many kernels lack it.
"""

import contextlib
import fcntl
import heapq
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x2, 0x1000
POLL_BEFORE_S = 300e-6
"""Sleeps end this much before a frame is due; the remaining time is polled."""
QUEUED_FRAMES = 10_000


def open_tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def carry(ends: dict[int, tuple[int, float]]) -> None:
    """Carry frames; `ends` gives for every TAP the opposite TAP and the delay in seconds."""
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    stdin = sys.stdin.fileno()
    while True:
        left = waiting[0][0] - time.monotonic() if waiting else None
        sleep = None if left is None else max(0.0, left - POLL_BEFORE_S)
        readable, _, _ = select.select([stdin, *ends], [], [], sleep)
        now = time.monotonic()
        if stdin in readable:
            return
        for tap in readable:
            opposite, delay_s = ends[tap]
            try:
                frame = os.read(tap, 65536)
            except OSError:
                continue  # the device is down
            if len(waiting) < QUEUED_FRAMES:
                number += 1
                heapq.heappush(waiting, (now + delay_s, number, opposite, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, opposite, frame = heapq.heappop(waiting)
            try:
                os.write(opposite, frame)
            except OSError:
                continue  # the port is down: the frame is lost


def main() -> None:
    # Frames must not wait for a processor that other processes keep busy.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    ends: dict[int, tuple[int, float]] = {}
    words = iter(sys.argv[1:])
    for near, far, delay_us in zip(words, words, words, strict=True):
        a, b = open_tap(near), open_tap(far)
        ends[a], ends[b] = (b, float(delay_us) * 1e-6), (a, float(delay_us) * 1e-6)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    carry(ends)


if __name__ == "__main__":
    main()
