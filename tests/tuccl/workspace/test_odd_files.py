"""Links, pipes, folders and sockets where a workspace has its files: one line, at once."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tuccl.conftest import Run, TunedWorkspace
from tests.tuccl.workspace.test_measurement_log import Counting
from tuccl.errors import ExitCode, WorkspaceError
from tuccl.shipping.shipped_directory import look_at
from tuccl.workspace.measurement_log import MeasurementLog, read_log
from tuccl.workspace.runs import Workspace

Put = Callable[[Path], None]


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # The name of a socket must be short.
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


ODD: dict[str, Put] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a socket": put_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.fixture
def workspace(finished_init: TunedWorkspace, tmp_path: Path) -> Path:
    """A copy of a finished one."""
    return Path(shutil.copytree(finished_init.root, tmp_path / "tuccl-workspace"))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("current.json", "table"),
        ("report.json", "table"),
        ("table.parquet", "table"),
        ("topology.json", "retune"),
        ("run.json", "retune"),
    ],
)
def test_no_odd_file_is_waited_for_or_read(
    run_inside: Run, workspace: Path, name: str, command: str, odd: str
) -> None:
    root = workspace if name == "current.json" else Workspace(workspace).current().root
    (root / name).unlink()
    ODD[odd](root / name)
    done = run_inside(command)
    assert done.returncode == ExitCode.ENVIRONMENT
    assert len(done.stderr.splitlines()) == 1
    assert name in done.stderr
    assert "not a file" in done.stderr


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_measurement_log_is_refused(tmp_path: Path, odd: str) -> None:
    path = tmp_path / "measurements.jsonl"
    ODD[odd](path)
    for opened in (
        lambda: read_log(path, "id"),
        lambda: MeasurementLog(path, Counting(), "id"),
    ):
        with pytest.raises(WorkspaceError, match=r"jsonl: a .*, not a file; move it away"):
            opened()


@pytest.mark.parametrize("content", [b"", b"somebody's notes\n", b"12\nmore"])
def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path, content: bytes) -> None:
    target = tmp_path / "somebody's"
    target.write_bytes(content)
    workspace = Workspace(tmp_path / "workspace")
    workspace.root.mkdir()
    (workspace.root / "lock").symlink_to(target)
    with pytest.raises(WorkspaceError, match="lock: a symbolic link"), workspace.lock("one"):
        pass
    assert target.read_bytes() == content
    target.unlink()
    with pytest.raises(WorkspaceError, match="lock: a symbolic link"), workspace.lock("one"):
        pass
    assert not target.exists()


def test_a_lock_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "somebody's"
    target.write_bytes(b"notes\n")
    workspace = Workspace(tmp_path / "workspace")
    workspace.root.mkdir()
    (workspace.root / "lock").hardlink_to(target)
    with pytest.raises(WorkspaceError, match="lock holds something else"), workspace.lock("one"):
        pass
    assert target.read_bytes() == b"notes\n"
    (workspace.root / "lock").unlink()
    (workspace.root / "lock").write_bytes(b"\0" * 5)  # As a crash of the host may leave it.
    with workspace.lock("one"):
        assert (workspace.root / "lock").read_bytes() == f"{os.getpid()}\n".encode()


def test_a_log_that_is_a_link_is_read_and_never_written(tmp_path: Path) -> None:
    target = tmp_path / "somebody's"
    target.touch()
    path = tmp_path / "measurements.jsonl"
    path.symlink_to(target)
    assert read_log(path, "id").all == ()
    with pytest.raises(WorkspaceError, match="a symbolic link, not a file; move it away"):
        MeasurementLog(path, Counting(), "id")
    assert target.read_bytes() == b""


@pytest.mark.long
@pytest.mark.parametrize("odd", ODD)
def test_a_directory_with_odd_files_can_be_shipped_to_or_says_why(
    run_inside: Run, workspace: Path, tmp_path: Path, odd: str
) -> None:
    assert workspace.is_dir()
    assert run_inside("ship", "shipped").returncode == 0
    for name in ("tuccl-manifest.json", "tuccl.env"):
        path = tmp_path / "shipped" / name
        path.unlink()
        ODD[odd](path)
    assert look_at(tmp_path / "shipped").machine is None
    done = run_inside("ship", "shipped")
    if odd == "a folder":
        assert done.returncode == ExitCode.BAD_INPUT
        assert len(done.stderr.splitlines()) == 1
    else:
        assert done.returncode == 0, done.stderr
        manifest = tmp_path / "shipped" / "tuccl-manifest.json"
        assert manifest.is_file()
        assert not manifest.is_symlink()
        json.loads(manifest.read_bytes())
