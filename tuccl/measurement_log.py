"""The append-only record of every measurement: the truth that a search resumes from.

One JSON object a line. The first line names the format and what the measurements belong to; each
further line holds the samples of one measurement with the seconds it took, or why a configuration
failed: it is not tried again. A line is written whole or, when the process dies
in the middle, cut: a last line without its newline is dropped at the next start. Nothing is ever
rewritten, so a kill loses at most the measurement that was under way.

A search that continues takes the steps of one that was never stopped: it is given the samples, the
costs and the failures that it was given the first time, each at the same request.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from tuccl.atomic_file import cannot_write
from tuccl.backends.protocol import Backend, Measured
from tuccl.errors import ConfigurationFailedError, MeasurementError, WorkspaceError
from tuccl.search.config import Config, ProcessProfile, Task

_FORMAT = "tuccl-measurements"
_VERSION = 2
_Fields = tuple[str, str, int, int, int, int]
_Key = tuple[str, _Fields]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the log holds on one configuration of one task."""

    task: str
    """`Task.name`."""
    config: Config
    samples_us: tuple[float, ...] = ()
    paid: tuple[tuple[int, float], ...] = ()
    """(samples so far, seconds so far) after each measurement, ascending."""
    failed: str = ""
    """Why no further samples could be taken; empty: they could."""
    failed_s: float = 0.0
    """What the attempt that failed cost."""

    @property
    def seconds(self) -> float:
        """What all of it cost."""
        return (self.paid[-1][1] if self.paid else 0.0) + self.failed_s

    def first(self, repeats: int) -> Measured:
        """The first samples with the cost of the measurements that brought them."""
        cost = next(seconds for samples, seconds in self.paid if samples >= repeats)
        return Measured(self.samples_us[:repeats], cost)

    def joined(self, fresh: Measured) -> Recorded:
        """With further samples."""
        samples = (*self.samples_us, *fresh.samples_us)
        seconds = (self.paid[-1][1] if self.paid else 0.0) + fresh.seconds
        return replace(self, samples_us=samples, paid=(*self.paid, (len(samples), seconds)))


@runtime_checkable
class ModelledRestarts(Protocol):
    """A backend that only counts what restarting its workers would cost.

    Real workers of a run that was stopped are gone, and starting them again takes its time.
    Modelled ones go on with the profile that the log ended with, so that a stop changes no cost.
    """

    def resume(self, running: ProcessProfile) -> None:
        """Go on as if workers with this profile were running."""


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
        self._known: dict[_Key, Recorded] = {}
        header = {"format": _FORMAT, "version": _VERSION, "identity": identity}
        complete, cut = _lines(path)
        if not complete and not _line(header).startswith(cut):
            raise WorkspaceError(f"{path} is not a measurement log; move it away")
        if complete:
            self._check_header(complete[0], header)
            for line in complete[1:]:
                last = self._recall(line)
                if isinstance(backend, ModelledRestarts):
                    backend.resume(last.profile)
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

        The seconds are those of the measurements that brought these samples, recorded ones too, so
        a search that continues spends its budget as one that was never stopped.

        Raises:
            ConfigurationFailedError: when the configuration failed before it had so many samples,
                now or earlier.
            MeasurementError: from the backend.
            WorkspaceError: when the log cannot be written.
        """
        known = self._recorded(task.name, config)
        if len(known.samples_us) < repeats:
            if known.failed:
                raise ConfigurationFailedError(known.failed, seconds=known.failed_s)
            known = self._measure_more(task, config, known, repeats)
        return known.first(repeats)

    def recorded(self) -> tuple[Recorded, ...]:
        """Everything that was measured, in the order of first measurement."""
        return tuple(self._known.values())

    def _recorded(self, task: str, config: Config) -> Recorded:
        return self._known.get((task, _fields(config))) or Recorded(task, config)

    def _measure_more(self, task: Task, config: Config, known: Recorded, repeats: int) -> Recorded:
        first = len(known.samples_us)
        key = (task.name, _fields(config))
        record: dict[str, object] = {"task": key[0], "config": key[1], "first": first}
        try:
            fresh = self._backend.measure(task, config, first, repeats - first)
        except ConfigurationFailedError as error:
            reason, seconds = str(error), error.seconds
            self._record({**record, "failed": reason, "seconds": seconds})
            self._known[key] = replace(known, failed=reason, failed_s=seconds)
            raise
        self._check_fresh(fresh, repeats - first)
        self._record({**record, "samples_us": fresh.samples_us, "seconds": fresh.seconds})
        self._known[key] = known.joined(fresh)
        return self._known[key]

    def _check_fresh(self, fresh: Measured, count: int) -> None:
        """A wrong figure must not become the truth."""
        try:
            _check(fresh)
            if len(fresh.samples_us) != count:
                raise ValueError(f"{len(fresh.samples_us)} samples instead of {count}")
        except ValueError as error:
            raise MeasurementError(
                f"the {self._backend.name} backend gave {error}; nothing was recorded of it"
            ) from error

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

    def _recall(self, line: bytes) -> Config:
        """Take in a line; the configuration that it is of."""
        try:
            record = json.loads(line)
            algorithm, protocol, *numbers = record["config"]
            channels, threads, buffer_bytes, least = map(int, numbers)
            config = Config(str(algorithm), str(protocol), channels, threads, buffer_bytes, least)
            known = self._recorded(str(record["task"]), config)
            if record["first"] != len(known.samples_us):
                raise ValueError("samples are missing before these")
            seconds = float(record["seconds"])
            if "failed" in record:
                known = replace(known, failed=str(record["failed"]), failed_s=seconds)
            else:
                samples = tuple(map(float, record["samples_us"]))
                known = known.joined(Measured(samples, seconds))
            _check(Measured(known.samples_us, seconds))
            self._known[known.task, _fields(config)] = known
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorkspaceError(
                f"{self._path} is damaged ({error}); move it away to measure again"
            ) from error
        return config

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


def _check(measured: Measured) -> None:
    for sample in measured.samples_us:
        if not (isfinite(sample) and sample > 0.0):
            raise ValueError(f"a sample of {sample} us is no time")
    if not (isfinite(measured.seconds) and measured.seconds >= 0.0):
        raise ValueError(f"{measured.seconds} seconds is no cost")


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
