"""The command `tuccl calibrate`: read measured times, fit the model's constants, write them."""

from __future__ import annotations

import sys
from typing import Any

from lookup_tables.table import Operation
from tuccl import __version__
from tuccl.cli.options.calibrate_command import CalibrateCommand
from tuccl.errors import ExitCode
from tuccl.measuring.calibration.fit import Fit, fit_constants
from tuccl.measuring.calibration.model_file import ModelFile, make_model_file, model_file_text
from tuccl.measuring.calibration.sources import Measurements, read_measurements
from tuccl.measuring.records.grid_csv import files_of
from tuccl.options.machine import load_machine
from tuccl.options.output_file import check_output
from tuccl.quantities import parse_operation
from tuccl.views.terminal.json_output import print_json
from tuccl.workspace.atomic_file import write_atomically

SCHEMA_VERSION = 1


def calibrate_command(command: CalibrateCommand) -> ExitCode:
    """Fit the model to a file of measured times.

    Raises:
        TucclError: The file or the topology cannot be used; nothing was written.
    """
    read = (*files_of(command.measured), command.topology)
    check_output(command.output, "--output", read)
    operation = None if command.operation is None else parse_operation(command.operation)
    topology = load_machine(command)
    measurements = read_measurements(command.measured, topology, operation)
    fit = fit_constants(measurements.observations)
    model = make_model_file(
        fit.constants,
        tuccl=__version__,
        topology=topology.fingerprint(),
        source=command.measured.name,
        observations=fit.observations,
        median_error=fit.error_after,
    )
    write_atomically(command.output, model_file_text(model))
    if command.as_json:
        print_json(_as_dict(command, measurements, fit, model), SCHEMA_VERSION)
    else:
        sys.stdout.write(_text(command, measurements, fit) + "\n")
    return ExitCode.OK


def _text(command: CalibrateCommand, measurements: Measurements, fit: Fit) -> str:
    operations = _operations(measurements)
    left_out = f", {measurements.left_out} left out" if measurements.left_out else ""
    return (
        f"{fit.observations} times of {', '.join(operations)} ({measurements.kind}{left_out}): "
        f"median error {fit.error_before:.1%} with the shipped constants, {fit.error_after:.1%} "
        f"with the fitted ones, written to {command.output}"
    )


def _as_dict(
    command: CalibrateCommand, measurements: Measurements, fit: Fit, model: ModelFile
) -> dict[str, Any]:
    """Return the document of `--json`."""
    return {
        "kind": measurements.kind,
        "operations": _operations(measurements),
        "observations": fit.observations,
        "left_out": measurements.left_out,
        "median_error_shipped": round(fit.error_before, 6),
        "median_error": round(fit.error_after, 6),
        "output": str(command.output),
        "constants": model.constants.model_dump(),
    }


def _operations(measurements: Measurements) -> list[str]:
    """Return the measured operations in NCCL's order."""
    seen = {observation.operation for observation in measurements.observations}
    return [operation.value for operation in Operation if operation in seen]
