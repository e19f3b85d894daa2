"""Reader of traces of PyTorch's profiler (Kineto): one file per rank.

A call is a CPU event `record_param_comms` whose arguments name the collective, its elements and its
process group (PyTorch 2.3 and later). Kernels have the same arguments and tell the time, and
with those of the computation beside them how much of it is exposed. What CUDA graphs launch has
kernels, but no such events.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuccl.words.sizes import MAX_SIZE_BYTES
from tuccl.workloads.errors import RecordingError
from tuccl.workloads.recordings.exposed import Span, exposed_times_us
from tuccl.workloads.recordings.json_text import LONGEST_VALUE, DamagedJsonError, JsonText
from tuccl.workloads.recordings.observed_calls import CallForm, Observed, RankCalls
from tuccl.workloads.recordings.recording_file import RecordingFile
from tuccl.workloads.workload import Datatype

_CALL = "record_param_comms"
_STEP = "ProfilerStep#"
_EVENT = re.compile(r'\{\s*"(?:ph|name|cat)"')
_NO_COLLECTIVES = frozenset({"wait", "init", "coalesced", "startcoalescing", "endcoalescing"})
"""Records of waiting and grouping, which pass nothing."""
_IN_PLACE = {"allreduce": True, "broadcast": True, "reduce": True}
"""Collectives whose PyTorch call has one tensor for input and output."""
_OPERATIONS = {
    "allreduce": "all_reduce",
    "broadcast": "broadcast",
    "_broadcast_oop": "broadcast",
    "reduce": "reduce",
    "_reduce_oop": "reduce",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_into_tensor": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all": "alltoall",
    "all_to_allv": "alltoall",
}
_DATATYPES = {
    "float": Datatype.FLOAT32,
    "bfloat16": Datatype.BFLOAT16,
    "half": Datatype.FLOAT16,
    "double": Datatype.FLOAT64,
    "long": Datatype.INT64,
    "int": Datatype.INT32,
    "byte": Datatype.UINT8,
    "char": Datatype.INT8,
    "bool": Datatype.UINT8,
    "float8_e4m3fn": Datatype.FLOAT8E4M3,
    "float8_e5m2": Datatype.FLOAT8E5M2,
}
_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of what runs on a GPU."""
_UNNAMED = "collectives without name and size, as PyTorch before 2.3 records them"
_UNKNOWN = "collectives of a type that NCCL lacks, or without a size"
_OUTSIDE = "calls outside the profiler's steps"
_DAMAGED = "damaged events"
_BY_GRAPH = "kernels of NCCL that CUDA graphs launched, whose sizes no trace has"


_Sums = dict[tuple[Hashable, int, CallForm], list[float]]
"""Sum and number of times, by group, ranks and form of the calls."""


@dataclass(slots=True)
class _Trace:
    """The events of one trace."""

    first_us: float = float("inf")
    last_us: float = float("-inf")
    steps: set[str] = field(default_factory=set)
    begun_us: array[float] = field(default_factory=lambda: array("d"))
    """Beginning of each call."""
    numbers: array[int] = field(default_factory=lambda: array("I"))
    """Number of each call's form."""
    kinds: dict[tuple[Hashable, int, CallForm], int] = field(default_factory=dict)
    """Group, ranks and form of calls, with their number."""
    timed: list[tuple[Hashable, int, CallForm] | None] = field(default_factory=list)
    """Group, ranks and form of each kernel of NCCL; None: without arguments."""
    spans: list[Span] = field(default_factory=list)
    """Beginning and end of these kernels."""
    work: list[Span] = field(default_factory=list)
    """Beginning and end of everything else on the GPU."""
    members: dict[Hashable, frozenset[Hashable]] = field(default_factory=dict)
    graph_launches: set[int] = field(default_factory=set)
    kernels: Counter[int] = field(default_factory=Counter)
    """Kernels of NCCL without arguments, by their correlation."""
    rank: int | None = None
    events: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


class KinetoReader:
    """Reads the traces of a job's ranks."""

    def __init__(self) -> None:
        """Begin without a trace."""
        self.observed = Observed()
        self._members: set[Hashable] = set()

    def read(self, file: RecordingFile) -> None:
        """Read a trace.

        Raises:
            RecordingError: It cannot be read, is no trace, or is of a rank that was read before.
        """
        trace, distributed = _Trace(), {}
        for name, value in _members(JsonText(file.read), file, self.observed.notes):
            if name == "event":
                _take(trace, value)
            elif name == "distributedInfo" and isinstance(value, dict):
                distributed = value
        self._add(file, trace, distributed)

    def finish(self) -> Observed:
        """Return the calls of all traces."""
        return self.observed

    def _add(self, file: RecordingFile, trace: _Trace, distributed: Mapping[str, Any]) -> None:
        rank = _integer(distributed.get("rank"), 0)
        rank = trace.rank if rank is None else rank
        member: Hashable = rank if rank is not None else ("trace", str(file.path))
        if member in self._members:
            raise RecordingError(
                f"{file.path}: a second trace of rank {rank}; name one trace of each rank"
            )
        self._members.add(member)
        world = _integer(distributed.get("world_size"), 1)
        self.observed.job_ranks = max(filter(None, (world, self.observed.job_ranks)), default=None)
        if trace.steps:
            self.observed.steps[member] = float(len(trace.steps))
        else:
            in_order = sorted(zip(trace.begun_us, trace.numbers, strict=True))
            self.observed.sequences[member] = array("I", (number for _, number in in_order))
        self._add_calls(trace, member, rank)
        by_graph = sum(trace.kernels[each] for each in trace.graph_launches)
        self.observed.left_out.update(trace.left_out)
        self.observed.left_out[_BY_GRAPH] += by_graph

    def _add_calls(self, trace: _Trace, member: Hashable, rank: int | None) -> None:
        views: dict[tuple[Hashable, int], RankCalls] = {}
        times, exposed = _times(trace)
        kinds = list(trace.kinds)
        counts: Counter[int] = Counter()
        for begun_us, number in zip(trace.begun_us, trace.numbers, strict=True):
            if trace.steps and not trace.first_us <= begun_us <= trace.last_us:
                trace.left_out[_OUTSIDE] += 1
            else:
                counts[number] += 1
        graph = None if trace.graph_launches else False
        for number, count in sorted(counts.items()):
            group, ranks, form = kinds[number]
            view = views.get((group, ranks))
            if view is None:
                view = RankCalls(
                    member=member, ranks=ranks, identity=group, rank=rank,
                    members=trace.members.get(group, frozenset()),
                )  # fmt: skip
                views[group, ranks] = view
                self.observed.views.append(view)
            seen = CallForm(
                form.operation, form.size_bytes, form.datatype, in_place=form.in_place, graph=graph
            )
            view.calls[seen] += count
            kind = (group, ranks, form)
            if kind in times:
                view.times_us[seen], view.exposed_us[seen] = times[kind], exposed[kind]


def _times(trace: _Trace) -> tuple[_Sums, _Sums]:
    """Return times of calls and their exposed parts, as sums with their numbers."""
    times: _Sums = {}
    exposed: _Sums = {}
    each_exposed_us = exposed_times_us(trace.spans, trace.work)
    for kind, (begun_us, ended_us), exposed_us in zip(
        trace.timed, trace.spans, each_exposed_us, strict=True
    ):
        if kind is not None:
            for sums, time_us in ((times, ended_us - begun_us), (exposed, exposed_us)):
                total = sums.setdefault(kind, [0.0, 0])
                total[0] += time_us
                total[1] += 1
    return times, exposed


def _members(text: JsonText, file: RecordingFile, notes: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a trace; each event as a member `event`.

    Raises:
        RecordingError: It is no trace.
    """
    if not text.takes("{"):
        raise RecordingError(f"{file.path}: no trace of PyTorch's profiler; name its JSON")
    try:
        while not text.takes("}"):
            name = text.value()
            if not text.takes(":"):
                raise DamagedJsonError("no colon")
            if name == "traceEvents" and text.takes("["):
                yield from _events(text)
            else:
                yield str(name), text.value(LONGEST_VALUE)
            text.takes(",")
    except DamagedJsonError:
        notes.append(f"{file.path} is cut or damaged: what stands before that is used")


def _events(text: JsonText) -> Iterator[tuple[str, Any]]:
    """Yield events, without damaged ones.

    Raises:
        DamagedJsonError: The text ends within the list.
    """
    while not text.takes("]"):
        try:
            yield "event", text.value()
        except DamagedJsonError:
            if not text.skip_to(_EVENT):
                raise
            yield "event", None
        text.takes(",")


def _take(trace: _Trace, event: Any) -> None:
    """Take what counts of an event."""
    trace.events += 1
    if not isinstance(event, dict):
        trace.left_out[_DAMAGED] += 1
        return
    name, arguments = event.get("name"), event.get("args")
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        return
    if name == _CALL:
        _take_call(trace, event, arguments or {})
    elif name.startswith(_STEP) and event.get("cat") == "user_annotation":
        begun_us, lasted_us = _number(event.get("ts")), _number(event.get("dur"))
        if begun_us is not None and lasted_us is not None:
            trace.steps.add(name)
            trace.first_us = min(trace.first_us, begun_us)
            trace.last_us = max(trace.last_us, begun_us + lasted_us)
    elif event.get("cat") in _WORK:
        _take_span(trace, event, arguments or {}, is_nccl=name.startswith("nccl"))
    elif name in {"cudaGraphLaunch", "hipGraphLaunch"} and arguments:
        correlation = _integer(arguments.get("correlation"), 0)
        trace.graph_launches.add(-1 if correlation is None else correlation)


def _take_call(trace: _Trace, event: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    collective = arguments.get("Collective name")
    if collective is None:
        trace.left_out[_UNNAMED] += 1
        return
    if str(collective).lower() in _NO_COLLECTIVES:
        return
    begun_us = _number(event.get("ts"))
    kind = _kind(arguments)
    if kind is None or begun_us is None:
        trace.left_out[_UNKNOWN] += 1
        return
    trace.rank = _integer(arguments.get("Rank"), 0) if trace.rank is None else trace.rank
    trace.begun_us.append(begun_us)
    trace.numbers.append(trace.kinds.setdefault(kind, len(trace.kinds)))
    trace.members.setdefault(kind[0], _group_members(arguments))


def _take_span(
    trace: _Trace, event: Mapping[str, Any], arguments: Mapping[str, Any], *, is_nccl: bool
) -> None:
    """Take what ran on the GPU."""
    begun_us, lasted_us = _number(event.get("ts")), _number(event.get("dur"))
    span = None if begun_us is None or lasted_us is None else (begun_us, begun_us + lasted_us)
    if not is_nccl:
        if span is not None:
            trace.work.append(span)
        return
    kind = _kind(arguments) if "Collective name" in arguments else None
    if span is not None:
        trace.timed.append(kind)
        trace.spans.append(span)
    correlation = _integer(arguments.get("correlation"), 0)
    if (kind is None or span is None) and correlation is not None:
        trace.kernels[correlation] += 1


def _kind(arguments: Mapping[str, Any]) -> tuple[Hashable, int, CallForm] | None:
    """Return group, ranks and form of a call; None: its figures are missing or unknown."""
    collective = str(arguments["Collective name"]).lower()
    ranks = _integer(arguments.get("Group size"), 1)
    given = _integer(arguments.get("In msg nelems"), 0)
    taken = _integer(arguments.get("Out msg nelems"), 0)
    datatype = _DATATYPES.get(str(arguments.get("dtype")).lower())
    if ranks is None or given is None or taken is None:
        return None
    operation = _operation(collective, arguments)
    is_tuned = collective in _OPERATIONS and operation == _OPERATIONS[collective]
    if is_tuned and (datatype is None or not max(given, taken)):
        return None
    size_bytes = max(given, taken) * (1 if datatype is None else datatype.element_bytes)
    if size_bytes > MAX_SIZE_BYTES:
        return None
    form = CallForm(operation, size_bytes, datatype, in_place=_IN_PLACE.get(collective))
    return _group(arguments, ranks), ranks, form


def _operation(collective: str, arguments: Mapping[str, Any]) -> str:
    """Return the operation as tables name it; another name for one that no table has."""
    operation = _OPERATIONS.get(collective, collective[:60] or "unnamed")
    if operation == "alltoall":
        splits = (arguments.get("In split size"), arguments.get("Out split size"))
        if not all(_is_even(split) for split in splits):
            return "alltoallv"
    return operation


def _is_even(split: object) -> bool:
    """Whether all ranks get parts of one size; a list that is cut may hide others."""
    text = str(split or "[]")
    return "..." not in text and len(set(re.findall(r"\d+", text))) <= 1


def _group(arguments: Mapping[str, Any], ranks: int) -> Hashable:
    named = ("Process Group Name", "Process Group Ranks")
    return (ranks, *(str(arguments.get(name)) for name in named))


def _group_members(arguments: Mapping[str, Any]) -> frozenset[Hashable]:
    """Return the ranks of a group; empty: unknown, or too many for the trace to list them."""
    text = str(arguments.get("Process Group Ranks") or "")
    return frozenset() if "..." in text else frozenset(map(int, re.findall(r"\d{1,9}", text)))


def _integer(value: object, least: int) -> int | None:
    return value if isinstance(value, int) and least <= value < 1 << 60 else None


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 1e300 else None
