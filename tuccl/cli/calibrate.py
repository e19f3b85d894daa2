"""The command `tuccl calibrate`: read measured times, fit the model's constants, write them."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tuccl import __version__
from tuccl.cli.command import command
from tuccl.errors import ExitCode
from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import AS_JSON, OUTPUT, OUTPUT_FILE, SCOPE, option

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(MachineOptions):
    """The options of `tuccl calibrate`, whose machine is always named."""

    measured: Path = option(
        "",
        "A record (.parquet), a grid (.csv), or what nccl-tests printed.",
        "FILE",
        positional=True,
    )
    output: Path = option(OUTPUT, "Write the constants there.", "FILE.json", names=OUTPUT_FILE)
    operation: str | None = option(
        SCOPE, "Collective of nccl-tests output that does not name it.", "OP", default=None
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl calibrate h200.parquet --topology topo.xml -o h200.json",
    required=["topology"],
    helps={"topology": "The machine that was measured: a file, shipped:NAME or FILE.json#name."},
)
def calibrate(options: CalibrateOptions) -> int:
    """Fit the simulated backend to measured times of NCCL on this machine."""
    from lookup_tables.collective import COLLECTIVES, parse_collective
    from tuccl.measuring.calibration.fit import fit_constants
    from tuccl.measuring.calibration.model_file import make_model_file, model_file_text
    from tuccl.measuring.calibration.sources import read_measurements
    from tuccl.measuring.records.grid_csv import files_of
    from tuccl.options.machine import load_machine
    from tuccl.options.output_file import check_output
    from tuccl.views.terminal.json_output import print_json
    from tuccl.workspace.atomic_file import write_atomically

    check_output(options.output, "--output", (*files_of(options.measured), options.topology))
    operation = None if options.operation is None else parse_collective(options.operation)
    topology = load_machine(options)
    measured = read_measurements(options.measured, topology, operation)
    fit = fit_constants(measured.observations)
    model = make_model_file(
        fit.constants,
        tuccl=__version__,
        topology=topology.fingerprint(),
        source=options.measured.name,
        observations=fit.observations,
        median_error=fit.error_after,
    )
    write_atomically(options.output, model_file_text(model))
    seen = {observation.operation for observation in measured.observations}
    operations = [each.value for each in COLLECTIVES if each in seen]
    if options.as_json:
        document = {
            "kind": measured.kind,
            "operations": operations,
            "observations": fit.observations,
            "left_out": measured.left_out,
            "median_error_shipped": round(fit.error_before, 6),
            "median_error": round(fit.error_after, 6),
            "output": str(options.output),
            "constants": asdict(model.constants),
        }
        print_json(document, SCHEMA_VERSION)
        return ExitCode.OK
    left_out = f", {measured.left_out} left out" if measured.left_out else ""
    sys.stdout.write(
        f"{fit.observations} times of {', '.join(operations)} ({measured.kind}{left_out}): "
        f"median error {fit.error_before:.1%} with the shipped constants, {fit.error_after:.1%} "
        f"with the fitted ones, written to {options.output}\n"
    )
    return ExitCode.OK
