"""The JSON form of the model's constants: what `tuccl calibrate` writes and `--model` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probes.inputs.messages import first_fault
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import InputFileError
from tuccl.measuring.calibration.fit import constants_of, numbers_of
from tuccl.models.model_constants import ModelConstants

_DIGITS = 6


class ModelFile(BaseModel):
    """A file of constants and their provenance."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    model_version: Literal[1]
    tuccl: str
    """Release of TuCCL that fitted the constants."""
    topology: str
    """Fingerprint of the measured machine."""
    source: str
    """Name of the file of measurements."""
    observations: Annotated[int, Field(ge=1)]
    median_error: Annotated[float, Field(ge=0.0)]
    """Median relative error on the times that the constants were fitted to."""
    constants: ModelConstants


def make_model_file(
    constants: ModelConstants,
    *,
    tuccl: str,
    topology: str,
    source: str,
    observations: int,
    median_error: float,
) -> ModelFile:
    """Return a file of constants, rounded to six digits."""
    return ModelFile(
        model_version=1,
        tuccl=tuccl,
        topology=topology,
        source=source,
        observations=observations,
        median_error=_rounded(median_error),
        constants=constants_of(map(_rounded, numbers_of(constants))),
    )


def model_file_text(model: ModelFile) -> str:
    """Return the file's text; the same constants give the same bytes."""
    return model.model_dump_json(indent=1) + "\n"


def read_model_file(path: Path) -> ModelFile:
    """Return the constants of a file.

    Raises:
        InputFileError: It cannot be read, or holds no constants of this version.
    """
    try:
        text = read_regular_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputFileError(
            f"cannot read {path}: {reason}; name a file that `tuccl calibrate` wrote"
        ) from error
    try:
        return ModelFile.model_validate_json(text)
    except ValidationError as error:
        raise InputFileError(
            f"{path}: {first_fault(error)}; write it again with `tuccl calibrate`"
        ) from error


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
