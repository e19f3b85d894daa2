"""Recordings of any kind, whole, cut or mixed up: a workload, or one line on what is wrong."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pytest

from tests.tuccl.silent_progress import silent
from tests.tuccl.workloads.recordings.test_inspector import lines, record
from tests.tuccl.workloads.recordings.written_logs import (
    call,
    event,
    imported,
    init,
    step,
    trace,
    workload,
)
from tuccl.errors import InputFileError, TucclError
from tuccl.workloads.recordings.importing import Imported, import_recordings
from tuccl.workloads.workload import SourceKind, Workload

LOG = init(0, 2) + init(1, 2) + call(0, 2, count=77) + call(1, 2, count=77)
RECORDINGS = {
    SourceKind.NCCL_LOG: LOG,
    SourceKind.KINETO: trace([step(1, 0.0, 99.0), event(), event("wait", elements=(0, 0))]),
    SourceKind.INSPECTOR: lines(record(number=1), record(1, number=1)),
    SourceKind.CSV: "operation,size_bytes,ranks,calls\nall_reduce,4096,2,12\nsend,80,2,1\n",
}


@pytest.mark.parametrize("kind", RECORDINGS)
def test_the_kind_is_told_by_the_content(tmp_path: Path, kind: SourceKind) -> None:
    assert workload(tmp_path, RECORDINGS[kind]).source.kind is kind
    packed = gzip.compress(RECORDINGS[kind].encode())
    assert workload(tmp_path, packed).calls == workload(tmp_path, RECORDINGS[kind]).calls


def outcome(folder: Path, data: bytes) -> Imported | str:
    """The import of a file, or the error's text."""
    try:
        return imported(folder, data)
    except TucclError as error:
        return str(error)


def keys(found: Workload) -> set[tuple[str, int, int]]:
    return {(each.operation.value, each.size_bytes, each.ranks) for each in found.calls}


@pytest.mark.long
@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_recording_that_is_cut_anywhere(tmp_path: Path, kind: SourceKind) -> None:
    """No call that was not made, no traceback, and one line where nothing is left."""
    whole = RECORDINGS[kind].encode()
    made = keys(workload(tmp_path, whole))
    for end in range(0, len(whole), 3):
        found = outcome(tmp_path, whole[:end])
        if isinstance(found, str):
            assert "\n" not in found
        elif kind is not SourceKind.CSV:  # A number of a CSV that lost digits is a number.
            assert keys(found.workload) <= made


@pytest.mark.long
@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_damaged_byte_anywhere(tmp_path: Path, kind: SourceKind) -> None:
    whole = RECORDINGS[kind].encode()
    for place in range(0, len(whole), 11):
        for byte in (b"\x00", b"9", b'"'):
            found = outcome(tmp_path, whole[:place] + byte + whole[place + 1 :])
            assert not isinstance(found, str) or "\n" not in found


def test_gzip_that_is_cut_anywhere(tmp_path: Path) -> None:
    whole = gzip.compress((LOG * 50).encode())
    found = [outcome(tmp_path, whole[:end]) for end in range(0, len(whole), 7)]
    assert any(not isinstance(each, str) for each in found)
    for each in found:
        if isinstance(each, str):
            assert "\n" not in each
        else:
            assert any("is cut" in note for note in each.notes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\n",
        "step 1 loss 2.5\n" * 10,
        init(0, 2),
        "[]",
        "{}",
        b"\x7fELF\x00\x00\x01",
        '[{"cat": "COLL", "args": {"CommHash": 5}}]',
        '{"schema": "1.1.1-chakra.0.0.4", "nodes": []}',
        '{"version": "2.5", "pg_config": {}, "entries": []}',
        'nccl_bus_bandwidth_gbs{node="n"} 5\n',
        "Comm. Op            Message Size        Count\n",
    ],
)
def test_what_is_no_recording(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(InputFileError):
        workload(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            b'{"header": {"rank": 0}, "coll_perf": {"coll_n_channels_reported": 4}}\n',
            "RCCL's accl-profiler",
        ),
        (pickle.dumps({"version": "2.9", "pg_config": {}}), "a pickled dump of PyTorch's flight"),
    ],
)
def test_a_recording_that_lacks_what_a_workload_needs_is_called_by_its_name(
    tmp_path: Path, text: bytes, name: str
) -> None:
    with pytest.raises(InputFileError, match=f"recording-0: .*{name}.*; record with NCCL_DEBUG"):
        workload(tmp_path, text)


def test_a_kind_that_is_named_overrides_the_content(tmp_path: Path) -> None:
    late = '{"epoch": 1}\n' + LOG
    with pytest.raises(InputFileError, match="no recording that is known"):
        workload(tmp_path, late)
    assert workload(tmp_path, late, kind=SourceKind.NCCL_LOG).calls


def test_files_are_of_one_kind_and_different(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"recording-1 is of the kind csv and .* of nccl-log"):
        workload(tmp_path, LOG, RECORDINGS[SourceKind.CSV])
    (tmp_path / "alias").symlink_to(tmp_path / "recording-0")
    both = [tmp_path / "recording-0", tmp_path / "alias"]
    with pytest.raises(InputFileError, match="is named twice"):
        import_recordings(both, None, None, silent)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"cannot read .*log: "):
        import_recordings([tmp_path / "log"], None, None, silent)


def test_logs_of_one_rank_each_are_merged(tmp_path: Path) -> None:
    texts = [init(rank, 2) + call(rank, 2) * 3 for rank in range(2)]
    found = workload(tmp_path, *texts)
    assert [(each.calls_per_step, each.nodes) for each in found.calls] == [(3, 1)]
    assert len(found.source.files) == 2


def test_json_of_great_depth(tmp_path: Path) -> None:
    deep = '{"traceEvents": ' + "[" * 100_000
    with pytest.raises(InputFileError, match="no collective in it"):
        workload(tmp_path, deep)
