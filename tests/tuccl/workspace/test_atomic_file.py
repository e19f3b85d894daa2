import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tuccl.errors import ExitCode, WorkspaceError, exit_code_of
from tuccl.workspace.atomic_file import write_atomically


def test_replaces_whole_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_atomically(path, "old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tuccl.workspace.atomic_file import write_atomically
from tuccl.errors import exit_code_of, WorkspaceError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomically(Path(sys.argv[1]), b"x" * 5000)
except WorkspaceError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_atomically(path, b"old")
    root = Path(__file__).resolve().parents[3]
    said = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "cannot write" in said
    assert "free some space" in said
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["table"]


def test_a_directory_in_the_way_is_one_line_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(WorkspaceError, match=r"cannot write .*file/below") as caught:
        write_atomically(tmp_path / "file" / "below", b"")
    assert "\n" not in str(caught.value)
    assert exit_code_of(caught.value) is ExitCode.ENVIRONMENT
