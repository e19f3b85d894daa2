"""Files are written beside their place and renamed: a reader sees the old file or the new one.

Every file that the product writes, except the append-only measurement log, goes through here.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from tuccl.crew.interrupts import interrupts_held
from tuccl.errors import NotAFileError, WorkspaceError

PARTIAL_PREFIX = ".tuccl-partial-"
"""Prefix of files that are being written; one that is left over is of a killed process."""

_ROOM_BYTES = 1 << 20
"""About as much as a run writes: its log, its schedules, its table."""


def remove_partial_files(root: Path) -> None:
    """Remove what killed processes left below a directory that no one else is writing to.

    Raises:
        WorkspaceError: A file cannot be removed.
    """
    for path in root.rglob(f"{PARTIAL_PREFIX}*"):
        remove_partial_file(path)


def remove_partial_file(path: Path) -> None:
    """Remove it, unless it is a folder, which `write_atomically` does not make.

    Raises:
        WorkspaceError: It cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        pass
    except OSError as error:
        raise cannot_write(path, error) from error


def write_atomically(
    path: Path, content: bytes | str, partial_in: Path | None = None, *, mode: int = 0o644
) -> None:
    """Replace `path` by `content`, or leave it as it was.

    Args:
        path: The file.
        content: Its content; text becomes UTF-8.
        partial_in: Where it is written before it is renamed, on the same file system: a directory
            that the next run cleans of what a killed process left. The file's own by default.
        mode: Its permissions.

    Raises:
        WorkspaceError: The file cannot be written; no partial file stays behind.
    """
    # A path that is not UTF-8 may stand in the text: its bytes go out as they came in.
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    with interrupts_held():
        _replace(path, data, partial_in or path.parent, mode)


def _replace(path: Path, data: bytes, folder: Path, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=PARTIAL_PREFIX, dir=folder)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def require_writable(path: Path) -> None:
    """Find out before long work whether `write_atomically` will be able to write there.

    Raises:
        WorkspaceError: no file can be made in its directory.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix=PARTIAL_PREFIX, dir=path.parent):
            pass
    except OSError as error:
        raise cannot_write(path, error) from error


def require_room(path: Path) -> None:
    """Find out before long work whether a file can be made there, and leave no trace of it.

    Its directory need not exist; then it must be possible to make it.

    Raises:
        WorkspaceError: no file can be made there, or none of a megabyte.
    """
    place = path.parent
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(prefix=PARTIAL_PREFIX, dir=place, buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM_BYTES)
    except OSError as error:
        raise cannot_write(path, error) from error


def absolute(path: Path) -> Path:
    """The path from the root, links left as they are: a loop of links is for the reader to find."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def cannot_write(path: Path, error: OSError) -> WorkspaceError:
    """The error for a person whose file could not be written: what, where, what to do."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        remedy = "free some space and run the same command again: it continues"
    elif isinstance(error, NotAFileError):
        remedy = "move it away"
    elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        remedy = "choose a directory that you may write"
    else:
        remedy = "check the path"
    return WorkspaceError(f"cannot write {path}: {error.strerror}; {remedy}")
