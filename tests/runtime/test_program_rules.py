"""The loader of programs, compiled: what it accepts, what it refuses, and that it reads as Python.

Mutated programs with a right sum run under sanitizers; the fuzzer itself looks again at every one
that is accepted.
"""

import ctypes
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from lookup_tables import program_header
from lookup_tables.bundles.program_section import programs_section
from lookup_tables.program_header import sealed
from synthesizer.ir.algorithm import StepType
from synthesizer.programs import layout
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.reader import read_program
from tests.runtime.conftest import RUNTIME, compile_c
from tests.runtime.host_node import C_SOURCES, compile_host
from tests.runtime.raw_programs import RawStep, raw_program
from tests.runtime.test_native import MEMORY, NATIVE, needs_runtime, run
from tests.synthesizer.programs.schedules import chain, exchange, halves
from tuccl.errors import TableError

pytestmark = pytest.mark.long

SOURCES = [RUNTIME / name for name in C_SOURCES]
GOLDEN = Path(__file__).parents[1] / "lookup_tables" / "golden" / "exchange.program.hex"
Check = Callable[[bytes], str]


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("loader") / "libloader.so"
    library = ctypes.CDLL(str(compile_c(file, SOURCES, "-fPIC", "-shared")))
    library.tuccl_program_check.restype = ctypes.c_bool
    library.tuccl_programs_check.restype = ctypes.c_bool
    return library


def words_of(data: bytes) -> "ctypes.Array[ctypes.c_uint64]":
    """Copy a program to a multiple of 8."""
    padded = data.ljust(len(data) // 8 * 8 + 8, b"\0")
    return (ctypes.c_uint64 * (len(padded) // 8)).from_buffer_copy(padded)


@pytest.fixture(scope="module")
def check(loader: ctypes.CDLL) -> Check:
    """Return the loader's error for a program; empty when it is sound."""

    def say(data: bytes) -> str:
        program, why = (ctypes.c_void_p * 4)(), ctypes.create_string_buffer(128)
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


RANKS, BLOCKS, STEPS = 72, 72 + 2 * 16, 72 + 2 * 16 + 4 * 24
DEFECTS: dict[str, tuple[str, Callable[[bytearray], None]]] = {
    "another magic": ("no program", put(0, "B", 0)),
    "version 2": ("newer release", put(8, "<I", 2)),
    "a feature": ("newer release", put(28, "<I", 1)),
    "another size": ("damaged", put(24, "<I", 8)),
    "operation 6": ("header", put(32, "B", 6)),
    "pattern 4": ("header", put(33, "B", 4)),
    "root 1": ("header", put(35, "B", 1)),
    "nine ranks": ("header", put(36, "<I", 9)),
    "no chunks": ("header", put(40, "<I", 0)),
    "more steps": ("header", put(48, "<I", 9)),
    "most threadblocks": ("threadblocks", put(52, "<I", 3)),
    "most connections": ("threadblocks", put(56, "<I", 0)),
    "longest threadblock": ("threadblocks", put(62, "<H", 2)),
    "most scratch": ("threadblocks", put(64, "<I", 0)),
    "rank's first threadblock": ("threadblocks", put(RANKS + 16, "<I", 1)),
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
    "a larger message than the header says": ("steps", put(60, "<H", 2)),
    "writing to the input": ("steps", put(STEPS + 24 + 2, "B", 0)),
    "waiting for threadblock 2": ("steps", put(STEPS + 16, "<i", 2)),
    "waiting for itself": ("steps", put(STEPS + 16, "<i", 0)),
    "waiting for a step without mark": ("steps", put(STEPS + 16, "<iI", 1, 0)),
    "sending without peer": ("steps", put(STEPS + 3 * 24, "B", 0)),
    "receiving first": ("wait for ever", put(STEPS + 3, "B", 0)),
}


def test_programs_of_the_compiler_are_sound(check: Check) -> None:
    for algorithm in (exchange(), halves(), chain()):
        assert check(compile_program(algorithm)) == ""
    assert check(bytes.fromhex(GOLDEN.read_text())) == ""


def swap_first_steps(data: bytearray) -> None:
    """Both ranks receive before they send."""
    for rank in range(2):
        at = STEPS + rank * 4 * 24
        data[at : at + 48] = data[at + 24 : at + 48] + data[at : at + 24]


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_broken_rule_is_found(defect: str, check: Check) -> None:
    words, break_it = DEFECTS[defect]
    data = bytearray(compile_program(exchange()))
    if words == "wait for ever":
        break_it = swap_first_steps
    break_it(data)
    assert words in check(sealed(bytes(data)))
    with pytest.raises(TableError, match="p: the program is damaged"):
        read_program(sealed(bytes(data)), "p")


def test_the_largest_program(check: Check) -> None:
    def with_steps(number: int) -> bytes:
        blocks = [[RawStep(StepType.NOP)] * part for part in (number // 2, number - number // 2)]
        return raw_program([blocks[:1], blocks[1:]], scratch=0)

    steps = (program_header.MOST_BYTES - len(with_steps(0))) // layout.STEP.size
    assert check(with_steps(steps)) == ""
    assert check(with_steps(steps + 1)) == "is larger than any program"
    with pytest.raises(TableError, match="larger than any program"):
        read_program(with_steps(steps + 1), "p")
    text = (RUNTIME / "program_layout.h").read_text()
    for limit in ("PROGRAM_MOST_BYTES = 1 << 20", "PROGRAMS_MOST_BYTES = 1 << 24"):
        assert f"TUCCL_{limit}," in text
    assert (program_header.MOST_BYTES, program_header.MOST_SECTION_BYTES) == (1 << 20, 1 << 24)
    assert f"TUCCL_PROGRAMS_MOST = {program_header.MOST_PROGRAMS}," in text


def test_the_largest_section(check_section: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compile_program(exchange())

    def section(programs: int, others: int = 0) -> bytes:
        return programs_section([*[program] * programs, *[b""] * others])

    assert check_section(section(program_header.MOST_PROGRAMS, 3)) == ""
    monkeypatch.setattr(program_header, "MOST_PROGRAMS", program_header.MOST_PROGRAMS + 1)
    assert check_section(section(program_header.MOST_PROGRAMS)) == "there are more than 1024"
    said = check_section(bytes(program_header.MOST_SECTION_BYTES + 8))
    assert said == f"they take {2**24 + 8} bytes, {2**24} are the most"


def test_a_wrong_sum_is_found(check: Check) -> None:
    data = bytearray(compile_program(exchange()))
    data[-1] ^= 1
    assert check(bytes(data)) == "is damaged"
    assert check(bytes(data[:40])) == "is no program"


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


def fuzzer_of(folder: Path) -> Path:
    """Return the fuzzer, with the executor's source that rearranges programs."""
    needs_runtime(folder, *MEMORY)
    own = (NATIVE / name for name in ("fuzz_program.c", "harness.c", "mutation.c"))
    objects = [
        compile_c(folder / f"{source.name}.o", [source], "-c", *MEMORY)
        for source in (*own, *RUNTIME.glob("*.c"))
        if source.name not in C_SOURCES
    ]
    sources = [NATIVE / "rearrange.cc", *objects]
    return compile_host(folder, folder / "fuzz_program", sources, *MEMORY)


def test_mutated_programs_do_no_harm(tmp_path: Path) -> None:
    fuzzer = fuzzer_of(tmp_path)
    folder = tmp_path / "programs"
    folder.mkdir()
    accepted = 0
    for seed, algorithm in enumerate((exchange(), halves(), chain())):
        file = folder / f"{seed}.program"
        file.write_bytes(compile_program(algorithm))
        accepted += int(run(fuzzer, file, 20_000, seed).split(", ")[1].split()[0])
    assert 10_000 < accepted < 54_000
    # Steps that move all there is to move: their numbers are mutated, and most are sound.
    step = RawStep(StepType.COPY, count=layout.MOST_STEPS)
    file = folder / "large.program"
    file.write_bytes(raw_program([[[step] * 500]] * 2, scratch=layout.MOST_CHUNKS))
    assert run(fuzzer, file, 500, 5).startswith("500 mutated")
    section = folder / "section"
    programs = [compile_program(exchange()), b"", compile_program(chain())]
    section.write_bytes(programs_section(programs))
    assert run(fuzzer, section, 20_000, 9, "s").startswith("20000 mutated")
