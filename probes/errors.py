"""Errors of `probes`: one type per cause, each message says what, where and what to do.

ProbeError
├── TopologyFileError    a file cannot be read or is not what its name promises
└── InvalidTopologyError the machine described cannot exist or cannot be tuned
"""


class ProbeError(Exception):
    """Root of the errors that `probes` raises."""


class TopologyFileError(ProbeError):
    """A topology file is unreadable, malformed, or of a version this release does not know."""


class InvalidTopologyError(ProbeError):
    """A topology breaks a rule: duplicate names, a link without bandwidth, unreachable GPUs, ..."""
