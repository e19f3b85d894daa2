"""The calls that time a key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.search.trials.config import Task


@pytest.mark.parametrize(
    ("operation", "ranks", "size_bytes", "called_bytes"),
    [
        (Collective.ALL_GATHER, 8, 1024, 1024),
        (Collective.ALL_REDUCE, 3, 1024, 1024),
        (Collective.ALL_GATHER, 3, 1024, 1008),  # 3 x 336, of 341 bytes a rank
        (Collective.REDUCE_SCATTER, 24, 1024, 768),  # 24 x 32, of 42
        (Collective.ALLTOALL, 100, 1024, 800),  # 100 x 8, of 10
        (Collective.ALL_GATHER, 3, 1026, 1026),  # 171 elements a rank, as a workload has them
        (Collective.ALL_GATHER, 1024, 1024, 1024),  # No element for each: NCCL's engine refuses it.
    ],
)
def test_sizes_that_ranks_cannot_divide_are_rounded_down(
    operation: Collective, ranks: int, size_bytes: int, called_bytes: int
) -> None:
    assert Task(operation, size_bytes, Shape(ranks, 1, ranks)).called_bytes == called_bytes


@given(st.integers(2, 1024), st.integers(1, 1 << 30))
def test_calls_have_whole_elements_and_are_hardly_smaller(ranks: int, size_bytes: int) -> None:
    task = Task(Collective.ALL_GATHER, size_bytes, Shape(ranks, 1, ranks))
    if size_bytes < 2 * ranks:
        return
    assert task.called_bytes % (2 * ranks) == 0
    assert max(size_bytes - 16 * ranks, size_bytes // 2 - ranks) < task.called_bytes <= size_bytes
