"""Options of a run: reads them from run.json, and derives the record and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from pydantic import JsonValue, TypeAdapter, ValidationError

from tuccl.backends.backend_choice import backend_kind
from tuccl.calibration.model_file import read_model_file
from tuccl.errors import UsageError, WorkspaceError
from tuccl.inputs.run_options import REPLAY, SIMULATED, RunOptions
from tuccl.lookup_tables.table import Operation, Shape
from tuccl.models.model_constants import ModelConstants
from tuccl.pipeline.laboratory_options import require_possible
from tuccl.probes.inputs.first_fault import first_fault
from tuccl.probes.topology.graph import Topology
from tuccl.records.errors import RecordMismatchError
from tuccl.records.reading import read_records
from tuccl.records.record import Record
from tuccl.trials.config import STOCK, Task
from tuccl.trials.presets import ASKED_ABOUT
from tuccl.trials.shapes import ShapeName, has_shape, parse_shape_names, shapes_named
from tuccl.tuning.settings import RunSettings, make_settings, parse_weights
from tuccl.words.operation_names import parse_operations
from tuccl.words.sizes import MAX_SIZE_BYTES, format_size, parse_size

_OPTIONS = TypeAdapter(RunOptions)


def read_options(values: Mapping[str, JsonValue]) -> RunOptions:
    """Options as recorded in run.json.

    Raises:
        WorkspaceError: the options are damaged.
    """
    try:
        options = _OPTIONS.validate_python(values)
    except ValidationError as error:
        raise _damaged(first_fault(error, "all of them")) from error
    if unknown := values.keys() - asdict(options).keys():
        raise _damaged(f"{min(unknown)}: no option of this release")
    if "topology" not in values:
        raise _damaged("topology: not recorded")
    return options


def _damaged(fault: str) -> WorkspaceError:
    return WorkspaceError(f"the recorded options are damaged ({fault}); run `tuccl init` again")


def record_of_options(options: RunOptions, machine: Topology | None) -> Record | None:
    """Read the record that the options name; None where the backend replays none.

    Raises:
        UsageError: a backend that replays has no record, or another backend has one.
        RecordFileError: the file is no record.
        RecordMismatchError: the record is of another machine.
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


def settings_of_options(options: RunOptions, record: Record | None) -> RunSettings:
    """The settings of a run.

    Raises:
        UsageError: for an unknown name, an empty range of sizes, or a duration that does not parse.
        ModelFileError: for a model file without constants.
        RecordMismatchError: the record has no times for the operations and sizes.
    """
    require_possible(options)
    ladder = make_settings(options)
    if options.own_schedules is not None and not ladder.schedules:
        raise UsageError(
            "--schedules is for a backend that runs schedules, as nccl,executor, or models them, "
            f"as {SIMULATED}; --backend {options.backend_name} does neither"
        )
    if options.shapes is not None:
        parse_shape_names(options.shapes)
        if record is not None:
            raise UsageError("--shapes does not apply to --records: a record is of one shape")
    if options.model is not None:
        ladder = replace(ladder, model=_model(options, Path(options.model)))
    if record is None:
        return _weighed(ladder, options)
    if options.workload is not None:
        return replace(ladder, record=record.digest)
    if options.step is not None:
        raise UsageError("--step does not apply to --records: the sizes are those recorded")
    operations, sizes_bytes = _recorded_keys(options, record)
    recorded = replace(ladder, operations=operations, sizes_bytes=sizes_bytes, record=record.digest)
    return _weighed(recorded, options)


def _weighed(settings: RunSettings, options: RunOptions) -> RunSettings:
    return replace(settings, weights=_weights(options, settings.operations)[0])


def _weights(
    options: RunOptions, operations: tuple[Operation, ...]
) -> tuple[tuple[tuple[Operation, float], ...], Mapping[ShapeName, float]]:
    """Weights of operations, and of shapes."""
    if options.weights is None:
        return (), {}
    names = () if options.shapes is None else parse_shape_names(options.shapes)
    return parse_weights(options.weights, operations, names)


def with_shapes(settings: RunSettings, whole: Shape, *, only_possible: bool = False) -> RunSettings:
    """The settings with the shapes that their options name, on a machine.

    Args:
        settings: Settings of the run.
        whole: Shape of the communicator of all GPUs.
        only_possible: Leave out the shapes that the machine has no communicators of.

    Raises:
        UsageError: the machine has no communicators of a shape.
    """
    options = settings.options
    if options.shapes is None:
        return settings
    _, weights = _weights(options, settings.operations)
    names = parse_shape_names(options.shapes)
    if only_possible:
        names = tuple(name for name in names if has_shape(name, whole)) or (ShapeName.WHOLE,)
    named = shapes_named(names, whole)
    if [each.shape for each in named] == [whole]:
        return settings
    shapes = tuple(replace(each, weight=weights.get(each.name, 1.0)) for each in named)
    return replace(settings, shapes=shapes)


def _model(options: RunOptions, path: Path) -> ModelConstants:
    if options.backend_name != SIMULATED:
        raise UsageError(
            f"--model is for --backend {SIMULATED}; --backend {options.backend_name} models nothing"
        )
    return read_model_file(path).model_constants


def _recorded_keys(
    options: RunOptions, record: Record
) -> tuple[tuple[Operation, ...], tuple[int, ...]]:
    """The requested operations, and the sizes that can be tuned for all of them."""
    least = 0 if options.min_size is None else parse_size(options.min_size)
    most = MAX_SIZE_BYTES if options.max_size is None else parse_size(options.max_size)
    tasks = [task for task in record.tasks if least <= task.size_bytes <= most]
    if options.operations is not None:
        operations = parse_operations(options.operations)
        tasks = [task for task in tasks if task.operation in operations]
    else:
        # Records of alltoall have times of NCCL's own choice, and of schedules that are not run.
        tasks = [task for task in tasks if task.operation in ASKED_ABOUT]
        operations = tuple(sorted({task.operation for task in tasks}))
    if not tasks:
        names = ", ".join(operations) or "any operation"
        raise RecordMismatchError(
            f"{options.records} has no size in this range for {names}; it holds {_held(record)}"
        )
    tunable = [task for task in tasks if _has_stock(record, task)]
    sizes = [
        {task.size_bytes for task in tunable if task.operation is operation}
        for operation in operations
    ]
    common = tuple(sorted(set.intersection(*sizes)))
    if not common:
        raise RecordMismatchError(
            f"{options.records} has no size at which NCCL with nothing set was timed for each of "
            f"{', '.join(operations)}: everything is held against it; record it too (beside "
            "NAME.csv: NAME_default.csv), or name fewer --operations"
        )
    return operations, common


def _has_stock(record: Record, task: Task) -> bool:
    stock = record.row(task, STOCK)
    return stock is not None and bool(stock.samples_us)


def _held(record: Record) -> str:
    held: dict[str, list[int]] = {}
    for task in record.tasks:
        held.setdefault(task.operation.value, []).append(task.size_bytes)
    ranges = [
        f"{operation} {format_size(min(sizes))} to {format_size(max(sizes))}"
        for operation, sizes in held.items()
    ]
    return ", ".join(ranges) or "nothing to choose from"
