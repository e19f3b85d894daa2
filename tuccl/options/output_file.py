"""Checks of the files that a command writes, before its work begins.

Above all no file that the command reads: its measurements on GPUs would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from probes.files.bench_topologies import bench_topology_reference
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import UsageError


def check_output(path: Path, option: str, read: Iterable[str | Path | None] = ()) -> None:
    """Require a path that a result can be written to.

    Args:
        path: Path of the result.
        option: Option that named it.
        read: Files that the command reads, a machine as FILE#NAME too; None and names that are no
            files are ignored.

    Raises:
        UsageError: It is a directory, `-`, or one of the files that are read.
    """
    if _holds(path.is_dir):
        raise UsageError(f"{option} {path} is a directory: name a file in it")
    if path == Path("-"):
        raise UsageError(f"{option} -: this is never written to standard output; name a file")
    inputs = [_file_of(source) for source in read if source is not None]
    if any(_holds(partial(file.samefile, path)) for file in inputs):
        raise UsageError(f"{option} {path} is read by this command; name another file to write")


def require_replaceable(
    path: Path, option: str, mark: bytes, head_bytes: int | None = None
) -> None:
    """Require that no file is replaced but one whose beginning has a mark.

    Args:
        path: Path of the result.
        option: Option that named it.
        mark: Bytes that each such result begins with.
        head_bytes: The mark stands anywhere in so many first bytes instead.

    Raises:
        UsageError: Another file has the name.
    """
    try:
        found = read_regular_file(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; name another file") from error
    if found and mark not in found[: head_bytes or len(mark)]:
        raise UsageError(
            f"{option} {path} was not written by this command: name another file, or remove it"
        )


def _file_of(name: str | Path) -> Path:
    reference = bench_topology_reference(str(name))
    return Path(name) if reference is None else reference[0]


def _holds(question: Callable[[], bool]) -> bool:
    """Return the answer, false where there is none: writing there will raise the reason."""
    try:
        return question()
    except OSError:
        return False
