"""Programs of schedules that older tables hold only as MSCCL XML.

Nothing else reads the XML of a table; tables of this release contain programs.
"""

from __future__ import annotations

from synthesizer.formats.msccl_xml import read_msccl_xml
from synthesizer.programs.compiler import program_of
from tuccl.errors import FormatError


def program_of_xml(text: str) -> bytes:
    """Return the program of a schedule; empty if no executor can run it."""
    try:
        return program_of(read_msccl_xml(text, "a schedule of the table"))
    except FormatError:
        return b""
