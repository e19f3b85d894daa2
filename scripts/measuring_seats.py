"""Which cores the threads of a rank run on, the same in every job that is compared.

A thread that never sleeps stays where it started, and cores are not alike: where two are one core
to the hardware, each has half the speed while both are busy, and a virtual machine neither knows
which two nor keeps them so (scripts/bench_cores.py shows it). So for as long as a job lasts, what
it takes depends on where its threads lie. The two that a call over TCP waits for, the process's
first and NCCL's proxy, therefore get the same cores in every job: what slows one down slows down
all that take turns there, and cancels in their ratio.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

NAMED_THREADS = {"NCCL_SET_THREAD_NAME": "1"}
"""For the environment of a process with seats: NCCL's threads have names then."""
_PROXY = "NCCL Progress"
_TASKS = Path("/proc/self/task")


class Seats:
    """The cores of this process's threads."""

    def __init__(self, cores: Sequence[int]) -> None:
        """Of a share that is this process's alone; of less than two cores, nothing changes."""
        self._cores = tuple(cores)
        self._taken: dict[int, tuple[int, ...]] = {}

    def take(self) -> None:
        """Put threads that were started or named since onto their cores."""
        if len(self._cores) < 2:
            return
        wanted = seats_of(_thread_names(), os.getpid(), self._cores)
        for thread, cores in wanted.items():
            if self._taken.get(thread) != cores:
                with suppress(ProcessLookupError):  # It has ended meanwhile.
                    os.sched_setaffinity(thread, cores)
        self._taken = wanted


def seats_of(
    names: Mapping[int, str], first: int, cores: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Cores of each thread: one for the first thread, one for the oldest proxy, the rest for all.

    Args:
        names: Of all threads, by their number.
        first: The process's first thread, which calls NCCL and waits for the GPU.
        cores: The process's share, two at least.
    """
    others = tuple(cores[2:]) or tuple(cores)
    seats = dict.fromkeys(sorted(names), others)
    seats[first] = (cores[0],)
    proxies = [thread for thread in seats if names.get(thread, "").startswith(_PROXY)]
    if proxies:
        seats[proxies[0]] = (cores[1],)
    return seats


def _thread_names() -> dict[int, str]:
    names = {}
    for task in _TASKS.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            names[int(task.name)] = (task / "comm").read_text(encoding="utf-8").strip()
    return names
