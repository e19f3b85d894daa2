"""Reader of what `tuccl workload record` counts: a JSON file per process, with sums of equal calls.

The profiler plugin writes the files. NCCL 2.24 to 2.27 tell it of work at its launch, NCCL 2.28 and
later of calls; before NCCL 2.27 the plugin does not learn the ranks of a communicator, which are
counted here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lookup_tables.table import MAX_RANKS
from probes.inputs.messages import first_fault
from tuccl.errors import InputFileError
from tuccl.workloads.recordings.observed_calls import (
    CallForm,
    Observed,
    RankCalls,
    full_size,
)
from tuccl.workloads.recordings.recording_file import RecordingFile
from tuccl.workloads.workload import Datatype, Reduction

RECORDED_FILES = "*.*.*.json"
"""Names of the plugin's files: host, process, time of its start."""
MOST_BYTES = 1 << 30
"""Size of a file beyond which no plugin wrote it."""
_ROOTED = frozenset({"broadcast", "reduce"})
"""Operations whose root may be in place while the other ranks are not."""
_ABI_OF_CALLS = 5
"""Version of the profiler ABI from which NCCL tells of calls, with or without graphs."""
_MOST_NOTES = 3

_Number = Annotated[int, Field(ge=0, lt=1 << 64)]
_Word = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Call(_Form):
    operation: Annotated[str, Field(max_length=64, pattern=r"^[a-z_]+$")]
    datatype: Datatype | None
    reduction: Reduction | None
    in_place: bool | None
    graph: bool | None
    calls: Annotated[int, Field(ge=1, lt=1 << 64)]
    bytes: _Number | None = None
    """Bytes that one rank passes to a call; None: calls of different sizes are summed."""
    total_bytes: _Number | None = None

    @model_validator(mode="after")
    def _has_either_size(self) -> _Call:
        if (self.bytes is None) == (self.total_bytes is None):
            raise ValueError("a call has bytes or total_bytes")
        return self


class _Communicator(_Form):
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    rank: Annotated[int, Field(ge=0, lt=MAX_RANKS)] | None
    """None: no call was made yet."""
    ranks: Annotated[int, Field(ge=1, le=MAX_RANKS)] | None
    nodes: Annotated[int, Field(ge=1, le=MAX_RANKS)] | None
    calls: tuple[_Call, ...]


class _Recording(_Form):
    format: Literal["tuccl-recording"]
    version: Literal[1]
    host: _Word
    process: _Number
    profiler_abi: Annotated[int, Field(ge=1, le=6)]
    executor_calls: _Number
    communicators_left_out: _Number
    calls_left_out: _Number
    communicators: tuple[_Communicator, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A rank's part of a communicator, with the process that it is in."""

    host: str
    member: tuple[str, int]
    place: int
    """Its place among the process's ranks of the communicator."""
    communicator: _Communicator
    rank: int


class RecordedReader:
    """Reads the files of a job's processes."""

    def __init__(self) -> None:
        """Begin without a file."""
        self._parts: dict[str, list[_Part]] = defaultdict(list)
        """Parts of each communicator."""
        self._left_out: Counter[str] = Counter()
        self._tells_graphs = True
        self._has_graphs = False

    def read(self, file: RecordingFile) -> None:
        """Read a process's file.

        Raises:
            InputFileError: It cannot be read, or the plugin did not write it so.
        """
        recording = _recording(file)
        self._left_out["calls that TuCCL's executor ran, which NCCL does not see"] += (
            recording.executor_calls
        )
        self._left_out["communicators beyond those that the recorder keeps"] += (
            recording.communicators_left_out
        )
        self._left_out["calls whose operation or type NCCL names in a new way"] += (
            recording.calls_left_out
        )
        self._tells_graphs &= recording.profiler_abi >= _ABI_OF_CALLS
        self._take_parts(recording)

    def _take_parts(self, recording: _Recording) -> None:
        member = (recording.host, recording.process)
        seen: dict[str, set[int]] = defaultdict(set)
        for communicator in recording.communicators:
            rank = communicator.rank
            if rank is None:
                continue
            # NCCL 2.23 gives communicators that are split alike one hash.
            name = communicator.hash
            while rank in seen[name]:
                name += "+"
            place = len(seen[name])
            seen[name].add(rank)
            self._parts[name].append(_Part(recording.host, member, place, communicator, rank))

    def finish(self) -> Observed:
        """Return the calls of all files."""
        observed = Observed(left_out=self._left_out)
        for name, parts in self._parts.items():
            observed.views += self._views(name, parts, observed)
        if not self._tells_graphs:
            observed.notes.append(
                "NCCL before 2.28 does not mark the calls of CUDA graphs, and on one node does not "
                "tell of them"
            )
        if self._has_graphs:
            observed.notes.append(
                "a call in a CUDA graph counts once, when it is captured: nothing tells how often "
                "the graph was launched"
            )
        return observed

    def _views(self, name: str, parts: list[_Part], observed: Observed) -> list[RankCalls]:
        ranks = max(part.communicator.ranks or part.rank + 1 for part in parts)
        if len({part.rank for part in parts}) < ranks and len(observed.notes) < _MOST_NOTES:
            observed.notes.append(
                f"communicator {name}: {len(parts)} of {ranks} ranks were recorded"
            )
        views = []
        for part in parts:
            view = RankCalls(
                member=(*part.member, part.place),
                ranks=ranks,
                identity=name,
                rank=part.rank,
                nodes=part.communicator.nodes,
                host=part.host,
            )
            for call in part.communicator.calls:
                self._take(call, view)
            views.append(view)
        return views

    def _take(self, call: _Call, view: RankCalls) -> None:
        self._has_graphs |= call.graph is True
        if call.bytes is not None:
            size_bytes = full_size(call.operation, call.bytes, view.ranks)
            in_place = None if call.operation in _ROOTED else call.in_place
            if size_bytes:
                form = CallForm(
                    call.operation, size_bytes, call.datatype, call.reduction, in_place, call.graph
                )
                view.calls[form] += call.calls
            else:
                self._left_out["calls of impossible sizes"] += call.calls
        elif CallForm(call.operation, 1).is_tuned:
            self._left_out["calls of sizes beyond the 4,096 that the recorder keeps"] += call.calls
        elif call.total_bytes is not None:
            # Sizes that make up the sum, as the calls' own are not known.
            least, larger = divmod(call.total_bytes, call.calls)
            for size_bytes, calls in ((least, call.calls - larger), (least + 1, larger)):
                if calls:
                    view.calls[CallForm(call.operation, size_bytes, call.datatype)] += calls


def _recording(file: RecordingFile) -> _Recording:
    if file.size_bytes > MOST_BYTES:
        raise InputFileError(f"{file.path} is too large to be a process's recording; name another")
    pieces = iter(file.read, b"")
    try:
        return _Recording.model_validate_json(b"".join(pieces), strict=True)
    except ValidationError as error:
        raise InputFileError(
            f"{file.path}: {first_fault(error)}; record again with the plugin of this release"
        ) from error
