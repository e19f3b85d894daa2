"""Reads a file that a user named: no device and no pipe, which may have no end or no writer."""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def read_regular_file(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        OSError: It cannot be read, or is no regular file; `strerror` says which.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "a device or pipe, not a file", str(path))
    return path.read_bytes()
