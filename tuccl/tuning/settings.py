"""`RunSettings`: what a run was asked to do, and the identity that follows from it.

Two runs with the same identity give the same table; a workspace belongs to one identity.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from lookup_tables.program_header import MOST_RANKS, executor_serves
from lookup_tables.table import Operation, Shape
from probes.topology.graph import Topology
from tuccl import __version__
from tuccl.backends.backend_choice import backend_kind
from tuccl.errors import UsageError
from tuccl.models.model_constants import SHIPPED, ModelConstants
from tuccl.search.strategies import make_strategy
from tuccl.words.operation_names import parse_operation, parse_operations
from tuccl.words.sizes import format_size, size_ladder

MAX_CYCLES = 100
MAX_REPEATS = 27
"""Samples of a configuration at full budget."""
DEFAULT_FLOOR = 0.99
"""A table is switched on for all jobs of a machine, those that send small messages only included,
and must not take from any of them; whoever has none of these may ask for the last per cent."""
_MOST_WEIGHT = 1000.0
_WITH_ALLTOALL = (2, 28)
"""NCCL's version that brought ncclAlltoAll."""
_FORMATS = 4
"""Raised when a file of a run changes its form, so that a run never continues from older files."""


@dataclass(frozen=True)
class RunSettings:
    """Everything beside the machine that decides the table."""

    operations: tuple[Operation, ...]
    sizes_bytes: tuple[int, ...]
    backend: str = "simulated"
    seed: int = 0
    spread: float = 0.01
    """Relative noise of the simulated backend."""
    model: ModelConstants = SHIPPED
    """Constants of the simulated backend."""
    solver_seconds: float = 30.0
    """Safety limit of one synthesis: the solver normally ends by its gap or node limit, so that the
    schedule does not depend on the speed of the machine."""
    cycles: int = 1
    """Most passes of a search over its brackets; its stopping rule needs three to say anything."""
    strategy: str = "mraco"
    """Of the searches of single keys: a name of `tuccl.search.strategies`."""
    budget_s: float | None = None
    """Seconds of the machine that measuring may take; None: as long as it finds something."""
    floor: float | None = DEFAULT_FLOOR
    """What a process profile has to leave every key of stock NCCL's speed; None: anything."""
    weights: tuple[tuple[Operation, float], ...] = ()
    """How much an operation counts when the process profile is chosen; 1 where nothing is said."""

    schedules: bool = True
    """Whether schedules are made and searched beside NCCL's built-ins."""
    own_schedules: tuple[str, ...] = ()
    """Digests of the user's own schedules that are searched, too, ascending."""
    fake_nodes: bool = False
    """Whether the devices of one host were made to appear as several nodes."""
    share_gpus: bool = False
    """Whether each of these nodes had all devices of the host, instead of a part of them."""
    congestion_control: str = ""
    """TCP's, by which faked nodes talk over loopback; empty where none are faked."""
    graphs: bool = True
    """Whether NCCL's calls are timed in CUDA graphs, or else put on the stream one by one."""
    in_place: bool = False
    """Whether NCCL's calls are timed in place."""
    nccl: str = ""
    """Version of the NCCL that is measured; empty: none is, or none can be found."""
    record: str = ""
    """`Record.digest` of what is replayed; empty: nothing is."""

    def weight(self, operation: Operation) -> float:
        """How much an operation counts."""
        return dict(self.weights).get(operation, 1.0)

    def identity(self, topology: Topology) -> str:
        """16 hex digits over the settings, the machine with all its figures, and this release.

        The fingerprint alone would not do: it leaves out latencies and small differences of
        bandwidth, which decide a simulated time.
        """
        figures = sorted(
            (link.kind.value, link.bandwidth_gb_per_s, link.latency_us, link.lanes)
            for link in topology.links
        )
        limits = sorted(limit.bandwidth_gb_per_s for limit in topology.limits)
        values = asdict(self) | {
            "fingerprint": topology.fingerprint(),
            "figures": [figures, limits],
            "tuccl": __version__,
            "formats": _FORMATS,
        }
        text = json.dumps(values, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def make_settings(
    operations: str,
    min_bytes: int,
    max_bytes: int,
    step: int,
    *,
    backend: str,
    seed: int,
    cycles: int,
    strategy: str = "mraco",
    budget_s: float | None = None,
    floor: float | None = DEFAULT_FLOOR,
    schedules: bool = True,
    fake_nodes: bool = False,
    share_gpus: bool = False,
    plain: bool = False,
    in_place: bool = False,
) -> RunSettings:
    """Settings from the command line's words.

    Raises:
        UsageError: for an unknown operation, backend or strategy, or an empty range of sizes.
    """
    kind = backend_kind(backend)
    make_strategy(strategy)
    if fake_nodes and not kind.has_workers:
        raise UsageError(f"--fake-nodes is for workers on this host; --backend {backend} has none")
    if share_gpus and not fake_nodes:
        raise UsageError("--share-gpus says what GPUs faked nodes have: name --fake-nodes, too")
    if share_gpus and (kind.has_executor or not kind.measures_nccl):
        raise UsageError(
            f"--share-gpus is for NCCL's ranks on this host; with --backend {backend} leave it out"
        )
    if (plain or in_place) and not kind.measures_nccl:
        option = "--plain" if plain else "--in-place"
        raise UsageError(f"{option} says how NCCL is timed; --backend {backend} times none")
    if not 1 <= cycles <= MAX_CYCLES:
        raise UsageError(f"--cycles {cycles} is out of range: use 1 to {MAX_CYCLES}")
    wanted = parse_operations(operations)
    _require_schedules_for_alltoall(wanted, backend, wanted=schedules)
    if in_place and Operation.ALLTOALL in wanted:
        raise UsageError("--in-place: alltoall has no such form; tune it in a run of its own")
    return RunSettings(
        operations=wanted,
        sizes_bytes=size_ladder(min_bytes, max_bytes, step),
        backend=backend,
        seed=seed,
        cycles=cycles,
        strategy=strategy,
        budget_s=budget_s,
        floor=floor,
        schedules=schedules and kind.runs_schedules,
        fake_nodes=fake_nodes,
        share_gpus=share_gpus,
        graphs=not plain,
        in_place=in_place,
    )


def require_executor_for_alltoall(settings: RunSettings, shape: Shape) -> None:
    """See to it that somebody can run the schedules which are all that alltoall has.

    Raises:
        UsageError: The executor does not serve such a communicator, or NCCL has no such function.
    """
    if Operation.ALLTOALL not in settings.operations:
        return
    if not executor_serves(shape):
        raise UsageError(
            "alltoall is tuned by schedules alone, and the executor runs them on 2 to "
            f"{MOST_RANKS} GPUs of one node, here are {shape.ranks} on {shape.nodes}; leave it "
            "out, or make a schedule for another runtime with `tuccl synthesize --op alltoall`"
        )
    parts = settings.nccl.split(".")
    version = tuple(int(part) for part in parts if re.fullmatch(r"[0-9]{1,9}", part))
    if version and version < _WITH_ALLTOALL:
        raise UsageError(
            f"NCCL {settings.nccl} has no ncclAlltoAll, which came with 2.28: leave alltoall out"
        )


def _require_schedules_for_alltoall(
    operations: Sequence[Operation], backend: str, *, wanted: bool
) -> None:
    if Operation.ALLTOALL not in operations or (wanted and backend_kind(backend).runs_schedules):
        return
    raise UsageError(
        "alltoall is tuned by schedules alone, since NCCL runs it as sends and receives, about "
        "which it asks no tuner: "
        + (
            f"--backend {backend} runs none, use --backend nccl,executor"
            if wanted
            else "`tuccl tune` searches none, use `tuccl init`"
        )
    )


def parse_weights(
    text: str, operations: Sequence[Operation]
) -> tuple[tuple[Operation, float], ...]:
    """Weights from `all_reduce=3,all_gather=0.5`, ascending by operation.

    Raises:
        UsageError: An operation that is unknown, not tuned, or named twice; a weight that is no
            number from 0.001 to 1000.
    """
    weights: dict[Operation, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, number = part.partition("=")
        try:
            operation = parse_operation(name.strip())
        except UsageError as error:
            raise UsageError(f"--weights {part!a:.40}: {error}") from error
        if operation not in operations or operation in weights:
            tuned = f"is not tuned here, which is {', '.join(operations)}"
            why = "is named twice" if operation in weights else tuned
            raise UsageError(f"--weights {text!a:.80}: {operation} {why}")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not 1.0 / _MOST_WEIGHT <= weight <= _MOST_WEIGHT:
            least = f"from {1.0 / _MOST_WEIGHT:g} to {_MOST_WEIGHT:g}"
            raise UsageError(f"--weights {part!a:.40}: use a number {least}, as all_reduce=3")
        weights[operation] = weight
    if not weights:
        raise UsageError("--weights names no operation: use for example --weights all_reduce=3")
    return tuple(sorted(weights.items()))


def parse_floor(text: str) -> float | None:
    """The floor from `0.99`; None from `none` or `0`.

    Raises:
        UsageError: it is no number from 0 to 1.
    """
    try:
        floor = 0.0 if text.strip().lower() == "none" else float(text)
    except ValueError:
        floor = math.nan
    if not 0.0 <= floor <= 1.0:
        raise UsageError(
            f"--floor {text!a:.40}: use a share of stock NCCL's speed that every key is to keep, "
            "as 0.99, or none"
        )
    return floor or None


def describe_sizes(sizes_bytes: tuple[int, ...]) -> str:
    """For people: `11 sizes, 1K to 1G`."""
    first, last = format_size(sizes_bytes[0]), format_size(sizes_bytes[-1])
    return f"{len(sizes_bytes)} sizes, {first} to {last}" if first != last else first
