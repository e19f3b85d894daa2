"""Measured times from a file: a record in Parquet, a grid as CSV, or output of nccl-tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.table import NcclAlgorithm
from probes.files.read import read_topology
from probes.inputs.regular_file import read_regular_file
from probes.topology.graph import Topology
from tuccl.errors import InputFileError, UsageError
from tuccl.measuring.calibration.nccl_tests import NcclTestsRun, parse_nccl_tests
from tuccl.measuring.calibration.observations import Observation
from tuccl.measuring.records.grid_csv import is_grid, read_grid_csv, topology_beside
from tuccl.measuring.records.record import Record
from tuccl.measuring.records.record_file import read_record
from tuccl.models.figures import MachineFigures, machine_figures
from tuccl.models.nccl_choice import MODELLED, MODELLED_SETTINGS
from tuccl.search.trials.config import STOCK, Config

_FACTOR_ROUNDING = 0.03
_OPERATIONS_BY_NAME = tuple(operation.value for operation in COLLECTIVES)


@dataclass(frozen=True, slots=True)
class Measurements:
    """The observations of a file that the model can be fitted to."""

    kind: str
    """`record` or `nccl-tests`."""
    observations: tuple[Observation, ...]
    left_out: int
    """Number of times that the model does not cover, and of damaged rows."""


def read_measurements(path: Path, topology: Topology, operation: Collective | None) -> Measurements:
    """Return the measured times of a file.

    Args:
        path: `.parquet` and `.csv` are records, anything else is output of nccl-tests.
        topology: Topology of the measured machine.
        operation: Operation that nccl-tests measured, if not in its output.

    Raises:
        UsageError: The file cannot be read, or an operation was given for a record.
        InputFileError: The record cannot be used, or the file is of another machine; the output
            cannot be used.
    """
    if is_grid(path) or path.suffix.lower() == ".parquet":
        if operation is not None:
            raise UsageError(f"{path}: a record names its operations; leave --operation away")
        return from_record(_record(path, topology), topology)
    try:
        text = read_regular_file(path).decode(errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a file") from error
    run = parse_nccl_tests(text, str(path))
    return from_nccl_tests(run, machine_figures(topology), operation, str(path))


def from_record(record: Record, topology: Topology) -> Measurements:
    """Return the times of NCCL's built-in algorithms in a record.

    Raises:
        InputFileError: The record's topology is not the given one.
        UsageError: The record is of a stand-in for NCCL.
    """
    if record.provenance.is_stand_in:
        raise UsageError(
            f"the record was measured by {record.provenance.backend}, a stand-in whose times say "
            "nothing about NCCL; name a record of --backend nccl"
        )
    if record.fingerprint != topology.fingerprint():
        raise InputFileError(
            f"the record is of {record.topology.name} (fingerprint {record.fingerprint}), the "
            f"topology of {topology.name} ({topology.fingerprint()}); name the record's own"
        )
    machine = machine_figures(topology)
    tables = [table for _, table in record.of_run.cost_tables if table is not None]
    if tables and not any("nvls" in table.names for table in tables):
        machine = replace(machine, multicast=None)
    known = [
        row
        for row in record.rows
        if row.samples_us
        and not row.failed
        and row.task.operation.asks_tuner
        and _is_modelled(row.config, machine)
    ]
    observations = tuple(
        Observation(
            source="record",
            machine=machine,
            operation=row.task.operation,
            size_bytes=row.task.size_bytes,
            config=row.config,
            time_us=median(row.samples_us),
            launches=0 if record.timing.graph else 1,
        )
        for row in known
    )
    return Measurements("record", observations, len(record.rows) - len(known))


def from_nccl_tests(
    run: NcclTestsRun, machine: MachineFigures, operation: Collective | None, source: str
) -> Measurements:
    """Return the times of stock NCCL in an output of nccl-tests.

    Raises:
        InputFileError: It ran on another number of ranks, or NVLS on a machine without multicast;
            or the operation is unknown.
    """
    found = _operation(run, operation, source)
    if run.ran_nvls and machine.multicast is None:
        raise InputFileError(
            f"{source}: NCCL ran NVLS, and the topology's GPUs have no multicast; name the "
            "topology of that run"
        )
    _check_ranks(run, found, machine.shape.ranks, source)
    observations = tuple(
        Observation(source, machine, found, size_bytes, STOCK, time_us, run.launches)
        for size_bytes, time_us in run.times_us
    )
    return Measurements("nccl-tests", observations, run.left_out)


def _record(path: Path, topology: Topology) -> Record:
    """Read a record; a grid takes the topology beside it, if there is one."""
    if not is_grid(path):
        return read_record(path)
    try:
        topology = read_topology(topology_beside(path))
    except InputFileError:
        return read_grid_csv(path, topology)
    return read_grid_csv(path, topology)


def _is_modelled(config: Config, machine: MachineFigures) -> bool:
    if config.is_schedule or not set(config.profile.settings) <= MODELLED_SETTINGS:
        return False
    if config.chunk_bytes:  # The model has NCCL's own chunks alone.
        return False
    if machine.multicast is None and config.algorithm in {"nvls", "nvls_tree"}:
        return False
    if config.algorithm.startswith("collnet"):  # Nothing says that this network sums.
        return False
    return config.is_default or NcclAlgorithm(config.algorithm) in MODELLED


def _operation(run: NcclTestsRun, operation: Collective | None, source: str) -> Collective:
    """Return the operation: the given one, the output's, or the file name's."""
    if operation is not None and run.operation not in {None, operation}:
        raise InputFileError(
            f"{source}: output of {run.operation}, not of {operation.value}; leave --operation away"
        )
    named = {name for name in _OPERATIONS_BY_NAME if name in Path(source).name}
    if "all_reduce" in named or "reduce_scatter" in named:
        named -= {"reduce"}
    found = operation or run.operation
    if found is None and len(named) == 1:
        found = Collective.named(named.pop())
    if found is None:
        raise InputFileError(
            f"{source}: it does not say which collective was measured; add --operation, as "
            "--operation all_reduce"
        )
    if not found.asks_tuner:
        raise InputFileError(
            f"{source}: {found.value} runs no algorithm that NCCL chooses; name another output"
        )
    return found


def _check_ranks(run: NcclTestsRun, operation: Collective, ranks: int, source: str) -> None:
    """Check the listed ranks, and those that follow from busbw, against the topology."""
    if run.ranks is not None and run.ranks != ranks:
        raise InputFileError(
            f"{source}: measured on {run.ranks} ranks, the topology has {ranks} GPUs; name the "
            "topology of that run, --nodes included"
        )
    expected = operation.bus_factor(ranks)
    if run.factor is not None and abs(run.factor / expected - 1.0) > _FACTOR_ROUNDING:
        raise InputFileError(
            f"{source}: busbw is {run.factor:.3f} times algbw, but {expected:.3f} times in "
            f"{operation.value} on the topology's {ranks} GPUs; name topology and --operation of "
            "that run"
        )
