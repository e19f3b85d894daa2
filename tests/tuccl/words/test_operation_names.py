"""Operations as people write them."""

import pytest

from lookup_tables.table import Operation
from tuccl.errors import UsageError
from tuccl.words.operation_names import parse_operation, parse_operations


def test_operations_are_understood_however_they_are_written() -> None:
    for name in ("ReduceScatter", "reduce-scatter", "reduce_scatter"):
        assert parse_operation(name) is Operation.REDUCE_SCATTER
    with pytest.raises(UsageError, match="all_scatter"):
        parse_operation("all_scatter")


def test_several_operations_are_each_there_once_in_one_order() -> None:
    found = parse_operations("reduce_scatter, AllGather,,reducescatter")
    assert found == (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
    with pytest.raises(UsageError, match="no operation given"):
        parse_operations(" ,")
