"""Reader of NCCL Inspector's JSON: one object per call, in one file per process.

An object has the communicator's `header`, `metadata` of the process and the call's `coll_perf` or
`p2p_perf`. Earlier releases write the header once, before the calls of a communicator.

Formats: v4.0 to v5.1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lookup_tables.table import MAX_RANKS
from tuccl.workloads.recordings.json_text import JsonText
from tuccl.workloads.recordings.observed_calls import (
    CallForm,
    CallTime,
    Observed,
    RankCalls,
    full_size,
    operation_named,
)
from tuccl.workloads.recordings.recording_file import RecordingFile

_OBJECT = re.compile(r'\{\s*"(?:header|metadata|dump_stats|coll_perf|p2p_perf)"')
_MOST_US = 1e15
_DAMAGED = "damaged objects"
_MISSING = "calls that the Inspector did not write (too small, not timed, dropped), by its numbers"


@dataclass(frozen=True, slots=True)
class _Header:
    """The communicator that calls are made on, and the rank that makes them."""

    identity: str
    rank: int
    ranks: int
    nodes: int | None


class InspectorReader:
    """Reads the Inspector's files of a job."""

    def __init__(self) -> None:
        """Begin without a file."""
        self.observed = Observed()
        self._views: dict[_Header, RankCalls] = {}
        self._numbers: dict[tuple[_Header, str, str], tuple[int, int]] = {}
        """By header, kind and operation the last number of a call, and how many there are."""
        self._dropped: dict[tuple[_Header, str], int] = {}
        """By header and kind what the Inspector counts as dropped, since its begin."""

    def read(self, file: RecordingFile) -> None:
        """Read a file.

        Raises:
            InputFileError: The file cannot be read.
        """
        text = JsonText(file.read)
        header: _Header | None = None
        while text.peek():
            try:
                found = text.value()
            except ValueError:
                self.observed.left_out[_DAMAGED] += 1
                if not text.skip_to(_OBJECT):
                    return
                continue
            if isinstance(found, dict):
                header = _header(found["header"]) if "header" in found else header
                self._take(found, header)
            text.takes(",")

    def finish(self) -> Observed:
        """Return the calls of all files."""
        missing: Counter[tuple[_Header, str]] = Counter()
        for (header, kind, _), (last, seen) in self._numbers.items():
            missing[header, kind] += max(0, last + 1 - seen)  # NCCL counts from 0.
        self.observed.left_out[_MISSING] += (missing | Counter(self._dropped)).total()
        return self.observed

    def _take(self, found: Mapping[str, Any], header: _Header | None) -> None:
        stats = found.get("dump_stats")
        for kind in ("coll", "p2p"):
            dropped = stats.get(f"{kind}_dropped_total") if isinstance(stats, dict) else None
            if header is not None and type(dropped) is int:
                known = self._dropped.get((header, kind), 0)
                self._dropped[header, kind] = max(known, dropped)
            call = found.get(f"{kind}_perf")
            if call is not None and not (
                isinstance(call, dict)
                and header is not None
                and self._take_call(kind, call, header, found.get("metadata"))
            ):
                self.observed.left_out[_DAMAGED] += 1

    def _take_call(
        self, kind: str, call: Mapping[str, Any], header: _Header, process: object
    ) -> bool:
        """Take a call; False: it lacks figures."""
        name, passed = call.get(kind), call.get(f"{kind}_msg_size_bytes")
        if not isinstance(name, str) or type(passed) is not int or passed <= 0:
            return False
        operation = operation_named(name)
        size_bytes = full_size(operation, passed, header.ranks)
        if size_bytes is None:
            return False
        view = self._views.get(header)
        if view is None:
            view = self._begin(header, process if isinstance(process, dict) else {})
        form = CallForm(operation, size_bytes)
        view.calls[form] += 1
        time_us = call.get(f"{kind}_exec_time_us")
        if isinstance(time_us, int | float) and 0 < time_us < _MOST_US:
            view.times[CallTime.IN_JOB, form].add(time_us)
        number = call.get(f"{kind}_sn")
        if type(number) is int:
            # Sends may be numbered by peer: as one sequence, none is told that was written.
            sequence = (header, kind, operation if kind == "coll" else "")
            last, seen = self._numbers.get(sequence, (number, 0))
            self._numbers[sequence] = (max(last, number), seen + 1)
        return True

    def _begin(self, header: _Header, process: Mapping[str, Any]) -> RankCalls:
        host, number = str(process.get("hostname", "")), str(process.get("pid"))
        # A process may have several GPUs, which only the ranks of a communicator tell apart.
        place = sum(
            known.identity == header.identity
            and known.rank < header.rank
            and view.member[:2] == (host, number)
            for known, view in self._views.items()
            if isinstance(view.member, tuple)
        )
        view = RankCalls(
            member=(host, number, place),
            ranks=header.ranks,
            identity=header.identity,
            rank=header.rank,
            nodes=header.nodes,
            host=host,
        )
        self._views[header] = view
        self.observed.views.append(view)
        return view


def _header(found: object) -> _Header | None:
    """Return a header; None: it lacks figures."""
    if not isinstance(found, dict):
        return None
    identity, nodes = found.get("id"), found.get("nnodes")
    rank, ranks = found.get("rank"), found.get("n_ranks")
    if not isinstance(identity, str) or type(rank) is not int or type(ranks) is not int:
        return None
    if not 0 <= rank < ranks <= MAX_RANKS:
        return None
    known = type(nodes) is int and 1 <= nodes <= ranks
    return _Header(identity, rank, ranks, nodes if known else None)
