"""Files that a command writes where the user says: what cannot be meant is refused before the work.

Above all a file that the command reads: what was measured on GPUs would be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from probes.files.bench_topologies import bench_topology_reference
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
    if _holds(path.is_dir):
        raise UsageError(f"{option} {path} is a directory: name a file in it")
    if path == Path("-"):
        raise UsageError(f"{option} -: this is never written to standard output; name a file")
    inputs = [_file_of(source) for source in read if source is not None]
    if any(_holds(partial(file.samefile, path)) for file in inputs):
        raise UsageError(f"{option} {path} is read by this command; name another file to write")


def _file_of(name: str | Path) -> Path:
    reference = bench_topology_reference(str(name))
    return Path(name) if reference is None else reference[0]


def _holds(question: Callable[[], bool]) -> bool:
    """The answer; no, where it cannot be had: whoever writes there will say why."""
    try:
        return question()
    except OSError:
        return False
