"""The compiled program's records, byte by byte: the one place that writer and reader share.

`tuccl/runtime/program_layout.h` is the same page for C, and docs/bundle-format.md describes it for
people. All integers are little-endian, every record is a multiple of 8 bytes.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from lookup_tables.table import Shape

MAGIC = b"TUCCLPRG"
VERSION = 1

HEADER = struct.Struct("<8sII8sIIBBBBIIIIIIHHII")
"""magic, version, crc32, content address, bytes, features; operation, pattern, flags, root; ranks,
chunks per loop, threadblocks, steps; largest of any rank: threadblocks, connections; chunks of the
largest message, steps of the longest threadblock; most scratch chunks of any rank, zero."""
CRC_OFFSET = 12
CRC_BYTES = 4
HASHED_FROM = 24
"""The content address covers everything from here on."""
HASH_BYTES = 8

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

MOST_RANKS = 8
"""What an executor serves; schedules for more ranks are left out of bundles."""
MOST_CHUNKS = 1 << 16
MOST_THREADBLOCKS = 80
"""Of one rank: so many blocks are at work at once on every GPU that is served."""
MOST_STEPS = 0xFFFF
"""Of one threadblock, and the most chunks of one step."""
SLOTS = 8
"""Messages that a connection holds before its sender waits."""
MOST_BYTES = 1 << 20
"""Most bytes of a program: a hundred times what the schedules of eight ranks take. With the two
below it bounds what a bundle's programs cost when they are loaded."""
MOST_SECTION_BYTES = 1 << 24
MOST_PROGRAMS = 1024
"""Most programs of a bundle; the schedules in it that have none do not count."""

SECTION_HEAD = struct.Struct("<II")
"""number of programs, zero."""
SECTION_RECORD = struct.Struct("<QII8s")
"""offset in the section, bytes (0: no program), crc32, content address."""


class StepCode(IntEnum):
    """The instructions of MSCCL-IR, by code."""

    S = 0
    R = 1
    RCS = 2
    RRC = 3
    RRS = 4
    RRCS = 5
    RE = 6
    CPY = 7
    NOP = 8

    @property
    def sends(self) -> bool:
        """Whether it gives a message to the send peer."""
        return self in {StepCode.S, StepCode.RCS, StepCode.RRS, StepCode.RRCS}

    @property
    def receives(self) -> bool:
        """Whether it takes a message from the receive peer."""
        return StepCode.R <= self <= StepCode.RRCS

    @property
    def reduces(self) -> bool:
        """Whether it adds up."""
        return StepCode.RRC <= self <= StepCode.RE

    @property
    def reads(self) -> bool:
        """Whether it reads its source."""
        return self is StepCode.S or StepCode.RRC <= self <= StepCode.CPY

    @property
    def writes(self) -> bool:
        """Whether it writes its destination."""
        return self not in {StepCode.S, StepCode.RRS, StepCode.NOP}


class BufferCode(IntEnum):
    """Where a chunk lies, by code."""

    INPUT = 0
    OUTPUT = 1
    SCRATCH = 2


class Pattern(IntEnum):
    """A data flow for which there is a kernel of its own (tuccl/runtime/executor/executor.h)."""

    NONE = 0
    ONE_PHASE = 1
    """all_reduce: everybody sends everything to everybody."""
    TWO_PHASE = 2
    """all_reduce: everybody reduces a shard and sends it to everybody."""
    DIRECT = 3
    """Any other operation: everybody sends straight to whom it concerns."""


def executor_serves(shape: Shape) -> bool:
    """Whether an executor runs schedules on communicators of this shape."""
    return shape.nodes == 1 and 2 <= shape.ranks <= MOST_RANKS
