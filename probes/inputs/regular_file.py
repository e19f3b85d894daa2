"""Access to regular files only: a folder is not a file, and a device or pipe may have no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from tuccl.errors import NotAFileError


def regular_status(path: Path) -> os.stat_result:
    """Return a file's status without opening it, as opening a pipe may wait for ever.

    Raises:
        NotAFileError: The path is not a regular file.
        OSError: The path does not exist or cannot be reached.
    """
    status = path.stat()
    _require_regular(status, path)
    return status


def read_regular_file(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        NotAFileError: The path is not a regular file.
        OSError: The file cannot be read.
    """
    regular_status(path)
    # The file may have been replaced since: do not wait for the writer of a pipe.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(file, "rb") as stream:
        _require_regular(os.fstat(file), path)
        return stream.read()


def open_own_file(path: Path, flags: int) -> int:
    """Open a file that is written in place, or create it, and return its descriptor.

    A symbolic link is refused, as its target may belong to another user. `flags` are those of
    `os.open`.

    Raises:
        NotAFileError: The path is a symbolic link or not a regular file.
        OSError: The file cannot be opened.
    """
    always = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        file = os.open(path, flags | always, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotAFileError(errno.ELOOP, "a symbolic link, not a file", str(path)) from error
        if error.errno == errno.ENXIO:  # A socket, or a pipe without a reader.
            raise NotAFileError(errno.ENXIO, "a device or pipe, not a file", str(path)) from error
        raise
    try:
        _require_regular(os.fstat(file), path)
    except BaseException:
        os.close(file)
        raise
    return file


def _require_regular(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or pipe"
        raise NotAFileError(errno.EINVAL, f"{kind}, not a file", str(path))
