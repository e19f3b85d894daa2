"""The kind of a recording, told by the beginning of its content."""

from __future__ import annotations

import re

from tuccl.errors import InputFileError, UsageError
from tuccl.workloads.recordings.call_csv import NEEDED
from tuccl.workloads.recordings.nccl_log import MARK
from tuccl.workloads.recordings.recording_file import RecordingFile
from tuccl.workloads.workload import SourceKind

HEAD_BYTES = 1 << 20
KIND_NAMES = {kind.value.replace("_", "-"): kind for kind in SourceKind}
"""Names of kinds on the command line."""
_JSON = re.compile(rb"\{\s*(?:[\"}]|$)|\[\s*(?:\{|\]|$)")
_RECORDED = re.compile(rb'^\{"format": ?"tuccl-recording"')
_KINETO = re.compile(rb'"(?:traceEvents|distributedInfo|deviceProperties)"')
_INSPECTOR = re.compile(rb'"(?:coll_perf|p2p_perf|inspector_output_format_version|dump_stats)"')
_ACCL = re.compile(rb'"(?:coll_n_channels_reported|leaked_collectives)"')
_FOREIGN = (
    (_ACCL, "a file of RCCL's accl-profiler, which does not tell communicators apart"),
    (
        re.compile(rb"^\x80[\x02-\x05].*pg_(?:config|status)", re.DOTALL),
        "a pickled dump of PyTorch's flight recorder, which keeps the last calls only",
    ),
    (
        re.compile(rb'"CommHash"|"cat": "(?:GROUP|COLL|P2P)(?:_API)?"'),
        "events of NCCL's example profiler, which lack the number of ranks",
    ),
    (
        re.compile(rb'"schema": ?"[\d.]+(?:-chakra[\d.]*)?"'),
        "an execution trace of PyTorch's, which lacks the job's communicators",
    ),
    (
        re.compile(rb'"pg_config"|"pg_status"'),
        "a dump of PyTorch's flight recorder, which keeps the last calls only",
    ),
    (
        re.compile(rb"^nccl_(?:p2p_)?bus_bandwidth_gbs\{"),
        "NCCL Inspector's metrics for Prometheus, which are averages and not calls",
    ),
    (
        re.compile(rb"^Comm\. Op|\| comm op: "),
        "the log of DeepSpeed's communication, whose sizes are rounded",
    ),
)
"""Recordings that are known, and why none becomes a workload."""


def parse_kind(name: str) -> SourceKind:
    """Return the kind of this name.

    Raises:
        UsageError: There is none.
    """
    kind = KIND_NAMES.get(name.lower().replace("_", "-"))
    if kind is None:
        raise UsageError(f"--from {name!a:.40} is unknown: use one of {', '.join(KIND_NAMES)}")
    return kind


def recognize(file: RecordingFile) -> SourceKind:
    """Return the kind of a recording.

    Raises:
        InputFileError: It is none, or of a kind that lacks what a workload needs.
    """
    head = file.head(HEAD_BYTES)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        raise InputFileError(f"{file.path} is empty; name a recording of a job")
    if _RECORDED.match(text):
        return SourceKind.RECORDED
    is_json = _JSON.match(text) is not None
    if is_json:
        for pattern, kind in ((_INSPECTOR, SourceKind.INSPECTOR), (_KINETO, SourceKind.KINETO)):
            if text[:1] == b"{" and pattern.search(text) and not _ACCL.search(text):
                return kind
    elif MARK in head:
        return SourceKind.NCCL_LOG
    elif _is_csv(text):
        return SourceKind.CSV
    for pattern, what in _FOREIGN:
        if pattern.search(text):
            raise InputFileError(
                f"{file.path}: {what}; record with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL"
            )
    if is_json or b"\x00" in head:
        raise InputFileError(
            f"{file.path}: no recording that is known; name NCCL's log, a trace of PyTorch's "
            "profiler, NCCL Inspector's JSON or a CSV of calls, or its kind with --from"
        )
    # NCCL's lines may come late in the output of a job.
    return SourceKind.NCCL_LOG


def _is_csv(text: bytes) -> bool:
    first = text.split(b"\n", 1)[0].lower()
    return b"," in first and any(name.encode() in first for name in NEEDED[:2])
