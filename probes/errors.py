"""Errors of `probes`: one type per cause, each message says what, where and what to do.

ProbeError
├── TopologyFileError    a file cannot be read or is not what its name promises
├── MachineFileError     a text or snapshot of a machine (lspci, hwloc, ...) cannot be used
├── InvalidTopologyError the machine described cannot exist or cannot be tuned
│   └── UnknownNicSpeedError the network's bandwidth must be given, no NIC states it
├── TopologyExportError  a form has no place for what the machine is
├── MigEnabledError      a GPU is cut into MIG instances
└── HostReportError      what another host sent is no report of this release
"""


class ProbeError(Exception):
    """Root of the errors that `probes` raises."""


class TopologyFileError(ProbeError):
    """A topology file is unreadable, malformed, or of a version this release does not know."""


class InvalidTopologyError(ProbeError):
    """A topology breaks a rule: duplicate names, a link without bandwidth, unreachable GPUs, ..."""


class UnknownNicSpeedError(InvalidTopologyError):
    """A network is as fast as its NICs, and one of them does not state its speed."""


class MigEnabledError(ProbeError):
    """A GPU is cut into MIG instances, or will be after its next reset."""


class HostReportError(ProbeError):
    """A host's report is malformed, contradicts itself, or is of an unknown version."""


class MachineFileError(ProbeError):
    """What somebody saved of a machine (lspci, hwloc, topo -m, ...) is cut, damaged, or no tree."""


class TopologyExportError(ProbeError):
    """A topology cannot be written in the form asked for: another has the place that it lacks."""
