"""The JSON form of the model's constants: what `tuccl calibrate` writes and `--model` reads."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probes.inputs.first_fault import first_fault
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import InputFileError
from tuccl.models.model_constants import ModelConstants, ProtocolCosts

_DIGITS = 6

_Positive = Annotated[float, Field(gt=0.0, lt=1e9, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Costs(_Strict):
    base_us: _Positive
    hop_us: _Positive
    tree_hop_us: _Positive
    sync_us: _Positive
    ring_gb_per_s: _Positive
    half_threads: _Positive
    tree_gb_per_s: _Positive
    wire_efficiency: _Positive


class _Constants(_Strict):
    ll: _Costs
    ll128: _Costs
    simple: _Costs
    pci_hop_share: _Positive
    network_hop_us: _Positive
    network_latencies: _Positive
    network_efficiency: _Positive
    launch_us: _Positive
    socket_gb_per_s: _Positive
    phase_launch_us: _Positive
    memory_efficiency: _Positive


class ModelFile(_Strict):
    """A file of constants and their provenance."""

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
    constants: _Constants

    @property
    def model_constants(self) -> ModelConstants:
        """Constants as the model takes them."""
        values = self.constants
        return ModelConstants(
            ll=ProtocolCosts(**values.ll.model_dump()),
            ll128=ProtocolCosts(**values.ll128.model_dump()),
            simple=ProtocolCosts(**values.simple.model_dump()),
            **values.model_dump(exclude={"ll", "ll128", "simple"}),
        )


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
    values = {
        name: {inner: _rounded(number) for inner, number in value.items()}
        if isinstance(value, dict)
        else _rounded(value)
        for name, value in asdict(constants).items()
    }
    return ModelFile(
        model_version=1,
        tuccl=tuccl,
        topology=topology,
        source=source,
        observations=observations,
        median_error=_rounded(median_error),
        constants=_Constants.model_validate(values),
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
