import struct

import pytest

from lookup_tables import program_header as header
from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.bundles.program_section import programs_section, read_programs_section
from lookup_tables.table import StoredSchedule
from tests.lookup_tables.tables import PROGRAM, make_table
from tuccl.errors import TableError

PROGRAMS = (PROGRAM, b"", PROGRAM)
STORED = tuple(
    StoredSchedule(content_hash, "by hand", "<algo/>", program)
    for content_hash, program in zip(("aa", "bb", "cc"), PROGRAMS, strict=True)
)


def test_bundles_carry_programs_byte_for_byte() -> None:
    bundle = read_bundle(bundle_bytes(make_table([], schedules=STORED)), "b")
    assert bundle.schedules == STORED


def test_what_a_section_has_no_room_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = programs_section(PROGRAMS)
    for limit, enough in (("MOST_PROGRAMS", 2), ("MOST_SECTION_BYTES", len(whole))):
        with monkeypatch.context() as limited:
            limited.setattr(header, limit, enough)
            assert read_programs_section(programs_section(PROGRAMS), "b") == PROGRAMS
            limited.setattr(header, limit, enough - 1)
            kept = read_programs_section(programs_section(PROGRAMS), "b")
            assert kept == (PROGRAM, b"", b"")
            with pytest.raises(TableError, match="section PROGRAMS contradicts itself"):
                read_programs_section(whole, "b")


def test_every_flipped_byte_of_a_section_is_found() -> None:
    good = programs_section(PROGRAMS)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        with pytest.raises(TableError, match="write the bundle again"):
            read_programs_section(bytes(bad), "b")
    for size in range(len(good)):
        with pytest.raises(TableError, match="contradicts itself"):
            read_programs_section(good[:size], "b")


def of_version(number: int, data: bytes) -> bytes:
    return data[:8] + struct.pack("<I", number) + data[12:]


BROKEN = {
    "not a program": b"<algo/>",
    "larger than any program": bytes(header.MOST_BYTES + 8),
    "of version 4 with features 0x0, this release reads version 1": header.sealed(
        of_version(4, PROGRAM)
    ),
    "features 0x4": header.sealed(PROGRAM[:28] + struct.pack("<I", 4) + PROGRAM[32:]),
    "size, sum or content address": PROGRAM[:-8],
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_table_with_a_broken_program_is_none(why: str) -> None:
    stored = StoredSchedule("aa", "by hand", "", BROKEN[why])
    with pytest.raises(TableError, match=f"the program of schedule aa is damaged: .*{why}"):
        bundle_bytes(make_table([], schedules=(stored,)))
