"""The workspace: one directory that holds runs, each from its inputs to its bundle.

    current.json           which run is the finished one that `table`, `explain` and `ship` use
    runs/IDENTITY/         one run: settings and machine give the identity
        run.json             what was asked for, when it began, whether it is complete
        topology.json        the machine
        host.json            the host that measures, as it was when the run began
        workload.json        the job's collectives that were tuned, where the run is for one
        sketches/            one JSON file per sketch
        schedules/OPERATION/ verified schedules as MSCCL XML, and index.json once all are there
        measurements.jsonl   every measurement, append-only: what a search resumes from
        report.json          what was decided for every key, and why
        table.parquet        the table
        bundle.tuccl         the table as the plugin maps it
    lock                   held while a run works here

All files but the log are replaced atomically. Only regular files are read; log and lock,
which are written in place, are no symbolic links either. A new run never touches an older one, and
becomes the current one only when it is complete: an old table stays in use until then, and can be
found after.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from probes.inputs.messages import first_fault
from probes.inputs.regular_file import open_own_file, read_regular_file
from tuccl.errors import NotAFileError, UsageError, WorkspaceError
from tuccl.workspace.atomic_file import cannot_write, remove_partial_files, write_atomically

_VERSION = 1
ModelT = TypeVar("ModelT")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Contents of run.json."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    identity: str
    """Hash of settings and machine."""
    options: dict[str, JsonValue]
    """The command line's options, so that `retune` can repeat them."""
    complete: bool
    """Whether table, report and bundle are written."""
    tuned_at: str
    """When the run began: ISO 8601, UTC."""
    version: int = _VERSION


class _CurrentModel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: int
    identity: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run's directory."""


class Run:
    """Paths and record of one run; creating the object writes nothing."""

    def __init__(self, root: Path) -> None:
        """The run in the directory `root`."""
        self.root = root
        self.topology = root / "topology.json"
        """The machine."""
        self.host = root / "host.json"
        """The host that measures; only runs that measure NCCL have it."""
        self.workload = root / "workload.json"
        """The workload that was tuned; missing where the options named the keys."""
        self.sketches = root / "sketches"
        """Directory of sketches."""
        self.schedules = root / "schedules"
        """Directory of schedules by operation."""
        self.measurements = root / "measurements.jsonl"
        """The append-only log."""
        self.report = root / "report.json"
        """Decisions for every key."""
        self.table = root / "table.parquet"
        """The table."""
        self.bundle = root / "bundle.tuccl"
        """The table as the plugin maps it."""

    def record(self) -> RunRecord | None:
        """run.json, None if there is none.

        Raises:
            WorkspaceError: It is unreadable, damaged or of another version.
        """
        path = self.root / "run.json"
        text = read_text_if_present(path)
        if text is None:
            return None
        record = parse_workspace_file(RunRecord, text, path)
        _check_version(record.version, path)
        return record

    def write_record(self, record: RunRecord) -> None:
        """Replace run.json."""
        text = TypeAdapter(RunRecord).dump_json(record, indent=2).decode()
        write_atomically(self.root / "run.json", text + "\n")


class Workspace:
    """One directory of runs; creating the object writes nothing."""

    def __init__(self, root: Path) -> None:
        """The workspace at `root`, which need not exist."""
        self.root = root

    def run(self, identity: str) -> Run:
        """The run of an identity, which need not exist."""
        return Run(self.root / "runs" / identity)

    def runs(self) -> tuple[Run, ...]:
        """All runs that were begun, by name."""
        return tuple(Run(path) for path in sorted((self.root / "runs").glob("*")) if path.is_dir())

    def current(self) -> Run:
        """The finished run that commands work with.

        Raises:
            WorkspaceError: There is none, or the pointer to it is damaged.
        """
        path = self.root / "current.json"
        text = read_text_if_present(path)
        if text is None:
            hint = "run `tuccl init` there first"
            if (self.root / "tuccl.env").is_file():
                hint = "`tuccl ship` wrote it; name the workspace, or see `tuccl show` on it"
            raise WorkspaceError(f"no finished run in workspace {self.root}; {hint}")
        model = parse_workspace_file(_CurrentModel, text, path)
        _check_version(model.version, path)
        return self.run(model.identity)

    def named(self, name: str) -> Run:
        """A run that was begun.

        Raises:
            UsageError: The workspace has no run of this name.
        """
        runs = {run.root.name: run for run in self.runs()}
        if name not in runs:
            listed = ", ".join(sorted(runs)) or "none"
            raise UsageError(f"workspace {self.root} has no run {name!a:.40}; its runs: {listed}")
        return runs[name]

    def is_current(self, identity: str) -> bool:
        """Whether commands work with this run."""
        try:
            return self.current().root == self.run(identity).root
        except WorkspaceError:
            return False

    def set_current(self, identity: str) -> None:
        """Make a finished run the one that commands work with."""
        model = _CurrentModel(version=_VERSION, identity=identity)
        # Beside the run, which its next start cleans: others may be writing to the workspace.
        run = self.run(identity).root
        run.mkdir(parents=True, exist_ok=True)
        write_atomically(self.root / "current.json", model.model_dump_json() + "\n", run)

    @contextmanager
    def lock(self, identity: str) -> Iterator[Run]:
        """Hold the workspace and give the run to work on.

        The kernel lets go of the lock when the process ends, however it ends.

        Raises:
            WorkspaceError: Another run holds it, or the directory cannot be created or written.
        """
        run = self.run(identity)
        path = self.root / "lock"
        try:
            run.root.mkdir(parents=True, exist_ok=True)
            descriptor = open_own_file(path, os.O_RDWR)
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            _take_lock(descriptor, self.root)
            remove_partial_files(run.root)
            yield run
        finally:
            os.close(descriptor)


def _take_lock(descriptor: int, root: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).strip()
        raise WorkspaceError(
            f"workspace {root} is in use by process "
            f"{holder.decode() if holder.isdigit() else 'unknown'}; "
            "wait for it or use another --workspace"
        ) from None
    except OSError as error:  # NFS without locks.
        raise cannot_write(root / "lock", error) from error
    held_by = os.pread(descriptor, 32, 0).strip(b"\0\n")  # A crash of the host may leave zeros.
    if held_by and not held_by.isdigit():
        raise WorkspaceError(
            f"{root / 'lock'} holds something else than the number of a process; move it away"
        )
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise cannot_write(root / "lock", error) from error


def read_text_if_present(path: Path) -> str | None:
    """Text of a workspace file, None if there is none.

    Raises:
        WorkspaceError: It exists and cannot be read.
    """
    try:
        return read_regular_file(path).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotAFileError as error:
        raise WorkspaceError(
            f"cannot read {path}: {error.strerror}; move it away and tune again"
        ) from error
    except OSError as error:
        raise WorkspaceError(
            f"cannot read {path}: {error.strerror}; make it readable, or use another --workspace"
        ) from error
    except UnicodeDecodeError as error:
        raise WorkspaceError(
            f"{path} is damaged (no UTF-8 text); move it away and tune again"
        ) from error


def parse_workspace_file(model: type[ModelT], text: str, path: Path) -> ModelT:
    """A JSON file of the workspace as its model.

    Raises:
        WorkspaceError: The file is damaged.
    """
    try:
        return TypeAdapter(model).validate_json(text)
    except ValidationError as error:
        raise WorkspaceError(
            f"{path} is damaged ({first_fault(error)}); move it away and tune again"
        ) from error


def _check_version(version: int, path: Path) -> None:
    if version != _VERSION:
        raise WorkspaceError(
            f"{path} has version {version}, this release reads {_VERSION}; use another --workspace"
        )
