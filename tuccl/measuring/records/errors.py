"""Errors of records.

RecordFileError      a file is no record, damaged, or of another version
RecordMismatchError  a record is of another machine, or lacks the requested data
"""

from __future__ import annotations

from tuccl.errors import TucclError


class RecordFileError(TucclError):
    """Raised when a file is no record of measurements, damaged, or of another version."""


class RecordMismatchError(TucclError):
    """Raised when a record is of another machine, or lacks the requested data."""
