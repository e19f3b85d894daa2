"""`RunOptions`: what the command line says about a run, and the settings that follow from it.

They are written into run.json, so that `tuccl retune` can repeat them. What is not given is None,
and its default is decided here: with a record, everything that was recorded; else a ladder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from lookup_tables.table import Operation
from probes.inputs.first_fault import first_fault
from probes.topology.graph import Topology
from tuccl.backends.backend_choice import REPLAY, SIMULATED, backend_kind
from tuccl.calibration.model_file import read_model_file
from tuccl.errors import UsageError, WorkspaceError
from tuccl.inputs.machine import MachineOptions, load_machine
from tuccl.models.model_constants import ModelConstants
from tuccl.records.errors import RecordMismatchError
from tuccl.records.reading import read_records
from tuccl.records.record import Record
from tuccl.trials.config import STOCK, Task
from tuccl.trials.presets import ASKED_ABOUT
from tuccl.tuning.settings import (
    DEFAULT_FLOOR,
    RunSettings,
    make_settings,
    parse_floor,
    parse_weights,
)
from tuccl.words.durations import parse_seconds
from tuccl.words.operation_names import parse_operations
from tuccl.words.sizes import MAX_SIZE_BYTES, format_size, parse_size

_OPERATIONS = "all_reduce,all_gather,reduce_scatter"
_MIN_SIZE = "1K"
_MAX_SIZE = "1G"
_STEP = 4


class RunOptions(BaseModel):
    """The options of `tuccl init` and `tuccl tune`, by their names there."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    topology: str | None
    """None: probed, or that of the record."""
    nodes: int = 1
    network_gbps: float | None = None
    network_latency_us: float = 2.0
    network_layout: str = "rails"
    operations: str | None = None
    min_size: str | None = None
    max_size: str | None = None
    step: int | None = None
    backend: str | None = None
    """None: `replay` where there is a record, else `simulated`.

    What the host decides (`tuccl.commands.default_backend`) is written here before a run begins.
    """
    records: str | None = None
    model: str | None = None
    """File of the simulated backend's constants; None: the shipped ones."""
    strategy: str = "mraco"
    budget: str | None = None
    floor: str | None = None
    """None: `DEFAULT_FLOOR`."""
    weights: str | None = None
    seed: int = 0
    cycles: int = 1
    schedules: bool = True
    """Whether schedules are searched too, where the backend has an executor."""
    own_schedules: str | None = None
    """Directory of schedules of the user's own that are searched, too: `--schedules`."""
    fake_nodes: bool = False
    """Whether the GPUs of this host appear as the nodes."""
    share_gpus: bool = False
    """Whether each of these nodes has all GPUs of this host."""
    plain: bool = False
    """Whether calls are timed one by one, instead of in CUDA graphs."""
    in_place: bool = False

    @property
    def backend_name(self) -> str:
        """The backend that measures."""
        if self.backend is not None:
            return self.backend
        return REPLAY if self.records is not None else SIMULATED

    @property
    def has_machine(self) -> bool:
        """Whether the machine is known without probing."""
        return self.topology is not None or self.records is not None


def read_options(values: Mapping[str, JsonValue]) -> RunOptions:
    """Options as recorded in run.json.

    Raises:
        WorkspaceError: they are damaged.
    """
    try:
        return RunOptions.model_validate(values)
    except ValidationError as error:
        raise WorkspaceError(
            f"the recorded options are damaged ({first_fault(error, 'all of them')}); "
            "run `tuccl init` again"
        ) from error


def record_of_options(options: RunOptions, machine: Topology | None) -> Record | None:
    """The record that the options name; None where nothing is replayed.

    Raises:
        UsageError: a backend without its record, or a record without its backend.
        RecordFileError: the file is no record.
        RecordMismatchError: it is of another machine.
    """
    backend = options.backend_name
    if not backend_kind(backend).needs_record:
        if options.records is not None:
            raise UsageError(
                f"--records is for --backend {REPLAY}; --backend {backend} measures by itself"
            )
        return None
    if options.records is None:
        raise UsageError(f"--backend {backend} needs --records FILE: what is to be replayed")
    return read_records(Path(options.records), machine)


def machine_of_options(options: RunOptions, machine: Topology | None = None) -> Topology:
    """The machine of a run; with `machine`, what was found where the options name none.

    Raises:
        UsageError: for impossible options.
        ProbeError: for a file that cannot serve.
    """
    described = MachineOptions(
        topology=options.topology,
        nodes=options.nodes,
        network_gbit_per_s=options.network_gbps,
        network_latency_us=options.network_latency_us,
        network_layout=options.network_layout,
    )
    return load_machine(described, machine)


def settings_of_options(options: RunOptions, record: Record | None) -> RunSettings:
    """The settings of a run.

    Raises:
        UsageError: for an unknown name, an empty range of sizes, or a duration that is none.
        ModelFileError: for a file without constants.
        RecordMismatchError: the record does not hold what is asked for.
    """
    ladder = make_settings(
        _OPERATIONS if options.operations is None else options.operations,
        parse_size(_MIN_SIZE if options.min_size is None else options.min_size),
        parse_size(_MAX_SIZE if options.max_size is None else options.max_size),
        _STEP if options.step is None else options.step,
        backend=options.backend_name,
        seed=options.seed,
        cycles=options.cycles,
        strategy=options.strategy,
        budget_s=None if options.budget is None else parse_seconds(options.budget, "--budget"),
        floor=DEFAULT_FLOOR if options.floor is None else parse_floor(options.floor),
        schedules=options.schedules,
        fake_nodes=options.fake_nodes,
        share_gpus=options.share_gpus,
        plain=options.plain,
        in_place=options.in_place,
    )
    if options.own_schedules is not None and not ladder.schedules:
        raise UsageError(
            "--schedules is for a backend that runs schedules, as nccl,executor, or models them, "
            f"as {SIMULATED}; --backend {options.backend_name} does neither"
        )
    if options.model is not None:
        ladder = replace(ladder, model=_model(options, Path(options.model)))
    if record is None:
        return _weighed(ladder, options)
    if options.step is not None:
        raise UsageError("--step has no meaning with --records: the sizes are those recorded")
    operations, sizes_bytes = _recorded_keys(options, record)
    recorded = replace(ladder, operations=operations, sizes_bytes=sizes_bytes, record=record.digest)
    return _weighed(recorded, options)


def _weighed(settings: RunSettings, options: RunOptions) -> RunSettings:
    if options.weights is None:
        return settings
    return replace(settings, weights=parse_weights(options.weights, settings.operations))


def _model(options: RunOptions, path: Path) -> ModelConstants:
    if options.backend_name != SIMULATED:
        raise UsageError(
            f"--model is for --backend {SIMULATED}; --backend {options.backend_name} models nothing"
        )
    return read_model_file(path).model_constants


def _recorded_keys(
    options: RunOptions, record: Record
) -> tuple[tuple[Operation, ...], tuple[int, ...]]:
    """The operations asked for, and the sizes that can be tuned for all of them."""
    least = 0 if options.min_size is None else parse_size(options.min_size)
    most = MAX_SIZE_BYTES if options.max_size is None else parse_size(options.max_size)
    tasks = [task for task in record.tasks if least <= task.size_bytes <= most]
    if options.operations is not None:
        wanted = parse_operations(options.operations)
        tasks = [task for task in tasks if task.operation in wanted]
    else:
        # A record of alltoall has times of NCCL's own choice, and of schedules that nobody runs.
        tasks = [task for task in tasks if task.operation in ASKED_ABOUT]
        wanted = tuple(sorted({task.operation for task in tasks}))
    if not tasks:
        asked = ", ".join(wanted) or "any operation"
        raise RecordMismatchError(
            f"{options.records} has no size in this range for {asked}; it holds {_held(record)}"
        )
    tunable = [task for task in tasks if _has_stock(record, task)]
    sizes = [
        {task.size_bytes for task in tunable if task.operation is operation} for operation in wanted
    ]
    common = tuple(sorted(set.intersection(*sizes)))
    if not common:
        raise RecordMismatchError(
            f"{options.records} has no size at which NCCL with nothing set was timed for each of "
            f"{', '.join(wanted)}: everything is held against it; record it too (beside NAME.csv: "
            "NAME_default.csv), or name fewer --operations"
        )
    return wanted, common


def _has_stock(record: Record, task: Task) -> bool:
    stock = record.row(task, STOCK)
    return stock is not None and bool(stock.samples_us)


def _held(record: Record) -> str:
    held: dict[str, list[int]] = {}
    for task in record.tasks:
        held.setdefault(task.operation.value, []).append(task.size_bytes)
    parts = [
        f"{operation} {format_size(min(sizes))} to {format_size(max(sizes))}"
        for operation, sizes in held.items()
    ]
    return ", ".join(parts) or "nothing to choose from"
