"""A path is read only if it is a regular file."""

import os
from pathlib import Path

import pytest

from probes.inputs.regular_file import read_regular_file
from tuccl.errors import NotAFileError


def test_a_file_is_read_also_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\n")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular_file(tmp_path / "link") == b"\xff\n"


def test_devices_and_pipes_are_refused_before_they_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(NotAFileError, match="a device or pipe, not a file"):
            read_regular_file(path)


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(NotAFileError, match="a folder, not a file"):
        read_regular_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "none")
