"""All errors of TuCCL, and the exit codes of its commands.

TucclError                     to catch all of them
├── UsageError                 the options or arguments ask for something that does not exist
│   └── UnusableBundleError    a shipped directory's bundle is missing, damaged or another
├── InputFileError             a file that the user named is damaged, or of another form or machine
├── WorkspaceError             the workspace is busy, damaged, unwritable, or its disk is full
├── HostError                  this host or installation lacks a part, or one of its processes died
├── MachineError               a machine or a sketch of it cannot be probed, read, written or used
│   ├── InvalidTopologyError   the machine cannot exist or cannot be tuned
│   │   └── UnknownNicSpeedError  the user must give the network's speed
│   ├── HostsMissingError      hosts did not answer
│   ├── ToolMissingError       a program that measures the network is not installed
│   └── TreeError              a path of a system's files cannot be read
├── ScheduleError              a schedule cannot be made, proved or simulated
│   ├── InfeasibleError        no schedule exists on this sketch
│   ├── FormatError            a format cannot express the schedule, or its file is damaged
│   ├── ProgramError           an algorithm written in the builder breaks one of its rules
│   └── NoProgramError         no executor can run the schedule
├── TableError                 a table or bundle is invalid, or its file is damaged
├── MeasurementError           a backend or job cannot be measured; finished measurements are kept
│   ├── ConfigurationFailedError  one configuration cannot run; the search goes on without it
│   └── NcclLibraryError       there is no NCCL to measure
│       ├── OldNcclError       ... or one that the plugin cannot serve
│       └── SeveralNcclsError  ... or it is not clear which
├── BudgetSpentError           a search has used up its budget; never leaves the search
├── ProfileLostError           the machine cannot keep a table's process profile; never leaves a run
├── EngineError                a rank cannot perform a request
│   └── EngineBrokenError      ... nor any other before its worker restarts
├── GroupLostError             a rank died, hangs or disagrees: all must be restarted
├── ConnectionLostError        the peer closed the connection
└── MessageError               the peer is not part of this run
    └── OtherReleaseError      ... or runs another release
NotAFileError                  an OSError: the path is not a regular file
Terminated                     a KeyboardInterrupt: SIGTERM arrived

A cause has a type of its own only if a caller acts on it; the message says in one line what is
wrong, where, and what to do. Two `MachineError`s carry values of their modules and stand there:
`NvmlCallError` and `ServerStartError`. This module imports nothing of the project, so that every
package can raise its errors.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command; a page of the reference has the texts below them."""

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
    """Root of the errors that TuCCL raises."""


class UsageError(TucclError):
    """The options or arguments ask for something that does not exist."""


class UnusableBundleError(UsageError):
    """The bundle that a shipped directory's `tuccl.env` names is missing, damaged or another."""


class InputFileError(TucclError):
    """A file that the user named is damaged, or of another form, version or machine."""


class WorkspaceError(TucclError):
    """The workspace cannot be read or written, or another run holds it."""


class HostError(TucclError):
    """This host or installation lacks a library or program, or one of its processes was killed."""


class MachineError(TucclError):
    """A machine or a sketch of it cannot be probed, read, written or used."""


class InvalidTopologyError(MachineError):
    """A topology has duplicate names, links without bandwidth, unreachable GPUs, ..."""


class UnknownNicSpeedError(InvalidTopologyError):
    """Neither the network nor a NIC on it states a speed."""


class HostsMissingError(MachineError):
    """Hosts did not answer, and the user did not give `--allow-missing`."""


class ToolMissingError(MachineError):
    """A program that measures the network is not installed."""


class TreeError(MachineError):
    """A path of a `FileTree` cannot be read; the message has the reason only."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing
        """Whether the path does not exist, as opposed to being unreadable."""


class ScheduleError(TucclError):
    """A schedule cannot be made, proved, read, written or simulated."""


class InfeasibleError(ScheduleError):
    """No schedule exists for this collective on this sketch."""


class FormatError(ScheduleError):
    """A schedule file is damaged, or the requested format cannot express a schedule."""


class ProgramError(ScheduleError):
    """An algorithm written in the builder breaks one of its rules."""


class NoProgramError(ScheduleError):
    """No executor can run a schedule; NCCL serves its calls."""


class TableError(TucclError):
    """Entries of a table contradict each other, or its file is damaged or of an unknown version."""


class MeasurementError(TucclError):
    """A backend or a job cannot be measured; finished measurements are kept."""


class ConfigurationFailedError(MeasurementError):
    """One configuration cannot run: it hung, crashed, gave wrong data or was refused.

    The message is the reason, half a sentence without the configuration's name.
    """

    def __init__(self, reason: str, *, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds
        """Seconds until the failure was known: a hang's deadline, or a restart of the workers."""


class NcclLibraryError(MeasurementError):
    """There is no NCCL to measure, or it is unclear which."""


class OldNcclError(NcclLibraryError):
    """The plugin does not speak the tuner ABI of this NCCL."""


class SeveralNcclsError(NcclLibraryError):
    """There are NCCLs of different versions, and the job's is unknown."""


class BudgetSpentError(TucclError):
    """A search has used up its budget: the strategy stops, and the search catches the error."""


class ProfileLostError(TucclError):
    """A table's process profile is under the floor on the machine now; the run catches it."""


class EngineError(TucclError):
    """A rank cannot perform a request; the text is half a sentence that says why.

    When every rank refuses a call, the group goes on with the next call. An engine whose
    communicator can no longer be used raises `EngineBrokenError`.
    """


class EngineBrokenError(EngineError):
    """A rank cannot perform any request before its worker is restarted."""


class GroupLostError(TucclError):
    """A rank died, hangs, or disagrees with the others: all must be restarted."""

    def __init__(self, reason: str, *, from_outside: bool = False) -> None:
        super().__init__(reason)
        self.from_outside = from_outside
        """Whether a worker was killed from outside (by a user, by the kernel short of memory)."""


class ConnectionLostError(TucclError):
    """The peer has closed the connection."""


class MessageError(TucclError):
    """The peer is not part of this run, or sends what is no message."""


class OtherReleaseError(MessageError):
    """The peer belongs to this run, but runs another release."""

    def __init__(self, reason: str, number: int = 0) -> None:
        super().__init__(reason)
        self.number = number
        """Number of the peer."""


class NotAFileError(OSError):
    """The path is not a regular file; `strerror` names its kind."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


_EXIT_CODES: dict[type, ExitCode] = {
    HostsMissingError: ExitCode.FINDING,
    TucclError: ExitCode.BAD_INPUT,
    InfeasibleError: ExitCode.BAD_INPUT,
    FormatError: ExitCode.BAD_INPUT,
    WorkspaceError: ExitCode.ENVIRONMENT,
    HostError: ExitCode.ENVIRONMENT,
    ScheduleError: ExitCode.ENVIRONMENT,
    TableError: ExitCode.ENVIRONMENT,
    MeasurementError: ExitCode.ENVIRONMENT,
    OSError: ExitCode.ENVIRONMENT,
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    Terminated: ExitCode.TERMINATED,
}
"""The exit code of a command that an error of this class ends; subclasses have it too."""


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code of a command that this error ends."""
    codes = (_EXIT_CODES[kind] for kind in type(error).__mro__ if kind in _EXIT_CODES)
    return next(codes, ExitCode.BAD_INPUT)
