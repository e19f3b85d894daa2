"""Compiler from schedules to the bytes that an executor runs, and their reader.

There is no intermediate format between the synthesizer and the kernel's loader: tables and bundles
carry these bytes, and `tuccl/runtime/program.c` checks them. A schedule is compiled only after a
symbolic run has shown that it computes its operation. The reader makes a schedule of the bytes
again and compiles it once more: bytes that differ from the result are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from lookup_tables import program_header
from lookup_tables.table import StoredSchedule
from synthesizer.ir.algorithm import Algorithm
from synthesizer.programs import layout, phase_records, step_records
from synthesizer.programs.flow import run_on_symbols
from synthesizer.programs.layout import PhaseKind
from synthesizer.programs.order import with_explicit_order
from synthesizer.programs.phases import PhasedSchedule
from synthesizer.programs.proof import prove
from tuccl.errors import NoProgramError, TableError


def compile_program(schedule: Algorithm | PhasedSchedule) -> bytes:
    """Return the program of a schedule: steps of the ranks of one node, or phases across hosts.

    Raises:
        NoProgramError: No executor can run the schedule; the message says why.
    """
    if isinstance(schedule, PhasedSchedule):
        return phase_records.records_of(schedule, prove(schedule)).packed()
    flow = run_on_symbols(schedule)
    ordered = with_explicit_order(schedule, flow.order)
    if ordered is not schedule:
        return packed(ordered)
    return step_records.records_of(schedule, flow).packed()


def program_of(algorithm: Algorithm) -> bytes:
    """Return the program of a schedule; empty if no executor can run it."""
    try:
        return compile_program(algorithm)
    except NoProgramError:
        return b""


def packed(algorithm: Algorithm) -> bytes:
    """Return the program of exactly these steps, without added dependences.

    Raises:
        NoProgramError: As in `compile_program`.
    """
    return step_records.records_of(algorithm, run_on_symbols(algorithm)).packed()


def program_hash(phased: PhasedSchedule) -> str:
    """Return 16 hex digits that identify what a phased schedule does, whatever its name.

    Schedules that differ in the configuration of their rails alone have one data flow, and so the
    same content hash as MSCCL-IR.

    Raises:
        NoProgramError: As in `compile_program`.
    """
    return program_header.content_address(compile_program(phased)).hex()


def read_program(data: bytes, source: str) -> Algorithm | PhasedSchedule:
    """Return the schedule of a program, which has no name, protocol or sizes.

    Raises:
        TableError: The program is damaged, of another version, or inconsistent.
    """
    try:
        program_header.check_seal(data)
        records = layout.unpacked(data)
        schedule: Algorithm | PhasedSchedule
        if records.phases[0].kind == PhaseKind.STEPS:
            schedule = step_records.algorithm_of(records)
            again = packed(schedule)
        else:
            schedule = phase_records.schedule_of(records)
            again = compile_program(schedule)
        if again != data:
            raise ValueError("its bytes differ from those of its schedule")
    except (struct.error, ValueError, IndexError, NoProgramError) as error:
        raise TableError(
            f"{source}: the program is damaged ({error}); write the bundle again with `tuccl ship`"
        ) from error
    return schedule


def check_programs(schedules: Iterable[StoredSchedule], source: str) -> None:
    """Check that every program of a table or bundle computes its operation.

    Raises:
        TableError: A program is damaged, or does not compute its operation.
    """
    for schedule in schedules:
        if schedule.program:
            read_program(schedule.program, f"{source}: schedule {schedule.content_hash}")
