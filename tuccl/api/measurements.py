"""Measurements as pandas frames: records of `--record`, grids as CSV, results of `tuccl bench`."""

from __future__ import annotations

from pathlib import Path

from tuccl.api.machines import Machine, machine_of
from tuccl.errors import UsageError
from tuccl.measuring.records.reading import read_records
from tuccl.measuring.records.record import Record
from tuccl.reports.json_form import result_from
from tuccl.shipping.bench.result import BenchResult


def read_record(path: str | Path, *, machine: Machine | None = None) -> Record:
    """Read a record of measurements; its `frame` has a row for each configuration on a key.

    Args:
        path: Parquet file that `record` of `tune` names, or a grid as CSV.
        machine: Machine that was measured; None: as the record says.

    Raises:
        InputFileError: The file is no record, or of another machine.
        MachineError: The machine cannot be read.
    """
    return read_records(Path(path), None if machine is None else machine_of(machine))


def read_bench(path: str | Path) -> BenchResult:
    """Read what `tuccl bench --json` printed; its `frame` has a row for each key and table.

    Raises:
        UsageError: The file cannot be read, or is no such result of this release.
    """
    try:
        return result_from(BenchResult, Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: {str(error).splitlines()[0]}; name what `tuccl bench --json` of this release "
            "printed"
        ) from error
