import contextlib
import dataclasses
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundles.bundle import read_bundle
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.errors import ScheduleTextError, TableFileError
from lookup_tables.programs import program_layout as layout
from lookup_tables.programs.program import compile_program, programs_section, read_programs_section
from lookup_tables.programs.program_bytes import program_crc, read_program
from lookup_tables.programs.program_flow import run_program
from lookup_tables.programs.program_layout import BufferCode, Pattern, StepCode
from lookup_tables.programs.program_model import Place, ProgramStep
from lookup_tables.programs.program_order import with_explicit_order
from lookup_tables.table import Operation, StoredSchedule
from tests.lookup_tables.schedules import ALONE, chain, exchange, halves, msccl_xml
from tests.lookup_tables.tables import make_table

GOLDEN = Path(__file__).parents[1] / "golden" / "exchange.program.hex"
STORED = (
    StoredSchedule("aa", "exchange", exchange()),
    StoredSchedule("bb", "of another kind", "<algo/>"),
    StoredSchedule("cc", "chain", chain()),
)


def header(data: bytes) -> tuple[int, ...]:
    return layout.HEADER.unpack_from(data)


def resealed(data: bytes) -> bytes:
    return data[:12] + struct.pack("<I", program_crc(data)) + data[16:]


def test_the_bytes_of_a_program_are_fixed() -> None:
    """Deployed executors read them: other bytes need another version."""
    wanted = bytes.fromhex(GOLDEN.read_text())
    assert compile_program(exchange()) == wanted
    assert len(wanted) == 72 + 2 * 16 + 4 * 24 + 8 * 24


def test_a_program_reads_back() -> None:
    program = read_program(compile_program(exchange()), "p")
    assert program.operation is Operation.ALL_REDUCE
    assert (program.chunks_per_loop, program.in_place, len(program.ranks)) == (1, True, 2)
    talking, adding = program.ranks[1].blocks
    assert (talking.send_peer, talking.receive_peer, talking.channel) == (0, 0, 0)
    assert [step.code.name for step in talking.steps] == ["S", "R", "CPY"]
    scratch, output = Place(BufferCode.SCRATCH, 0), Place(BufferCode.OUTPUT, 0)
    assert adding.steps == (ProgramStep(StepCode.RE, scratch, output, 1, (0, 2)),)


def test_the_address_is_of_what_it_does() -> None:
    one, other = compile_program(exchange("one")), compile_program(exchange("other"))
    assert one == other
    assert header(one)[3] != header(compile_program(halves()))[3]


def test_only_awaited_and_completing_steps_are_marked() -> None:
    data = compile_program(exchange())
    at_steps = 72 + 2 * 16 + 4 * 24
    flags = [raw[3] for raw in layout.STEP.iter_unpack(data[at_steps:])]
    assert flags == [0, 0, layout.HAS_DEPENDENT, layout.COMPLETES] * 2


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (exchange(), Pattern.ONE_PHASE),
        (halves(), Pattern.TWO_PHASE),
        (halves().replace("by_hand", "one_phase"), Pattern.TWO_PHASE),
        (chain(), Pattern.NONE),
    ],
)
def test_patterns_are_known_by_their_data_flow(text: str, pattern: Pattern) -> None:
    assert header(compile_program(text))[7] == pattern


def with_steps(operation: str, *steps: tuple[str, str, int, str, int, int, tuple[int, int]]) -> str:
    return msccl_xml(operation, 2, [[(1 - rank, 1 - rank, steps)] for rank in range(2)], scratch=1)


S, R = ("s", "i", 0, "o", 0, 1, ALONE), ("r", "o", 0, "o", 0, 1, ALONE)
REFUSED = {
    "<nothing/>": "root element",
    "<algo": "not well-formed",
    "<!DOCTYPE algo><algo/>": "DOCTYPE",
    exchange().replace("allreduce", "custom"): "no operation",
    exchange().replace('outofplace="1"', 'outofplace="0"'): "in place only",
    exchange().replace('ngpus="2"', 'ngpus="3"'): "2 <gpu> elements",
    exchange().replace('cnt="1"', 'cnt="x"', 1): "not a whole number",
    exchange().replace('type="cpy"', 'type="mul"', 1): "unknown",
    exchange().replace('type="re"', 'type="cpy"'): "does not get chunk 0",
    exchange().replace('deps="2"', 'deps="3"'): "waits for step 3",
    exchange().replace('recv="0"', 'recv="1"'): "has a peer 1",
    exchange().replace('s_chunks="1"', 's_chunks="0"'): "scratch buffer, which has 0",
    exchange().replace('chan="0"', 'chan="7"', 1): "senders and",
    with_steps("allreduce", R, S): "waits for ever",
    with_steps("allreduce", S, S, R): "nobody receives",
    with_steps("allreduce", ("cpy", "s", 0, "o", 0, 1, ALONE)): "nobody has written",
    with_steps("allreduce", ("cpy", "i", 1, "o", 0, 1, ALONE)): "in the place of chunk 0",
    with_steps("allreduce", ("cpy", "i", 0, "i", 0, 1, ALONE)): "caller's input",
    with_steps("allreduce", ("cpy", "i", 1, "s", 0, 2, ALONE)): "input buffer, which has 2",
    with_steps("allreduce", ("re", "i", 0, "o", 0, 1, ALONE)): "nobody has written",
    with_steps("allreduce", S, ("rrc", "i", 1, "o", 1, 1, ALONE)): "does not belong together",
    with_steps("allreduce", S, ("r", "o", 0, "o", 0, 2, ALONE)): "receives 1 chunks",
    with_steps("allgather", S, ("rrc", "i", 0, "o", 0, 1, ALONE)): "all_gather does not",
    with_steps("broadcast", S, R): "input buffer, which has 0",
    msccl_xml("allgather", 3, [[], []]): "3 chunks",
    msccl_xml("allreduce", 1, [[] for _ in range(9)]): "9 ranks",
    msccl_xml("allreduce", 1, [[(-1, -1, [])] * 81, []]): "81 threadblocks",
}


@pytest.mark.parametrize("text", REFUSED, ids=REFUSED.values())
def test_what_no_executor_can_run_is_refused(text: str) -> None:
    with pytest.raises(ScheduleTextError, match=re.escape(REFUSED[text])):
        compile_program(text)


def test_a_connection_too_shallow_blocks() -> None:
    def schedule(ahead: int) -> str:
        sends = [("s", "i", c, "o", c, 1, ALONE) for c in range(ahead)]
        takes = [("rrc", "i", c, "o", c, 1, ALONE) for c in range(ahead)]
        return msccl_xml("allreduce", ahead, [[(1 - r, 1 - r, sends + takes)] for r in range(2)])

    assert compile_program(schedule(layout.SLOTS))
    with pytest.raises(ScheduleTextError, match="waits for ever"):
        compile_program(schedule(layout.SLOTS + 1))


def test_unused_places_of_steps_do_not_matter() -> None:
    text = exchange()
    other = re.sub(r'(type="r" srcbuf="s") srcoff="0"', r'\1 srcoff="-1"', text)
    assert other != text
    assert compile_program(other) == compile_program(text)


def test_bundles_carry_programs() -> None:
    bundle = read_bundle(bundle_bytes(make_table([], schedules=STORED)), "b")
    assert [program is not None for program in bundle.programs] == [True, False, True]
    assert bundle.programs[2] == read_program(compile_program(chain()), "p")


def test_what_a_section_has_no_room_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = programs_section(STORED)

    def programs() -> list[bool]:
        read = read_programs_section(programs_section(STORED), "b")
        return [program is not None for program in read]

    for limit, enough in (("MOST_PROGRAMS", 2), ("MOST_SECTION_BYTES", len(whole))):
        with monkeypatch.context() as limited:
            limited.setattr(layout, limit, enough)
            assert programs() == [True, False, True]
            limited.setattr(layout, limit, enough - 1)
            assert programs() == [True, False, False]
            with pytest.raises(TableFileError, match="section PROGRAMS contradicts itself"):
                read_programs_section(whole, "b")


def test_a_bundle_from_before_programs_is_read() -> None:
    data = bytearray(bundle_bytes(make_table([], schedules=STORED)))
    kind = data.index(struct.pack("<II", 8, 0), 32)
    data[kind : kind + 4] = struct.pack("<I", 99)  # As an old reader sees it: unknown, optional.
    data[12:16] = struct.pack("<I", bundle_crc(bytes(data)))
    assert read_bundle(bytes(data), "b").programs == (None, None, None)


@given(st.data())
def test_a_wrong_program_never_escapes_as_another_error(data: st.DataObject) -> None:
    bad = bytearray(compile_program(data.draw(st.sampled_from([exchange(), halves(), chain()]))))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(bad) - 1))
        bad[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TableFileError):
        program = read_program(resealed(bytes(bad)), "p")
        assert dataclasses.asdict(program)


def test_every_flipped_byte_of_a_section_is_found() -> None:
    good = programs_section(STORED)
    assert len(read_programs_section(good, "b")) == 3
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        with pytest.raises(TableFileError, match="write the bundle again"):
            read_programs_section(bytes(bad), "b")
    for size in range(len(good)):
        with pytest.raises(TableFileError, match="contradicts itself"):
            read_programs_section(good[:size], "b")


def by_messages_alone() -> str:
    """all_reduce of two ranks; rank 0 reads in its second threadblock what the first wrote before
    it sent the message that rank 1 answers."""
    zero = [
        (1, 1, [("rrcs", "i", 0, "o", 0, 1, ALONE)]),
        (1, 1, [("r", "s", 0, "s", 0, 1, ALONE), ("s", "o", 0, "s", 0, 1, ALONE)]),
    ]
    one = [
        (0, 0, [("s", "i", 0, "o", 0, 1, ALONE), ("r", "o", 0, "o", 0, 1, ALONE)]),
        (0, 0, [("s", "o", 0, "s", 0, 1, (0, 1)), ("r", "s", 0, "s", 0, 1, ALONE)]),
    ]
    text = msccl_xml("allreduce", 1, [zero, one], scratch=1)
    return re.sub(r'(<tb id="1" [^>]*chan=")0', r"\g<1>1", text)


def test_order_by_messages_becomes_explicit() -> None:
    program = read_program(compile_program(by_messages_alone()), "p")
    answered = program.ranks[0].blocks[1].steps
    # The first step takes the answer, the second reads what was written before.
    assert [(step.code.name, step.depends) for step in answered] == [("R", None), ("S", (0, 0))]
    assert [step.depends for step in program.ranks[1].blocks[0].steps] == [None, None]
    order = run_program(program).order
    assert with_explicit_order(program, order) == program


def test_a_step_that_waits_already_gets_a_nop_before_it() -> None:
    waits = by_messages_alone().replace(
        '<step s="1" type="s" srcbuf="o" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1"'
        ' deps="-1"',
        '<step s="1" type="s" srcbuf="o" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="2"'
        ' deps="0"',
    )
    text = waits.replace(
        '</tb>\n</gpu>\n<gpu id="1"',
        '</tb>\n<tb id="2" send="-1" recv="-1" chan="0">\n<step s="0" type="nop" srcbuf="i"'
        ' srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="-1" deps="-1" hasdep="1"/>\n</tb>\n'
        '</gpu>\n<gpu id="1"',
    )
    program = read_program(compile_program(text), "p")
    steps = program.ranks[0].blocks[1].steps
    assert [(s.code.name, s.depends) for s in steps] == [
        ("R", None),
        ("NOP", (2, 0)),
        ("S", (0, 0)),
    ]
