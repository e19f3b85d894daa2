"""Compiler from staged schedules to bytes, and their reader.

A schedule is compiled only after the verifier has proved it, and whatever is read is proved again.
The C loader (`tuccl/runtime/staged.c`) checks the rules of the form.
"""

from __future__ import annotations

import struct

from lookup_tables import program_header
from synthesizer.programs.staged.completion import completion_of
from synthesizer.programs.staged.staged_layout import packed_staged, unpacked_staged
from synthesizer.programs.staged.staged_proof import prove_staged
from synthesizer.programs.staged.staged_schedule import StagedSchedule
from tuccl.errors import NoProgramError, TableError


def compile_staged(staged: StagedSchedule) -> bytes:
    """Return the staged program of a schedule.

    Raises:
        NoProgramError: It breaks a rule of the form, or is too large.
        NoProgramError: It does not compute its operation.
        NoProgramError: A stage exceeds the limits of schedules.
    """
    prove_staged(staged)
    return packed_staged(staged, completion_of(staged))


def read_staged(data: bytes, source: str) -> StagedSchedule:
    """Return the schedule of a staged program.

    Raises:
        TableError: The program is damaged, of another version, or wrong.
    """
    try:
        program_header.check_seal(data)
        if not program_header.is_staged(data):
            raise ValueError("it has no stages")
        staged = unpacked_staged(data)
        if compile_staged(staged) != data:
            raise ValueError("its bytes differ from those of its stages")
    except (struct.error, ValueError, IndexError, NoProgramError) as error:
        raise TableError(
            f"{source}: the program is damaged ({error}); write the bundle again with `tuccl ship`"
        ) from error
    return staged
