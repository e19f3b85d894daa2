"""Files that a user named: no folder, device or pipe, which may have no end or no writer."""

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
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or pipe"
        raise NotAFileError(errno.EINVAL, f"{kind}, not a file", str(path))
    return status


def read_regular_file(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        NotAFileError: It is something else.
        OSError: It cannot be read.
    """
    regular_status(path)
    return path.read_bytes()
