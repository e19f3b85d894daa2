from dataclasses import replace

import pytest

from lookup_tables.provenance import Provenance
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tuccl.errors import UsageError
from tuccl.measuring.calibration.sources import from_record


@pytest.mark.parametrize("replayed", [False, True])
def test_times_of_the_stand_in_are_not_taken_for_those_of_nccl(*, replayed: bool) -> None:
    grid = tiny_grid()
    assert from_record(grid, grid.topology).observations
    stand_in = replace(grid, provenance=Provenance("sockets", replayed=replayed))
    with pytest.raises(UsageError, match="stand-in whose times say nothing about NCCL"):
        from_record(stand_in, grid.topology)
