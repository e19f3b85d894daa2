import os
from pathlib import Path

import pytest

from tuccl.atomic_file import PARTIAL_PREFIX
from tuccl.errors import WorkspaceBusyError, WorkspaceError
from tuccl.workspace import RunRecord, Workspace

RECORD = RunRecord(
    identity="0123456789abcdef",
    options={"nodes": 2},
    complete=False,
    tuned_at="2026-01-01T00:00:00Z",
)


def test_a_new_workspace_writes_nothing_until_it_is_locked(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "new")
    assert workspace.record() is None
    assert not workspace.root.exists()
    with workspace.lock():
        assert (workspace.root / "lock").read_text() == f"{os.getpid()}\n"


def test_the_record_is_read_back_equal(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write_record(RECORD)
    assert workspace.record() == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 2}'])
def test_a_damaged_or_newer_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(WorkspaceError, match=r"run\.json"):
        Workspace(tmp_path).record()


def test_the_lock_names_its_holder_and_can_be_taken_again_after_it(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    holder = str(os.getpid())
    with (
        workspace.lock(),
        pytest.raises(WorkspaceBusyError, match=holder),
        workspace.lock(),
    ):
        pass
    with workspace.lock():
        pass


def test_what_a_killed_write_left_is_removed(tmp_path: Path) -> None:
    below = tmp_path / "sketches"
    below.mkdir()
    (below / f"{PARTIAL_PREFIX}x1y2").write_text("half a fi")
    (below / "pruned.json").write_text("{}")
    with Workspace(tmp_path).lock():
        pass
    assert [path.name for path in below.iterdir()] == ["pruned.json"]
