"""Errors of records.

RecordFileError      a file is no record, damaged, or of another version
RecordMismatchError  a record does not hold what it is to be used for
"""

from __future__ import annotations

from tuccl.errors import TucclError


class RecordFileError(TucclError):
    """A file is no record of measurements, is damaged, or is of another version."""


class RecordMismatchError(TucclError):
    """A record is of another machine, or does not hold what it is asked for."""
