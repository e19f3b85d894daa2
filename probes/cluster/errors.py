"""Errors of a probe of several hosts: one type per cause.

ProbeError
└── ClusterError
    ├── LauncherError     the way to start workers on hosts cannot be used
    ├── MessageError      a line is no message, or of another version
    ├── MpiMissingError   started by MPI, and mpi4py is missing or of another MPI
    └── HostsMissingError hosts did not answer, and the user did not allow that
"""

from __future__ import annotations

from probes.errors import ProbeError


class ClusterError(ProbeError):
    """Root of the errors of a probe of several hosts."""


class LauncherError(ClusterError):
    """The way to start workers on hosts cannot be used."""


class MessageError(ClusterError):
    """A line between leader and worker is no message, or of a version that is not spoken here."""


class MpiMissingError(ClusterError):
    """The processes were started by MPI, and MPI cannot be used from Python."""


class HostsMissingError(ClusterError):
    """Hosts did not answer, and the user did not say `--allow-missing`."""
