"""Tune a machine over a backend, and ship the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from probes.cluster.crew import LocalCrew
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from tuccl.api.default_backend import default_backend
from tuccl.api.hosts.probed_machine import probed_machine
from tuccl.api.hosts.settled_nccl import nccl_of_host, tell_nccl
from tuccl.api.look_first import look_first
from tuccl.api.machines import Machine, refuse_mpi
from tuccl.api.stages import OnStage, Tell, opened_progress, unsaid
from tuccl.api.tables import Table, table_of_run
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.options.machine_argument import absolute_machine_argument
from tuccl.options.run_options import RunOptions
from tuccl.shipping import shipment
from tuccl.shipping.forms import parse_forms
from tuccl.shipping.shipment import Shipped
from tuccl.tuning.pipeline.preparing import prepare
from tuccl.tuning.pipeline.record_output import RecordOutput
from tuccl.tuning.pipeline.tuning_run import run
from tuccl.tuning.settings import DEFAULT_FLOOR
from tuccl.workspace.atomic_file import absolute, write_atomically
from tuccl.workspace.default_place import DEFAULT_WORKSPACE
from tuccl.workspace.runs import Workspace


@dataclass(frozen=True, slots=True)
class TuningResult:
    """A finished run."""

    table: Table
    workspace: Path
    directory: Path
    """Directory of the run: `table.parquet`, `bundle.tuccl`, `report.json`, measurements."""
    measuring_s: float
    """Machine time that measuring took, or would have taken."""
    already_done: bool
    """Whether an earlier run had finished this table."""


def tune(
    machine: Machine | None = None,
    *,
    workspace: str | Path = DEFAULT_WORKSPACE,
    operations: str | Sequence[str] | None = None,
    min_size: int | str | None = None,
    max_size: int | str | None = None,
    step: int | None = None,
    shapes: str | Sequence[str] | None = None,
    workload: str | Path | None = None,
    nodes: int = 1,
    network_gbps: float | None = None,
    network_latency_us: float = 2.0,
    network_layout: str = "rails",
    backend: str | None = None,
    records: str | Path | None = None,
    model: str | Path | None = None,
    schedules: bool = True,
    own_schedules: str | Path | None = None,
    strategy: str = "mraco",
    budget_s: float | None = None,
    floor: float | None = None,
    weights: Mapping[str, float] | None = None,
    max_channels: int | None = None,
    seed: int = 0,
    cycles: int = 1,
    plain: bool = False,
    in_place: bool = False,
    alone: bool = False,
    record: str | Path | None = None,
    replace_record: bool = False,
    on_stage: OnStage = None,
    tell: Tell = None,
) -> TuningResult:
    """Tune a machine, or continue an earlier run of the same arguments.

    Args:
        machine: A topology or the file that it is read from; None: the record's, or this host.
        workspace: Directory that holds the runs.
        operations: Their names in nccl-tests; None: all of the record, or all_reduce, all_gather
            and reduce_scatter.
        min_size: Smallest size; None: the record's, or 1K.
        max_size: Largest size; None: the record's, or 1G.
        step: Factor from one size to the next; None: 4.
        shapes: Communicators that jobs use: `whole`, `node`, `rail`, `pairs`; None: `whole`.
        workload: File of a job's collectives, which names what is tuned and weighs it.
        nodes: Number of copies of the machine, joined by a network.
        network_gbps: Gbit/s of every network link; None: the NIC's own.
        network_latency_us: Latency from NIC to NIC.
        network_layout: `rails` or `fabric`.
        backend: `simulated`, `replay`, `nccl`, `executor`, `nccl,executor` or `sockets`; None:
            `replay` with records, this host's NCCL where no machine is named and it has GPUs, else
            `simulated`.
        records: Record that `replay` reads: Parquet, or a grid as CSV.
        model: Constants of `simulated`, as `tuccl calibrate` writes them.
        schedules: Whether schedules are searched beside NCCL's own settings.
        own_schedules: Directory of the user's own schedules, which are searched, too.
        strategy: Search strategy for single keys.
        budget_s: Machine time that measuring may take; None: as long as it pays.
        floor: Least share of stock NCCL's speed that a process profile leaves every key; 0: none;
            None: 0.99, or 0.9 for a workload.
        weights: Weights of operations and shapes in the choice of the process profile; 1 where not
            named.
        max_channels: Most channels that an entry asks NCCL for, and thread blocks of a schedule's
            kernel; None: as many as there are.
        seed: Seed of search and simulated noise; the same seed gives the same table.
        cycles: Greatest number of passes of a search.
        plain: Time calls one by one, rather than in CUDA graphs.
        in_place: Time calls whose send and receive buffers are the same.
        alone: Time calls alone, also where the workload tells what is computed beside them.
        record: File that all measurements are written to.
        replace_record: Whether `record` may replace another file.
        on_stage: Called with the progress.
        tell: Called with each line that the command would print meanwhile.

    Raises:
        UsageError: The arguments are impossible or contradict each other.
        MachineError: The machine cannot be read or tuned.
        ScheduleError: There is no solver.
        WorkspaceError: The workspace is busy or cannot be written; finished work is kept.
        MeasurementError: The backend cannot go on; its measurements are kept.
    """
    refuse_mpi("tune")
    root, told = Path(workspace), tell or unsaid
    options = RunOptions(
        topology=None if machine is None else _named(machine, root),
        nodes=nodes,
        network_gbps=network_gbps,
        network_latency_us=network_latency_us,
        network_layout=network_layout,
        operations=operations if operations is None else _listed(operations),
        min_size=_text(min_size),
        max_size=_text(max_size),
        step=step,
        shapes=shapes if shapes is None else _listed(shapes),
        workload=_file(workload),
        backend=backend,
        records=_file(records),
        model=_file(model),
        schedules=schedules,
        own_schedules=_file(own_schedules),
        strategy=strategy,
        budget=None if budget_s is None else f"{budget_s:f}s",
        floor=_floor(floor, workload),
        weights=None if weights is None else _weights(weights),
        max_channels=max_channels,
        seed=seed,
        cycles=cycles,
        plain=plain,
        in_place=in_place,
        alone=alone,
    )
    output = None if record is None else RecordOutput(Path(record), replace_record)
    return _tuned(_with_backend(options), root, output, on_stage, told)


def _tuned(
    given: RunOptions,
    root: Path,
    record_to: RecordOutput | None,
    on_stage: OnStage,
    tell: Callable[[str], None],
) -> TuningResult:
    shown = partial(opened_progress, on_stage)

    def note(notes: Iterable[str]) -> None:
        for text in notes:
            tell(f"note: {text}")

    def probed() -> Topology:
        crew = LocalCrew()
        try:
            return probed_machine(root, crew, shown, tell, takes_one_gpu=given.takes_one_gpu)
        finally:
            crew.close()

    look_first(given, record_to, note)
    if backend_kind(given.backend_name).measures_nccl:
        tell_nccl([nccl_of_host()], required=not given.has_machine, note=note)
    prepared = prepare(given, probed, note)
    result = run(prepared, Workspace(root), record_to, None, shown, tell)
    return TuningResult(
        table=table_of_run(result),
        workspace=root,
        directory=result.run.root,
        measuring_s=result.report.measuring_s,
        already_done=result.already_done,
    )


def ship(
    workspace: str | Path | TuningResult,
    directory: str | Path,
    *,
    force: bool = False,
    forms: Sequence[str] = (),
    place: str | Path | None = None,
) -> Shipped:
    """Write bundle, plugin and a `tuccl.env` that a job sources.

    Args:
        workspace: Workspace whose current run is shipped, or the result of a tuning.
        directory: Directory that the job reads: new, empty, or of an earlier ship.
        force: Ship even beside other files, which stay, or over another machine's table.
        forms: Forms beside `tuccl.env`: `env`, `nccl-conf`, `slurm`, `enroot`, `kubernetes`.
        place: Absolute path where jobs find the directory, if not at `directory`.

    Returns:
        The `files` that were written, `tuccl.env` last, and the `caveats`.

    Raises:
        UsageError: The directory holds other files, or another machine's table; a form is unknown,
            or cannot hold the place.
        WorkspaceError: There is no table, or the directory cannot be written.
        HostError: This installation has no plugin.
    """
    if isinstance(workspace, TuningResult):
        tuned = workspace.table.run
        finished = tuned.run if tuned is not None else Workspace(workspace.workspace).current()
    else:
        finished = Workspace(Path(workspace)).current()
    return shipment.ship(
        finished,
        Path(directory),
        force=force,
        forms=parse_forms(",".join(forms)) if forms else (),
        place=None if place is None else Path(place),
    )


def _with_backend(given: RunOptions) -> RunOptions:
    """Return the options with the backend of `tuccl init`, where this host decides."""
    said = given.backend is not None or given.model is not None
    if said or given.has_machine or given.nodes != 1:
        return given
    return replace(given, backend=default_backend(2, schedules=given.schedules).name)


def _named(machine: Machine, root: Path) -> str:
    """Return the name that a run reads a machine by; a topology is kept in the workspace."""
    if not isinstance(machine, Topology):
        return absolute_machine_argument(str(machine))
    text = topology_to_json(machine)
    path = root / "machines" / f"{sha256(text.encode()).hexdigest()[:16]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    return str(absolute(path))


def _listed(operations: str | Sequence[str]) -> str:
    return operations if isinstance(operations, str) else ",".join(operations)


def _weights(weights: Mapping[str, float]) -> str:
    return ",".join(f"{operation}={weight:g}" for operation, weight in weights.items())


def _text(size: int | str | None) -> str | None:
    return None if size is None else str(size)


def _floor(floor: float | None, workload: str | Path | None) -> str | None:
    """Return the option as the command has it: a run without it stays the same run."""
    if floor is None or (floor == DEFAULT_FLOOR and workload is None):
        return None
    return f"{floor:g}"


def _file(path: str | Path | None) -> str | None:
    return None if path is None else str(absolute(Path(path)))
