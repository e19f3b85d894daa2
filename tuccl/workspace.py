"""The workspace: one directory that holds a run from its inputs to its bundle.

    run.json             what was asked for, where the machine came from, which stages are done
    topology.json        the machine
    sketches/            one JSON file per sketch
    schedules/OPERATION/ verified schedules as MSCCL XML, and index.json once all are there
    measurements.jsonl   every measurement, append-only: what a search resumes from
    report.json          what was decided for every key, and why
    table.parquet        the table
    bundle.tuccl         the table as the plugin maps it
    history/             tables of earlier machines
    lock                 held while a run works here

All files but the log are replaced atomically.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuccl.atomic_file import cannot_write, remove_partial_files, write_atomically
from tuccl.errors import WorkspaceBusyError, WorkspaceError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunRecord:
    """run.json: what a workspace belongs to."""

    identity: str
    """Of settings and machine."""
    options: dict[str, Any]
    """The command line's options, so that `retune` can repeat them."""
    complete: bool
    """Whether the table is written."""
    tuned_at: str
    """When the run began: ISO 8601, UTC."""


class Workspace:
    """Paths and records of one directory; creating the object writes nothing."""

    def __init__(self, root: Path) -> None:
        """The workspace at `root`, which need not exist."""
        self.root = root

    @property
    def topology(self) -> Path:
        """The machine as JSON."""
        return self.root / "topology.json"

    @property
    def sketches(self) -> Path:
        """Directory of sketches."""
        return self.root / "sketches"

    @property
    def schedules(self) -> Path:
        """Directory of schedules by operation."""
        return self.root / "schedules"

    @property
    def measurements(self) -> Path:
        """The append-only log."""
        return self.root / "measurements.jsonl"

    @property
    def report(self) -> Path:
        """What was decided for every key."""
        return self.root / "report.json"

    @property
    def table(self) -> Path:
        """The table."""
        return self.root / "table.parquet"

    @property
    def bundle(self) -> Path:
        """The table as the plugin maps it."""
        return self.root / "bundle.tuccl"

    @property
    def history(self) -> Path:
        """Tables of earlier machines."""
        return self.root / "history"

    def record(self) -> RunRecord | None:
        """run.json, None where there is none.

        Raises:
            WorkspaceError: when it is unreadable, damaged or of another version.
        """
        path = self.root / "run.json"
        text = read_text_if_present(path)
        if text is None:
            return None
        try:
            values = json.loads(text)
            if values["version"] != _VERSION:
                raise WorkspaceError(
                    f"{path} has version {values['version']}, this release reads {_VERSION}; "
                    "use another --workspace"
                )
            return RunRecord(
                identity=str(values["identity"]),
                options=dict(values["options"]),
                complete=bool(values["complete"]),
                tuned_at=str(values["tuned_at"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise WorkspaceError(f"{path} is damaged ({error}); move it away") from error

    def write_record(self, record: RunRecord) -> None:
        """Replace run.json."""
        values = {
            "version": _VERSION,
            "identity": record.identity,
            "options": record.options,
            "complete": record.complete,
            "tuned_at": record.tuned_at,
        }
        write_atomically(self.root / "run.json", json.dumps(values, indent=2) + "\n")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the workspace; the kernel lets go of it when the process ends, however it ends.

        Raises:
            WorkspaceBusyError: when another run holds it.
            WorkspaceError: when the directory cannot be created or written.
        """
        path = self.root / "lock"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            _take_lock(descriptor, self.root)
            remove_partial_files(self.root)
            yield
        finally:
            os.close(descriptor)


def _take_lock(descriptor: int, root: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        raise WorkspaceBusyError(
            f"workspace {root} is in use by process {holder}; "
            "wait for it or use another --workspace"
        ) from None
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise cannot_write(root / "lock", error) from error


def read_text_if_present(path: Path) -> str | None:
    """Text of a workspace file, None where there is none.

    Raises:
        WorkspaceError: when it is there and cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise WorkspaceError(f"cannot read {path}: {error}") from error
