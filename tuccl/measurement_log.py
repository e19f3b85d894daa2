"""The append-only record of every measurement: the truth that a search resumes from.

One JSON object a line. The first line names the format and what the measurements belong to; each
further line holds the samples of one measurement. A line is written whole or, when the process dies
in the middle, cut: a last line without its newline is dropped at the next start. Nothing is ever
rewritten, so a kill loses at most the measurement that was under way.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from tuccl.atomic_file import cannot_write
from tuccl.backends.protocol import Backend
from tuccl.errors import WorkspaceError
from tuccl.search.config import Config, Task

_FORMAT = "tuccl-measurements"
_VERSION = 1
_Fields = tuple[str, str, int, int, int]
_Key = tuple[str, _Fields]


class MeasurementLog:
    """Samples by task and configuration, in memory and in a file."""

    def __init__(self, path: Path, backend: Backend, identity: str) -> None:
        """Open the log, or start it.

        Args:
            path: The file.
            backend: What measures whatever the log does not hold yet.
            identity: What the measurements belong to; a log of something else is refused.

        Raises:
            WorkspaceError: when the file belongs to something else or cannot be written.
        """
        self._path = path
        self._backend = backend
        self._samples: dict[_Key, tuple[float, ...]] = {}
        header = {"format": _FORMAT, "version": _VERSION, "identity": identity}
        complete, cut = _lines(path)
        if not complete and not _line(header).startswith(cut):
            raise WorkspaceError(f"{path} is not a measurement log; move it away")
        if complete:
            self._check_header(complete[0], header)
            for line in complete[1:]:
                self._recall(line)
        try:
            self._file = path.open("ab", buffering=0)
            self._file.truncate(sum(len(line) for line in complete))
            if not complete:
                self._append(header)
        except OSError as error:
            raise cannot_write(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                os.fsync(self._file.fileno())
        except OSError as failed:
            raise cannot_write(self._path, failed) from failed
        finally:
            self._file.close()

    def samples(self, task: Task, config: Config, repeats: int) -> tuple[float, ...]:
        """The first `repeats` samples in us: those recorded, and new ones for the rest.

        Raises:
            MeasurementError: from the backend.
            WorkspaceError: when the log cannot be written.
        """
        key = (task.name, _fields(config))
        known = self._samples.get(key, ())
        if len(known) < repeats:
            fresh = self._backend.measure(task, config, len(known), repeats - len(known))
            record = {"task": key[0], "config": key[1], "first": len(known), "samples_us": fresh}
            try:
                self._append(record)
            except OSError as error:
                raise cannot_write(self._path, error) from error
            known += fresh
            self._samples[key] = known
        return known[:repeats]

    def _append(self, record: dict[str, object]) -> None:
        line = _line(record)
        # Unbuffered: a line that the disk had no room for must not come back when the file closes.
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _recall(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            algorithm, protocol, *numbers = record["config"]
            channels, threads, buffer_bytes = map(int, numbers)
            fields = (str(algorithm), str(protocol), channels, threads, buffer_bytes)
            key = (str(record["task"]), fields)
            known = self._samples.get(key, ())
            if record["first"] != len(known):
                raise ValueError("samples are missing before these")
            self._samples[key] = (*known, *map(float, record["samples_us"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorkspaceError(
                f"{self._path} is damaged ({error}); move it away to measure again"
            ) from error

    def _check_header(self, line: bytes, expected: dict[str, object]) -> None:
        try:
            found = json.loads(line)
        except ValueError:
            found = {}
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise WorkspaceError(f"{self._path} is not a measurement log; move it away")
        if found.get("version") != _VERSION:
            raise WorkspaceError(
                f"{self._path} has version {found.get('version')}, this release reads {_VERSION}"
            )
        if found != expected:
            raise WorkspaceError(
                f"{self._path} belongs to another machine, space or backend; "
                "use another --workspace, or `tuccl retune`"
            )


def _fields(config: Config) -> _Fields:
    return (
        config.algorithm,
        config.protocol,
        config.nchannels,
        config.nthreads,
        config.buffer_bytes,
    )


def _line(record: dict[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _lines(path: Path) -> tuple[list[bytes], bytes]:
    """Lines with their newline, and the last line if it was cut."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return [], b""
    except OSError as error:
        raise WorkspaceError(f"cannot read {path}: {error.strerror}") from error
    if lines and not lines[-1].endswith(b"\n"):
        return lines[:-1], lines[-1]
    return lines, b""
