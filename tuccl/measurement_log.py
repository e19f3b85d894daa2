"""The append-only record of every measurement: the truth that a search resumes from.

One JSON object a line. The first line names the format and what the measurements belong to; each
further line holds the samples of one measurement with the seconds it took, or why a configuration
failed: it is not tried again. A line is written whole or, when the process dies
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
from tuccl.backends.protocol import Backend, Measured
from tuccl.errors import ConfigurationFailedError, WorkspaceError
from tuccl.search.config import Config, Task

_FORMAT = "tuccl-measurements"
_VERSION = 2
_Fields = tuple[str, str, int, int, int, int]
_Key = tuple[str, _Fields]
_NOTHING = Measured((), 0.0)


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
        self._known: dict[_Key, Measured] = {}
        self._failed: dict[_Key, str] = {}
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

    def measure(self, task: Task, config: Config, repeats: int) -> Measured:
        """The first `repeats` samples: those recorded, and new ones for the rest.

        The seconds are those of all samples known, whenever they were taken, so a search that
        continues spends its budget as one that was never stopped.

        Raises:
            ConfigurationFailedError: when the configuration failed, now or earlier.
            MeasurementError: from the backend.
            WorkspaceError: when the log cannot be written.
        """
        key = (task.name, _fields(config))
        known = self._known.get(key, _NOTHING)
        if key in self._failed:
            raise ConfigurationFailedError(self._failed[key])
        if len(known.samples_us) < repeats:
            known = self._measure_more(task, config, known, repeats)
        return Measured(known.samples_us[:repeats], known.seconds)

    def _measure_more(self, task: Task, config: Config, known: Measured, repeats: int) -> Measured:
        first = len(known.samples_us)
        key = (task.name, _fields(config))
        record: dict[str, object] = {"task": key[0], "config": key[1], "first": first}
        try:
            fresh = self._backend.measure(task, config, first, repeats - first)
        except ConfigurationFailedError as error:
            self._failed[key] = str(error)
            self._record({**record, "failed": str(error)})
            raise
        self._record({**record, "samples_us": fresh.samples_us, "seconds": fresh.seconds})
        self._known[key] = _joined(known, fresh)
        return self._known[key]

    def _record(self, record: dict[str, object]) -> None:
        try:
            self._append(record)
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def _append(self, record: dict[str, object]) -> None:
        line = _line(record)
        # Unbuffered: a line that the disk had no room for must not come back when the file closes.
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _recall(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            algorithm, protocol, *numbers = record["config"]
            channels, threads, buffer_bytes, least = map(int, numbers)
            fields = (str(algorithm), str(protocol), channels, threads, buffer_bytes, least)
            key = (str(record["task"]), fields)
            known = self._known.get(key, _NOTHING)
            if record["first"] != len(known.samples_us):
                raise ValueError("samples are missing before these")
            if "failed" in record:
                self._failed[key] = str(record["failed"])
                return
            samples = tuple(map(float, record["samples_us"]))
            self._known[key] = _joined(known, Measured(samples, float(record["seconds"])))
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
        config.min_nchannels,
    )


def _joined(known: Measured, fresh: Measured) -> Measured:
    return Measured((*known.samples_us, *fresh.samples_us), known.seconds + fresh.seconds)


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
