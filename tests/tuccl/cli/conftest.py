"""Jobs of `workload bench` and `workload trim`, over the stand-in of NCCL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.builds import compile_native
from tests.tuccl.measuring.engines.nccl_stand_ins import NATIVE, StandIns


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that starts a communicator."""
    folder = tmp_path_factory.mktemp("job")
    return compile_native(folder / "job", [NATIVE / "start_communicator.c"], "-ldl")


@pytest.fixture
def jobs_find_nccl(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which jobs find the stand-in of NCCL."""
    for variable in ("NCCL_DEBUG", "LD_PRELOAD", "TUCCL_BUNDLE", "NCCL_TUNER_PLUGIN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_ins.folder))
