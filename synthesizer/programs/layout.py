"""The records that follow a program's header, shared by writer and reader.

`lookup_tables.program_header` defines the header, `tuccl/runtime/program_layout.h` both in C,
and docs/reference/bundle-format.md describes them. All integers are little-endian; every record is
a multiple of 8 bytes.

A program of version 1 has one phase: steps of one communicator on one host. "What a later version
may add" in docs/reference/bundle-format.md describes steps across hosts.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from synthesizer.ir.algorithm import Buffer, StepType

RANK = struct.Struct("<IIII")
"""Fields: first threadblock, threadblocks, arriving connections, scratch chunks."""
THREADBLOCK = struct.Struct("<hhHHHHIII")
"""Fields: send peer, receive peer, channel, zero; number of the connection among those that arrive
at the send peer, and among those that arrive at this rank; first step, steps, zero."""
STEP = struct.Struct("<BBBBIIIiI")
"""Fields: type, source buffer, destination buffer, flags; source and destination offset, count;
threadblock and step of the dependence."""

NO_PEER = -1
NO_CONNECTION = 0xFFFF
NO_DEPENDENCE = -1

RUNS_IN_PLACE = 1
"""Header flag: also correct in place."""
AVERAGES = 2
"""Header flag: the steps that complete a sum are marked."""
HAS_DEPENDENT = 1
"""Step flag: another threadblock waits for it."""
COMPLETES = 2
"""Step flag: its sum holds every rank's contribution, so an average is divided here."""

MOST_CHUNKS = 1 << 16
MOST_THREADBLOCKS = 80
"""Most threadblocks of a rank: so many are resident at once on every supported GPU."""
MOST_STEPS = 0xFFFF
"""Most steps of a threadblock, and most chunks of a step."""
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
"""Step types by code."""
BUFFERS = (Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH)
"""Buffers by code."""


class Pattern(IntEnum):
    """A data flow with a kernel of its own (tuccl/runtime/executor/executor.h)."""

    NONE = 0
    ONE_PHASE = 1
    """all_reduce: every rank sends its whole buffer to all ranks."""
    TWO_PHASE = 2
    """all_reduce: every rank reduces a shard and sends it to all ranks."""
    DIRECT = 3
    """Any other operation: every rank sends directly to the ranks that need its data."""
