"""Errors of the network probes.

ProbeError
├── HierarchyFileError a rack map, Slurm topology, LLDP, InfiniBand or traffic file is not readable
├── HostListError      a list of hosts such as `node[01-16]` is malformed
└── ServerStartError   the server of a measurement did not start
"""

from __future__ import annotations

from probes.errors import ProbeError
from probes.network.results import Failure


class HierarchyFileError(ProbeError):
    """Raised when a file about racks, switches or traffic is malformed."""


class HostListError(ProbeError):
    """Raised when a host list is malformed or names more hosts than a cluster has."""


class ServerStartError(ProbeError):
    """Raised when the server of a measurement did not start; `failure` is the cause."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure
