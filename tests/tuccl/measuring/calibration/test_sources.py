from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import Shape
from tests.tuccl.measuring.records.tiny_grid import tiny_grid
from tuccl.errors import InputFileError, UsageError
from tuccl.measuring.calibration.nccl_tests import NcclTestsRun
from tuccl.measuring.calibration.sources import from_nccl_tests, from_record
from tuccl.models.figures import Fabric, Generation, figures_of


@pytest.mark.parametrize("replayed", [False, True])
def test_times_of_the_stand_in_are_not_taken_for_those_of_nccl(*, replayed: bool) -> None:
    grid = tiny_grid()
    assert from_record(grid, grid.topology).observations
    stand_in = replace(grid, provenance=Provenance("sockets", replayed=replayed))
    with pytest.raises(UsageError, match="stand-in whose times say nothing about NCCL"):
        from_record(stand_in, grid.topology)


def test_an_output_of_nvls_is_of_gpus_with_multicast() -> None:
    run = NcclTestsRun(Collective.ALL_REDUCE, 8, 0, ((1 << 30, 3941.0),), 1.75, 0, ran_nvls=True)
    with_it, without = (
        figures_of(Shape(8, 1, 8), Fabric.NVLINK, Generation.HOPPER, 450.0, multicasts=multicasts)
        for multicasts in (True, False)
    )
    assert from_nccl_tests(run, with_it, None, "output.txt").observations
    with pytest.raises(InputFileError, match="GPUs have no multicast"):
        from_nccl_tests(run, without, None, "output.txt")
