"""Operations as people write them."""

import pytest

from lookup_tables.table import Operation
from tuccl.errors import UsageError
from tuccl.operation_names import parse_operation


def test_operations_are_understood_however_they_are_written() -> None:
    for name in ("ReduceScatter", "reduce-scatter", "reduce_scatter"):
        assert parse_operation(name) is Operation.REDUCE_SCATTER
    with pytest.raises(UsageError, match="all_scatter"):
        parse_operation("all_scatter")
