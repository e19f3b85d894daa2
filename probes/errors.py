"""Errors of `probes`: one type per cause, each message says what, where and what to do.

ProbeError
├── TopologyFileError    a topology file cannot be read or is malformed
├── MachineFileError     a text or snapshot of a machine (lspci, hwloc, ...) cannot be used
├── InvalidTopologyError the machine cannot exist or cannot be tuned
│   └── UnknownNicSpeedError the network's bandwidth must be given, since a NIC does not state it
├── TopologyExportError  the output format cannot represent the machine
├── MigEnabledError      a GPU is partitioned into MIG instances
└── HostReportError      another host's report is not valid in this release
"""


class ProbeError(Exception):
    """Root of the errors that `probes` raises."""


class TopologyFileError(ProbeError):
    """Raised when a topology file is unreadable, malformed, or of an unknown version."""


class InvalidTopologyError(ProbeError):
    """Raised for a topology with duplicate names, links without bandwidth, unreachable GPUs, ..."""


class UnknownNicSpeedError(InvalidTopologyError):
    """Raised when neither the network nor a NIC on it states a speed."""


class MigEnabledError(ProbeError):
    """Raised when a GPU is partitioned into MIG instances, or will be after its next reset."""


class HostReportError(ProbeError):
    """Raised when a host's report is malformed, contradictory, or of an unknown version."""


class MachineFileError(ProbeError):
    """Raised when a saved description (lspci, hwloc, topo -m, ...) is cut, damaged, or no tree."""


class TopologyExportError(ProbeError):
    """Raised when a topology cannot be represented in the requested output format."""
