"""Errors of the application and the exit codes of its commands.

TucclError
├── UsageError        the command line asks for something that does not exist
├── WorkspaceError    the workspace cannot be read or written, or its disk is full
│   └── WorkspaceBusyError  another run holds it
├── PluginMissingError  this installation lacks a compiled plugin or library; see `tuccl.runtime`
├── WorkerError       a process that did part of the work was killed
├── CompilerMissingError  nvcc or the C++ compiler is missing or too old to build the executor
├── CompilationError  a compiler failed
├── BudgetSpentError  a search has used up its budget; never leaves the search
├── ProfileLostError  a changed machine cannot keep a table's process profile; never leaves a run
├── EngineError       a rank cannot perform a request
│   └── EngineBrokenError  ... nor any further request
├── ConnectionLostError  the peer has closed the connection
├── MessageError      the peer is not part of this run, or runs another release
├── GroupLostError    a rank died, hangs, or disagrees with the others
└── MeasurementError  a backend cannot measure what it was asked for
    └── ConfigurationFailedError  one configuration cannot run; the search goes on without it

Each package has its own root (`ProbeError`, `SketchError`, `SynthesisError`, `TableError`); the
command line turns all of them into one line on standard error and the exit code given here, and
`import tuccl` into errors that are `TucclError`s, too (`tuccl.api.errors`).
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command; docs/reference/errors.md has the texts below them."""

    OK = 0
    """Done, or nothing to do."""
    FINDING = 1
    """The command worked and found something, which it names: a defect, a missing entry, ..."""
    BAD_INPUT = 2
    """The command line or a file named on it cannot be used; nothing was written."""
    ENVIRONMENT = 3
    """The workspace is in use, unwritable, damaged or has no finished run; its disk is full; this
    installation has no plugin, executor or solver, or a broken pyarrow; it is not clear which of
    several NCCLs to measure; `build-executor` finds no compiler, or the compiler fails; a backend
    cannot go on measuring; the reader of the output has gone. What was finished is kept, and the
    same command continues."""
    INTERRUPTED = 130
    """Interrupted by Ctrl-C; `tuccl init`, `tune` and `retune` continue where they stopped."""
    TERMINATED = 143
    """Terminated by SIGTERM, which Slurm sends at a time limit and `timeout` at its own, to the
    process alone or to all of its group; `tuccl init`, `tune` and `retune` continue."""


class TucclError(Exception):
    """Root of the errors that the application raises itself."""

    exit_code = ExitCode.BAD_INPUT


class UsageError(TucclError):
    """The command line asks for something that does not exist."""


class WorkspaceError(TucclError):
    """The workspace cannot be read or written."""

    exit_code = ExitCode.ENVIRONMENT


class WorkspaceBusyError(WorkspaceError):
    """Another run holds the workspace."""


class MeasurementError(TucclError):
    """A backend cannot measure what it was asked for; finished measurements are kept."""

    exit_code = ExitCode.ENVIRONMENT


class ConfigurationFailedError(MeasurementError):
    """One configuration cannot run: it hung, crashed, gave wrong data or was refused.

    The message is the reason, half a sentence without the configuration's name.
    """

    def __init__(self, reason: str, *, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds
        """Seconds until the failure was known: a hang's deadline, or a restart of the workers."""


class BudgetSpentError(TucclError):
    """A search has used up its budget: the strategy stops, and the search catches the error."""


class ProfileLostError(TucclError):
    """A table's process profile is under the floor on the machine now; the run catches it."""


class WorkerError(TucclError):
    """A process that did part of the work was killed."""

    exit_code = ExitCode.ENVIRONMENT


class CompilerMissingError(TucclError):
    """No compiler here can build the executor: nvcc or the host compiler is missing or too old."""

    exit_code = ExitCode.ENVIRONMENT


class CompilationError(TucclError):
    """A compiler failed; the message names the log."""

    exit_code = ExitCode.ENVIRONMENT


class EngineError(TucclError):
    """Raised when a rank cannot perform a request; the text is half a sentence that says why.

    When every rank refuses a call, the group goes on with the next call. An engine whose
    communicator can no longer be used raises `EngineBrokenError`.
    """


class EngineBrokenError(EngineError):
    """Raised when a rank cannot perform any request before its worker is restarted."""


class ConnectionLostError(TucclError):
    """Raised when the peer has closed the connection."""


class MessageError(TucclError):
    """Raised when the peer is not part of this run, or runs another release."""


class GroupLostError(TucclError):
    """Raised when a rank died, hangs, or disagrees with the others: all must be restarted."""

    def __init__(self, reason: str, *, from_outside: bool = False) -> None:
        super().__init__(reason)
        self.from_outside = from_outside
        """Whether a worker was killed from outside (by a user, by the kernel short of memory)."""
