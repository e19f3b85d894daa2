"""Files that are read only where they are files: a folder, device or pipe may have no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class NotAFileError(OSError):
    """Something else has this path; `strerror` says what."""


def regular_status(path: Path) -> os.stat_result:
    """Size and so on of a file, before it is opened: that alone may wait for ever.

    Raises:
        NotAFileError: It is something else.
        OSError: There is nothing, or it is out of reach.
    """
    status = path.stat()
    _require_regular(status, path)
    return status


def read_regular_file(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        NotAFileError: It is something else.
        OSError: It cannot be read.
    """
    regular_status(path)
    # Something else may have taken its place since: a pipe without a writer must not wait for one.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(file, "rb") as stream:
        _require_regular(os.fstat(file), path)
        return stream.read()


def open_own_file(path: Path, flags: int) -> int:
    """A descriptor of a file that is written in place, made where there is none.

    Args:
        path: No symbolic link: what it points at may be anybody's.
        flags: Of `os.open`.

    Raises:
        NotAFileError: It is something else, or a link.
        OSError: It cannot be opened.
    """
    always = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        file = os.open(path, flags | always, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotAFileError(errno.ELOOP, "a symbolic link, not a file", str(path)) from error
        if error.errno == errno.ENXIO:  # A socket, or a pipe that nobody reads.
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
