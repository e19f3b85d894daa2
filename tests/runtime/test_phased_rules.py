"""The loader of phased programs, compiled: it accepts what keeps the rules of the form, no more."""

import ctypes
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundles.program_section import programs_section
from lookup_tables.program_header import sealed
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from synthesizer.ir.collectives import Collective
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.phase_compiler import compile_phases
from synthesizer.programs.phase_form import check_form
from synthesizer.programs.phase_layout import (
    MOST_CHUNKS,
    MOST_NODES,
    MOST_PHASES,
    packed_phases,
    unpacked_phases,
)
from synthesizer.programs.phase_plans import plan_by_name
from tests.runtime.conftest import RUNTIME, compile_c
from tests.runtime.host_node import C_SOURCES
from tests.runtime.test_native import MEMORY, NATIVE, needs_runtime, run
from tests.runtime.test_program_rules import put, words_of
from tests.synthesizer.programs.schedules import exchange
from tests.synthesizer.programs.test_phase_plans import all_plans
from tuccl.errors import NoProgramError

PLAN = plan_by_name(Collective.REDUCE_SCATTER, "exchange", 2, 4)
PHASES = 72
SUM = PHASES + 2 * 32
Check = Callable[[bytes], str]


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("loader") / "libphased.so"
    sources = [RUNTIME / name for name in C_SOURCES]
    return ctypes.CDLL(str(compile_c(file, sources, "-fPIC", "-shared")))


def checker(loader: ctypes.CDLL, function: str, *pointers: int) -> Check:
    """Return a function that gives the loader's error for bytes; empty when they are sound."""
    called = getattr(loader, function)
    called.restype = ctypes.c_bool

    def say(data: bytes) -> str:
        why = ctypes.create_string_buffer(128)
        results = [(ctypes.c_void_p * count)() for count in pointers]
        arguments = (ctypes.c_size_t(len(data)), *results, why, ctypes.c_size_t(128))
        sound = called(words_of(data), *arguments)
        return "" if sound else why.value.decode()

    return say


@pytest.fixture(scope="module")
def check(loader: ctypes.CDLL) -> Check:
    return checker(loader, "tuccl_phased_check", 2)


@pytest.fixture(scope="module")
def check_section(loader: ctypes.CDLL) -> Check:
    return checker(loader, "tuccl_programs_check")


DEFECTS: dict[str, tuple[str, Callable[[bytearray], None]]] = {
    "another magic": ("no program", put(0, "B", 0)),
    "version 1": ("newer release", put(8, "<I", 1)),
    "version 3": ("newer release", put(8, "<I", 3)),
    "a feature": ("newer release", put(28, "<I", 1)),
    "another size": ("damaged", put(24, "<I", 8)),
    "operation 1": ("header", put(32, "B", 1)),
    "operation 6": ("header", put(32, "B", 6)),
    "a pattern": ("header", put(33, "B", 3)),
    "flag 2": ("header", put(34, "B", 2)),
    "a root": ("header", put(35, "B", 1)),
    "nine ranks": ("header", put(36, "<I", 9)),
    "ranks that wrap": ("header", put(36, "<III", 0, 1 << 31, 8)),
    "one node": ("header", put(36, "<III", 4, 1, 4)),
    "nodes of nine ranks": ("header", put(36, "<III", 18, 2, 9)),
    "too many nodes": ("header", put(36, "<III", 4 * 4097, 4097, 4)),
    "another input": ("header", put(48, "<I", 4)),
    "another output": ("header", put(52, "<I", 2)),
    "too much scratch memory": ("header", put(56, "<I", MOST_CHUNKS + 1)),
    "more phases": ("header", put(60, "<I", 4)),
    "phases whose size wraps": ("header", put(60, "<I", 3 + (1 << 27))),
    "no lanes": ("header", put(64, "<I", 0)),
    "nine lanes": ("header", put(64, "<I", 9)),
    "the last zero": ("header", put(68, "<I", 1)),
    "kind 3": ("phases", put(PHASES, "B", 3)),
    "a broadcast": ("phases", put(PHASES + 1, "B", 0)),
    "an operation that the pattern has not": ("phases", put(PHASES + 1, "B", 4)),
    "buffer 3": ("phases", put(PHASES + 2, "B", 3)),
    "writing to the input": ("phases", put(PHASES + 3, "B", 0)),
    "a source behind the end": ("phases", put(PHASES + 4, "<I", 1)),
    "a source whose end wraps": ("phases", put(PHASES + 4, "<I", 2**32 - 1)),
    "a target behind the end": ("phases", put(PHASES + 8, "<I", 3)),
    "a target on the source": ("phases", put(PHASES + 32 + 8, "<I", 1)),
    "no chunks": ("phases", put(PHASES + 12, "<I", 0)),
    "chunks whose product wraps": ("phases", put(PHASES + 12, "<I", 1 << 30)),
    "no calls": ("phases", put(PHASES + 16, "<I", 0)),
    "calls behind the end": ("phases", put(PHASES + 16, "<I", 3)),
    "calls whose product wraps": ("phases", put(PHASES + 16, "<II", 2**31 + 1, 2)),
    "calls that write the same": ("phases", put(PHASES + 24, "<I", 0)),
    "no kernel": ("phases", put(PHASES + 28, "B", 0)),
    "pattern 4": ("phases", put(PHASES + 28, "B", 4)),
    "a configuration of kernels": ("phases", put(PHASES + 29, "B", 2)),
    "channels of kernels": ("phases", put(PHASES + 31, "B", 1)),
    "a configuration of alltoall": ("phases", put(PHASES + 32 + 29, "B", 2)),
    "a pattern on the rail": ("phases", put(PHASES + 32 + 28, "B", 3)),
    "strides of one call": ("phases", put(PHASES + 32 + 20, "<I", 1)),
    "a sum of one": ("phases", put(SUM + 16, "<I", 1)),
    "a sum behind the end": ("phases", put(SUM + 16, "<I", 3)),
    "a sum that is no reduction": ("phases", put(SUM + 1, "B", 4)),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_broken_rule_is_found(defect: str, check: Check, check_section: Check) -> None:
    words, break_it = DEFECTS[defect]
    data = bytearray(compile_phases(PLAN))
    break_it(data)
    broken = sealed(bytes(data))
    assert words in check(broken)
    assert check_section(programs_section([broken])) != ""


def test_plans_are_sound(check: Check) -> None:
    for plan in all_plans(2, 8) + all_plans(3, 1):
        assert check(compile_phases(plan)) == ""
    large = [packed_phases(plan, in_place=True) for plan in all_plans(MOST_NODES, 8)]
    assert [check(data) for data in large] == [""] * 8


RING = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 2)
STEERED = plan_by_name(Collective.REDUCE_SCATTER, "rails_last", 2, 4).with_rails(RING)


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
    data = bytearray(compile_phases(STEERED))
    put(PHASES + 32 + 29, "BBB", *rails)(data)
    assert (check(sealed(bytes(data))) == "") == sound


def test_a_wrong_sum_is_found(check: Check) -> None:
    data = compile_phases(PLAN)
    assert check(data[:-1] + b"\1") == "is damaged"
    assert check(data[:71]) == "is no program"
    assert check(data[:72]) == "is damaged"


def test_nodes_of_one_rank_have_no_local_phase(check: Check) -> None:
    plan = plan_by_name(Collective.REDUCE_SCATTER, "exchange", 2, 4)
    sizes = {"nodes": 8, "local_ranks": 1, "scratch_chunks": 16}
    alone = packed_phases(replace(plan, **sizes), in_place=True)  # type: ignore[arg-type]
    assert check(alone) == "contradicts itself in its phases"


def test_the_limits_are_those_of_python() -> None:
    text = (RUNTIME / "phase_layout.h").read_text()
    assert (MOST_PHASES, MOST_CHUNKS, MOST_NODES) == (64, 1 << 16, 1 << 12)
    for limit in ("PHASES = 64", "PHASED_MOST_CHUNKS = 1 << 16", "PHASED_MOST_NODES = 1 << 12"):
        assert f"{limit}," in text


def test_sections_hold_programs_of_both_versions(loader: ctypes.CDLL, check_section: Check) -> None:
    section = programs_section([compile_program(exchange()), b"", compile_phases(PLAN)])
    assert check_section(section) == ""
    words, found = words_of(section), {}
    for function, pointers in (("tuccl_programs_at", 4), ("tuccl_phased_at", 2)):
        called = getattr(loader, function)
        called.restype = ctypes.c_bool
        places = (ctypes.c_void_p * pointers)()
        found[function] = [called(words, ctypes.c_uint32(index), places) for index in range(4)]
    assert found["tuccl_programs_at"] == [True, False, False, False]
    assert found["tuccl_phased_at"] == [False, False, True, False]
    header, phases = places
    start = ctypes.addressof(words) + len(section) - len(compile_phases(PLAN))
    assert (header, phases) == (start, start + PHASES)


def keeps_the_form(data: bytes) -> bool:
    try:
        phased = unpacked_phases(data)
        check_form(phased)
    except (struct.error, ValueError, IndexError, NoProgramError):
        return False
    return packed_phases(phased, in_place=bool(data[34])) == data


@pytest.mark.long
def test_the_loader_accepts_what_keeps_the_form_and_nothing_else(check: Check) -> None:
    rng = random.Random(2)
    plans = (STEERED, *all_plans(2, 2), *all_plans(3, 4), *all_plans(2, 1))
    good = [compile_phases(plan) for plan in plans]
    telling = [0, 1, 2, 3, 4, 5, 8, 16, 65535, 65536, 65537, 2**31, 2**32 - 1]
    accepted = 0
    for _ in range(5000):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 2)):
            if rng.random() < 0.5:
                data[rng.randrange(32, len(data))] = rng.choice([0, 1, 2, 3, 4, 5, 255])
            else:
                at = rng.randrange(32, len(data) - 3) // 4 * 4
                struct.pack_into("<I", data, at, rng.choice(telling))
        changed = sealed(bytes(data))
        accepted += keeps_the_form(changed)
        assert (check(changed) == "") == keeps_the_form(changed), changed.hex()
    assert 200 < accepted < 2500


def phase_fuzzer_of(folder: Path) -> Path:
    needs_runtime(folder, *MEMORY)
    own = [NATIVE / name for name in ("fuzz_phased.c", "harness.c", "mutation.c")]
    sources = [*own, *sorted(RUNTIME.glob("*.c"))]
    return compile_c(folder / "fuzz_phased", sources, *MEMORY)


@pytest.mark.long
def test_mutated_phased_programs_do_no_harm(tmp_path: Path) -> None:
    fuzzer = phase_fuzzer_of(tmp_path)
    accepted = 0
    plans = [*all_plans(2, 2), *all_plans(3, 1), STEERED]
    for seed, plan in enumerate(plans):
        file = tmp_path / f"{seed}.program"
        file.write_bytes(compile_phases(plan))
        accepted += int(run(fuzzer, file, 5_000, seed).split(", ")[1].split()[0])
    assert 10_000 < accepted < 4_000 * len(plans)
    file = tmp_path / "large.program"
    file.write_bytes(packed_phases(all_plans(MOST_NODES, 8)[-1], in_place=True))
    assert run(fuzzer, file, 500, 5).startswith("500 mutated")
    section = tmp_path / "section"
    programs = [compile_program(exchange()), b"", *map(compile_phases, plans[:2])]
    section.write_bytes(programs_section(programs))
    assert run(fuzzer, section, 20_000, 9, "s").startswith("20000 mutated")
