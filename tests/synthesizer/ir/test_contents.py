"""Post-conditions computed by hand for three ranks."""

import pytest

from lookup_tables.collective import Collective
from synthesizer.ir.contents import (
    Sum,
    initial_contents,
    input_chunks,
    output_chunks,
    postcondition,
)


def contributions(
    collective: Collective, chunks: int, rank: int, root: int = 0
) -> list[tuple[tuple[int, int], ...]]:
    return [
        tuple((summand, value.chunk) for summand in range(3) if value.ranks >> summand & 1)
        for value in postcondition(collective, 3, chunks, rank, root)
    ]


def test_all_reduce_wants_every_rank_once_in_every_chunk() -> None:
    right = [((0, 0), (1, 0), (2, 0)), ((0, 1), (1, 1), (2, 1))]
    assert contributions(Collective.ALL_REDUCE, 2, rank=1) == right


def test_all_gather_wants_the_ranks_parts_in_order() -> None:
    right = [((0, 0),), ((0, 1),), ((1, 0),), ((1, 1),), ((2, 0),), ((2, 1),)]
    assert contributions(Collective.ALL_GATHER, 6, rank=2) == right


def test_reduce_scatter_wants_the_sum_of_the_own_part() -> None:
    right = [((0, 2), (1, 2), (2, 2)), ((0, 3), (1, 3), (2, 3))]
    assert contributions(Collective.REDUCE_SCATTER, 6, rank=1) == right


def test_alltoall_wants_the_own_part_of_every_rank() -> None:
    right = [((0, 4),), ((0, 5),), ((1, 4),), ((1, 5),), ((2, 4),), ((2, 5),)]
    assert contributions(Collective.ALLTOALL, 6, rank=2) == right


def test_broadcast_wants_the_roots_buffer_everywhere() -> None:
    assert contributions(Collective.BROADCAST, 2, rank=0, root=2) == [((2, 0),), ((2, 1),)]


def test_reduce_wants_nothing_but_at_the_root() -> None:
    assert contributions(Collective.REDUCE, 1, rank=2, root=2) == [((0, 0), (1, 0), (2, 0))]
    assert contributions(Collective.REDUCE, 1, rank=0, root=2) == []


def test_custom_has_no_postcondition() -> None:
    with pytest.raises(ValueError, match="no post-condition"):
        postcondition(Collective.CUSTOM, 2, 1, 0)


@pytest.mark.parametrize(
    ("collective", "inputs", "outputs"),
    [
        (Collective.ALL_REDUCE, 12, 12),
        (Collective.ALL_GATHER, 3, 12),
        (Collective.REDUCE_SCATTER, 12, 3),
        (Collective.ALLTOALL, 12, 12),
        (Collective.BROADCAST, 0, 12),
        (Collective.REDUCE, 12, 0),
    ],
)
def test_chunk_counts_of_rank_1_of_4(collective: Collective, inputs: int, outputs: int) -> None:
    assert input_chunks(collective, 4, 12, rank=1) == inputs
    assert output_chunks(collective, 4, 12, rank=1) == outputs


def test_a_rank_starts_with_its_own_chunks() -> None:
    assert initial_contents(Collective.ALL_GATHER, 2, 4, rank=1) == (Sum(0, 2), Sum(1, 2))
    assert initial_contents(Collective.BROADCAST, 2, 4, rank=1) == ()
