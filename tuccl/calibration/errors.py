"""Errors of calibrating.

CalibrationError
├── TooFewPointsError      the file measures too little to fit constants
├── OtherMachineError      the file is another machine's than the topology
├── NcclTestsFormatError   the file is no output of nccl-tests, or a damaged one
└── ModelFileError         the file holds no constants of the model
"""

from __future__ import annotations

from tuccl.errors import TucclError


class CalibrationError(TucclError):
    """Root of what calibrating refuses."""


class TooFewPointsError(CalibrationError):
    """The file measures too little to fit constants."""


class OtherMachineError(CalibrationError):
    """The file is another machine's than the topology."""


class NcclTestsFormatError(CalibrationError):
    """The file is no output of nccl-tests, or a damaged one."""


class ModelFileError(CalibrationError):
    """The file holds no constants of the model."""
