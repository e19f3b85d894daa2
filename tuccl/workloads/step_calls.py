"""`StepCalls`: the keys of a job's step on one machine, and the calls that each stands for.

A job may have hundreds of sizes, so neighbouring ones share a key, and the key is tuned at the size
that moves most bytes. The calls keep their own sizes: the time of a step counts each by its own.

Units: bytes are integers, times microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.quantities import count_of
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Computation

_REACH = 2
"""Factor by which an entry reaches beyond the sizes of its key: half a step of the usual ladder."""
_MOST_LISTED = 5


@dataclass(frozen=True, slots=True)
class SizeCalls:
    """The calls of one size."""

    size_bytes: int
    calls_per_step: float
    """Calls of one rank."""
    exposed_us: float | None = None
    """Time by which a step is shorter without the call; None: unknown."""
    in_job_us: float | None = None
    """Time of a call in the job that was recorded, waiting for other ranks included; None:
    unknown."""
    computation_us: float | None = None
    """Time in which the GPU computed beside a call there; None: unknown."""
    exposed_computation_us: float | None = None
    """Time by which a step is shorter without that computation; None: unknown."""

    @property
    def bytes_per_step(self) -> float:
        """Bytes of these calls."""
        return self.calls_per_step * self.size_bytes

    def with_more(self, more: SizeCalls) -> SizeCalls:
        """Return both together; a time is unknown where that of one is."""
        count = self.calls_per_step + more.calls_per_step

        def mean(own_us: float | None, more_us: float | None) -> float | None:
            if own_us is None or more_us is None:
                return None
            return (own_us * self.calls_per_step + more_us * more.calls_per_step) / count

        return SizeCalls(
            self.size_bytes,
            count,
            mean(self.exposed_us, more.exposed_us),
            mean(self.in_job_us, more.in_job_us),
            mean(self.computation_us, more.computation_us),
            mean(self.exposed_computation_us, more.exposed_computation_us),
        )

    def saved_us(
        self, stock_us: float, table_us: float, *, beside_computation: bool = False
    ) -> float:
        """Return by how much a step is shorter where its calls of this size take less time.

        A step waits for a call no longer than its exposed time, and likewise for the computation
        beside it, which a call that takes less of the GPU lets end sooner; a call that took less
        time in the job than it was timed to saves the same share of that; unknown times bound
        nothing.

        Args:
            stock_us: Time of these calls with stock NCCL, as they were timed.
            table_us: Time of these calls with the table.
            beside_computation: Whether both are until the computation beside the calls has ended.
        """
        bounds_us = [stock_us - table_us]
        if self.in_job_us is not None and table_us < stock_us:
            share = 1.0 - table_us / stock_us
            computation_us = (self.computation_us or 0.0) if beside_computation else 0.0
            bounds_us.append(share * max(self.in_job_us, computation_us) * self.calls_per_step)
        if self.exposed_us is not None:
            exposed_us = self.exposed_us
            if beside_computation:
                exposed_us += self.exposed_computation_us or 0.0
            bounds_us.append(exposed_us * self.calls_per_step)
        return min(bounds_us)


@dataclass(frozen=True, slots=True)
class KeyCalls:
    """A key, and the calls that it stands for."""

    task: Task
    sizes: tuple[SizeCalls, ...]
    """Ascending; at least one."""

    @property
    def calls_per_step(self) -> float:
        """Calls of one rank, of all sizes."""
        return sum(each.calls_per_step for each in self.sizes)

    @property
    def bytes_per_step(self) -> float:
        """Bytes of these calls."""
        return sum(each.bytes_per_step for each in self.sizes)

    @property
    def computation(self) -> Computation | None:
        """The computation beside a call of the key's own size, or None if no recording has it.

        It is that of all sizes whose computation is known, in proportion to their bytes.
        """
        known = [each for each in self.sizes if each.computation_us is not None]
        if not known:
            return None
        computed_us = sum(each.calls_per_step * (each.computation_us or 0.0) for each in known)
        per_byte_us = computed_us / sum(each.bytes_per_step for each in known)
        task = self.task
        return Computation(
            task.operation, task.shape, task.size_bytes, per_byte_us * task.size_bytes
        )

    @property
    def reach_bytes(self) -> tuple[int, int]:
        """Smallest and largest size that an entry of the key may serve."""
        sizes = [self.task.size_bytes, *(each.size_bytes for each in self.sizes)]
        return max(1, min(sizes) // _REACH), max(sizes) * _REACH


class Why(StrEnum):
    """Kinds of reasons why calls are left out."""

    OPERATION = "operation"
    """TuCCL does not tune the operation, or not here."""
    COMMUNICATOR = "communicator"
    """The machine has no communicators of that shape."""
    SIZE = "size"
    """A record has no size near."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Calls that are not tuned."""

    calls: str
    """The calls in words: `all_reduce on 6 ranks`."""
    why: Why
    reason: str
    """The reason for people."""
    calls_per_step: float
    bytes_per_step: float


@dataclass(frozen=True, slots=True)
class StepCalls:
    """The calls of a step of a job, on one machine."""

    keys: tuple[KeyCalls, ...]
    """By shape, operation and size; at least one."""
    left_out: tuple[LeftOut, ...]
    digest: str
    """16 hex digits over the workload."""
    steps: float | None
    """Steps that the recording covers; None: unknown, and figures are of the whole recording."""

    @property
    def calls_per_step(self) -> float:
        """Calls of one rank that are tuned."""
        return sum(key.calls_per_step for key in self.keys)

    @property
    def tells_exposed_time(self) -> bool:
        """Whether the exposed time of any call is known."""
        return any(size.exposed_us is not None for key in self.keys for size in key.sizes)

    @property
    def computations(self) -> tuple[Computation, ...]:
        """The computation beside the keys' calls, as far as it is known; empty: beside none."""
        known = tuple(found for key in self.keys if (found := key.computation) is not None)
        return known if any(each.time_us for each in known) else ()

    @property
    def bytes_per_step(self) -> float:
        """Bytes of all calls, also of those that are left out."""
        tuned = sum(key.bytes_per_step for key in self.keys)
        return tuned + sum(each.bytes_per_step for each in self.left_out)

    @property
    def untuned_share(self) -> float:
        """Share of the bytes that are of operations that TuCCL does not tune."""
        return self._share(Why.OPERATION)

    @property
    def left_out_share(self) -> float:
        """Share of the bytes whose communicators or sizes are left out here."""
        return self._share(Why.COMMUNICATOR, Why.SIZE)

    def _share(self, *reasons: Why) -> float:
        whole = self.bytes_per_step
        left = sum(each.bytes_per_step for each in self.left_out if each.why in reasons)
        return left / whole if whole else 0.0

    @property
    def left_out_notes(self) -> tuple[str, ...]:
        """Notes on the calls that are left out, those with most bytes first."""
        listed = [
            f"not tuned: {each.calls}, {each.calls_per_step:g} calls a step: {each.reason}"
            for each in self.left_out[:_MOST_LISTED]
        ]
        more = self.left_out[_MOST_LISTED:]
        if more:
            share = sum(each.bytes_per_step for each in more) / self.bytes_per_step
            kinds = count_of(len(more), "kind")
            listed.append(
                f"not tuned: {kinds} of calls more, {100.0 * share:.1f} % of its bytes; --json "
                "lists them"
            )
        return tuple(listed)

    def sizes_of(self, operation: Collective, shape: Shape) -> tuple[int, ...]:
        """Sizes of an operation's keys on communicators of a shape, ascending."""
        tasks = [key.task for key in self.keys]
        return tuple(t.size_bytes for t in tasks if (t.operation, t.shape) == (operation, shape))


def times_per_step(
    keys: Sequence[KeyCalls], time_us: Mapping[Task, float]
) -> dict[Task, dict[int, float]]:
    """Time of a step's calls in us, by key and size.

    A size between keys has a time between theirs, on logarithmic scales; beyond the last key the
    slope is that of the last two, from constant to proportional. A lone key gives its own time.

    Args:
        keys: The keys.
        time_us: Time of a call of each key.
    """
    curves: dict[tuple[Collective, Shape], list[tuple[float, float]]] = {}
    for key in sorted(keys, key=lambda key: key.task.size_bytes):
        task = key.task
        point = (log(task.size_bytes), log(time_us[task]))
        curves.setdefault((task.operation, task.shape), []).append(point)
    return {
        key.task: {
            each.size_bytes: each.calls_per_step
            * exp(at_size(log(each.size_bytes), curves[key.task.operation, key.task.shape]))
            for each in key.sizes
        }
        for key in keys
    }


def at_size(size_log: float, curve: Sequence[tuple[float, float]]) -> float:
    """Logarithm of the time of a call by a curve of logarithms over those of ascending sizes."""
    if len(curve) == 1:
        return curve[0][1]
    end = next((i for i, (at, _) in enumerate(curve) if at >= size_log), len(curve) - 1)
    (low, low_time), (high, high_time) = curve[max(0, end - 1)], curve[max(1, end)]
    slope = (high_time - low_time) / (high - low)
    if not low <= size_log <= high:
        slope = min(1.0, max(0.0, slope))
    base, base_time = (low, low_time) if size_log <= low else (high, high_time)
    return base_time + slope * (size_log - base)
