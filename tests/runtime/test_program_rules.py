"""The loader of programs, compiled: what it accepts, what it refuses, and that it reads as Python.

Mutated programs with a right sum run under sanitizers; the fuzzer itself looks again at every one
that is accepted.
"""

import ctypes
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables import program_header
from lookup_tables.bundles.program_section import programs_section
from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import HEADER, sealed
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Buffer, StepType
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs import layout
from synthesizer.programs.compiler import compile_program, read_program
from synthesizer.programs.cutting import cut
from synthesizer.programs.form import check_form
from synthesizer.programs.layout import (
    ADDS,
    AVERAGES,
    COMPLETES,
    PHASE,
    RANK,
    RUNS_IN_PLACE,
    STATEMENT,
    THREADBLOCK,
    PhaseKind,
    unpacked,
)
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phases import PhasedSchedule, in_turn
from synthesizer.programs.proof import Proof
from synthesizer.programs.records import records_of, schedule_of
from tests.runtime.builds import (
    EXECUTOR,
    LOADER,
    MEMORY,
    NATIVE,
    RUNTIME,
    compile_native,
    fuzz,
    needs_sanitizer,
)
from tests.runtime.raw_programs import RawStep, raw_program
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.programs.phased_schedules import (
    IN_PLACE,
    all_plans,
    over_gateways,
)
from tests.synthesizer.programs.schedules import chain, exchange, halves
from tuccl.errors import NoProgramError, TableError

pytestmark = pytest.mark.long

GOLDEN = Path(__file__).parents[1] / "lookup_tables" / "golden" / "exchange.program.hex"
PLAN = plan_by_name(Collective.REDUCE_SCATTER, "exchange", 2, 4)
RING = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 2)
STEERED = plan_by_name(Collective.REDUCE_SCATTER, "rails_last", 2, 4).with_rails(RING)
IN_ROUNDS = over_gateways(Collective.ALL_REDUCE)
FORMS = {
    "steps": compile_program(exchange()),
    "uniform": compile_program(PLAN),
    "rounds": compile_program(IN_ROUNDS),
}
Check = Callable[[bytes], str]
Defect = tuple[str, Callable[[bytearray], None]]


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("loader") / "libloader.so"
    library = ctypes.CDLL(str(compile_native(file, LOADER, "-shared")))
    for name in ("tuccl_program_check", "tuccl_programs_check", "tuccl_programs_at"):
        getattr(library, name).restype = ctypes.c_bool
    return library


def words_of(data: bytes) -> "ctypes.Array[ctypes.c_uint64]":
    """Copy a program to a multiple of 8."""
    padded = data.ljust(len(data) // 8 * 8 + 8, b"\0")
    return (ctypes.c_uint64 * (len(padded) // 8)).from_buffer_copy(padded)


@pytest.fixture(scope="module")
def check(loader: ctypes.CDLL) -> Check:
    """Return the loader's error for a program; empty when it is sound."""

    def say(data: bytes) -> str:
        program, why = (ctypes.c_void_p * 6)(), ctypes.create_string_buffer(128)
        arguments = (ctypes.c_size_t(len(data)), program, why, ctypes.c_size_t(128))
        sound = loader.tuccl_program_check(words_of(data), *arguments)
        return "" if sound else why.value.decode()

    return say


@pytest.fixture(scope="module")
def check_section(loader: ctypes.CDLL) -> Check:
    """Return the loader's error for a bundle's section of programs."""

    def say(data: bytes) -> str:
        why = ctypes.create_string_buffer(128)
        arguments = (ctypes.c_size_t(len(data)), why, ctypes.c_size_t(128))
        sound = loader.tuccl_programs_check(words_of(data), *arguments)
        return "" if sound else why.value.decode()

    return say


def put(at: int, form: str, *values: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(form, data, at, *values)


RANKS = HEADER.size
ANY: dict[str, Defect] = {
    "another magic": ("no program", put(0, "B", 0)),
    "version 2": ("newer release", put(8, "<I", 2)),
    "a feature": ("newer release", put(28, "<I", 1)),
    "another size": ("damaged", put(24, "<I", 8)),
    "operation 6": ("header", put(32, "B", 6)),
    "flag 8": ("header", put(33, "B", 8 | 5)),
    "a root": ("header", put(34, "<H", 1)),
    "ranks that wrap": ("header", put(36, "<I", 1 << 31)),
    "no nodes": ("header", put(40, "<I", 0)),
    "too many nodes": ("header", put(36, "<II", 4097, 4097)),
    "no chunks": ("header", put(44, "<I", 0)),
    "too many chunks": ("header", put(44, "<I", 65537)),
    "no phases": ("header", put(48, "<I", 0)),
    "more phases": ("header", put(48, "<I", 99)),
    "phases whose size wraps": ("header", put(48, "<I", 3 + (1 << 27))),
    "no lanes": ("header", put(52, "<I", 0)),
    "nine lanes": ("header", put(52, "<I", 9)),
    "more threadblocks": ("header", put(56, "<I", 99)),
    "more steps": ("header", put(60, "<I", 99)),
    "more statements": ("header", put(64, "<I", 99)),
    "statements whose size wraps": ("header", put(64, "<I", 1 << 31)),
    "other scratch memory": ("ranks", put(68, "<I", 9)),
    "a zero": ("header", put(84, "<I", 1)),
    "another node": ("ranks", put(RANKS, "<I", 1)),
    "too much scratch memory": ("ranks", put(RANKS + 4, "<I", 65537)),
    "kind 6": ("", put(0, "B", 0)),
}
ANY["kind 6"] = ("", lambda data: put(RANKS + rank_bytes(data), "B", 6)(data))


def rank_bytes(data: bytes | bytearray) -> int:
    return len(unpacked(bytes(data)).rank_records) * RANK.size


PHASES = RANKS + 2 * RANK.size
BLOCKS = PHASES + PHASE.size
STEPS = BLOCKS + 4 * THREADBLOCK.size
OF_STEPS: dict[str, Defect] = {
    "two nodes": ("", put(40, "<I", 2)),
    "two lanes": ("header", put(52, "<I", 2)),
    "thirty-three ranks": ("header", put(36, "<I", 33)),
    "most threadblocks": ("threadblocks", put(72, "<I", 3)),
    "most connections": ("threadblocks", put(76, "<I", 0)),
    "longest threadblock": ("threadblocks", put(82, "<H", 2)),
    "pattern 4": ("phases", put(PHASES + 28, "B", 4)),
    "a field that steps have not": ("phases", put(PHASES + 4, "<I", 1)),
    "rank's first threadblock": ("threadblocks", put(RANKS + 16 + 8, "<I", 1)),
    "peer 2": ("threadblocks", put(BLOCKS, "<h", 2)),
    "itself as a peer": ("threadblocks", put(BLOCKS + 2, "<h", 0)),
    "first step": ("threadblocks", put(BLOCKS + 24 + 12, "<I", 0)),
    "a connection's number": ("connections", put(BLOCKS + 8, "<H", 1)),
    "an arriving connection's number": ("connections", put(BLOCKS + 10, "<H", 1)),
    "two ends on different channels": ("connections", put(BLOCKS + 4, "<H", 1)),
    "step type 9": ("steps", put(STEPS, "B", 9)),
    "buffer 3": ("steps", put(STEPS + 1, "B", 3)),
    "a source behind the end": ("steps", put(STEPS + 4, "<I", 1)),
    "a source whose end wraps": ("steps", put(STEPS + 4, "<I", 2**32 - 1)),
    "a destination behind the end": ("steps", put(STEPS + 24 + 8, "<I", 1)),
    "count 0": ("steps", put(STEPS + 12, "<I", 0)),
    "a larger message than the header says": ("steps", put(80, "<H", 2)),
    "writing to the input": ("steps", put(STEPS + 24 + 2, "B", 0)),
    "waiting for threadblock 2": ("steps", put(STEPS + 16, "<i", 2)),
    "waiting for itself": ("steps", put(STEPS + 16, "<i", 0)),
    "waiting for a step without mark": ("steps", put(STEPS + 16, "<iI", 1, 0)),
    "sending without peer": ("steps", put(STEPS + 3 * 24, "B", 0)),
}
CALLS = RANKS + RANK.size
SUM = CALLS + 2 * PHASE.size
OF_CALLS: dict[str, Defect] = {
    "operation 1": ("header", put(32, "B", 1)),
    "averages of alltoall": ("header", put(32, "BB", 5, 7)),
    "no uniform ranks": ("header", put(33, "B", 3)),
    "nine ranks": ("ranks", put(36, "<I", 9)),
    "nodes of 33 ranks": ("header", put(36, "<II", 66, 2)),
    "kernels of 17 ranks": ("phases", put(36, "<II", 34, 2)),
    "two chunks of a part": ("header", put(44, "<I", 2)),
    "a threadblock": ("header", put(RANKS + 12, "<H", 1)),
    "kind 4": ("", put(CALLS, "B", 4)),
    "kind 0 behind another": ("phases", put(SUM, "B", 0)),
    "a broadcast": ("phases", put(CALLS + 1, "B", 0)),
    "an operation that the pattern has not": ("phases", put(CALLS + 1, "B", 4)),
    "buffer 3": ("phases", put(CALLS + 2, "B", 3)),
    "writing to the input": ("phases", put(CALLS + 3, "B", 0)),
    "a source behind the end": ("phases", put(CALLS + 4, "<I", 1)),
    "a source whose end wraps": ("phases", put(CALLS + 4, "<I", 2**32 - 1)),
    "a target behind the end": ("phases", put(CALLS + 8, "<I", 3)),
    "a target on the source": ("phases", put(CALLS + 32 + 8, "<I", 1)),
    "no chunks": ("phases", put(CALLS + 12, "<I", 0)),
    "chunks whose product wraps": ("phases", put(CALLS + 12, "<I", 1 << 30)),
    "no calls": ("phases", put(CALLS + 16, "<I", 0)),
    "calls behind the end": ("phases", put(CALLS + 16, "<I", 3)),
    "calls whose product wraps": ("phases", put(CALLS + 16, "<II", 2**31 + 1, 2)),
    "calls that write the same": ("phases", put(CALLS + 24, "<I", 0)),
    "no kernel": ("phases", put(CALLS + 28, "B", 0)),
    "pattern 4": ("phases", put(CALLS + 28, "B", 4)),
    "a configuration of kernels": ("phases", put(CALLS + 29, "B", 2)),
    "channels of kernels": ("phases", put(CALLS + 31, "B", 1)),
    "a configuration of alltoall": ("phases", put(CALLS + 32 + 29, "B", 2)),
    "a pattern on the rail": ("phases", put(CALLS + 32 + 28, "B", 3)),
    "strides of one call": ("phases", put(CALLS + 32 + 20, "<I", 1)),
    "a sum of one": ("phases", put(SUM + 16, "<I", 1)),
    "a sum behind the end": ("phases", put(SUM + 16, "<I", 3)),
    "a sum that is no reduction": ("phases", put(SUM + 1, "B", 4)),
}
ITEMS = RANKS + 4 * RANK.size
STATEMENTS = ITEMS + 3 * PHASE.size
IN_ROUND = STATEMENTS + len(IN_ROUNDS.stages[0]) * STATEMENT.size
OF_STATEMENTS: dict[str, Defect] = {
    "dividing without averages": ("statements", put(33, "B", RUNS_IN_PLACE)),
    "not in place": ("header", put(33, "B", AVERAGES)),
    "uniform ranks": ("header", put(33, "B", 7)),
    "five ranks": ("header", put(36, "<I", 5)),
    "one node": ("ranks", put(40, "<I", 1)),
    "more nodes than ranks": ("header", put(40, "<I", 5)),
    "three nodes": ("ranks", put(RANKS + 16, "<I", 1)),
    "a node that comes again": ("ranks", put(RANKS + 48, "<I", 0)),
    "a connection": ("header", put(RANKS + 14, "<H", 1)),
    "two rounds in turn": ("phases", put(ITEMS + 64, "B", 5)),
    "a round first": ("phases", put(ITEMS, "B", 5)),
    "a gap between phases": ("phases", put(ITEMS + 4, "<I", 1)),
    "statements behind the end": ("phases", put(ITEMS + 12, "<I", 2**32 - 1)),
    "a statement too few": ("phases", put(ITEMS + 64 + 12, "<I", 0)),
    "a field that stages have not": ("phases", put(ITEMS + 8, "<I", 1)),
    "flag 4 of a statement": ("statements", put(STATEMENTS, "B", 4)),
    "completing without adding": ("statements", put(IN_ROUND, "B", 2)),
    "buffer 3": ("statements", put(STATEMENTS + 1, "B", 3)),
    "target buffer 3": ("statements", put(STATEMENTS + 2, "B", 3)),
    "operand buffer 3": ("statements", put(STATEMENTS + 3, "B", 3)),
    "writing to the input": ("statements", put(STATEMENTS + 2, "B", 0)),
    "a source behind the end": ("statements", put(STATEMENTS + 4, "<I", 2)),
    "a source whose end wraps": ("statements", put(STATEMENTS + 4, "<I", 2**32 - 1)),
    "a target behind the end": ("statements", put(STATEMENTS + 8, "<I", 99)),
    "an operand behind the end": ("statements", put(STATEMENTS + 12, "<I", 99)),
    "a rank that is none": ("statements", put(STATEMENTS + 16, "<H", 4)),
    "a target that is none": ("statements", put(STATEMENTS + 18, "<H", 65535)),
    "a message to another node": ("statements", put(STATEMENTS + 16, "<H", 3)),
    "a message within a node": ("statements", put(IN_ROUND + 16, "<HH", 0, 1)),
    "adding in a round": ("statements", put(IN_ROUND, "B", 1)),
    "an operand without adding": ("statements", put(IN_ROUND + 12, "<I", 1)),
    "no chunks in a statement": ("statements", put(STATEMENTS + 20, "<I", 0)),
    "chunks behind the end": ("statements", put(STATEMENTS + 20, "<I", 3)),
    "chunks whose end wraps": ("statements", put(STATEMENTS + 20, "<I", 2**32 - 1)),
}
DEFECTS = [
    (form, name)
    for form, own in (("steps", OF_STEPS), ("uniform", OF_CALLS), ("rounds", OF_STATEMENTS))
    for name in (*ANY, *own)
]
ALL_DEFECTS = {"steps": ANY | OF_STEPS, "uniform": ANY | OF_CALLS, "rounds": ANY | OF_STATEMENTS}


@pytest.mark.parametrize(("form", "defect"), DEFECTS)
def test_each_broken_rule_is_found(
    form: str, defect: str, check: Check, check_section: Check
) -> None:
    words, break_it = ALL_DEFECTS[form][defect]
    data = bytearray(FORMS[form])
    break_it(data)
    broken = sealed(bytes(data))
    assert check(broken) != ""
    assert words in check(broken)
    assert check_section(programs_section([broken])) != ""
    with pytest.raises(TableError, match="p: the program is damaged"):
        read_program(broken, "p")


def test_ranks_that_both_receive_first_would_wait_for_ever(check: Check) -> None:
    data = bytearray(FORMS["steps"])
    for rank in range(2):
        at = STEPS + rank * 4 * 24
        data[at : at + 48] = data[at + 24 : at + 48] + data[at : at + 24]
    assert check(sealed(bytes(data))) == "would wait for ever"


def unproved(phased: PhasedSchedule) -> bytes:
    return records_of(phased, Proof(phased.must_run_in_place, False)).packed()


def test_programs_of_the_compiler_are_sound(check: Check) -> None:
    experts = [
        cut(algorithm, (2, 2))
        for collective in COLLECTIVES
        for algorithm in expert_algorithms(collective, switched(2, 2), 3)
    ]
    gateways = [over_gateways(collective).with_lanes(8) for collective in COLLECTIVES]
    phased = [*all_plans(2, 8), *all_plans(3, 1), *gateways, *experts]
    programs = map(compile_program, (exchange(), halves(), chain()))
    for program in (*programs, *map(compile_program, phased)):
        assert check(program) == ""
    assert check(bytes.fromhex(GOLDEN.read_text())) == ""
    large = [unproved(plan) for plan in all_plans(layout.MOST_NODES, 8)]
    assert [check(data) for data in large] == [""] * 8


@pytest.mark.parametrize(
    ("rails", "sound"),
    [
        ((0, 0, 0), True),
        ((1, 0, 0), True),
        ((7, 2, 64), True),
        ((0, 1, 0), False),
        ((0, 0, 1), False),
        ((8, 0, 0), False),
        ((1, 3, 0), False),
        ((1, 0, 65), False),
    ],
)
def test_a_rails_configuration_is_one_of_nccls(
    rails: tuple[int, int, int], sound: bool, check: Check
) -> None:
    data = bytearray(compile_program(STEERED))
    put(CALLS + 32 + 29, "BBB", *rails)(data)
    assert (check(sealed(bytes(data))) == "") == sound


def test_nodes_of_one_rank_have_no_local_phase(check: Check) -> None:
    alone = replace(PLAN, node_sizes=(1,) * 8, scratch_chunks=(16,))
    assert check(unproved(alone)) == "contradicts itself in its phases"


def _sent(source: Chunk, target: Chunk) -> Statement:
    return Statement(source, target, None, 0)


OWN = Chunk(1, Buffer.INPUT, 0)
ROUNDS = {
    "apart": (
        True,
        (
            _sent(OWN, Chunk(0, Buffer.SCRATCH, 0)),
            _sent(OWN, Chunk(2, Buffer.SCRATCH, 0)),
        ),
    ),
    "received twice": (
        False,
        (
            _sent(Chunk(1, Buffer.INPUT, 0, 2), Chunk(0, Buffer.SCRATCH, 0, 2)),
            _sent(Chunk(2, Buffer.INPUT, 0), Chunk(0, Buffer.SCRATCH, 1)),
        ),
    ),
    "received and sent": (
        False,
        (
            _sent(OWN, Chunk(0, Buffer.SCRATCH, 0)),
            _sent(Chunk(0, Buffer.SCRATCH, 0), Chunk(2, Buffer.SCRATCH, 0)),
        ),
    ),
    "sent twice": (
        True,
        (
            _sent(Chunk(1, Buffer.INPUT, 0, 2), Chunk(0, Buffer.OUTPUT, 2, 2)),
            _sent(Chunk(1, Buffer.INPUT, 1), Chunk(2, Buffer.OUTPUT, 3)),
        ),
    ),
    "over the own input in place": (
        False,
        (
            _sent(OWN, Chunk(0, Buffer.OUTPUT, 2)),
            _sent(Chunk(0, Buffer.INPUT, 0), Chunk(1, Buffer.OUTPUT, 2)),
        ),
    ),
    "beside the own input in place": (
        True,
        (
            _sent(OWN, Chunk(0, Buffer.OUTPUT, 2)),
            _sent(Chunk(0, Buffer.INPUT, 0), Chunk(1, Buffer.OUTPUT, 0)),
        ),
    ),
    "gathered beside what is received": (
        True,
        (
            _sent(OWN, Chunk(0, Buffer.OUTPUT, 2)),
            _sent(Chunk(2, Buffer.INPUT, 0), Chunk(1, Buffer.OUTPUT, 4)),
            _sent(Chunk(1, Buffer.OUTPUT, 4), Chunk(1, Buffer.SCRATCH, 0)),
        ),
    ),
    "sent and written beside": (
        False,
        (
            _sent(Chunk(1, Buffer.OUTPUT, 4), Chunk(0, Buffer.OUTPUT, 4)),
            _sent(Chunk(2, Buffer.INPUT, 0), Chunk(1, Buffer.OUTPUT, 4)),
        ),
    ),
    "received and read beside": (
        False,
        (
            _sent(Chunk(0, Buffer.INPUT, 0), Chunk(2, Buffer.SCRATCH, 0)),
            _sent(Chunk(2, Buffer.SCRATCH, 0), Chunk(1, Buffer.SCRATCH, 0)),
        ),
    ),
    "received and written beside": (
        False,
        (
            _sent(Chunk(0, Buffer.INPUT, 0), Chunk(2, Buffer.SCRATCH, 0)),
            _sent(OWN, Chunk(2, Buffer.SCRATCH, 0)),
        ),
    ),
    "copied onto itself in place": (
        True,
        (_sent(OWN, Chunk(0, Buffer.OUTPUT, 2)), _sent(OWN, Chunk(1, Buffer.OUTPUT, 2))),
    ),
    "sent from where it is copied out of place": (
        False,
        (
            _sent(Chunk(1, Buffer.OUTPUT, 2), Chunk(0, Buffer.OUTPUT, 2)),
            _sent(OWN, Chunk(1, Buffer.OUTPUT, 2)),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_receives_nothing_over_what_it_uses(name: str, check: Check) -> None:
    sound, sent = ROUNDS[name]
    phases = in_turn(((), ()), (sent,))
    nodes = (1, 2) if "beside" in name or "cop" in name else (1, 1, 1)
    phased = PhasedSchedule("", Collective.ALL_GATHER, nodes, 2, (2, 2, 2), phases)
    assert (check(unproved(phased)) == "") is sound
    if sound:
        check_form(phased)
    else:
        assert check(unproved(phased)) == "sends or receives what a round uses otherwise"
        with pytest.raises(NoProgramError, match="round 1 uses a chunk of rank"):
            check_form(phased)


def test_the_limits_are_those_of_python(check: Check) -> None:
    text = (RUNTIME / "program_layout.h").read_text()
    limits = {
        "PROGRAM_MOST_BYTES = 1 << 20": program_header.MOST_BYTES == 1 << 20,
        "PROGRAMS_MOST_BYTES = 1 << 24": program_header.MOST_SECTION_BYTES == 1 << 24,
        f"PROGRAMS_MOST = {program_header.MOST_PROGRAMS}": True,
        f"PROGRAM_MOST_ROUNDS = {layout.MOST_ROUNDS}": True,
        f"PROGRAM_MOST_LANES = {layout.MOST_LANES}": True,
        "PROGRAM_MOST_NODES = 1 << 12": layout.MOST_NODES == 1 << 12,
        "PROGRAM_MOST_CHUNKS = 1 << 16": layout.MOST_CHUNKS == 1 << 16,
        "PROGRAM_MOST_MOVED = 1 << 18": layout.MOST_CHUNKS_MOVED == 1 << 18,
    }
    for limit, holds in limits.items():
        assert f"TUCCL_{limit}," in text
        assert holds
    sent = (_sent(Chunk(4095, Buffer.INPUT, 0), Chunk(0, Buffer.OUTPUT, 0)),)
    phases = in_turn(((),) * 65, (sent,) * 64)
    large = PhasedSchedule(
        "", Collective.BROADCAST, (8,) * 512, 65536, (65536,) * 4096, phases, 4095
    )
    check_form(large)
    assert check(unproved(large)) == ""


def test_the_largest_program(check: Check) -> None:
    def with_steps(number: int) -> bytes:
        blocks = [[RawStep(StepType.NOP)] * part for part in (number // 2, number - number // 2)]
        return raw_program([blocks[:1], blocks[1:]], scratch=0)

    steps = (program_header.MOST_BYTES - len(with_steps(0))) // layout.STEP.size
    assert check(with_steps(steps)) == ""
    with pytest.raises(NoProgramError, match="at most 1048576 are allowed"):
        with_steps(steps + 1)
    larger = with_steps(steps) + bytes(layout.STEP.size)
    assert check(larger) == "is larger than any program"
    with pytest.raises(TableError, match="larger than any program"):
        read_program(larger, "p")


def test_the_largest_section(check_section: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compile_program(exchange())

    def section(programs: int, others: int = 0) -> bytes:
        return programs_section([*[program] * programs, *[b""] * others])

    assert check_section(section(program_header.MOST_PROGRAMS, 3)) == ""
    monkeypatch.setattr(program_header, "MOST_PROGRAMS", program_header.MOST_PROGRAMS + 1)
    assert check_section(section(program_header.MOST_PROGRAMS)) == "there are more than 1024"
    said = check_section(bytes(program_header.MOST_SECTION_BYTES + 8))
    assert said == f"they take {2**24 + 8} bytes, {2**24} are the most"


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_sum_is_found(form: str, check: Check) -> None:
    data = FORMS[form]
    assert check(data[:-1] + bytes([data[-1] ^ 1])) == "is damaged"
    assert check(data[:87]) == "is no program"
    assert check(data[:88]) == "is damaged"


def test_sections_hold_programs_of_all_forms(loader: ctypes.CDLL, check_section: Check) -> None:
    programs = [FORMS["steps"], b"", FORMS["uniform"], FORMS["rounds"]]
    section = programs_section(programs)
    assert check_section(section) == ""
    words, places = words_of(section), (ctypes.c_void_p * 6)()
    at = [loader.tuccl_programs_at(words, ctypes.c_uint32(index), places) for index in range(4)]
    assert at == [True, False, True, True]
    start = ctypes.addressof(words) + len(section) - len(programs[3])
    wanted = [0, RANKS, ITEMS, STATEMENTS, STATEMENTS, STATEMENTS]
    assert list(places) == [start + offset for offset in wanted]
    assert not loader.tuccl_programs_at(words, ctypes.c_uint32(4), places)


def test_what_python_reads_the_loader_accepts(check: Check) -> None:
    rng = random.Random(1)
    good = [compile_program(algorithm) for algorithm in (exchange(), halves(), chain())]
    readable = 0
    for _ in range(3000):
        data = bytearray(rng.choice(good))
        data[rng.randrange(16, len(data))] = rng.choice([0, 1, 2, 3, 127, 255])
        try:
            read_program(sealed(bytes(data)), "p")
        except TableError:
            continue
        readable += 1
        assert check(sealed(bytes(data))) == ""
    assert readable > 100


def keeps_the_form(data: bytes) -> bool:
    """Whether Python finds a program of phases in form, whatever it computes."""
    try:
        records = unpacked(data)
        if any(phase.kind == PhaseKind.STEPS for phase in records.phases):
            return False
        phased = schedule_of(records)
        check_form(phased)
        marked = _marked(records)
        averages, in_place = bool(records.flags & AVERAGES), bool(records.flags & RUNS_IN_PLACE)
        if averages and not phased.collective.reduces:
            return False
        if not phased.is_uniform and (
            averages != bool(marked) or in_place != phased.must_run_in_place
        ):
            return False
        return records_of(phased, Proof(in_place, averages, marked)).packed() == data
    except (struct.error, ValueError, IndexError, NoProgramError):
        return False


def _marked(records: layout.Records) -> frozenset[tuple[int, int]]:
    """Return the completing statements that the bytes name, where they may name any."""
    return frozenset(
        (number, at)
        for number, phase in enumerate(records.phases)
        if phase.kind in {PhaseKind.STAGE, PhaseKind.ROUND}
        for at, statement in enumerate(
            records.statements[phase.source : phase.source + phase.chunks]
        )
        if statement.flags == ADDS | COMPLETES
    )


def test_the_loader_accepts_what_keeps_the_form_and_nothing_else(check: Check) -> None:
    rng = random.Random(2)
    plans = [STEERED, *all_plans(2, 2), *all_plans(3, 4), *all_plans(2, 1)]
    good = [compile_program(each) for each in (*plans, *map(over_gateways, COLLECTIVES))]
    telling = [0, 1, 2, 3, 4, 5, 8, 16, 64, 65535, 65536, 65537, 2**31, 2**32 - 1]
    accepted = 0
    for _ in range(10_000):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(HEADER.size if rng.random() < 0.7 else 32, len(data) - 3)
            if rng.random() < 0.6:
                data[at] = rng.choice([0, 1, 2, 3, 4, 5, 7, 255])
            else:
                struct.pack_into("<I", data, at // 4 * 4, rng.choice(telling))
        changed = sealed(bytes(data))
        keeps = keeps_the_form(changed)
        accepted += keeps
        assert (check(changed) == "") == keeps, (changed.hex(), check(changed))
    assert 500 < accepted < 6000


def fuzzer_of(folder: Path) -> Path:
    """Return the fuzzer, with the executor's source that rearranges programs."""
    needs_sanitizer(folder, *MEMORY)
    names = ("fuzz_program.c", "harness.c", "mutation.c", "rearrange.cc")
    own = [*(NATIVE / name for name in names), EXECUTOR / "program_moves.cc"]
    return compile_native(folder / "fuzz_program", [*own, *sorted(RUNTIME.glob("*.c"))], *MEMORY)


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_mutated_programs_do_no_harm(tmp_path: Path, share: int) -> None:
    """One mutation in `share` of those that the slow test makes."""
    fuzzer = fuzzer_of(tmp_path)
    folder = tmp_path / "programs"
    folder.mkdir()
    file = folder / "mutated.program"

    def accepted(program: bytes, count: int, seed: int) -> float:
        file.write_bytes(program)
        return fuzz(fuzzer, file, count // share, seed)[1]

    for seed, algorithm in enumerate((exchange(), halves(), chain())):
        assert 0.1 < accepted(compile_program(algorithm), 8_000, seed) < 0.9
    for seed, plan in enumerate([*all_plans(2, 2), *all_plans(3, 1), STEERED]):
        assert 0.1 < accepted(compile_program(plan), 2_000, seed) < 0.8
    for seed, collective in enumerate(IN_PLACE):
        assert 0.1 < accepted(compile_program(over_gateways(collective)), 1_000, seed) < 0.9
    # Steps that move all there is to move: their numbers are mutated, and most are sound.
    step = RawStep(StepType.COPY, count=layout.MOST_STEPS)
    accepted(raw_program([[[step] * 500]] * 2, scratch=layout.MOST_CHUNKS), 500, 5)
    accepted(unproved(all_plans(layout.MOST_NODES, 8)[-1]), 500, 5)
    file.write_bytes(programs_section([b"", *FORMS.values(), compile_program(chain())]))
    assert fuzz(fuzzer, file, 8_000 // share, 9, "s")[0] == 1.0
