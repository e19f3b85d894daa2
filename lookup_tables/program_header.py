"""The header of a compiled program, with its checksums and limits of size.

Tables treat the rest of a program as opaque bytes. `synthesizer.programs.layout` describes it,
`synthesizer.programs.compiler` writes it, and the C loader (`tuccl/runtime/program.c`) checks all
of it before an executor uses any. `tuccl/runtime/program_layout.h` declares the same records for C,
and docs/reference/bundle-format.md describes them. All integers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from lookup_tables.bundle_layout import bundle_crc, with_crc
from lookup_tables.table import Shape, StoredSchedule

MAGIC = b"TUCCLPRG"
VERSION = 1

HEADER = struct.Struct("<8sII8sIIBBHIIIIIIIIIIIHHI")
"""Fields: magic, version, crc32, content address, bytes, features; then those of `Header`; zero."""


class Header(NamedTuple):
    """What a program's header says of its records."""

    operation: int
    flags: int
    root: int
    ranks: int
    nodes: int
    chunks: int
    """Chunks of a rank's part, or of the whole buffer if ranks do not divide it."""
    phases: int
    lanes: int
    """Communicators of each rail."""
    threadblocks: int
    steps: int
    statements: int
    most_scratch_chunks: int
    most_threadblocks: int
    most_connections: int
    largest_message: int
    longest_threadblock: int


ADDRESS_OFFSET = 16
HASH_BYTES = 8
HASHED_FROM = 24
"""Offset of the first byte that the content address covers."""

MOST_RANKS = 32
"""Largest number of ranks of a node that an executor serves."""
MOST_KERNEL_RANKS = 16
"""Largest number of ranks of a node among which the kernel of a pattern runs."""
MOST_BYTES = 1 << 20
"""Largest program: a hundred times the schedules of eight ranks. With the two limits below it
bounds the cost of loading a bundle's programs."""
MOST_SECTION_BYTES = 1 << 24
MOST_PROGRAMS = 1024
"""Largest number of programs in a bundle; schedules without a program do not count."""

SECTION_HEAD = struct.Struct("<II")
"""Fields: number of programs, zero."""
SECTION_RECORD = struct.Struct("<QII8s")
"""Fields: offset in the section, bytes (0: no program), crc32, content address."""


def executor_serves(shape: Shape) -> bool:
    """Return whether an executor runs schedules on communicators of this shape."""
    if shape.nodes > 1:
        return shape.ranks_per_node <= MOST_RANKS
    return 2 <= shape.ranks <= MOST_RANKS


def content_address(data: bytes) -> bytes:
    """Return a program's content address, a hash of all that determines its behaviour."""
    return hashlib.sha256(data[HASHED_FROM:]).digest()[:HASH_BYTES]


def sealed(data: bytes) -> bytes:
    """Return the program with its content address and CRC set."""
    return with_crc(data[:ADDRESS_OFFSET] + content_address(data) + data[HASHED_FROM:])


def runs_across_hosts(schedules: Iterable[StoredSchedule], content_hash: str) -> bool:
    """Return whether an executor runs one of these schedules on several nodes.

    Args:
        schedules: Schedules of a table or bundle, whose programs were checked.
        content_hash: Hash of the schedule.
    """
    programs = {schedule.content_hash: schedule.program for schedule in schedules}
    program = programs.get(content_hash, b"")
    return bool(program) and header_of(program).nodes > 1


def header_of(data: bytes) -> Header:
    """Return the header of a program whose seal is right."""
    return Header(*HEADER.unpack_from(data)[6:-1])


def check_seal(data: bytes) -> None:
    """Check that bytes are an unchanged program of this version.

    Raises:
        ValueError: They are not; the text says why.
    """
    if len(data) > MOST_BYTES:
        raise ValueError("it is larger than any program")
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise ValueError("it is not a program")
    _, version, crc, address, size, features = HEADER.unpack_from(data)[:6]
    if version != VERSION or features != 0:
        raise ValueError(
            f"it is of version {version} with features {features:#x}, "
            f"this release reads version {VERSION} without any"
        )
    if size != len(data) or crc != bundle_crc(data) or address != content_address(data):
        raise ValueError("its size, sum or content address is wrong")
