"""Ranks of MPI as workers: rank 0 leads and alone reads, prints and writes, the others work.

mpi4py is imported when this is used and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from probes.cluster.errors import MpiMissingError
from tuccl.workers import Workers


def lead_ranks(tasks: int, lead: Callable[[Workers], int]) -> int:
    """Lead on rank 0, work on the others until it has ended; the exit code of this rank.

    Args:
        tasks: How many the launcher started, two or more.
        lead: What rank 0 does with the others; gives its exit code.

    Raises:
        MpiMissingError: mpi4py is missing, or of another MPI than the launcher.
    """
    try:
        world = import_module("mpi4py.MPI").COMM_WORLD
        executor_of = import_module("mpi4py.futures").MPICommExecutor
    except (ImportError, RuntimeError) as error:
        raise MpiMissingError(
            f"started by MPI with {tasks} tasks, but mpi4py cannot be used ({error}): "
            "pip install tuccl[mpi] on every host, or start it without MPI"
        ) from error
    if world.Get_size() != tasks:
        raise MpiMissingError(
            f"started as one of {tasks} tasks, but MPI sees {world.Get_size()}: mpi4py was "
            "built for another MPI than this launcher's; install it again with that MPI's mpicc"
        )
    with executor_of(world, root=0) as executor:
        if executor is None:
            return 0
        return lead(Workers(executor, tasks - 1))
