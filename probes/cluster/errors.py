"""Errors of a probe of several hosts: one type per cause.

ProbeError
└── ClusterError
    ├── LauncherError     the launcher of the workers cannot be used
    ├── MessageError      a line is not a message, or of another version
    ├── MpiMissingError   started by MPI, and mpi4py is missing or of another MPI
    └── HostsMissingError hosts did not answer, without --allow-missing
"""

from __future__ import annotations

from probes.errors import ProbeError


class ClusterError(ProbeError):
    """Root of the errors of a probe of several hosts."""


class LauncherError(ClusterError):
    """Raised when the launcher of the workers on hosts cannot be used."""


class MessageError(ClusterError):
    """Raised when a line between leader and worker is not a message, or of another version."""


class MpiMissingError(ClusterError):
    """Raised when MPI started the processes but cannot be used from Python."""


class HostsMissingError(ClusterError):
    """Raised when hosts did not answer and the user did not give `--allow-missing`."""
