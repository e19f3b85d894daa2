"""What a run refuses before anything is probed."""

from __future__ import annotations

from contextlib import closing
from typing import NoReturn

import pytest

from tuccl.api.running import lead_run
from tuccl.crew.places import LocalPlaces
from tuccl.errors import UsageError
from tuccl.options.run_options import RunOptions


def test_ranks_of_an_mpi_job_share_no_gpus() -> None:
    """Which is said before anything is probed or written."""

    def lead(*_: object) -> NoReturn:
        raise AssertionError

    options = RunOptions(topology=None, backend="nccl", fake_nodes=True, share_gpus=True, nodes=2)
    with (
        closing(LocalPlaces(4)) as places,
        pytest.raises(UsageError, match="within 4 tasks of a launcher"),
    ):
        lead_run(options, places, lead, lead, lead, lead)
