import os
from pathlib import Path

import pytest

from tuccl.errors import WorkspaceError
from tuccl.workspace.atomic_file import PARTIAL_PREFIX
from tuccl.workspace.runs import RunRecord, Workspace

IDENTITY = "0123456789abcdef"
RECORD = RunRecord(
    identity=IDENTITY, options={"nodes": 2}, complete=False, tuned_at="2026-01-01T00:00:00Z"
)


def test_a_new_workspace_writes_nothing_until_it_is_locked(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "new")
    assert workspace.run(IDENTITY).record() is None
    assert not workspace.root.exists()
    with workspace.lock(IDENTITY):
        assert (workspace.root / "lock").read_text() == f"{os.getpid()}\n"


def test_the_record_is_read_back_equal(tmp_path: Path) -> None:
    with Workspace(tmp_path).lock(IDENTITY) as run:
        run.write_record(RECORD)
    assert Workspace(tmp_path).run(IDENTITY).record() == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', "[" * 100_000])
def test_a_damaged_record_is_refused(tmp_path: Path, text: str) -> None:
    with Workspace(tmp_path).lock(IDENTITY) as run:
        (run.root / "run.json").write_text(text)
        with pytest.raises(WorkspaceError, match=r"run\.json is damaged"):
            run.record()


def test_a_newer_record_is_refused_politely(tmp_path: Path) -> None:
    with Workspace(tmp_path).lock(IDENTITY) as run:
        run.write_record(RECORD)
        path = run.root / "run.json"
        path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
        with pytest.raises(WorkspaceError, match="has version 2, this release reads 1"):
            run.record()


def test_without_a_finished_run_there_is_no_current_one(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with pytest.raises(WorkspaceError, match="no finished run"):
        workspace.current()
    (tmp_path / "tuccl.env").write_text("")
    with pytest.raises(WorkspaceError, match="`tuccl ship` wrote it; name the workspace"):
        workspace.current()
    assert not workspace.is_current(IDENTITY)
    workspace.set_current(IDENTITY)
    assert workspace.is_current(IDENTITY)
    for damaged in (
        "?",
        r'{"version": 1, "identity": "\u0000"}',
        '{"version": 1, "identity": ".."}',
    ):
        (tmp_path / "current.json").write_text(damaged)
        with pytest.raises(WorkspaceError, match="damaged"):
            workspace.current()


def test_the_lock_names_its_holder_and_can_be_taken_again_after_it(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    holder = str(os.getpid())
    with (
        workspace.lock(IDENTITY),
        pytest.raises(WorkspaceError, match=holder),
        workspace.lock("another"),
    ):
        pass
    with workspace.lock(IDENTITY):
        pass


def test_what_a_killed_write_left_is_removed_in_the_run_and_nowhere_else(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    below = workspace.run(IDENTITY).root / "sketches"
    below.mkdir(parents=True)
    (below / f"{PARTIAL_PREFIX}x1y2").write_text("half a fi")
    (below / "pruned.json").write_text("{}")
    elsewhere = tmp_path / "shipped" / f"{PARTIAL_PREFIX}z"
    elsewhere.parent.mkdir()
    elsewhere.write_text("of somebody who is writing")
    with workspace.lock(IDENTITY):
        pass
    assert [path.name for path in below.iterdir()] == ["pruned.json"]
    assert elsewhere.exists()


def test_what_a_kill_left_of_the_pointer_is_gone_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """In place of SIGKILL."""

    def killed(*_: object, **__: object) -> None:
        raise Killed

    workspace = Workspace(tmp_path / "workspace")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(Killed):
            workspace.set_current(IDENTITY)
    assert [path.parent for path in workspace.root.rglob(f"{PARTIAL_PREFIX}*")] == [
        workspace.run(IDENTITY).root
    ]
    with workspace.lock(IDENTITY):
        assert not list(workspace.root.rglob(f"{PARTIAL_PREFIX}*"))
