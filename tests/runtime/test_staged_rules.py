"""The loader of staged programs, compiled: it accepts what keeps the rules of the form, no more."""

import ctypes
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from lookup_tables.bundles.program_section import programs_section
from lookup_tables.program_header import sealed
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.layout import AVERAGES
from synthesizer.programs.phase_compiler import compile_phases
from synthesizer.programs.staged.completion import Completion
from synthesizer.programs.staged.cutting import cut
from synthesizer.programs.staged.staged_compiler import compile_staged
from synthesizer.programs.staged.staged_form import (
    MOST_CHUNKS_MOVED,
    MOST_ROUNDS,
    check_staged_form,
)
from synthesizer.programs.staged.staged_layout import (
    ADDS,
    COMPLETES,
    HEADER,
    ITEM,
    RANK,
    STATEMENT,
    packed_staged,
    unpacked_staged,
)
from synthesizer.programs.staged.staged_schedule import StagedSchedule
from tests.runtime.conftest import RUNTIME, compile_c
from tests.runtime.host_node import C_SOURCES
from tests.runtime.test_native import MEMORY, NATIVE, needs_runtime, run
from tests.runtime.test_phased_rules import PLAN, checker
from tests.runtime.test_program_rules import put, words_of
from tests.synthesizer.hand_sketches import switched
from tests.synthesizer.programs.schedules import exchange
from tests.synthesizer.programs.staged.test_staged_compiler import COLLECTIVES, staged_over_gateways
from tuccl.errors import NoProgramError

pytestmark = pytest.mark.long

Check = Callable[[bytes], str]
STAGED = staged_over_gateways(Collective.ALL_REDUCE)
RANKS = HEADER.size
ITEMS = RANKS + 4 * RANK.size
STATEMENTS = ITEMS + 3 * ITEM.size
IN_ROUND = STATEMENTS + len(STAGED.stages[0]) * STATEMENT.size
LAST = IN_ROUND + len(STAGED.rounds[0]) * STATEMENT.size


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("loader") / "libstaged.so"
    sources = [RUNTIME / name for name in C_SOURCES]
    return ctypes.CDLL(str(compile_c(file, sources, "-fPIC", "-shared")))


@pytest.fixture(scope="module")
def check(loader: ctypes.CDLL) -> Check:
    return checker(loader, "tuccl_staged_check", 4)


@pytest.fixture(scope="module")
def check_section(loader: ctypes.CDLL) -> Check:
    return checker(loader, "tuccl_programs_check")


DEFECTS: dict[str, tuple[str, Callable[[bytearray], None]]] = {
    "dividing without averages": ("statements", put(34, "B", 1)),
    "another magic": ("no program", put(0, "B", 0)),
    "version 2": ("newer release", put(8, "<I", 2)),
    "version 4": ("newer release", put(8, "<I", 4)),
    "a feature": ("newer release", put(28, "<I", 1)),
    "another size": ("damaged", put(24, "<I", 8)),
    "operation 6": ("header", put(32, "B", 6)),
    "a pattern": ("header", put(33, "B", 1)),
    "flag 4": ("header", put(34, "B", 7)),
    "not in place": ("header", put(34, "B", 2)),
    "the first zero": ("header", put(35, "B", 1)),
    "five ranks": ("header", put(36, "<I", 5)),
    "ranks that wrap": ("header", put(36, "<I", 1 << 31)),
    "one node": ("header", put(40, "<I", 1)),
    "too many nodes": ("header", put(36, "<II", 4097, 4097)),
    "more nodes than ranks": ("header", put(40, "<I", 5)),
    "no chunks": ("header", put(44, "<I", 0)),
    "too many chunks": ("header", put(44, "<I", 65537)),
    "no rounds": ("header", put(48, "<I", 0)),
    "65 rounds": ("header", put(48, "<I", 65)),
    "more statements": ("header", put(52, "<I", 4)),
    "statements whose size wraps": ("header", put(52, "<I", 1 << 31)),
    "a root": ("header", put(56, "<I", 1)),
    "other scratch memory": ("ranks", put(60, "<I", 1)),
    "a zero": ("header", put(64, "<I", 1)),
    "the last zero": ("header", put(68, "<I", 1)),
    "no node 0": ("ranks", put(RANKS, "<I", 1)),
    "three nodes": ("ranks", put(RANKS + 8, "<I", 1)),
    "a node that comes again": ("ranks", put(RANKS + 24, "<I", 0)),
    "too much scratch memory": ("ranks", put(RANKS + 4, "<I", 65537)),
    "a gap between items": ("statements", put(ITEMS, "<I", 1)),
    "an item behind the end": ("statements", put(ITEMS + 4, "<I", 2**32 - 1)),
    "an item too few": ("statements", put(ITEMS + 20, "<I", 0)),
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


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_broken_rule_is_found(defect: str, check: Check, check_section: Check) -> None:
    words, break_it = DEFECTS[defect]
    data = bytearray(compile_staged(STAGED))
    break_it(data)
    broken = sealed(bytes(data))
    assert words in check(broken)
    assert check_section(programs_section([broken])) != ""


def test_what_is_compiled_is_sound(check: Check) -> None:
    for collective in COLLECTIVES:
        assert check(compile_staged(staged_over_gateways(collective))) == ""
    for collective in (*COLLECTIVES, Collective.ALLTOALL):
        for algorithm in expert_algorithms(collective, switched(2, 2), 3):
            assert check(compile_staged(cut(algorithm, (2, 2)))) == "", algorithm.name


def _unproved(staged: StagedSchedule) -> bytes:
    return packed_staged(staged, Completion(frozenset(), True))


def _round_of(*sent: Statement) -> StagedSchedule:
    return StagedSchedule(
        *(Collective.ALL_GATHER, (1, 1, 1), 2, 0, (2, 2, 2), ((), ()), (sent,)),
    )


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
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_receives_nothing_over_what_it_uses(name: str, check: Check) -> None:
    sound, sent = ROUNDS[name]
    staged = _round_of(*sent)
    assert (check(_unproved(staged)) == "") is sound
    if sound:
        check_staged_form(staged)
    else:
        assert check(_unproved(staged)) == "receives over what a round uses"
        with pytest.raises(NoProgramError, match="round 1 uses a chunk of rank"):
            check_staged_form(staged)


def test_the_limits_are_those_of_python(check: Check) -> None:
    text = (RUNTIME / "staged_layout.h").read_text()
    assert (MOST_ROUNDS, MOST_CHUNKS_MOVED) == (64, 1 << 18)
    for limit in ("MOST_ROUNDS = 64", "MOST_NODES = 1 << 12", "MOST_MOVED = 1 << 18"):
        assert f"{limit}," in text
    large = StagedSchedule(
        Collective.BROADCAST, (8,) * 512, 65536, 4095, (65536,) * 4096, ((),) * 65,
        ((Statement(Chunk(4095, Buffer.INPUT, 0), Chunk(0, Buffer.OUTPUT, 0), None, 0),),) * 64,
    )  # fmt: skip
    check_staged_form(large)
    assert check(_unproved(large)) == ""


def test_sections_hold_programs_of_all_versions(loader: ctypes.CDLL, check_section: Check) -> None:
    programs = [compile_program(exchange()), b"", compile_phases(PLAN), compile_staged(STAGED)]
    section = programs_section(programs)
    assert check_section(section) == ""
    words, found = words_of(section), {}
    for function in ("tuccl_programs_at", "tuccl_phased_at", "tuccl_staged_at"):
        called = getattr(loader, function)
        called.restype = ctypes.c_bool
        places = (ctypes.c_void_p * 4)()
        found[function] = [called(words, ctypes.c_uint32(index), places) for index in range(5)]
    assert found["tuccl_programs_at"] == [True, False, False, False, False]
    assert found["tuccl_phased_at"] == [False, False, True, False, False]
    assert found["tuccl_staged_at"] == [False, False, False, True, False]
    start = ctypes.addressof(words) + len(section) - len(programs[3])
    assert list(places) == [start, start + RANKS, start + ITEMS, start + STATEMENTS]


def keeps_the_form(data: bytes) -> bool:
    try:
        staged = unpacked_staged(data)
        check_staged_form(staged)
        completion = _told(data, staged)
    except (struct.error, ValueError, IndexError, NoProgramError):
        return False
    return packed_staged(staged, completion) == data


def _told(data: bytes, staged: StagedSchedule) -> Completion:
    """Return the completing statements that the bytes name, where they may name any."""
    at = len(data) - sum(len(each) for _, each in staged.in_order()) * STATEMENT.size
    flags = iter([raw[0] for raw in STATEMENT.iter_unpack(data[at:])])
    places = [
        (number, index)
        for number, (_, statements) in enumerate(staged.in_order())
        for index in range(len(statements))
    ]
    marked = frozenset(place for place in places if next(flags) == ADDS | COMPLETES)
    averages = bool(data[34] & AVERAGES)
    if marked and not averages:
        raise ValueError("divides and does not average")
    if averages and not marked:
        raise ValueError("averages and does not divide")
    return Completion(marked, True)


def test_the_loader_accepts_what_keeps_the_form_and_nothing_else(check: Check) -> None:
    rng = random.Random(3)
    good = [compile_staged(staged_over_gateways(collective)) for collective in COLLECTIVES]
    good.append(
        compile_staged(cut(expert_algorithms(Collective.ALLTOALL, switched(2, 2))[0], (2, 2)))
    )
    telling = [0, 1, 2, 3, 4, 5, 8, 64, 65535, 65536, 65537, 2**31, 2**32 - 1]
    accepted = 0
    for _ in range(6000):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(HEADER.size if rng.random() < 0.8 else 32, len(data) - 3)
            if rng.random() < 0.7:
                data[at] = rng.choice([0, 1, 2, 3, 4, 255])
            else:
                struct.pack_into("<I", data, at // 4 * 4, rng.choice(telling))
        altered = sealed(bytes(data))
        keeps = keeps_the_form(altered)
        accepted += keeps
        assert (check(altered) == "") == keeps, (altered.hex(), check(altered))
    assert 300 < accepted < 4000


def staged_fuzzer_of(folder: Path) -> Path:
    needs_runtime(folder, *MEMORY)
    own = [NATIVE / name for name in ("fuzz_staged.c", "harness.c", "mutation.c")]
    sources = [*own, *sorted(RUNTIME.glob("*.c"))]
    return compile_c(folder / "fuzz_staged", sources, *MEMORY)


def test_mutated_staged_programs_do_no_harm(tmp_path: Path) -> None:
    fuzzer = staged_fuzzer_of(tmp_path)
    accepted = 0
    programs = [compile_staged(staged_over_gateways(collective)) for collective in COLLECTIVES]
    for seed, data in enumerate(programs):
        file = tmp_path / f"{seed}.program"
        file.write_bytes(data)
        accepted += int(run(fuzzer, file, 1_000, seed).split(", ")[1].split()[0])
    assert 500 < accepted < 900 * len(programs)
    section = tmp_path / "section"
    section.write_bytes(programs_section([compile_program(exchange()), b"", *programs[:2]]))
    assert run(fuzzer, section, 10_000, 9, "s").startswith("10000 mutated")
