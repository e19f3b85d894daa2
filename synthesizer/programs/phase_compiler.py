"""Compiler from phased schedules to the bytes that an executor runs, and their reader.

As with programs, there is no form in between: tables and bundles carry these bytes, and
`tuccl/runtime/phased.c` checks them. A schedule is compiled only after a symbolic run has shown
that it computes its operation.
"""

from __future__ import annotations

import struct

from lookup_tables import program_header
from synthesizer.programs.phase_layout import packed_phases, unpacked_phases
from synthesizer.programs.phase_proof import prove
from synthesizer.programs.phases import PhasedSchedule
from tuccl.errors import NoProgramError, TableError


def compile_phases(phased: PhasedSchedule) -> bytes:
    """Return the phased program of a schedule.

    Raises:
        NoProgramError: It breaks a rule of the form, or is too large.
        NoProgramError: It does not compute its operation.
    """
    return packed_phases(phased, in_place=prove(phased))


def phased_hash(phased: PhasedSchedule) -> str:
    """Return 16 hex digits that identify what a phased schedule does, whatever its name.

    Schedules that differ in the configuration of their rails alone have one data flow, and so the
    same content hash as MSCCL-IR.

    Raises:
        NoProgramError: As in `compile_phases`.
        NoProgramError: As in `compile_phases`.
    """
    address: bytes = program_header.HEADER.unpack_from(compile_phases(phased))[3]
    return address.hex()


def read_phases(data: bytes, source: str) -> PhasedSchedule:
    """Return the schedule of a phased program, which has no name.

    Raises:
        TableError: The program is damaged, of another version, or wrong.
    """
    try:
        program_header.check_seal(data)
        if not program_header.is_phased(data):
            raise ValueError("it has no phases")
        phased = unpacked_phases(data)
        if compile_phases(phased) != data:
            raise ValueError("its bytes differ from those of its phases")
    except (struct.error, ValueError, IndexError, NoProgramError) as error:
        raise TableError(
            f"{source}: the program is damaged ({error}); write the bundle again with `tuccl ship`"
        ) from error
    return phased
