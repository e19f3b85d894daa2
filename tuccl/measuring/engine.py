"""What runs collectives in a worker process: `Engine`, and `Call`, what it is asked to run.

An engine is one rank on one device. The leader asks all ranks for the same call at the same time
and counts the slowest one, launch by launch. Everything that holds per process (threads, buffers,
NCCL's own variables) is in the environment before the worker starts, so an engine reads it and
never changes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from lookup_tables.table import Operation
from tuccl.measuring.errors import EngineError
from tuccl.trials.config import DEFAULT_ALGORITHM

ENGINES = {
    "executor": "tuccl.engines.executor_engine:ExecutorEngine",
    "job": "tuccl.engines.job_engine:job_engine",
    "nccl": "tuccl.engines.nccl_engine:NcclEngine",
    "sockets": "tuccl.testing.sockets_engine:SocketsEngine",
}
"""`module:class` by name, or a function that makes one; a worker imports only what it runs."""
WITHOUT_GRAPHS = frozenset({"sockets"})
"""Engines that have no CUDA graphs."""


@dataclass(frozen=True, slots=True)
class Call:
    """One thing to time, the same on every rank."""

    operation: Operation
    size_bytes: int
    """As nccl-tests counts it: the larger of the two buffers for all_gather and reduce_scatter."""
    algorithm: str = DEFAULT_ALGORITHM
    """A value of `NcclAlgorithm`, `default`: the library chooses everything itself, or empty where
    TuCCL's executor is to run a schedule."""
    protocol: str = ""
    nchannels: int = 0
    """0: the library's own count."""
    data_type: str = "float16"
    in_place: bool = False
    use_graph: bool = True
    """Replay the calls of a launch from one CUDA graph."""
    calls: int = 20
    """Back to back in a launch."""
    nthreads: int = 0
    """Of a block of the executor; holds per process for everything else."""
    buffer_bytes: int = 0
    """Of the executor's connections, as `nthreads`."""
    schedule: str = ""
    """Content hash of what TuCCL's executor is to run; empty: the library runs the call."""


class Engine(Protocol):
    """One rank of a group, in a worker process of its own."""

    def make_group_id(self) -> bytes:
        """On rank 0, before `open`: what the others need to find it (ncclUniqueId)."""

    def open(self, rank: int, ranks: int, local_rank: int, group_id: bytes) -> str:
        """Join the group.

        Args:
            rank: Within the group.
            ranks: Of the group, possibly fewer than there are devices.
            local_rank: Number of the device on this host.
            group_id: From rank 0.

        Returns:
            The versions behind the figures, in one line: library, driver, device.

        Raises:
            EngineError: The group cannot be made here (no device, plugin refused, ...).
        """

    @property
    def nccl_version(self) -> int | None:
        """Of the NCCL that is open, as it counts: 22809 is 2.28.9. None: there is none."""

    def time(self, call: Call, launches: int) -> list[float]:
        """Time of a call on this rank, in us, for each launch of `call.calls` calls back to back.

        A call that is new is warmed up first. All ranks meet before each launch, so that a rank
        which was asked later costs the others nothing.

        Raises:
            EngineError: This call cannot run.
        """

    def check(self, call: Call) -> str:
        """Run the call once on known data; empty when every byte is right, else what was wrong.

        Raises:
            EngineError: This call cannot run.
        """

    def ran_by(self, call: Call) -> str:
        """Who runs a call that was timed or checked: `executor`, or the library (`nccl`)."""

    def close(self) -> None:
        """Leave the group; called once, also after an error."""


def make_engine(name: str) -> Engine:
    """The engine of this name, or of a `module:class` outside TuCCL.

    Raises:
        EngineError: There is none of this name.
    """
    module, _, class_name = ENGINES.get(name, name).partition(":")
    try:
        made = getattr(import_module(module), class_name)()
    except (ImportError, AttributeError, ValueError) as error:
        names = ", ".join(sorted(ENGINES))
        raise EngineError(
            f"no engine {name!a:.60} ({error}): use one of {names}, or MODULE:CLASS"
        ) from error
    return cast("Engine", made)
