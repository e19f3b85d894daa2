"""Ranks of MPI as workers: rank 0 leads and alone reads, prints and writes, the others work.

mpi4py is imported when this is used and not before.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TypeVar

from tuccl.errors import ExitCode, HostError, Terminated
from tuccl.processes.interrupts import failures_by_signals, tell_stopped
from tuccl.processes.workers import Workers

_Given = TypeVar("_Given")


def lead_ranks(tasks: int, lead: Callable[[Workers], int]) -> int:
    """Lead on rank 0, work on the others until it has ended; the exit code of this rank.

    Args:
        tasks: How many the launcher started, two or more.
        lead: What rank 0 does with the others; gives its exit code.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher.
    """
    try:
        world = import_module("mpi4py.MPI").COMM_WORLD
        executor_of = import_module("mpi4py.futures").MPICommExecutor
    except (ImportError, RuntimeError) as error:
        raise HostError(
            f"started by MPI with {tasks} tasks, but mpi4py cannot be used ({error}): "
            "pip install tuccl[mpi] on every host, or start it without MPI"
        ) from error
    if world.Get_size() != tasks:
        raise HostError(
            f"started as one of {tasks} tasks, but MPI sees {world.Get_size()}: mpi4py was "
            "built for another MPI than this launcher's; install it again with that MPI's mpicc"
        )
    if world.Get_rank():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Rank 0 alone has something to tell.
    with executor_of(world, root=0) as executor:
        if executor is None:
            return 0
        return ending_job_when_terminated(lead)(Workers(executor, tasks - 1))


def ending_job_when_terminated(lead: Callable[[_Given], int]) -> Callable[[_Given], int]:
    """The same for rank 0, whose process SIGTERM then ends without a word to the other ranks.

    The launcher, which sends SIGTERM to all ranks and kills them a moment later, has ended most of
    them by then: rank 0 would wait for their answers, and for them to finalize MPI.
    """

    def until_terminated(given: _Given) -> int:
        try:
            with failures_by_signals():
                return lead(given)
        except Terminated:
            tell_stopped(ExitCode.TERMINATED)
        gc.collect()  # Named semaphores of worker processes go with their objects.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(ExitCode.TERMINATED)

    return until_terminated
