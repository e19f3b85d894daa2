"""Files that a command writes where the user says: what cannot be meant is refused before the work.

Above all a file that the command reads: what was measured on GPUs would be gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tuccl.errors import UsageError


def check_output(path: Path, option: str, read: Iterable[str | Path | None] = ()) -> None:
    """See to it that a result can be meant to be written there.

    Args:
        path: Where the result goes.
        option: Under which name the user gave it.
        read: What the command reads, a machine as FILE#NAME too; None and what is no file are
            passed over.

    Raises:
        UsageError: It is a directory, `-`, or one of the files that are read.
    """
    if path.is_dir():
        raise UsageError(f"{option} {path} is a directory: name a file in it")
    if path == Path("-"):
        raise UsageError(f"{option} -: this is never written to standard output; name a file")
    names = [str(one) for one in read if one is not None]
    inputs = [Path(text) for name in names for text in (name, name.rpartition("#")[0]) if text]
    if path.exists() and any(one.exists() and one.samefile(path) for one in inputs):
        raise UsageError(f"{option} {path} is read by this command; name another file to write")
