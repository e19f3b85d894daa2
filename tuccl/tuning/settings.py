"""`RunSettings`: the settings of a run, and the identity that follows from them.

Two runs with the same identity give the same table; a workspace belongs to one identity.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from lookup_tables.collective import Collective, parse_collective
from lookup_tables.program_header import MOST_RANKS, executor_serves
from lookup_tables.table import Shape
from probes.topology.graph import Topology
from tuccl import __version__
from tuccl.errors import UsageError
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.models.model_constants import SHIPPED, ModelConstants
from tuccl.options.option import counted, require_bounds
from tuccl.options.run_options import RunOptions
from tuccl.quantities import (
    count_of,
    format_size,
    parse_operations,
    parse_seconds,
    parse_size,
    size_ladder,
)
from tuccl.search.strategies.strategies import make_strategy
from tuccl.search.trials.baseline import Baseline
from tuccl.search.trials.catalogue import axis_knobs
from tuccl.search.trials.config import Settings, Task
from tuccl.search.trials.shapes import NamedShape, is_shape_name
from tuccl.search.trials.space import Knob
from tuccl.search.trials.timing import Timing
from tuccl.workloads.step_calls import StepCalls

_Given = TypeVar("_Given")
MAX_REPEATS = 27
"""Samples of a configuration at full budget."""
DEFAULT_FLOOR = 0.99
"""All jobs of a machine load the table, those that send only small messages included, and none may
lose by it. Users without such jobs may lower the floor and gain the last per cent."""
FLOOR_OF_WORKLOAD = 0.9
"""The table is for one job: what a key loses counts by its time in the job's step, so that a key of
a few calls does not rule out a profile that the step gains by."""
_MOST_WEIGHT = 1000.0
_FORMATS = 9
"""Version of a run's file formats, part of its identity: no run continues from older files."""
_OPERATIONS = "all_reduce,all_gather,reduce_scatter"
_MIN_SIZE = "1K"
_MAX_SIZE = "1G"
_STEP = 4


_STATED_OTHERWISE = frozenset({"options", "laboratory", "recorded_schedules", "added"})
"""Settings of which the identity has a part, or what follows from them."""


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides the table, except the machine."""

    operations: tuple[Collective, ...]
    sizes_bytes: tuple[int, ...]
    options: RunOptions = RunOptions()  # noqa: RUF009 - frozen
    """The options as given; some of them are parsed into the other fields."""
    budget_s: float | None = None
    """Seconds of machine time that measuring may take; None: until the search converges."""
    floor: float | None = DEFAULT_FLOOR
    """Least share of stock NCCL's speed that a process profile leaves every key; None: no floor."""
    weights: tuple[tuple[Collective, float], ...] = ()
    """Weight of an operation in the choice of the process profile; 1 where none is given."""
    shapes: tuple[NamedShape, ...] = ()
    """Communicator shapes that are tuned; empty: that of all GPUs alone."""
    workload: StepCalls | None = None
    """Calls whose keys are tuned; None: every operation at every size, on every shape."""
    baseline: Baseline | None = None
    """Choices of a tuner that searches of NCCL's settings try first; None: there are none."""
    model: ModelConstants = SHIPPED
    """Constants of the simulated backend."""
    spread: float = 0.01
    """Relative noise of the simulated backend."""
    solver_seconds: float = 30.0
    """Safety limit of one synthesis: the solver normally ends by its gap or node limit, so that the
    schedule does not depend on the speed of the machine."""
    own_schedules: tuple[str, ...] = ()
    """Digests of the user's own schedules, which are searched too; ascending."""
    laboratory: Laboratory = Laboratory()  # noqa: RUF009 - frozen
    knobs: tuple[Knob, ...] = field(default_factory=axis_knobs)
    """Variables of NCCL that the race of process profiles turns."""
    base: Settings | None = None
    """Variables of NCCL that every process has: what stock NCCL means in this run; None: unknown,
    or nothing is measured."""
    nccl: str = ""
    """Version of the NCCL that is measured; empty: NCCL is not measured, or not found."""
    retuned_from: str = ""
    """Identity of the run whose table some keys are kept from; empty: none are."""
    record: str = ""
    """`Record.digest` of the record that is replayed; empty: no record."""
    recorded_schedules: bool = False
    """Whether the schedules of that record are searched."""
    near_switches: bool = False
    """Whether sizes are added to the ladder where NCCL's own choice changes."""
    added: tuple[tuple[Task, str], ...] = ()
    """Keys of such sizes, each with the change: found by what NCCL reports once the run has begun,
    or those of the record or of the table before."""

    @property
    def backend(self) -> str:
        """Name of the backend that measures."""
        return self.options.backend_name

    @property
    def schedules(self) -> bool:
        """Whether schedules are generated and searched in addition to NCCL's built-ins."""
        return self.options.schedules and backend_kind(self.backend).runs_schedules

    @property
    def searches_schedules(self) -> bool:
        """Whether schedules are searched, generated ones or those of a record."""
        return self.schedules or self.recorded_schedules

    @property
    def timing(self) -> Timing:
        """How calls are timed."""
        beside = () if self.workload is None or self.options.alone else self.workload.computations
        return Timing(
            graph=not self.options.plain, in_place=self.options.in_place, computations=beside
        )

    def sizes_of(self, operation: Collective, shape: Shape) -> tuple[int, ...]:
        """Sizes of an operation that are tuned on a shape; none where it is not tuned there."""
        if self.workload is not None:
            return self.workload.sizes_of(operation, shape)
        if operation not in self.operations:
            return ()
        own = (operation, shape)
        added = [task.size_bytes for task, _ in self.added if (task.operation, task.shape) == own]
        return tuple(sorted({*self.sizes_bytes, *added}))

    def sizes_tried_like(self, size_bytes: int) -> tuple[int, ...]:
        """Sizes whose schedules are tried at a size: its own, or the two beside an added one."""
        if size_bytes in self.sizes_bytes:
            return (size_bytes,)
        above = bisect_left(self.sizes_bytes, size_bytes)
        return self.sizes_bytes[max(0, above - 1) : above + 1]

    def operations_of(self, shape: Shape) -> tuple[Collective, ...]:
        """Operations that are tuned on a shape."""
        return tuple(each for each in self.operations if self.sizes_of(each, shape))

    def keeps_sums(self, task: Task) -> bool:
        """Whether the sums of a key must not move."""
        return self.options.invariant and task.operation.reduces

    def weight(self, task: Task) -> float:
        """Weight of a key in the choice of the process profile."""
        return dict(self.weights).get(task.operation, 1.0) * self.shape_weight(task.shape)

    def shape_weight(self, shape: Shape) -> float:
        """Weight of a shape's keys in the division of the budget."""
        return {named.shape: named.weight for named in self.shapes}.get(shape, 1.0)

    def shapes_of(self, whole: Shape) -> tuple[Shape, ...]:
        """The shapes that are tuned, where all GPUs form a communicator of shape `whole`."""
        return tuple(named.shape for named in self.shapes) or (whole,)

    def identity(self, topology: Topology) -> str:
        """Return 16 hex digits that identify the settings, the machine's figures, and the release.

        The fingerprint alone does not suffice: it leaves out latencies and small differences of
        bandwidth, on which simulated times depend.
        """
        figures = sorted(
            (link.kind.value, link.bandwidth_gb_per_s, link.latency_us, link.lanes)
            for link in topology.links
        )
        limits = sorted(limit.bandwidth_gb_per_s for limit in topology.limits)
        parsed = {name: v for name, v in asdict(self).items() if name not in _STATED_OTHERWISE}
        values = {
            **parsed,
            **counted(self.options),
            "backend": self.backend,
            "schedules": self.searches_schedules,
            "graphs": self.timing.graph,
            "congestion_control": self.laboratory.congestion_control,
            "fingerprint": topology.fingerprint(),
            "figures": [figures, limits],
            "tuccl": __version__,
            "formats": _FORMATS,
        }
        text = json.dumps(values, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def make_settings(options: RunOptions, *, offers_schedules: bool = False) -> RunSettings:
    """Settings from the options of the command line alone, with a ladder of sizes.

    Args:
        options: The options.
        offers_schedules: Whether the record that is replayed has schedules.

    Raises:
        UsageError: for an unknown name, an empty range of sizes, or a value that does not parse.
    """
    kind = backend_kind(options.backend_name)
    make_strategy(options.strategy)
    if (options.plain or options.in_place) and not kind.measures_nccl:
        flag = "--plain" if options.plain else "--in-place"
        raise UsageError(
            f"{flag} says how NCCL is timed; --backend {options.backend_name} times none"
        )
    is_timed = options.workload is not None or kind.has_workers
    if options.alone and (kind.needs_record or not is_timed):
        times_none = f"--backend {options.backend_name} times none and --workload names none"
        why = "a record states that itself" if kind.needs_record else times_none
        raise UsageError(f"--alone says how calls are timed; {why}")
    if options.invariant and kind.needs_record:
        raise UsageError(
            "--invariant demands that sums are checked, and a record has none: tune on the machine"
        )
    require_bounds(options)
    operations = parse_operations(_or(options.operations, _OPERATIONS))
    for operation in operations:
        refusal = refusal_of(operation, options)
        if refusal is not None and not (options.schedules and offers_schedules):
            raise UsageError(refusal)
        if options.in_place and not operation.has_place:
            raise UsageError(
                f"--in-place: {operation} has no such form; tune it in a run of its own"
            )
    return RunSettings(
        operations=operations,
        sizes_bytes=size_ladder(
            parse_size(_or(options.min_size, _MIN_SIZE)),
            parse_size(_or(options.max_size, _MAX_SIZE)),
            _or(options.step, _STEP),
        ),
        near_switches=options.step is None and options.workload is None,
        options=options,
        budget_s=None if options.budget is None else parse_seconds(options.budget, "--budget"),
        floor=_default_floor(options) if options.floor is None else parse_floor(options.floor),
    )


def _default_floor(options: RunOptions) -> float:
    return DEFAULT_FLOOR if options.workload is None else FLOOR_OF_WORKLOAD


def _or(given: _Given | None, default: _Given) -> _Given:
    return default if given is None else given


def refusal_of(
    operation: Collective, options: RunOptions, shape: Shape | None = None, nccl: str = ""
) -> str | None:
    """Return why a run cannot tune an operation; None if it can.

    If NCCL asks no tuner about an operation, it is tuned by schedules alone.

    Args:
        operation: The operation.
        options: Options of the run.
        shape: Shape of the communicators, if it is known.
        nccl: Version of the NCCL that is measured, if there is one.
    """
    kind = backend_kind(options.backend_name)
    if not (operation.asks_tuner or (options.schedules and kind.runs_schedules)):
        remedy = "`tuccl tune` searches none, use `tuccl init`"
        if options.schedules:
            remedy = f"--backend {options.backend_name} runs none, use --backend nccl,executor"
        return (
            f"{operation} is tuned by schedules alone, since NCCL runs it as sends and receives, "
            f"about which it asks no tuner: {remedy}"
        )
    if operation.asks_tuner or shape is None:
        return None
    if not executor_serves(shape) or (shape.nodes > 1 and shape.ranks_per_node == 1):
        return (
            f"{operation} is tuned by schedules alone, and the executor runs them on nodes of up "
            f"to {MOST_RANKS} GPUs, not on nodes of one each; this machine has {shape.ranks} on "
            f"{shape.nodes}; leave it out, or make a schedule for another runtime with "
            f"`tuccl synthesize --op {operation}`"
        )
    if shape.nodes > 1 and not kind.has_executor:
        return (
            f"{operation} across hosts is tuned by the executor's schedules, which are measured on "
            "the GPUs alone: use --backend nccl,executor there, or leave it out"
        )
    components = nccl.split(".")
    version = tuple(int(text) for text in components if re.fullmatch(r"[0-9]{1,9}", text))
    if version and version < operation.since:
        since = ".".join(map(str, operation.since))
        return (
            f"NCCL {nccl} has no nccl{operation.nccl_name}, which came with {since}: leave "
            f"{operation} out"
        )
    return None


def parse_weights(
    text: str, operations: Sequence[Collective], shapes: Sequence[str] = ()
) -> tuple[tuple[tuple[Collective, float], ...], dict[str, float]]:
    """Parse weights such as `all_reduce=3,rail=0.5`.

    Returns:
        The weights of operations, ascending, and those of shapes.

    Raises:
        UsageError: An operation or a shape that is unknown, not tuned, or named twice; a weight
            that is no number from 0.001 to 1000.
    """
    weights: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, number = part.partition("=")
        weighed = _weighed_name(name.strip(), part)
        if weighed not in (*operations, *shapes) or weighed in weights:
            tuned = f"is not tuned here, which is {', '.join((*operations, *shapes))}"
            why = "is named twice" if weighed in weights else tuned
            raise UsageError(f"--weights {text!a:.80}: {weighed} {why}")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not 1.0 / _MOST_WEIGHT <= weight <= _MOST_WEIGHT:
            least = f"from {1.0 / _MOST_WEIGHT:g} to {_MOST_WEIGHT:g}"
            raise UsageError(f"--weights {part!a:.40}: use a number {least}, as all_reduce=3")
        weights[weighed] = weight
    if not weights:
        raise UsageError("--weights names no operation: use for example --weights all_reduce=3")
    of_operations = {
        name: weight for name, weight in weights.items() if isinstance(name, Collective)
    }
    of_shapes = {name: weight for name, weight in weights.items() if name not in of_operations}
    return tuple(sorted(of_operations.items())), of_shapes


def _weighed_name(name: str, part: str) -> str:
    """Return the name of a shape, or the operation."""
    if is_shape_name(name):
        return name
    try:
        return parse_collective(name)
    except UsageError as error:
        raise UsageError(f"--weights {part!a:.40}: {error}") from error


def parse_floor(text: str) -> float | None:
    """Parse a floor such as `0.99`; None from `none` or `0`.

    Raises:
        UsageError: the text is no number from 0 to 1.
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


def describe_keys(settings: RunSettings) -> str:
    """Describe the operations and sizes of a run for people."""
    operations = ", ".join(settings.operations)
    if settings.workload is None:
        return f"{operations}; {describe_sizes(settings.sizes_bytes)}"
    sizes = sum(len(key.sizes) for key in settings.workload.keys)
    keys = count_of(len(settings.workload.keys), "key")
    grouped = "" if sizes == len(settings.workload.keys) else f" for {sizes} sizes"
    return f"{operations}; {keys} of the workload{grouped}"


def describe_sizes(sizes_bytes: tuple[int, ...]) -> str:
    """Describe sizes for people: `11 sizes, 1K to 1G`."""
    first, last = format_size(sizes_bytes[0]), format_size(sizes_bytes[-1])
    return f"{len(sizes_bytes)} sizes, {first} to {last}" if first != last else first
