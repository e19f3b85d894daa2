"""Errors of the P2P benchmark.

ProbeError
├── P2pMissingError  this installation has no benchmark program
├── P2pFailedError   the program could not measure on this host
├── P2pTimeoutError  the program did not end in time and was killed
└── P2pReportError   the program's report is invalid
"""

from __future__ import annotations

from probes.errors import ProbeError


class P2pMissingError(ProbeError):
    """Raised when there is no benchmark program, as the package was built without nvcc."""


class P2pFailedError(ProbeError):
    """Raised when the benchmark could not measure: no driver, no GPU, a driver too old."""


class P2pTimeoutError(ProbeError):
    """Raised when the benchmark hung and was killed."""


class P2pReportError(ProbeError):
    """Raised when a report is cut, of an unknown version, or has impossible figures."""
