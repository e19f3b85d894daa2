"""A record as the command line names it, held against the machine that it is used for."""

from __future__ import annotations

from pathlib import Path

from probes.files.read import read_topology
from probes.topology.graph import Topology
from tuccl.records.errors import RecordMismatchError
from tuccl.records.grid_csv import is_grid, read_grid_csv, topology_beside
from tuccl.records.record import Record
from tuccl.records.record_file import read_record


def read_records(path: Path, machine: Topology | None = None) -> Record:
    """The record of a file.

    Args:
        path: Parquet that `--record` wrote, or a grid as CSV.
        machine: What it is to be used for; None: the machine that it is of.

    Raises:
        RecordFileError: the file is no record.
        RecordMismatchError: it is of another machine, or does not say of which.
        ProbeError: the topology beside a CSV cannot serve.
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
    except RecordMismatchError:
        beside = machine  # Nothing speaks against it.
    _check_machine(path, beside, machine)
    return read_grid_csv(path, machine)


def _check_machine(path: Path, recorded: Topology, machine: Topology) -> None:
    of, wanted = recorded.fingerprint(), machine.fingerprint()
    if of != wanted:
        raise RecordMismatchError(
            f"{path} was recorded on {recorded.name} (topology {of}), not on {machine.name} "
            f"(topology {wanted}); name a record of this machine, or leave out --topology"
        )
