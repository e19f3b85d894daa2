"""`Engine` runs collectives in a worker process; a `Call` says which.

An engine is one rank on one device. The leader requests the same call from all ranks at once and
takes the slowest rank's time of each launch. Process-wide settings (threads, buffers, NCCL's own
variables) are in the environment before the worker starts, so an engine reads them and never
changes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from lookup_tables.collective import Collective
from tuccl.errors import EngineError
from tuccl.search.trials.config import DEFAULT_ALGORITHM, STOCK, Config, Task
from tuccl.search.trials.cost_table import CostTable

if TYPE_CHECKING:  # pydantic, which no rank needs, takes as long as all else that one imports.
    from tuccl.search.trials.timing import Timing

ENGINES = {
    "executor": "tuccl.measuring.engines.executor_engine:ExecutorEngine",
    "job": "tuccl.measuring.engines.executor_engine:job_engine",
    "nccl": "tuccl.measuring.engines.nccl_engine:NcclEngine",
    "sockets": "tuccl.measuring.sockets.sockets_engine:SocketsEngine",
}
"""`module:class` or `module:function` by name; a worker imports only the engine it runs."""
WITHOUT_GRAPHS = frozenset({"sockets"})
"""Engines that have no CUDA graphs."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call to time, the same on every rank."""

    operation: Collective
    size_bytes: int
    """As nccl-tests counts it: the larger of the two buffers for all_gather and reduce_scatter."""
    algorithm: str = DEFAULT_ALGORITHM
    """A value of `NcclAlgorithm`; `default`: the library chooses all; empty: the executor runs a
    schedule."""
    protocol: str = ""
    nchannels: int = 0
    """0: the library's own count."""
    data_type: str = "float16"
    in_place: bool = False
    use_graph: bool = True
    """Replay the calls of a launch from one CUDA graph."""
    calls: int = 20
    """Number of back-to-back calls in a launch."""
    nthreads: int = 0
    """Threads of an executor block; for other calls this is set per process."""
    buffer_bytes: int = 0
    """Buffer size of an executor connection; for other calls this is set per process."""
    schedule: str = ""
    """Content hash of the schedule for the executor; empty: the library runs the call."""
    communicator: int = 0
    """0: that of all ranks; n: that of this rank after the n-th `Engine.split`."""
    computation_us: float = 0.0
    """How long the device computes beside each call, if it does nothing else; 0: not at all."""
    in_windows: bool = False
    """Whether its buffers are registered, for libraries that know windows."""
    chunk_bytes: int = 0
    """Size of the library's chunks; 0: its own."""


_MOST_RAGGED_BYTES = 4 << 20


def call_of(task: Task, timing: Timing, config: Config = STOCK) -> Call:
    """Return the call that times a configuration on a task."""
    call = Call(
        task.operation,
        task.called_bytes,
        config.algorithm,
        config.protocol,
        config.nchannels,
        timing.data_type,
        timing.in_place,
        timing.graph,
        timing.calls(task.size_bytes),
        computation_us=timing.computation_us(task),
        in_windows=timing.in_windows,
        chunk_bytes=config.chunk_bytes,
    )
    if not config.is_schedule:
        return call
    return replace(
        call,
        algorithm="",
        schedule=config.schedule,
        nthreads=config.nthreads,
        buffer_bytes=config.buffer_bytes,
    )


@dataclass(frozen=True, slots=True)
class OrderCall:
    """A call that shows in which order a configuration adds."""

    call: Call
    shift: int
    """See `Engine.check_order`."""


def order_calls(call: Call, ranks: int) -> tuple[OrderCall, ...]:
    """Return calls that show whether a configuration's order depends on type, size or place.

    The call itself in one type; and in each type a smaller one, which neither ranks nor threads
    divide evenly, outside of graphs and from unaligned addresses.

    Args:
        call: A call that reduces.
        ranks: Ranks of its communicator.
    """
    alone = replace(call, computation_us=0.0)
    found = [OrderCall(replace(alone, data_type="bfloat16"), 0)]
    parts = call.operation.parts(ranks)
    for data_type, element_bytes in (("float16", 2), ("bfloat16", 2), ("float32", 4)):
        elements = min(call.size_bytes, _MOST_RAGGED_BYTES) // (element_bytes * parts)
        ragged = max(1, elements * 2 // 3) | 1
        size_bytes = ragged * element_bytes * parts
        own = replace(alone, data_type=data_type, size_bytes=size_bytes, use_graph=False)
        found.append(OrderCall(own, 1))
    return tuple(found)


class Engine(Protocol):
    """One rank of a group, in a worker process of its own."""

    def make_group_id(self) -> bytes:
        """Create on rank 0, before `open`, the id by which all ranks join (ncclUniqueId)."""

    def prepare(self, local_rank: int) -> None:
        """Open the device, and do all else of `open` that needs no other rank; may be left out.

        Raises:
            EngineError: As `open`.
        """

    def open(self, rank: int, ranks: int, local_rank: int, group_id: bytes) -> str:
        """Join the group.

        Args:
            rank: Rank in the group.
            ranks: Size of the group, possibly below the number of devices.
            local_rank: Number of the device on this host.
            group_id: Rank 0's group id.

        Returns:
            The versions in one line: library, driver, device.

        Raises:
            EngineError: The group cannot be created (no device, plugin refused, ...).
        """

    def split(self, colour: int, ranks: int, rank: int) -> None:
        """Join a further communicator; all ranks of the group do so at once, and keep the others.

        Args:
            colour: Number of the communicator among its siblings; ranks of one colour form it.
            ranks: Its size.
            rank: Rank in it, in the order of the group.

        Raises:
            EngineError: It cannot be created.
        """

    @property
    def nccl_version(self) -> int | None:
        """Version code of the loaded NCCL: 22809 is 2.28.9. None without NCCL."""

    def time(self, call: Call, launches: int) -> list[float]:
        """Return this rank's us per call, for each launch of `call.calls` back-to-back calls.

        A new call is warmed up first. All ranks of the group synchronize before each launch, so
        that a later request to one rank does not add to the time of the others, and siblings of a
        communicator begin together. With computation beside its calls a launch ends when both have
        ended.

        Raises:
            EngineError: This call cannot run.
        """

    def check(self, call: Call) -> str:
        """Run the call once on known data; return a finding, empty when every byte is right.

        Raises:
            EngineError: This call cannot run.
        """

    def check_order(self, call: Call, local_ranks: int, shift: int) -> str:
        """Run a call that reduces floats once on data whose sums round.

        Args:
            call: The call.
            local_ranks: Ranks of each node, whose parts are added first.
            shift: Elements by which its buffers begin later than an aligned address.

        Returns:
            A finding; empty if every sum has the bits of an addition in the order of ranks in each
            node, then of nodes, rounded once for each.

        Raises:
            EngineError: This call cannot run.
        """

    def ran_by(self, call: Call) -> str:
        """Return the runner of a timed or checked call: `executor`, or the library (`nccl`)."""

    def cost_table(self, call: Call) -> CostTable | None:
        """Return what the library allows for a call, with its estimates, as it tells a tuner.

        All ranks of the group make the call once. Returns None if the library tells nothing.

        Raises:
            EngineError: This call cannot run.
        """

    def close(self) -> None:
        """Leave the group; called once, also after an error."""


def make_engine(name: str) -> Engine:
    """Return the engine of this name, or of a `module:class` outside TuCCL.

    Raises:
        EngineError: No engine has this name.
    """
    module, _, class_name = ENGINES.get(name, name).partition(":")
    try:
        engine = getattr(import_module(module), class_name)()
    except (ImportError, AttributeError, ValueError) as error:
        names = ", ".join(sorted(ENGINES))
        raise EngineError(
            f"no engine {name!a:.60} ({error}): use one of {names}, or MODULE:CLASS"
        ) from error
    return cast("Engine", engine)
