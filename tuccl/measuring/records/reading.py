"""Reading a record by its path, with a check against the machine that it is used for."""

from __future__ import annotations

from pathlib import Path

from probes.files.read import read_topology
from probes.topology.graph import Topology
from tuccl.errors import InputFileError
from tuccl.measuring.records.grid_csv import is_grid, read_grid_csv, topology_beside
from tuccl.measuring.records.record import Record
from tuccl.measuring.records.record_file import read_record


def read_records(path: Path, machine: Topology | None = None) -> Record:
    """Return the record of a file.

    Args:
        path: Parquet file of `--record`, or a grid as CSV.
        machine: Machine that it is used for; None: its own.

    Raises:
        InputFileError: The file is no record; it is of another machine, or names none.
        MachineError: the topology beside a CSV is unusable.
    """
    if not is_grid(path):
        record = read_record(path)
        if machine is not None:
            _check_machine(path, record.topology, machine)
        return record
    if machine is None:
        return read_grid_csv(path, read_topology(topology_beside(path)))
    try:
        beside = read_topology(topology_beside(path))
    except InputFileError:
        beside = machine  # The grid names no other machine.
    _check_machine(path, beside, machine)
    return read_grid_csv(path, machine)


def _check_machine(path: Path, recorded: Topology, machine: Topology) -> None:
    found, wanted = recorded.fingerprint(), machine.fingerprint()
    if found != wanted:
        raise InputFileError(
            f"{path} was recorded on {recorded.name} (topology {found}), not on {machine.name} "
            f"(topology {wanted}); name a record of this machine, or leave out --topology"
        )
