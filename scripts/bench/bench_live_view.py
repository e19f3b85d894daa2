"""The cost of the live view for a run that measures: time of its threads for each second.

    python scripts/bench/bench_live_view.py

A pseudo terminal of 120 x 40 shows a run of 66 keys that takes a sample every millisecond. The
thread that measures makes two events for each and hands them over. The thread that draws takes them
in and writes the frame; it holds a core while the former mostly waits for workers.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
import time

from lookup_tables.table import Operation, Shape
from tuccl.search.trials import events
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.views.terminal.live_view import EVERY_S, LiveView, shown_run

SAMPLES_PER_S = 1000
"""Samples that a fast machine takes in a second; those of large messages take longer."""
DRAWINGS = 200
SHAPES = (Shape(16, 2, 8), Shape(8, 1, 8))
OPERATIONS = (Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
CONFIGS = tuple(Config("ring", "LL128", channels) for channels in range(1, 65))
SAMPLES_US = tuple(10.0 + 0.1 * number for number in range(9))
KEYS = tuple(
    Task(operation, 1 << bits, shape)
    for shape in SHAPES
    for operation in OPERATIONS
    for bits in range(10, 31, 2)
)


def prepared(view: LiveView) -> None:
    """Give the view a run of which all is known that it shows."""
    view("stock NCCL", 0, len(KEYS))
    view("stock NCCL", len(KEYS), len(KEYS))
    view.note(events.RunBegins("cluster", "nccl,executor", KEYS, 600.0))
    view.note(events.WorkersRestarted(ProcessProfile(nthreads=256)))
    view("search of NCCL's settings", 12, 66, share=0.2)
    for key in KEYS:
        view.note(events.SamplesTaken(key, STOCK, (20.0,) * 9, 1.0))
    view.note(events.RungBegins("bracket 2 of 4", 1, 3, 12, 3))


def seconds_of_samples(view: LiveView, count: int) -> float:
    """Seconds that the events of some samples take the thread that measures."""
    began_s = time.thread_time()
    for number in range(count):
        key, config = KEYS[number % len(KEYS)], CONFIGS[number // len(KEYS) % len(CONFIGS)]
        view.note(events.MeasuringBegins(key, config, 9))
        view.note(events.SamplesTaken(key, config, SAMPLES_US, 0.001 * number))
    return time.thread_time() - began_s


def costs_s(view: LiveView) -> tuple[float, float]:
    """Seconds of both threads for a drawing and the samples since the one before."""
    count = int(SAMPLES_PER_S * EVERY_S)
    measuring_s = drawing_s = 0.0
    for _ in range(DRAWINGS):
        measuring_s += seconds_of_samples(view, count)
        began_s = time.thread_time()
        view.draw()
        drawing_s += time.thread_time() - began_s
    return measuring_s / DRAWINGS, drawing_s / DRAWINGS


def main() -> None:
    """Print the costs."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(leader, 65536), b"")],
                     daemon=True).start()  # fmt: skip
    own, sys.stderr = sys.stderr, os.fdopen(follower, "w", encoding="utf-8")
    with shown_run({"TERM": "xterm"}) as view:
        assert isinstance(view, LiveView)  # noqa: S101 - of a terminal of this size
        prepared(view)
        measuring_s, drawing_s = costs_s(view)
    sys.stderr = own
    print(f"{SAMPLES_PER_S} samples a second, a drawing every {EVERY_S} s of {len(KEYS)} keys")
    print(f"the thread that measures: {100 * measuring_s / EVERY_S:.2f} % of its time")
    print(f"the thread that draws: {100 * drawing_s / EVERY_S:.2f} % of a core")


if __name__ == "__main__":
    main()
