"""Errors of calibrating.

CalibrationError
├── TooFewPointsError      the file measures too little to fit constants
├── OtherMachineError      the file is of another machine than the topology
├── NcclTestsFormatError   the file is no output of nccl-tests, or a damaged one
└── ModelFileError         the file holds no constants of the model
"""

from __future__ import annotations

from tuccl.errors import TucclError


class CalibrationError(TucclError):
    """Base class of calibration errors."""


class TooFewPointsError(CalibrationError):
    """Raised when the file has too few measurements to fit constants."""


class OtherMachineError(CalibrationError):
    """Raised when the file is of another machine than the topology."""


class NcclTestsFormatError(CalibrationError):
    """Raised when the file is no output of nccl-tests, or a damaged one."""


class ModelFileError(CalibrationError):
    """Raised when the file holds no constants of the model."""
