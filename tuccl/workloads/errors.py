"""Errors of workloads.

WorkloadFileError     a file is no workload, damaged, or of another version
RecordingError        a file is no recording of a job, damaged, or of an unknown form
"""

from __future__ import annotations

from tuccl.errors import TucclError


class WorkloadFileError(TucclError):
    """Raised when a file is no workload, damaged, or of another version."""


class RecordingError(TucclError):
    """Raised when a file is no recording of a job's collectives, damaged, or of unknown form."""
