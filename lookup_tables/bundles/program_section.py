"""Writer and reader of the bundle's PROGRAMS section.

The section has one record per schedule, in the order of SCHEDULES. A schedule that no executor can
run (too many ranks, an unknown operation) has a record without a program, and NCCL serves its
calls. Programs are bytes here; only their checksums are checked. Format:
docs/reference/bundle-format.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lookup_tables import program_header as header
from tuccl.errors import TableError


def programs_section(programs: Sequence[bytes]) -> bytes:
    """Return the PROGRAMS section; programs beyond its limits are left out.

    Args:
        programs: Programs by schedule, empty where a schedule has none.
    """
    kept = _within_limits(programs)
    offset = header.SECTION_HEAD.size + len(kept) * header.SECTION_RECORD.size
    records = []
    for data in kept:
        crc, address = header.HEADER.unpack_from(data)[2:4] if data else _NO_PROGRAM
        records.append(header.SECTION_RECORD.pack(offset, len(data), crc, address))
        offset += len(data)
    return b"".join([header.SECTION_HEAD.pack(len(kept), 0), *records, *kept])


_NO_PROGRAM = (0, bytes(header.HASH_BYTES))
"""CRC and content address in a record without a program."""


def _within_limits(programs: Sequence[bytes]) -> list[bytes]:
    left = header.MOST_SECTION_BYTES - header.SECTION_HEAD.size
    left -= len(programs) * header.SECTION_RECORD.size
    kept: list[bytes] = []
    for number, data in enumerate(programs):
        has_room = len(data) <= left and number - kept.count(b"") < header.MOST_PROGRAMS
        kept.append(data if has_room else b"")
        left -= len(kept[-1])
    return kept


def read_programs_section(data: bytes, source: str) -> tuple[bytes, ...]:
    """Return the programs by schedule, empty where a schedule has none.

    Raises:
        TableError: The section or one of its programs is damaged.
    """
    try:
        return tuple(_read_section(data))
    except (struct.error, ValueError) as error:
        raise TableError(
            f"{source}: section PROGRAMS contradicts itself ({error}); write the bundle again with "
            "`tuccl ship`"
        ) from error


def _read_section(data: bytes) -> list[bytes]:
    count, zero = header.SECTION_HEAD.unpack_from(data)
    if len(data) > header.MOST_SECTION_BYTES:
        raise ValueError(f"{len(data)} bytes, at most {header.MOST_SECTION_BYTES} are allowed")
    end = header.SECTION_HEAD.size + count * header.SECTION_RECORD.size
    if zero != 0 or end > len(data):
        raise ValueError(f"{count} programs do not fit")
    programs: list[bytes] = []
    for index in range(count):
        place = header.SECTION_HEAD.size + index * header.SECTION_RECORD.size
        offset, size, *sums = header.SECTION_RECORD.unpack_from(data, place)
        if offset != end or size > len(data) - offset:
            raise ValueError(f"program {index} is not at its offset")
        end += size
        programs.append(_checked(data[offset:end], tuple(sums), index))
    if len(programs) - programs.count(b"") > header.MOST_PROGRAMS:
        raise ValueError(f"more than {header.MOST_PROGRAMS} programs")
    if end != len(data):
        raise ValueError("data follows the last program")
    return programs


def _checked(program: bytes, sums: tuple[int, bytes], index: int) -> bytes:
    """Return a program after a check against its record."""
    if not program:
        if sums != _NO_PROGRAM:
            raise ValueError(f"program {index} has an address and no bytes")
        return program
    try:
        header.check_seal(program)
    except ValueError as error:
        raise ValueError(f"program {index} is damaged: {error}") from error
    if header.HEADER.unpack_from(program)[2:4] != sums:
        raise ValueError(f"program {index} differs from its record")
    return program
