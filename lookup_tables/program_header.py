"""A program as a table carries it: a header that says what it is, sums, and limits of size.

What stands behind the header, and whether it computes anything, is not a table's to know:
`programs.layout` describes the rest, `programs.compiler` writes it, and the C loader
(`tuccl/runtime/program.c`) checks all of it before an executor uses any. The records of both pages
are in `tuccl/runtime/program_layout.h` for C, and in docs/reference/bundle-format.md for people.
All integers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
import zlib

from lookup_tables.table import Shape

MAGIC = b"TUCCLPRG"
VERSION = 1

HEADER = struct.Struct("<8sII8sIIBBBBIIIIIIHHII")
"""magic, version, crc32, content address, bytes, features; operation, pattern, flags, root; ranks,
chunks per loop, threadblocks, steps; largest of any rank: threadblocks, connections; chunks of the
largest message, steps of the longest threadblock; most scratch chunks of any rank, zero."""
CRC_OFFSET = 12
CRC_BYTES = 4
ADDRESS_OFFSET = 16
HASH_BYTES = 8
HASHED_FROM = 24
"""The content address covers everything from here on."""

MOST_RANKS = 8
"""Most ranks that an executor serves; schedules for more ranks have no program."""
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


def executor_serves(shape: Shape) -> bool:
    """Whether an executor runs schedules on communicators of this shape."""
    return shape.nodes == 1 and 2 <= shape.ranks <= MOST_RANKS


def program_crc(data: bytes) -> int:
    """CRC-32 (zlib's polynomial) over all of a program but its CRC field."""
    head = zlib.crc32(data[:CRC_OFFSET])
    return zlib.crc32(data[CRC_OFFSET + CRC_BYTES :], head)


def content_address(data: bytes) -> bytes:
    """Content address of a program: equal exactly where what it does is equal."""
    return hashlib.sha256(data[HASHED_FROM:]).digest()[:HASH_BYTES]


def sealed(data: bytes) -> bytes:
    """The same program with its content address and sum."""
    data = data[:ADDRESS_OFFSET] + content_address(data) + data[HASHED_FROM:]
    crc = struct.pack("<I", program_crc(data))
    return data[:CRC_OFFSET] + crc + data[CRC_OFFSET + CRC_BYTES :]


def check_seal(data: bytes) -> None:
    """See that some bytes are a program, of a version that is known, as it left its compiler.

    Raises:
        ValueError: They are not; it says why.
    """
    if len(data) > MOST_BYTES:
        raise ValueError("it is larger than any program")
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise ValueError("it is no program")
    _, version, crc, address, size, features = HEADER.unpack_from(data)[:6]
    if version != VERSION or features != 0:
        raise ValueError(
            f"it is of version {version} with features {features:#x}, "
            f"this release reads {VERSION} without any"
        )
    if size != len(data) or crc != program_crc(data) or address != content_address(data):
        raise ValueError("its size, sum or content address is wrong")
