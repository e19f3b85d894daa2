"""Errors of the network probes.

ProbeError
├── HierarchyFileError a rack map, Slurm topology, LLDP, InfiniBand or traffic file is not readable
├── HostListError      a list of hosts such as `node[01-16]` is malformed
└── ServerStartError   the listening end of a measurement did not come up
"""

from __future__ import annotations

from probes.errors import ProbeError
from probes.network.results import Failure


class HierarchyFileError(ProbeError):
    """A file that says which hosts are near each other cannot be understood."""


class HostListError(ProbeError):
    """A host list expression is malformed or names more hosts than a cluster has."""


class ServerStartError(ProbeError):
    """The listening end of a measurement did not come up; `failure` says how that counts."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure
