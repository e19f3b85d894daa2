"""The order of a stage's statements: what each port carries when, and the same effect."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Program, Statement
from synthesizer.programs.stage_order import in_good_order

INPUT, OUTPUT, SCRATCH = Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH
ONE_NODE = (0, 0, 0, 0)


def copy(src: int, dst: int) -> Statement:
    """Copy the block of a rank from its input to another rank's output."""
    return Statement(Chunk(src, INPUT, 0), Chunk(dst, OUTPUT, src), None, 0)


def ordered(
    statements: Sequence[Statement], node_of_rank: Sequence[int] = ONE_NODE
) -> tuple[Statement, ...]:
    buffers = Program(Collective.ALL_GATHER, len(node_of_rank), 1)
    return in_good_order(statements, buffers, node_of_rank)


def test_every_port_carries_a_block_at_a_time() -> None:
    found = ordered([copy(src, dst) for src in range(4) for dst in range(4) if src != dst])
    ends = [(statement.src.rank, statement.dst.rank) for statement in found]
    assert len(set(ends)) == 12
    for first in (0, 4, 8):
        senders, receivers = zip(*ends[first : first + 4], strict=True)
        assert sorted(senders) == sorted(receivers) == [0, 1, 2, 3]


def test_the_longest_chain_comes_first() -> None:
    relay = Statement(Chunk(1, OUTPUT, 0), Chunk(2, OUTPUT, 0), None, 0)
    found = ordered([copy(0, 3), copy(0, 1), relay])
    assert found == (copy(0, 1), copy(0, 3), relay)


def test_nodes_follow_one_another() -> None:
    found = ordered([copy(2, 3), copy(0, 1), copy(3, 2), copy(1, 0)], (0, 0, 1, 1))
    assert [statement.dst.rank // 2 for statement in found] == [0, 0, 1, 1]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4, st.booleans()), max_size=14))
def test_what_touches_the_same_place_keeps_its_order(
    drawn: list[tuple[int, int, int, int, bool]],
) -> None:
    statements = []
    for src, source, dst, target, adds in drawn:
        into = Chunk(dst, SCRATCH, target)
        statements.append(Statement(Chunk(src, SCRATCH, source), into, into if adds else None, 0))
    found = ordered(statements)
    assert sorted(map(repr, found)) == sorted(map(repr, statements))
    assert _run(found) == _run(statements)


def _run(statements: Sequence[Statement]) -> dict[Chunk, str]:
    """Return the history of each place that is written."""
    held: dict[Chunk, str] = {}
    for statement in statements:
        value = held.get(statement.src, str(statement.src))
        if statement.operand is not None:
            value = f"({held.get(statement.operand, str(statement.operand))}+{value})"
        held[statement.dst] = value
    return held


def test_in_place_an_output_is_not_written_before_the_input_on_it_is_read() -> None:
    # In place the input of rank 1 is block 1 of its output.
    overwrite = Statement(Chunk(0, INPUT, 0), Chunk(1, OUTPUT, 1), None, 0)
    assert ordered([copy(1, 2), overwrite]) == (copy(1, 2), overwrite)
    apart = Program(Collective.ALL_GATHER, 4, 1, in_place=False)
    swapped = in_good_order([copy(1, 0), copy(1, 2), overwrite], apart, ONE_NODE)
    assert swapped.index(overwrite) < swapped.index(copy(1, 2))
