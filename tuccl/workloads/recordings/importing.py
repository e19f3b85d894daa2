"""`import_recordings`: the workload of a job from the recordings of its ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import InputFileError
from tuccl.search.trials.events import Progress
from tuccl.workloads.recordings.assembling import assemble
from tuccl.workloads.recordings.call_csv import CallCsvReader
from tuccl.workloads.recordings.inspector import InspectorReader
from tuccl.workloads.recordings.kineto import KinetoReader
from tuccl.workloads.recordings.nccl_log import NcclLogReader
from tuccl.workloads.recordings.recognition import KIND_NAMES, recognize
from tuccl.workloads.recordings.recorded import RECORDED_FILES, RecordedReader
from tuccl.workloads.recordings.recording_file import RecordingFile, unreadable
from tuccl.workloads.workload import SourceKind, Workload

_MB = 1_000_000
_Reader = NcclLogReader | KinetoReader | InspectorReader | CallCsvReader | RecordedReader
_READERS: dict[SourceKind, Callable[[], _Reader]] = {
    SourceKind.NCCL_LOG: NcclLogReader,
    SourceKind.INSPECTOR: InspectorReader,
    SourceKind.CSV: CallCsvReader,
    SourceKind.RECORDED: RecordedReader,
}
_NEEDED = {
    SourceKind.NCCL_LOG: "record with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL",
    SourceKind.KINETO: "record steps that call collectives, with record_shapes=True and PyTorch "
    "2.3 or later",
    SourceKind.INSPECTOR: "record with NCCL_INSPECTOR_ENABLE=1",
    SourceKind.CSV: "add rows",
    SourceKind.RECORDED: "record a job whose ranks call NCCL's collectives",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """A workload, and notes for people on what its recording cannot tell."""

    workload: Workload
    notes: tuple[str, ...]


def import_recordings(
    files: Sequence[Path],
    kind: SourceKind | None,
    steps: float | None,
    progress: Progress,
    *,
    ranks_per_node: int | None = None,
    step_us: float | None = None,
) -> Imported:
    """Read the recordings of a job.

    Args:
        files: The recordings, all of one kind; one at least, each once. A directory stands for what
            the processes of a job wrote there for `tuccl workload record`.
        kind: Their kind; None: told by their content.
        steps: Number of steps that each rank's recording covers; None: as the recording says.
        progress: Told the megabytes that are read.
        ranks_per_node: Ranks of the job on each node, for recordings that do not name hosts.
        step_us: Time of a step of the job without PyTorch's profiler, for its traces.

    Raises:
        InputFileError: A file cannot be read, is of another kind, or there is no call in any; or
            `step_us` is given for a recording that is no trace of PyTorch's profiler.
    """
    names = tuple(map(str, files))
    files = [file for path in files for file in _recordings_of(path)]
    _require_different(files)
    reading = _Reading(files, progress)
    readers: dict[SourceKind, _Reader] = {}
    notes = []
    for path in files:
        with RecordingFile(path, reading.add) as file:
            own = recognize(file) if kind is None else kind
            if readers and own not in readers:
                first = _name(next(iter(readers)))
                raise InputFileError(
                    f"{path} is of the kind {_name(own)} and {files[0]} of {first}; import files "
                    "of one kind"
                )
            if not readers:
                if step_us is not None and own is not SourceKind.KINETO:
                    raise InputFileError(
                        f"{path} is of the kind {_name(own)}: --step-time is for traces of "
                        "PyTorch's profiler"
                    )
                is_trace = own is SourceKind.KINETO
                readers[own] = KinetoReader(steps, step_us) if is_trace else _READERS[own]()
            readers[own].read(file)
            if file.is_cut:
                notes.append(f"{path} is cut: what stands before that is used")
    reading.end()
    ((own, reader),) = readers.items()
    if isinstance(reader, CallCsvReader):
        workload = reader.workload(names, steps)
    else:
        observed = reader.finish()
        notes += observed.notes
        workload = assemble(own, names, observed, steps, ranks_per_node)
    _require_calls(workload)
    return Imported(workload, tuple(notes))


class _Reading:
    """Tells the progress of reading all files."""

    def __init__(self, files: Sequence[Path], progress: Progress) -> None:
        try:
            self._total_bytes = sum(path.stat().st_size for path in files)
        except OSError as error:
            raise unreadable(Path(error.filename), error) from error
        self._progress = progress
        self._done_bytes = 0
        self._told = -1

    def add(self, read_bytes: int) -> None:
        self._done_bytes += read_bytes
        self._tell(min(self._done_bytes, self._total_bytes) // _MB)

    def end(self) -> None:
        self._tell(self._total_mb)

    @property
    def _total_mb(self) -> int:
        return -(-self._total_bytes // _MB)

    def _tell(self, done: int) -> None:
        if done != self._told:
            self._told = done
            self._progress("megabytes read", done, self._total_mb)


def _recordings_of(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return (path,)
    found = sorted(path.glob(RECORDED_FILES))
    if not found:
        raise InputFileError(
            f"{path} holds no recording: have a job write there with the variables that "
            "`tuccl workload record --env` prints"
        )
    return found


def _require_different(files: Sequence[Path]) -> None:
    seen: set[str] = set()
    for path in files:
        whole = os.path.realpath(path)
        if whole in seen:
            raise InputFileError(f"{path} is named twice; name each recording once")
        seen.add(whole)


def _require_calls(workload: Workload) -> None:
    if workload.calls or workload.not_tuned:
        return
    files = workload.source.files
    named = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    left_out = "".join(f"; {what}" for what in workload.source.left_out)
    raise InputFileError(
        f"{named}: no collective in it ({_name(workload.source.kind)}{left_out}); "
        f"{_NEEDED[workload.source.kind]}"
    )


def _name(kind: SourceKind) -> str:
    return next(name for name, known in KIND_NAMES.items() if known is kind)
