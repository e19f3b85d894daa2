"""The records behind a program's header, byte by byte: the one place that writer and reader share.

`lookup_tables.program_header` has the header, `tuccl/runtime/program_layout.h` is both pages for C,
and docs/bundle-format.md describes them for people. All integers are little-endian, every record is
a multiple of 8 bytes.

A program of version 1 is one phase: steps of one communicator on one host. docs/bundle-format.md
says under "What a later version may add" how one with steps across hosts would follow.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from synthesizer.ir.algorithm import Buffer, StepType

RANK = struct.Struct("<IIII")
"""first threadblock, threadblocks, connections that arrive, scratch chunks."""
THREADBLOCK = struct.Struct("<hhHHHHIII")
"""send peer, receive peer, channel, zero; number of its connection among those that arrive at the
send peer, and among those that arrive here; first step, steps, zero."""
STEP = struct.Struct("<BBBBIIIiI")
"""type, source buffer, destination buffer, flags; source offset, destination offset, count;
threadblock and step that it waits for."""

NO_PEER = -1
NO_CONNECTION = 0xFFFF
NO_DEPENDENCE = -1

RUNS_IN_PLACE = 1
"""Header flag: right with one buffer as input and output as well."""
AVERAGES = 2
"""Header flag: the steps that complete a sum are marked."""
HAS_DEPENDENT = 1
"""Step flag: another threadblock waits for it."""
COMPLETES = 2
"""Step flag: what it adds up then holds every rank's part, so an average is divided here."""

MOST_CHUNKS = 1 << 16
MOST_THREADBLOCKS = 80
"""Of one rank: so many blocks are at work at once on every GPU that is served."""
MOST_STEPS = 0xFFFF
"""Of one threadblock, and the most chunks of one step."""
MOST_CHANNEL = 0xFFFF
SLOTS = 8
"""Messages that a connection holds before its sender waits."""

STEP_TYPES = (
    StepType.SEND,
    StepType.RECV,
    StepType.RECV_COPY_SEND,
    StepType.RECV_REDUCE_COPY,
    StepType.RECV_REDUCE_SEND,
    StepType.RECV_REDUCE_COPY_SEND,
    StepType.REDUCE,
    StepType.COPY,
    StepType.NOP,
)
"""By code."""
BUFFERS = (Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH)
"""By code."""


class Pattern(IntEnum):
    """A data flow for which there is a kernel of its own (tuccl/runtime/executor/executor.h)."""

    NONE = 0
    ONE_PHASE = 1
    """all_reduce: everybody sends everything to everybody."""
    TWO_PHASE = 2
    """all_reduce: everybody reduces a shard and sends it to everybody."""
    DIRECT = 3
    """Any other operation: everybody sends straight to whom it concerns."""
