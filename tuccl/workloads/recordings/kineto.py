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
from math import prod
from typing import Any

from tuccl.errors import InputFileError
from tuccl.workloads.recordings.json_text import LONGEST_VALUE, JsonText
from tuccl.workloads.recordings.kineto_arguments import (
    CallKind,
    as_integer,
    as_number,
    call_kind,
    group_members,
)
from tuccl.workloads.recordings.kineto_times import UNNAMED_KIND, Steps, call_times
from tuccl.workloads.recordings.observed_calls import CallForm, Observed, RankCalls
from tuccl.workloads.recordings.recording_file import RecordingFile
from tuccl.workloads.replays.recorded_events import GpuWork, HostCall, role_of

_CALL = "record_param_comms"
_STEP = "ProfilerStep#"
_EVENT = re.compile(r'\{\s*"(?:ph|name|cat)"')
_NO_COLLECTIVES = frozenset({"wait", "init", "coalesced", "startcoalescing", "endcoalescing"})
"""Records of waiting and grouping, which pass nothing."""
_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of what runs on a GPU."""
_HOST = frozenset({"cuda_runtime", "cuda_driver"})
"""Categories of the host's calls, of HIP too."""
_GRAPH_LAUNCHES = frozenset({"cudaGraphLaunch", "hipGraphLaunch"})
_UNNAMED = "collectives without name and size, as PyTorch before 2.3 records them"
_UNKNOWN = "collectives of a type that NCCL lacks, or without a size"
_OUTSIDE = "calls outside the profiler's steps"
_DAMAGED = "damaged events"
_BY_GRAPH = "kernels of NCCL that CUDA graphs launched, whose sizes no trace has"


@dataclass(slots=True)
class _Trace:
    """The events of one trace."""

    first_us: float = float("inf")
    last_us: float = float("-inf")
    steps: dict[str, float] = field(default_factory=dict)
    """End of each step."""
    begun_us: array[float] = field(default_factory=lambda: array("d"))
    """Beginning of each call."""
    numbers: array[int] = field(default_factory=lambda: array("I"))
    """Number of each call's form."""
    kinds: dict[CallKind, int] = field(default_factory=dict)
    """Kinds of calls, with their number."""
    work: list[GpuWork] = field(default_factory=list)
    """Everything that ran on GPUs; kernels of NCCL have the number of their kind."""
    host_calls: list[HostCall] = field(default_factory=list)
    queues: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of each stream and thread, which takes an event less memory than their names."""
    members: dict[Hashable, frozenset[Hashable]] = field(default_factory=dict)
    graph_launches: set[int] = field(default_factory=set)
    kernels: Counter[int] = field(default_factory=Counter)
    """Kernels of NCCL without arguments, by their correlation."""
    rank: int | None = None
    multiprocessors: int | None = None
    """Multiprocessors of the GPU; None: unknown."""
    events: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


class KinetoReader:
    """Reads the traces of a job's ranks."""

    def __init__(self, steps: float | None = None, step_us: float | None = None) -> None:
        """Begin without a trace.

        Args:
            steps: Number of steps that each trace covers; None: those that it marks.
            step_us: Time of a step of the job without the profiler; None: unknown.
        """
        self.observed = Observed()
        self._steps = steps
        self._step_us = step_us
        self._members: set[Hashable] = set()

    def read(self, file: RecordingFile) -> None:
        """Read a trace.

        Raises:
            InputFileError: It cannot be read, is no trace, or is of a rank that was read before.
        """
        trace, distributed = _Trace(), {}
        for name, value in _members(JsonText(file.read), file, self.observed.notes):
            if name == "event":
                _take(trace, value)
            elif name == "distributedInfo" and isinstance(value, dict):
                distributed = value
            elif name == "deviceProperties" and isinstance(value, list) and value:
                first = value[0] if isinstance(value[0], dict) else {}
                trace.multiprocessors = as_integer(first.get("numSms"), 1)
        self._add(file, trace, distributed)

    def finish(self) -> Observed:
        """Return the calls of all traces."""
        return self.observed

    def _add(self, file: RecordingFile, trace: _Trace, distributed: Mapping[str, Any]) -> None:
        rank = as_integer(distributed.get("rank"), 0)
        rank = trace.rank if rank is None else rank
        member: Hashable = rank if rank is not None else ("trace", str(file.path))
        if member in self._members:
            raise InputFileError(
                f"{file.path}: a second trace of rank {rank}; name one trace of each rank"
            )
        self._members.add(member)
        world = as_integer(distributed.get("world_size"), 1)
        self.observed.job_ranks = max(filter(None, (world, self.observed.job_ranks)), default=None)
        if trace.steps:
            self.observed.steps[member] = float(len(trace.steps))
        else:
            in_order = sorted(zip(trace.begun_us, trace.numbers, strict=True))
            self.observed.sequences[member] = array("I", (number for _, number in in_order))
        self._add_calls(file, trace, member, rank)
        by_graph = sum(trace.kernels[each] for each in trace.graph_launches)
        self.observed.left_out.update(trace.left_out)
        self.observed.left_out[_BY_GRAPH] += by_graph

    def _add_calls(
        self, file: RecordingFile, trace: _Trace, member: Hashable, rank: int | None
    ) -> None:
        views: dict[tuple[Hashable, int], RankCalls] = {}
        steps = self._steps or float(len(trace.steps)) or None
        if self._step_us is not None and steps is None:
            raise InputFileError(
                f"{file.path}: --step-time is of a step, and the trace marks none; give --steps, "
                "or call profiler.step() after each"
            )
        marked = Steps(
            trace.first_us, trace.last_us, steps, self._step_us, tuple(sorted(trace.steps.values()))
        )
        times = call_times(trace.work, trace.host_calls, marked, trace.multiprocessors)
        self.observed.notes += (f"{file.path}: {note}" for note in times.notes)
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
            for figure, sums in times.sums.items():
                if number in sums:
                    view.times[figure, seen] = sums[number]


def _members(text: JsonText, file: RecordingFile, notes: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a trace; each event as a member `event`.

    Raises:
        InputFileError: It is no trace.
    """
    if not text.takes("{"):
        raise InputFileError(f"{file.path}: no trace of PyTorch's profiler; name its JSON")
    try:
        while not text.takes("}"):
            name = text.value()
            if not text.takes(":"):
                raise ValueError("no colon")
            if name == "traceEvents" and text.takes("["):
                yield from _events(text)
            else:
                yield str(name), text.value(LONGEST_VALUE)
            text.takes(",")
    except ValueError:
        notes.append(f"{file.path} is cut or damaged: what stands before that is used")


def _events(text: JsonText) -> Iterator[tuple[str, Any]]:
    """Yield events, without damaged ones.

    Raises:
        ValueError: The text ends within the list.
    """
    while not text.takes("]"):
        try:
            yield "event", text.value()
        except ValueError:
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
        begun_us, lasted_us = as_number(event.get("ts")), as_number(event.get("dur"))
        if begun_us is not None and lasted_us is not None:
            trace.steps[name] = begun_us + lasted_us
            trace.first_us = min(trace.first_us, begun_us)
            trace.last_us = max(trace.last_us, begun_us + lasted_us)
    elif event.get("cat") in _WORK:
        _take_work(trace, event, arguments or {}, is_nccl=name.startswith("nccl"))
    elif event.get("cat") in _HOST:
        _take_host_call(trace, event, name, arguments or {})


def _take_call(trace: _Trace, event: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    collective = arguments.get("Collective name")
    if collective is None:
        trace.left_out[_UNNAMED] += 1
        return
    if str(collective).lower() in _NO_COLLECTIVES:
        return
    begun_us = as_number(event.get("ts"))
    kind = call_kind(arguments)
    if kind is None or begun_us is None:
        trace.left_out[_UNKNOWN] += 1
        return
    trace.rank = as_integer(arguments.get("Rank"), 0) if trace.rank is None else trace.rank
    trace.begun_us.append(begun_us)
    trace.numbers.append(trace.kinds.setdefault(kind, len(trace.kinds)))
    trace.members.setdefault(kind[0], group_members(arguments))


def _take_work(
    trace: _Trace, event: Mapping[str, Any], arguments: Mapping[str, Any], *, is_nccl: bool
) -> None:
    """Take what ran on the GPU."""
    begun_us, lasted_us = as_number(event.get("ts")), as_number(event.get("dur"))
    correlation = as_integer(arguments.get("correlation"), 0)
    kind = call_kind(arguments) if is_nccl and "Collective name" in arguments else None
    is_timed = begun_us is not None and lasted_us is not None
    if begun_us is not None and lasted_us is not None:
        number = None
        if is_nccl:
            number = (
                UNNAMED_KIND if kind is None else trace.kinds.setdefault(kind, len(trace.kinds))
            )
        stream = _queue(trace, arguments.get("device"), arguments.get("stream"))
        ended_us = begun_us + max(0.0, lasted_us)
        is_copy = event.get("cat") != "kernel"
        blocks = _blocks(arguments.get("grid"))
        trace.work.append(GpuWork(begun_us, ended_us, stream, correlation, number, blocks, is_copy))
    if is_nccl and (kind is None or not is_timed) and correlation is not None:
        trace.kernels[correlation] += 1


def _blocks(grid: object) -> int:
    """Return the thread blocks of a kernel by its grid; 0: unknown."""
    sizes = [as_integer(size, 1) for size in grid] if isinstance(grid, list) else []
    return prod(size for size in sizes if size is not None) if sizes else 0


def _take_host_call(
    trace: _Trace, event: Mapping[str, Any], name: str, arguments: Mapping[str, Any]
) -> None:
    """Take a call of the CUDA or HIP API."""
    correlation = as_integer(arguments.get("correlation"), 0)
    if name in _GRAPH_LAUNCHES:
        trace.graph_launches.add(-1 if correlation is None else correlation)
    role = role_of(name)
    begun_us, lasted_us = as_number(event.get("ts")), as_number(event.get("dur"))
    if role is not None and begun_us is not None and lasted_us is not None:
        thread = _queue(trace, event.get("pid"), event.get("tid"))
        ended_us = begun_us + max(0.0, lasted_us)
        trace.host_calls.append(HostCall(begun_us, ended_us, thread, role, correlation))


def _queue(trace: _Trace, place: object, name: object) -> int:
    """Return the number of a stream of a device, or of a thread of a process."""
    return trace.queues.setdefault((str(place), str(name)), len(trace.queues))
