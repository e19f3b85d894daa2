"""Compiles the schedules of a table into the bundle's PROGRAMS section, and reads it back.

A program is what an executor runs: flat records, checked whole before any of them is used. The
section has one record for each schedule, in the order of SCHEDULES; a schedule that no executor can
run (for more ranks than it serves, of an operation it does not know) has a record without program,
and NCCL serves its calls. Format: docs/bundle-format.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from lookup_tables.errors import ScheduleTextError, TableFileError
from lookup_tables.programs import program_layout as layout
from lookup_tables.programs.program_bytes import program_bytes, read_program
from lookup_tables.programs.program_flow import run_program
from lookup_tables.programs.program_model import Program
from lookup_tables.programs.program_order import with_explicit_order
from lookup_tables.programs.program_xml import read_schedule_xml
from lookup_tables.table import StoredSchedule


def compile_program(msccl_xml: str) -> bytes:
    """The program of a schedule.

    Raises:
        ScheduleTextError: The text is no schedule that an executor can run; the message says why.
    """
    program = read_schedule_xml(msccl_xml)
    return program_bytes(with_explicit_order(program, run_program(program).order))


def programs_section(schedules: Iterable[StoredSchedule]) -> bytes:
    """PROGRAMS of these schedules; those that it has no room for are without."""
    programs = _with_room([_compiled(stored) for stored in schedules])
    offset = layout.SECTION_HEAD.size + len(programs) * layout.SECTION_RECORD.size
    records = []
    for data in programs:
        head = layout.HEADER.unpack_from(data) if data else (b"", 0, 0, bytes(8))
        records.append(layout.SECTION_RECORD.pack(offset, len(data), head[2], head[3]))
        offset += len(data)
    return b"".join([layout.SECTION_HEAD.pack(len(programs), 0), *records, *programs])


def _with_room(programs: Sequence[bytes]) -> list[bytes]:
    left = layout.MOST_SECTION_BYTES - layout.SECTION_HEAD.size
    left -= len(programs) * layout.SECTION_RECORD.size
    kept: list[bytes] = []
    for number, data in enumerate(programs):
        has_room = len(data) <= left and number - kept.count(b"") < layout.MOST_PROGRAMS
        kept.append(data if has_room else b"")
        left -= len(kept[-1])
    return kept


def _compiled(stored: StoredSchedule) -> bytes:
    try:
        return compile_program(stored.msccl_xml)
    except ScheduleTextError:
        return b""


def read_programs_section(data: bytes, source: str) -> tuple[Program | None, ...]:
    """Programs by schedule; None where a schedule has none.

    Raises:
        TableFileError: The section or one of its programs is damaged.
    """
    try:
        return tuple(_read_section(data, source))
    except (struct.error, ValueError) as error:
        raise TableFileError(
            f"{source}: section PROGRAMS contradicts itself ({error}); write the bundle again with "
            "`tuccl ship`"
        ) from error


def _read_section(data: bytes, source: str) -> list[Program | None]:
    count, zero = layout.SECTION_HEAD.unpack_from(data)
    if len(data) > layout.MOST_SECTION_BYTES:
        raise ValueError(f"{len(data)} bytes, {layout.MOST_SECTION_BYTES} are the most")
    end = layout.SECTION_HEAD.size + count * layout.SECTION_RECORD.size
    if zero != 0 or end > len(data):
        raise ValueError(f"{count} programs do not fit")
    programs: list[Program | None] = []
    for index in range(count):
        place = layout.SECTION_HEAD.size + index * layout.SECTION_RECORD.size
        offset, size, crc, address = layout.SECTION_RECORD.unpack_from(data, place)
        if offset != end or size > len(data) - offset:
            raise ValueError(f"program {index} lies elsewhere")
        if size == 0 and (crc, address) != (0, bytes(layout.HASH_BYTES)):
            raise ValueError(f"program {index} has an address and no bytes")
        end += size
        if size == 0:
            programs.append(None)
            continue
        piece = data[offset:end]
        programs.append(read_program(piece, f"{source}: program {index}"))
        if layout.HEADER.unpack_from(piece)[2:4] != (crc, address):
            raise ValueError(f"program {index} is another than its record says")
    if len(programs) - programs.count(None) > layout.MOST_PROGRAMS:
        raise ValueError(f"more than {layout.MOST_PROGRAMS} programs")
    if end != len(data):
        raise ValueError("there is something behind the last program")
    return programs
