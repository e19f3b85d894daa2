"""Errors of the P2P benchmark.

ProbeError
├── P2pMissingError  this installation has no benchmark program
├── P2pFailedError   the program could measure nothing here, and said why
├── P2pTimeoutError  the program did not end in its time and was killed
└── P2pReportError   what the program wrote cannot be used
"""

from __future__ import annotations

from probes.errors import ProbeError


class P2pMissingError(ProbeError):
    """There is no benchmark program: the package was built without nvcc."""


class P2pFailedError(ProbeError):
    """The benchmark could measure nothing: no driver, no GPU, a driver too old."""


class P2pTimeoutError(ProbeError):
    """The benchmark hung and was killed."""


class P2pReportError(ProbeError):
    """A report is cut, of an unknown version, or holds figures that cannot be."""
