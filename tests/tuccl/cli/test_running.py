"""Which process of a job leads."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tuccl.api import running
from tuccl.errors import UsageError
from tuccl.options.run_options import RunOptions


def test_ranks_of_an_mpi_job_share_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is said before anything is probed or written."""

    def lead(*_: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    options = RunOptions(topology=None, backend="nccl", fake_nodes=True, share_gpus=True, nodes=2)
    with pytest.raises(UsageError, match="within 4 tasks of MPI"):
        running.with_ranks(options, lead, lead, lead, lead)
