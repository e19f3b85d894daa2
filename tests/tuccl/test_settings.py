"""Settings from the command line's words."""

from __future__ import annotations

import pytest

from lookup_tables.table import Operation
from tuccl.errors import UsageError
from tuccl.settings import TUNABLE_OPERATIONS, parse_operation


@pytest.mark.parametrize("name", ["alltoall", "AllToAll", "all_to_all"])
def test_what_nccl_asks_no_tuner_about_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UsageError, match=r"asks no tuner; `tuccl synthesize --op alltoall` makes"):
        parse_operation(name)


def test_all_others_are_understood_however_they_are_written() -> None:
    assert set(TUNABLE_OPERATIONS) == set(Operation) - {Operation.ALLTOALL}
    for name in ("ReduceScatter", "reduce-scatter", "reduce_scatter"):
        assert parse_operation(name) is Operation.REDUCE_SCATTER
    with pytest.raises(UsageError, match="all_scatter"):
        parse_operation("all_scatter")
