"""The check of programs of all versions: steps of one node, phases, and stages with rounds."""

from __future__ import annotations

from collections.abc import Iterable

from lookup_tables.program_header import is_phased, is_staged
from lookup_tables.table import StoredSchedule
from synthesizer.programs.phase_compiler import read_phases
from synthesizer.programs.reader import read_program
from synthesizer.programs.staged.staged_compiler import read_staged


def check_programs(schedules: Iterable[StoredSchedule], source: str) -> None:
    """Check that every program of a table or bundle computes its operation.

    Raises:
        TableError: A program is damaged, or does not compute its operation.
    """
    for schedule in schedules:
        if not schedule.program:
            continue
        name = f"{source}: schedule {schedule.content_hash}"
        if is_phased(schedule.program):
            read_phases(schedule.program, name)
        elif is_staged(schedule.program):
            read_staged(schedule.program, name)
        else:
            read_program(schedule.program, name)
