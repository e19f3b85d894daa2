"""Programs rearranged into moves: fewer operations with the effect of the steps."""

import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm, Buffer, StepType
from synthesizer.programs import layout
from synthesizer.programs.compiler import compile_program
from tests.runtime.builds import NATIVE, compile_native, run
from tests.runtime.host_node import INTERPRETER
from tests.runtime.raw_programs import RawStep, raw_program
from tests.synthesizer.hand_schedules import algorithm as schedule
from tests.synthesizer.hand_schedules import block, i, o, s, step
from tests.synthesizer.hand_sketches import switched

pytestmark = pytest.mark.long

Show = Callable[[Algorithm], list[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("moves") / "show_moves"
    return compile_native(output, [*INTERPRETER, NATIVE / "show_moves.cc"], "-O1")


@pytest.fixture
def show(program: Path, tmp_path: Path) -> Show:
    """Return the lines of show_moves.cc for a schedule; their syntax is described there."""

    def lines(algorithm: Algorithm) -> list[str]:
        path = tmp_path / "a.program"
        path.write_bytes(compile_program(algorithm))
        return run(program, path).removeprefix(str(path)).splitlines()

    return lines


def expert(collective: Collective, ranks: int, name: str) -> Algorithm:
    algorithms = expert_algorithms(collective, switched(1, ranks))
    (algorithm,) = (algorithm for algorithm in algorithms if algorithm.name == name)
    return algorithm


def of_rank(lines: list[str], rank: int) -> list[str]:
    first = lines.index(f"rank {rank}") + 1
    after = lines.index(f"rank {rank + 1}") if f"rank {rank + 1}" in lines else len(lines)
    return lines[first:after]


def test_one_phase_is_two_moves(show: Show) -> None:
    """Five threadblocks: now one load for all sends, and one sum of all parts, without scratch."""
    lines = show(expert(Collective.ALL_REDUCE, 3, "all_reduce_all_pairs_one_phase"))
    assert lines[0] == ", all receive from all: 2 moves, 7 operands, 4 links"
    assert of_rank(lines, 0) == [" i0 > 1:1#1.0! 2:0#1.0!", " i0 0:0#1.0 0:1#1.0 +!> o0"]


@pytest.mark.parametrize(
    ("ranks", "name", "found"),
    [
        # A GPU reads its own chunk once for sixteen places, and sums eight parts at a time.
        (16, "all_gather_all_pairs", "3 moves, 47 operands, 30 links"),
        (16, "all_reduce_all_pairs_one_phase", "4 moves, 37 operands, 30 links"),
        (32, "all_gather_all_pairs", "6 moves, 96 operands, 62 links"),
        (32, "all_reduce_all_pairs_one_phase", "7 moves, 74 operands, 62 links"),
        (32, "alltoall_all_pairs", "8 moves, 126 operands, 62 links"),
    ],
)
def test_direct_schedules_of_many_ranks_have_moves(
    show: Show, ranks: int, name: str, found: str
) -> None:
    (operation,) = (each for each in COLLECTIVES if name.startswith(f"{each}_all_pairs"))
    assert show(expert(operation, ranks, name))[0] == f", all receive from all: {found}"


def test_two_phases_are_three_moves(show: Show) -> None:
    """Sums go out from where they are made; what has nothing to do with each other is grouped."""
    lines = show(expert(Collective.ALL_REDUCE, 3, "all_reduce_all_pairs_two_phase"))
    assert of_rank(lines, 1) == [
        " i0 i2 > 0:0#1.0!<0 2:1#1.0!<1",
        " i1 1:1#1.0 1:0#1.0 +!> 0:0#2.0! o1 2:1#2.0!",
        " 1:0#2.0 1:1#2.0 > o0<0 o2<1",
    ]


def test_a_ring_hands_on_what_it_takes(show: Show) -> None:
    lines = show(expert(Collective.ALL_REDUCE, 3, "all_reduce_ring_1x"))
    assert lines[0] == ", all receive from all: 5 moves, 14 operands, 2 links"
    assert of_rank(lines, 0) == [
        " i0 > 2:0#1.0!",
        " i2 0:0#1.0 +> 2:0#2.0!",
        " i1 0:0#2.0 +!> 2:0#3.0! o1",
        " 0:0#3.0 > 2:0#4.0! o0",
        " 0:0#4.0 > o2",
    ]


def test_who_sends_alone_hears_from_nobody(show: Show) -> None:
    lines = show(expert(Collective.REDUCE, 3, "reduce_tree_1c"))
    assert lines[0] == ": 1 moves, 4 operands, 2 links"
    assert of_rank(lines, 1) == [" i0 > 0:0#1.0!"]


def test_input_is_read_before_the_output_in_its_place_is_written(show: Show) -> None:
    """Rank 0 keeps its part in scratch, because in place its sum overwrites it."""
    keeps = [
        step("cpy", i(0), s(0)),
        step("rrc", i(0), o(0)),
        step("s", s(0), o(0)),
    ]
    gives = [step("s", i(0), o(0)), step("rrc", i(0), o(0))]
    ranks = [[block(0, 1, 1, *keeps)], [block(0, 0, 0, *gives)]]
    lines = show(schedule(Collective.ALL_REDUCE, 1, ranks, scratch=1))
    for rank in range(2):
        assert of_rank(lines, rank) == [f" i0 > {1 - rank}:0#1.0!", f" i0 {rank}:0#1.0 +!> o0"]


def test_a_message_ends_with_its_last_chunk(show: Show) -> None:
    """Chunks of a message may be sent by several moves."""
    lines = show(expert(Collective.REDUCE_SCATTER, 4, "reduce_scatter_recursive_halving"))
    assert of_rank(lines, 0) == [
        " i2 i3 > 2:0#1.0<0 2:0#1.1!<1",
        " i1 0:0#1.1 +> 1:1#1.0!",
        " i0 0:0#1.0 0:1#1.0 +!> o0",
    ]


@pytest.mark.parametrize(("chunks", "moves"), [(8, 1), (9, 0)])
def test_a_connection_holds_the_messages_of_a_tile(show: Show, chunks: int, moves: int) -> None:
    """Nine messages need a slot twice in a tile: such a program runs step by step."""
    sends = [step("s", i(chunk), o(chunk)) for chunk in range(chunks)]
    copies = [step("cpy", i(0), o(0), count=chunks)]
    takes = [step("r", o(chunk)) for chunk in range(chunks)]
    ranks = [[block(0, 1, -1, *sends), block(1, -1, -1, *copies)], [block(0, -1, 0, *takes)]]
    assert f" {moves} moves" in show(schedule(Collective.BROADCAST, chunks, ranks))[0]


def test_a_program_that_moves_too_much_costs_nothing(program: Path, tmp_path: Path) -> None:
    """96 KB of steps, each of which moves 65,535 chunks: 268 million moves, none of them made."""
    path = tmp_path / "a.program"
    step = RawStep(StepType.COPY, count=layout.MOST_STEPS)
    path.write_bytes(raw_program([[[step] * 2042]] * 2, scratch=layout.MOST_CHUNKS))
    assert 96_000 < path.stat().st_size < 100_000

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
        resource.setrlimit(resource.RLIMIT_CPU, (2, 2))

    done = subprocess.run(
        [program, path], preexec_fn=limit, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{path}: 0 moves, 0 operands, 0 links\n"


def test_programs_share_what_may_be_compared(program: Path, tmp_path: Path) -> None:
    """Sums in place, which must be compared; the second program has no comparisons left."""
    output = Buffer.OUTPUT, Buffer.OUTPUT
    steps = [RawStep(StepType.REDUCE, at + 1, at, buffers=output) for at in range(60)]
    path = tmp_path / "a.program"
    path.write_bytes(raw_program([[steps], [steps]], scratch=0, chunks=61))

    def moves_of_both(*words: str) -> list[int]:
        out = run(program, *words, path, path)
        heads = [line for line in out.splitlines() if line.startswith(str(path))]
        return [int(head.split(" moves")[0].split()[-1]) for head in heads]

    first, second = moves_of_both()
    assert first == second > 0
    enough = next(n for n in range(1, 30) if moves_of_both("-c", str(2**n))[0] == first)
    assert moves_of_both("-c", str(2 ** (enough - 1))) == [0, 0]
    assert moves_of_both("-c", str(2**enough + 1)) == [first, 0]
