"""The environment and the directory of a recorded job."""

from __future__ import annotations

from pathlib import Path

import pytest

import tuccl.runtime
from tuccl.errors import UsageError, WorkspaceError
from tuccl.runtime import EXECUTOR_NAME, PROFILER_NAME
from tuccl.workloads.job_recording import (
    job_environment,
    recording_directory,
    recording_variables,
)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / PROFILER_NAME
    path.touch()
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(tmp_path)])
    return path


def test_the_jobs_own_variables_stay(plugin: Path, tmp_path: Path) -> None:
    own = {"NCCL_DEBUG": "INFO", "LD_PRELOAD": "/a.so:/b.so", "NCCL_PROFILER_PLUGIN": "none"}
    environment = job_environment(own, tmp_path)
    assert environment.variables == {
        "NCCL_DEBUG": "INFO",
        "LD_PRELOAD": "/a.so:/b.so",
        "NCCL_PROFILER_PLUGIN": str(plugin),
        "TUCCL_RECORD": str(tmp_path),
    }
    assert not environment.lost_executor


def test_the_executor_alone_is_not_preloaded(plugin: Path, tmp_path: Path) -> None:
    own = {"LD_PRELOAD": f"/a.so:/x/{EXECUTOR_NAME} /b.so"}
    environment = job_environment(own, tmp_path)
    assert environment.variables["LD_PRELOAD"] == "/a.so /b.so"
    assert environment.lost_executor


def test_a_path_that_nccl_cuts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("a" * 200)
    folder.mkdir()
    (folder / PROFILER_NAME).touch()
    monkeypatch.setattr(tuccl.runtime, "__path__", [str(folder)])
    with pytest.raises(UsageError, match="longer than the 254 bytes that NCCL takes"):
        recording_variables(tmp_path)


def test_a_directory_is_removed_with_its_files(tmp_path: Path) -> None:
    with recording_directory(tmp_path / "W.json") as directory:
        (directory / "file").touch()
    assert not directory.exists()
    with pytest.raises(WorkspaceError), recording_directory(tmp_path / "no" / "W.json"):
        pass


@pytest.mark.parametrize("names", [["file"], []])
def test_files_of_failed_work_are_kept(tmp_path: Path, names: list[str]) -> None:
    def work() -> None:
        with recording_directory(tmp_path / "W.json") as directory:
            for name in names:
                (directory / name).touch()
            raise KeyError

    with pytest.raises(KeyError):
        work()
    found = [path.name for directory in tmp_path.iterdir() for path in directory.iterdir()]
    assert found == names
    assert len(list(tmp_path.iterdir())) == len(names)
