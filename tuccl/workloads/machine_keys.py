"""`step_calls`: maps a workload to the keys of one machine.

A call belongs to the communicators of the machine that have its ranks and nodes. Calls that differ
in data type, reduction or place of their buffers are one key, since a table knows bytes alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from typing import Any

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.inputs.messages import printable
from tuccl.quantities import format_size
from tuccl.search.trials.config import Task
from tuccl.search.trials.shapes import NamedShape, ShapeName, numbered_name
from tuccl.workloads.step_calls import KeyCalls, LeftOut, SizeCalls, StepCalls, Why
from tuccl.workloads.workload import SourceKind, Workload, WorkloadCall
from tuccl.workloads.workload_file import workload_text

MOST_SIZES = 12
"""Most keys of an operation on communicators of one shape."""
_MOST_SHAPES_TOLD = 8
_USUAL = frozenset(ShapeName)
_NEAR = 2.0
"""Factor by which a recorded size may differ from a call's."""
_ELEMENT_BYTES = 2
"""Size of the elements that calls are timed with."""


_KNOWN_OR_NOT = (
    "exposed_us_per_call", "computation_us_per_call", "exposed_computation_us_per_call",
)  # fmt: skip
"""Times of a call of which counts whether they are known."""


@dataclass(frozen=True)
class Offer:
    """The keys that a run can tune."""

    shapes: Sequence[NamedShape]
    """Communicators of the machine; none twice."""
    refusal: Callable[[Collective, Shape], str | None]
    """Why an operation is not tuned on a shape; None: it is."""
    recorded: frozenset[Task] | None = None
    """Keys that a record has; None: any size can be timed."""


def step_calls(workload: Workload, offer: Offer) -> StepCalls:
    """Return the keys of a workload's calls; there may be none.

    Args:
        workload: The workload.
        offer: The keys that the run can tune.
    """
    sizes: dict[tuple[Shape, Collective], dict[int, SizeCalls]] = {}
    left_out = [
        LeftOut(
            printable(kind.operation),
            Why.OPERATION,
            "no table has this operation",
            kind.calls_per_step,
            kind.bytes_per_step,
        )
        for kind in workload.not_tuned
    ]
    for call in workload.calls:
        shape = _shape_of(call, offer)
        if shape is None:
            left_out.append(_left_out(call, Why.COMMUNICATOR, _communicators(offer)))
            continue
        if (refusal := offer.refusal(call.operation, shape)) is not None:
            left_out.append(_left_out(call, Why.OPERATION, refusal))
            continue
        own = sizes.setdefault((shape, call.operation), {})
        more = SizeCalls(
            call.size_bytes,
            call.calls_per_step,
            call.exposed_us_per_call,
            call.us_per_call,
            call.computation_us_per_call,
            call.exposed_computation_us_per_call,
        )
        before = own.get(call.size_bytes)
        own[call.size_bytes] = more if before is None else before.with_more(more)
    keys: list[KeyCalls] = []
    order = [named.shape for named in offer.shapes]
    for (shape, operation), own in sorted(
        sizes.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
    ):
        if offer.recorded is None:
            keys += _grouped_keys(operation, shape, own)
        else:
            of_key = [
                key for key in offer.recorded if (key.operation, key.shape) == (operation, shape)
            ]
            found, far = _recorded_keys(
                operation, shape, own, sorted(key.size_bytes for key in of_key)
            )
            keys += found
            left_out += far
    return StepCalls(tuple(keys), _merged(left_out), _digest(workload), workload.steps)


def _digest(workload: Workload) -> str:
    """16 hex digits over the calls, whatever recording of them was read.

    Times differ from recording to recording; whether exposed times and computation are known
    decides how calls are timed, and what is told.
    """

    def without_times(call: WorkloadCall) -> WorkloadCall:
        known: dict[str, Any] = {
            name: 0.0 for name in _KNOWN_OR_NOT if getattr(call, name) is not None
        }
        return replace(call, us_per_call=None, **known)

    calls = tuple(map(without_times, workload.calls))
    source = replace(workload.source, kind=SourceKind.CSV, files=(), left_out=())
    text = workload_text(replace(workload, source=source, calls=calls))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _shape_of(call: WorkloadCall, offer: Offer) -> Shape | None:
    """Return the shape of a call's communicator, or None if the machine has no such communicator.

    If the call's nodes are not known, only shapes that most jobs have are considered.
    """
    shapes = [
        named.shape
        for named in offer.shapes
        if named.shape.ranks == call.ranks
        and (call.nodes == named.shape.nodes or (call.nodes is None and named.name in _USUAL))
    ]
    return min(shapes, key=lambda each: each.nodes, default=None)


def _communicators(offer: Offer) -> str:
    known = [numbered_name(named.shape) for named in offer.shapes[:_MOST_SHAPES_TOLD]]
    more = len(offer.shapes) - len(known)
    told = ", ".join(known) + (f" and {more} more" if more else "")
    return f"the communicators here are {told} (ranks x nodes)"


def _left_out(call: WorkloadCall, why: Why, reason: str) -> LeftOut:
    nodes = "" if call.nodes is None else f" on {call.nodes} node(s)"
    return LeftOut(
        f"{call.operation} of {call.ranks} ranks{nodes}",
        why,
        reason,
        call.calls_per_step,
        call.bytes_per_step,
    )


def _merged(left_out: Sequence[LeftOut]) -> tuple[LeftOut, ...]:
    """Return the calls by operation, communicator and reason, those with most bytes first."""
    sums: dict[tuple[str, Why, str], tuple[float, float]] = {}
    for each in left_out:
        name = (each.calls, each.why, each.reason)
        calls, moved = sums.get(name, (0.0, 0.0))
        sums[name] = (calls + each.calls_per_step, moved + each.bytes_per_step)
    merged = [LeftOut(*name, *amounts) for name, amounts in sums.items()]
    return tuple(sorted(merged, key=lambda each: (-each.bytes_per_step, each.calls, each.reason)))


def _grouped_keys(
    operation: Collective, shape: Shape, calls: Mapping[int, SizeCalls]
) -> list[KeyCalls]:
    """Return keys for calls of these sizes, each tuned at the size that moves most bytes."""
    whole = [(_timed_size(operation, size, shape), size) for size in sorted(calls)]
    timed: dict[int, list[int]] = {}
    for timed_bytes, size in whole:
        timed.setdefault(timed_bytes, []).append(size)
    moved = {at: sum(calls[size].bytes_per_step for size in own) for at, own in timed.items()}
    keys = []
    for group in grouped_sizes(list(timed), MOST_SIZES):
        at = max(group, key=lambda size: (moved[size], size))
        own = [calls[size] for member in group for size in timed[member]]
        keys.append(KeyCalls(Task(operation, at, shape), tuple(own)))
    return keys


def grouped_sizes(sizes_bytes: Sequence[int], most: int) -> list[list[int]]:
    """Return ascending sizes in groups of neighbours, so many at most.

    The two neighbouring groups that together span least, as a ratio of sizes, become one until
    there are few enough.
    """
    groups = [[size] for size in sizes_bytes]
    while len(groups) > most:
        spans = [log(b[-1] / a[0]) for a, b in pairwise(groups)]
        at = spans.index(min(spans))
        groups[at : at + 2] = [groups[at] + groups[at + 1]]
    return groups


def _timed_size(operation: Collective, size_bytes: int, shape: Shape) -> int:
    """Return the size in whole elements of each rank, of which there is at least one."""
    grain = _ELEMENT_BYTES * operation.parts(shape.ranks)
    return -(-size_bytes // grain) * grain


def _recorded_keys(
    operation: Collective, shape: Shape, calls: Mapping[int, SizeCalls], recorded: Sequence[int]
) -> tuple[list[KeyCalls], list[LeftOut]]:
    """Return keys at the nearest recorded sizes, and the calls that are far from all."""
    near: dict[int, list[SizeCalls]] = {}
    far = []
    for size in sorted(calls):
        at = min(recorded, key=lambda known: abs(log(known / size)), default=None)
        if at is not None and max(at / size, size / at) <= _NEAR:
            near.setdefault(at, []).append(calls[size])
        else:
            name = f"{operation} of {format_size(size)}"
            reason = f"the record has no size within a factor of {_NEAR:g}"
            count, moved = calls[size].calls_per_step, calls[size].bytes_per_step
            far.append(LeftOut(name, Why.SIZE, reason, count, moved))
    keys = [KeyCalls(Task(operation, at, shape), tuple(own)) for at, own in sorted(near.items())]
    return keys, far
