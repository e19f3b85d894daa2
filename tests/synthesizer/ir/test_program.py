"""The builder's rules."""

import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from synthesizer.ir.program import Program
from tuccl.errors import ProgramError


def test_buffers_follow_the_collective() -> None:
    sizes = {
        collective: (p.input_chunks, p.output_chunks, p.chunks_per_loop)
        for collective in COLLECTIVES
        for p in [Program(collective, 4, 3)]
    }
    assert sizes[Collective.ALL_GATHER] == (3, 12, 12)
    assert sizes[Collective.REDUCE_SCATTER] == (12, 3, 12)
    assert sizes[Collective.ALLTOALL] == (12, 12, 12)
    assert sizes[Collective.ALL_REDUCE] == (3, 3, 3)


def test_in_place_input_chunks_lie_on_their_own_block_of_the_output() -> None:
    gather = Program(Collective.ALL_GATHER, 4, 2)
    own, block = gather.input(3, 1), gather.output(3, 7)
    assert gather.location(own, in_place=True) == gather.location(block, in_place=True) == (3, 7)
    assert gather.location(own, in_place=False) != gather.location(block, in_place=False)
    scatter = Program(Collective.REDUCE_SCATTER, 4, 2)
    assert scatter.location(scatter.input(3, 7), in_place=True) == (3, 7)
    assert scatter.location(scatter.output(3, 1), in_place=True) == (3, 7)
    assert scatter.location(scatter.scratch(3), in_place=True) == (3, 8)


def test_a_program_may_not_write_its_input() -> None:
    program = Program(Collective.ALL_REDUCE, 2, 1)
    with pytest.raises(ProgramError, match="rank 1 would overwrite its input"):
        program.copy(program.input(0, 0), program.input(1, 0))


def test_chunks_outside_a_buffer_are_named() -> None:
    program = Program(Collective.ALL_GATHER, 2, 1)
    with pytest.raises(ProgramError, match="chunks 2 to 2 lie outside buffer o of rank 1"):
        program.output(1, 2)
    with pytest.raises(ProgramError, match="no rank 5"):
        program.output(5, 0)


def test_operands_must_fit_together() -> None:
    program = Program(Collective.ALL_REDUCE, 3, 4)
    with pytest.raises(ProgramError, match="differ in length"):
        program.copy(program.input(0, 0, 2), program.output(1, 0, 3))
    with pytest.raises(ProgramError, match="is not on rank 1"):
        program.reduce(program.input(0, 0), program.output(1, 0), program.input(2, 0))
    with pytest.raises(ProgramError, match="adds to its destination"):
        program.reduce(program.input(0, 0), program.output(0, 0), program.input(0, 1))


@pytest.mark.parametrize(("ranks", "chunks", "root"), [(1, 1, 0), (2, 0, 0), (2, 1, 2), (2, 1, -1)])
def test_impossible_shapes_are_refused(ranks: int, chunks: int, root: int) -> None:
    with pytest.raises(ProgramError):
        Program(Collective.BROADCAST, ranks, chunks, root)


def test_a_copy_onto_itself_is_recognised_in_place_only() -> None:
    for in_place in (True, False):
        program = Program(Collective.ALL_GATHER, 2, 1, in_place=in_place)
        program.copy(program.input(1, 0), program.output(1, 1))
        assert program.is_self_copy(program.statements[0]) is in_place
