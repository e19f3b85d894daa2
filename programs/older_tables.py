"""Programs of the schedules that older tables hold as MSCCL XML alone.

This is the only way on which TuCCL reads the XML of a table; tables of this release bring their
programs with them.
"""

from __future__ import annotations

from programs.compiler import program_of
from synthesizer.errors import AlgorithmFileError
from synthesizer.formats.msccl_xml import read_msccl_xml


def program_of_xml(text: str) -> bytes:
    """The program of a schedule; empty where no executor can run it."""
    try:
        return program_of(read_msccl_xml(text, "a schedule of the table"))
    except AlgorithmFileError:
        return b""
