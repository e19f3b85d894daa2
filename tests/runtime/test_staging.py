"""How much device memory a table asks for; figures worked by hand."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from programs.compiler import compile_program
from tests.programs.schedules import exchange
from tests.runtime.conftest import RUNTIME
from tests.runtime.test_executor import EXECUTOR, FOLDER, compile_all, link

Show = Callable[..., list[int]]
MIB = 1 << 20
NOTHING = "broadcast 1 1 direct ll 1 32 0\n"
C_SOURCES = ("program.c", "program_rehearsal.c", "program_section.c", "crc32.c")
CC_SOURCES = ("decision.cc", "program_plan.cc", "rules_file.cc", "staging_need.cc")


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Show:
    """LL: part, phases; LL128: part, phases; programs: LL, LL128, Simple, scratch; all bytes."""
    folder = tmp_path_factory.mktemp("staging")
    sources = [FOLDER / "show_staging.cc", *(EXECUTOR / name for name in CC_SOURCES)]
    objects = compile_all(folder, [*sources, *(RUNTIME / name for name in C_SOURCES)], [])
    program = link(folder / "show", objects)

    def run(ranks: int, rules: str, *programs: Path) -> list[int]:
        command = [str(program), str(ranks), rules, *map(str, programs)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [int(word) for word in done.stdout.split()]

    return run


def test_a_rule_without_a_kernel_and_a_program_needs_nothing(show: Show) -> None:
    assert show(4, NOTHING)[:8] == [0] * 8
    assert show(4, NOTHING)[8] < MIB / 8  # The state that launches share.


def test_lines_of_the_largest_message(show: Show) -> None:
    least = show(4, NOTHING)[8]
    # 65536 bytes are 8192 lines of 16 bytes from each of 4 ranks, in two halves.
    small = show(4, "all_reduce 1 65536 one_phase ll 8 512 0\n")
    assert small == [131072, 1, 0, 0, 0, 0, 0, 0, least + 2 * 4 * 131072]
    # A shard is 262144 bytes, 547 pieces of 512; there are two phases.
    middle = show(4, "all_reduce 1 1048576 two_phase ll128 8 512 0\n")
    assert middle == [0, 0, 280064, 2, 0, 0, 0, 0, least + 2 * 2 * 4 * 280064]
    # A part is whole pieces of LL128 under LL too.
    assert show(3, "all_gather 1 100 direct ll 1 32 0\n")[:2] == [512, 1]


def test_the_largest_of_all_rules_counts(show: Show) -> None:
    rules = (
        "all_reduce 1 4096 two_phase ll 8 512 0\n"
        "all_reduce 4097 8192 one_phase ll 8 512 0\n"
        "alltoall 1 4096 direct ll128 8 512 0\n"
    )
    assert show(2, rules)[:4] == [16384, 2, 2560, 1]


def test_messages_beyond_the_most_are_cut(show: Show) -> None:
    rules = (
        f"all_gather 1 {64 * MIB} direct ll128 8 512 0\n"
        f"all_reduce 1 {2**64 - 1} one_phase ll 8 512 0\n"
    )
    assert show(4, rules)[:4] == [MIB, 1, 18 * MIB // 4, 1]
    whole = show(4, "")
    assert whole[:8] == [MIB, 2, 18 * MIB // 4, 2, *(many * MIB for many in (8, 16, 32, 32))]
    assert whole[8] == (2 * 2 * 22 + 2 * 56 + 32) * MIB + show(4, NOTHING)[8]


def test_a_program_needs_its_connections(show: Show, tmp_path: Path) -> None:
    file = tmp_path / "exchange.program"
    file.write_bytes(compile_program(exchange()))
    # One connection a rank, in two instances, of 65536 bytes; a scratch chunk's tile is a slot, and
    # there are two of each.
    simple = show(2, "all_reduce 1 1000 program:0 simple 2 64 65536\n", file)
    assert simple[:8] == [0, 0, 0, 0, 0, 0, 131072, 32768]
    assert simple[8] == show(2, NOTHING)[8] + 2 * 131072 + 32768
    low_latency = show(2, "all_reduce 1 1000 program:0 ll 2 64 65536\n", file)
    assert low_latency[:8] == [0, 0, 0, 0, 131072, 0, 0, 16384]
    assert show(2, "all_reduce 1 1000 program:1 ll 2 64 65536\n", file)[:8] == [0] * 8
    assert show(2, "all_gather 1 1000 program:0 ll 2 64 65536\n", file)[:8] == [0] * 8
