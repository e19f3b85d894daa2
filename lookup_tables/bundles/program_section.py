"""Programs as the bundle carries them: its PROGRAMS section, written and read back.

The section has one record for each schedule, in the order of SCHEDULES; a schedule that no executor
can run (for more ranks than it serves, of an operation it does not know) has a record without
program, and NCCL serves its calls. A program is bytes here, whose sums are looked at. Format:
docs/bundle-format.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lookup_tables import program_header as header
from lookup_tables.errors import TableFileError


def programs_section(programs: Sequence[bytes]) -> bytes:
    """PROGRAMS of these; those that it has no room for are left out.

    Args:
        programs: By schedule, empty where a schedule has none.
    """
    kept = _with_room(programs)
    offset = header.SECTION_HEAD.size + len(kept) * header.SECTION_RECORD.size
    records = []
    for data in kept:
        crc, address = header.HEADER.unpack_from(data)[2:4] if data else _NO_PROGRAM
        records.append(header.SECTION_RECORD.pack(offset, len(data), crc, address))
        offset += len(data)
    return b"".join([header.SECTION_HEAD.pack(len(kept), 0), *records, *kept])


_NO_PROGRAM = (0, bytes(header.HASH_BYTES))
"""Sum and content address in a record without program."""


def _with_room(programs: Sequence[bytes]) -> list[bytes]:
    left = header.MOST_SECTION_BYTES - header.SECTION_HEAD.size
    left -= len(programs) * header.SECTION_RECORD.size
    kept: list[bytes] = []
    for number, data in enumerate(programs):
        has_room = len(data) <= left and number - kept.count(b"") < header.MOST_PROGRAMS
        kept.append(data if has_room else b"")
        left -= len(kept[-1])
    return kept


def read_programs_section(data: bytes, source: str) -> tuple[bytes, ...]:
    """Programs by schedule, empty where a schedule has none.

    Raises:
        TableFileError: The section or one of its programs is damaged.
    """
    try:
        return tuple(_read_section(data))
    except (struct.error, ValueError) as error:
        raise TableFileError(
            f"{source}: section PROGRAMS contradicts itself ({error}); write the bundle again with "
            "`tuccl ship`"
        ) from error


def _read_section(data: bytes) -> list[bytes]:
    count, zero = header.SECTION_HEAD.unpack_from(data)
    if len(data) > header.MOST_SECTION_BYTES:
        raise ValueError(f"{len(data)} bytes, {header.MOST_SECTION_BYTES} are the most")
    end = header.SECTION_HEAD.size + count * header.SECTION_RECORD.size
    if zero != 0 or end > len(data):
        raise ValueError(f"{count} programs do not fit")
    programs: list[bytes] = []
    for index in range(count):
        place = header.SECTION_HEAD.size + index * header.SECTION_RECORD.size
        offset, size, *sums = header.SECTION_RECORD.unpack_from(data, place)
        if offset != end or size > len(data) - offset:
            raise ValueError(f"program {index} lies elsewhere")
        end += size
        programs.append(_checked(data[offset:end], tuple(sums), index))
    if len(programs) - programs.count(b"") > header.MOST_PROGRAMS:
        raise ValueError(f"more than {header.MOST_PROGRAMS} programs")
    if end != len(data):
        raise ValueError("there is something behind the last program")
    return programs


def _checked(program: bytes, sums: tuple[int, bytes], index: int) -> bytes:
    """A program that is what its record says."""
    if not program:
        if sums != _NO_PROGRAM:
            raise ValueError(f"program {index} has an address and no bytes")
        return program
    try:
        header.check_seal(program)
    except ValueError as error:
        raise ValueError(f"program {index} is damaged: {error}") from error
    if header.HEADER.unpack_from(program)[2:4] != sums:
        raise ValueError(f"program {index} is another than its record says")
    return program
