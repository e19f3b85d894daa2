"""Reader of NCCL's log: lines of the subsystems COLL and INIT under NCCL_DEBUG=INFO.

A call is a line `host:pid:tid [dev] NCCL INFO AllReduce: opCount .. comm 0x.. [nranks=n] ..`, one
from each rank. Lines of INIT tell which pointers are one communicator, and where its ranks are.
Launchers write their own prefixes before; ranks that share a file overwrite each other, so that a
line is used only if all of its figures are there.

Formats: NCCL 2.3.7 to 2.30, RCCL.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from dataclasses import dataclass

from lookup_tables.collective import COLLECTIVES
from tuccl.workloads.recordings.observed_calls import (
    CallForm,
    Observed,
    RankCalls,
    full_size,
    operation_named,
)
from tuccl.workloads.recordings.recording_file import RecordingFile
from tuccl.workloads.workload import (
    NCCL_DATATYPES,
    NCCL_REDUCTIONS,
    Reduction,
)

MARK = b" NCCL INFO "
"""Text that stands before the message of each line."""
_POINTER = rb"(?:\(nil\)|0x[0-9a-f]+)"
_CALL = re.compile(
    rb"(\w+): opCount [0-9a-f]+ sendbuff (" + _POINTER + rb") recvbuff (" + _POINTER + rb")"
    rb"(?: acc " + _POINTER + rb")? count (\d{1,20}) datatype (\d{1,3}) op (\d{1,10})"
    rb" root -?\d+ comm (0x[0-9a-f]+) \[nranks=(\d{1,9})\]"
)
_INIT = re.compile(rb"comm (0x[0-9a-f]+) rank (\d{1,9}) n[rR]anks (\d{1,9})(?![\d.])(.*)")
_DEVICE = re.compile(rb" cudaDev (\d+)")
_COMM_ID = re.compile(rb" commId (0x[0-9a-f]+) ")
_NODES = re.compile(rb" nNodes (\d{1,9}) ")
_SPLIT = re.compile(
    rb" parent (0x[0-9a-f]+)(?: (?:split|child)Count (\d+))? color (-?\d+) key (-?\d+)"
)
_NAMED = re.compile(rb"[0-9A-Za-z]")
"""Content of a host's name that was not made anonymous."""
_REDUCING = {operation for operation in COLLECTIVES if operation.reduces}
_OPERATIONS = {*COLLECTIVES, "send", "recv", "gather", "scatter", "alltoallv"}
DAMAGED = "lines of calls that are cut, garbled or of NCCL before 2.3.7"
FOREIGN = "files without a line of NCCL's"
EMPTY = "calls of 0 bytes"

_Communicator = tuple[bytes, bytes, bytes]
"""Host, process and pointer."""


@dataclass(slots=True)
class _State:
    """The communicator that a pointer stands for now."""

    view: RankCalls
    device: bytes
    number: int
    tag: object = None
    """The line's own name of the communicator: its id, or its place among its parent's."""
    is_over: bool = False
    splits: int = 0
    """Communicators that were split from it."""


class NcclLogReader:
    """Reads the logs of a job, file by file."""

    def __init__(self) -> None:
        """Begin without a line."""
        self.observed = Observed()
        self._now: dict[_Communicator, _State] = {}
        self._forms: dict[tuple[object, ...], CallForm] = {}
        self._tokens: dict[tuple[int, CallForm], int] = {}
        self._places: dict[bytes, set[_Communicator]] = defaultdict(set)
        """Communicators by pointer."""
        self._has_init = False

    def read(self, file: RecordingFile) -> None:
        """Read a file.

        Raises:
            InputFileError: The file cannot be read.
        """
        is_of_nccl = False
        for line in file.lines():
            if b"opCount " in line:
                is_of_nccl = True
                self._call(line)
            elif MARK in line:
                is_of_nccl = True
                if b"comm 0x" in line:
                    self._init(line)
        self.observed.left_out[FOREIGN] += not is_of_nccl

    def finish(self) -> Observed:
        """Return the calls of all files."""
        if self.observed.views and not self._has_init:
            self.observed.notes.append(
                "no INIT lines: communicators are distinguished by their calls, and nodes by the "
                "names of hosts; record with NCCL_DEBUG_SUBSYS=INIT,COLL"
            )
        return self.observed

    def _call(self, line: bytes) -> None:
        call = _CALL.search(line)
        name = b"" if call is None else call[1].lower().removeprefix(b"mscclpp_nccl")
        operation = operation_named(name.decode(errors="replace"))
        if call is None or operation not in _OPERATIONS:
            self.observed.left_out[DAMAGED] += 1
            return
        host, process, device = _process(line[: call.start()])
        pointer, ranks = call[7], int(call[8])
        state = self._state_of_call(host, process, device, pointer, ranks)
        form = self._form(call, operation, ranks, state.view.rank)
        if form is None:
            empty = int(call[4]) == 0
            self.observed.left_out[EMPTY if empty else DAMAGED] += 1
            return
        state.view.calls[form] += 1
        token = self._tokens.setdefault((state.number, form), len(self._tokens))
        sequence = self.observed.sequences.setdefault(state.view.member, array("I"))
        sequence.append(token)

    def _state_of_call(
        self, host: bytes, process: bytes, device: bytes, pointer: bytes, ranks: int
    ) -> _State:
        key = (host, process, pointer)
        state = self._now.get(key)
        if state is None:
            # Text without a line's end may stand before the host's name, or the prefix be lost.
            alike = [
                known
                for known in sorted(self._places[pointer])
                if not process or (known[1] == process and host.endswith(known[0]))
            ]
            state = self._now[alike[0]] if len(alike) == 1 else None
        if state is None or state.view.ranks != ranks:
            state = self._begin(key, device, ranks)
        return state

    def _begin(self, key: _Communicator, device: bytes, ranks: int) -> _State:
        host, process, _ = key
        view = RankCalls(
            member=(host, process, device),
            ranks=ranks,
            host=host.decode(errors="replace") if _NAMED.search(host) else "",
        )
        state = _State(view, device, len(self.observed.views))
        self.observed.views.append(view)
        self._now[key] = state
        self._places[key[2]].add(key)
        return state

    def _form(
        self, call: re.Match[bytes], operation: str, ranks: int, rank: int | None
    ) -> CallForm | None:
        """Return the form of a call; None: it has no bytes, or figures that no call has."""
        count, datatype, reduction = call[4], call[5], call[6]
        in_place = _is_in_place(operation, call, ranks, rank)
        key = (operation, count, datatype, reduction, ranks, in_place)
        form = self._forms.get(key)
        if form is None:
            if int(datatype) >= len(NCCL_DATATYPES) or int(count) == 0:
                return None
            kind = NCCL_DATATYPES[int(datatype)]
            size_bytes = full_size(operation, int(count) * kind.element_bytes, ranks)
            if size_bytes is None:
                return None
            form = CallForm(
                operation,
                size_bytes,
                kind,
                _reduction(operation, int(reduction)),
                in_place,
            )
            self._forms[key] = form
        return form

    def _init(self, line: bytes) -> None:
        found = _INIT.search(line)
        # A line that is cut may lack digits.
        if found is None or not line.rstrip(b"\r").endswith((b"\n", b"COMPLETE", b"START")):
            return
        host, process, device = _process(line[: line.rfind(MARK, 0, found.start() + 1)])
        key, rest = (host, process, found[1]), found[4]
        state = self._now.get(key)
        if b"Destroy" in rest or b"Abort" in rest:
            if state is not None:
                state.is_over = True
            return
        self._has_init = True
        rank, ranks = int(found[2]), int(found[3])
        tag = _tag(rest)
        if state is None or not _continues(state, rank, ranks, tag):
            state = self._begin(key, device, ranks)
        state.view.rank = rank
        if (own := _DEVICE.search(rest)) is not None and not state.view.calls:
            state.view.member = (host, process, own[1])
        if (nodes := _NODES.search(rest)) is not None and 1 <= int(nodes[1]) <= ranks:
            state.view.nodes = int(nodes[1])
        if state.tag is None and tag is not None:
            state.tag = tag
            state.view.identity = self._identity(host, process, tag, rest)

    def _identity(self, host: bytes, process: bytes, tag: object, rest: bytes) -> object:
        """Return a name that all ranks of a communicator have for it; None: none is known."""
        split = _SPLIT.search(rest)
        if isinstance(tag, bytes) or split is None:
            return tag
        parent = self._now.get((host, process, split[1]))
        if parent is None or parent.view.identity is None:
            return None
        parent.splits += 1
        return (parent.view.identity, split[2] or parent.splits, split[3])


def _tag(rest: bytes) -> object:
    """Return a line's own name of a communicator; None: it has none."""
    if (own := _COMM_ID.search(rest)) is not None:
        return own[1]
    if (split := _SPLIT.search(rest)) is not None:
        return split.groups()
    return None


def _continues(state: _State, rank: int, ranks: int, tag: object) -> bool:
    """Whether an INIT line is on the communicator that its pointer stood for before."""
    if state.is_over or state.view.ranks != ranks or state.view.rank not in {None, rank}:
        return False
    if state.view.calls:
        return tag is not None and tag == state.tag
    return tag is None or state.tag in (None, tag)


def _process(before: bytes) -> tuple[bytes, bytes, bytes]:
    """Return host, process and device of a line by its text before the message."""
    end = before.rfind(MARK)
    words = before[: len(before) if end < 0 else end].rsplit(None, 2)
    device = b""
    if words and words[-1].startswith(b"["):
        device = words.pop().strip(b"[]")
    # A launcher's own prefix may stand before the host: `[default0]:host:pid:tid`.
    parts = words[-1].rsplit(b":", 3)[-3:] if words else []
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        return (b"", b"", device)
    return (parts[0].rpartition(b"]")[2], parts[1], device)


def _is_in_place(
    operation: str, call: re.Match[bytes], ranks: int, rank: int | None
) -> bool | None:
    if b"(nil)" in (call[2], call[3]):
        return None
    datatype = int(call[5])
    if datatype >= len(NCCL_DATATYPES):
        return None
    send, receive = int(call[2], 16), int(call[3], 16)
    part_bytes = int(call[4]) * NCCL_DATATYPES[datatype].element_bytes
    if operation == "all_gather":
        return _holds_part(receive, send, part_bytes, ranks, rank)
    if operation == "reduce_scatter":
        return _holds_part(send, receive, part_bytes, ranks, rank)
    return send == receive


def _holds_part(whole: int, part: int, part_bytes: int, ranks: int, rank: int | None) -> bool:
    """Whether the small buffer is the rank's part of the large one, or of any rank."""
    if rank is not None:
        return part == whole + rank * part_bytes
    return (
        part_bytes > 0
        and (part - whole) % part_bytes == 0
        and whole <= part < whole + ranks * part_bytes
    )


def _reduction(operation: str, number: int) -> Reduction | None:
    if operation not in _REDUCING:
        return None
    return NCCL_REDUCTIONS[number] if number < len(NCCL_REDUCTIONS) else Reduction.CUSTOM
