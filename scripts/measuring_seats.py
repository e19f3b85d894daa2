"""Which cores the threads of a rank run on, the same in every job that is compared.

A thread that never sleeps stays where it started, and cores are not alike: where two are one core
to the hardware, each has half the speed while both are busy, and a virtual machine neither knows
which two nor keeps them so (scripts/bench_cores.py shows it). So for as long as a job lasts, what
it takes depends on where its threads lie. The two that a call over TCP waits for, the process's
first and NCCL's proxy, therefore get the same cores in every job: what slows one down slows down
all that run there, and cancels in their ratio.
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

    def take(self) -> None:
        """Put threads that were started or named since onto their cores."""
        if len(self._cores) < 2:
            return
        for thread, cores in seats_of(_thread_names(), os.getpid(), self._cores).items():
            with suppress(ProcessLookupError):  # It has ended meanwhile.
                if os.sched_getaffinity(thread) != cores:
                    os.sched_setaffinity(thread, cores)


def seats_of(names: Mapping[int, str], first: int, cores: Sequence[int]) -> dict[int, set[int]]:
    """Cores of each thread: one for the first thread, one for a proxy, the rest for all others.

    Where the rest would be a single core, others have the whole share.

    Args:
        names: Of all threads, by their number.
        first: The process's first thread, which calls NCCL and waits for the GPU.
        cores: The process's share, two at least.
    """
    seated = {first: cores[0]}
    proxies = sorted(thread for thread, name in names.items() if name.startswith(_PROXY))
    if proxies:
        seated[proxies[0]] = cores[1]
    rest = set(cores) - set(seated.values())
    others = rest if len(rest) > 1 else set(cores)
    return {thread: {seated[thread]} if thread in seated else others for thread in names}


def _thread_names() -> dict[int, str]:
    names = {}
    for task in _TASKS.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            names[int(task.name)] = (task / "comm").read_text(errors="replace").strip()
    return names
