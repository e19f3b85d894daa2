"""Options of a run: reads them from run.json, and derives the record and the settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pydantic import JsonValue, TypeAdapter, ValidationError

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.inputs.messages import first_fault
from probes.topology.graph import Topology
from tuccl.errors import InputFileError, MeasurementError, UsageError, WorkspaceError
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.measuring.calibration.model_file import read_model_file
from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.engines.tuner_library import is_library
from tuccl.measuring.records.reading import read_records
from tuccl.measuring.records.record import Record
from tuccl.measuring.workers.congestion import congestion_control
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.models.model_constants import ModelConstants
from tuccl.options.run_options import REPLAY, SIMULATED, RunOptions
from tuccl.quantities import (
    MAX_SIZE_BYTES,
    format_seconds,
    format_size,
    parse_operations,
    parse_size,
)
from tuccl.search.trials.baseline import read_baseline
from tuccl.search.trials.config import STOCK, Task
from tuccl.search.trials.shapes import (
    ShapeName,
    has_shape,
    parse_shape_names,
    shape_named,
    shapes_named,
    usual_names,
)
from tuccl.tuning.pipeline.recorded_search import was_alone
from tuccl.tuning.pipeline.varied_variables import asked_variables
from tuccl.tuning.settings import RunSettings, make_settings, parse_weights, refusal_of
from tuccl.tuning.switches import LEAST_S_A_KEY

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
        InputFileError: The file is no record, or the record is of another machine.
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
        InputFileError: The model file has no constants, the record no times for the operations and
            sizes, or the baseline a line that is no row.
    """
    require_possible(options)
    offers_schedules = record is not None and bool(record.of_run.schedules)
    ladder = make_settings(options, offers_schedules=offers_schedules)
    if options.own_schedules is not None and not ladder.schedules:
        raise UsageError(
            "--schedules is for a backend that runs schedules, as nccl,executor, or models them, "
            f"as {SIMULATED}; --backend {options.backend_name} does neither"
        )
    if options.shapes is not None:
        parse_shape_names(options.shapes)
    asked_variables(options)
    if options.model is not None:
        ladder = replace(ladder, model=_model(options, Path(options.model)))
    if options.baseline is not None:
        if not backend_kind(options.backend_name).tunes_nccl:
            raise UsageError(
                "--baseline is for a backend that searches NCCL's settings, as nccl,executor; "
                f"--backend {options.backend_name} searches none"
            )
        if not is_library(Path(options.baseline)):  # Which is asked when the keys are known.
            ladder = replace(ladder, baseline=read_baseline(Path(options.baseline)))
    if record is None:
        return replace(ladder, weights=_weights(options, ladder.operations)[0])
    replayed = replace(
        ladder,
        options=replace(options, alone=was_alone(record)),
        baseline=ladder.baseline or record.of_run.baseline,
        record=record.digest,
        recorded_schedules=options.schedules and offers_schedules,
        laboratory=record.of_run.laboratory,
        base=record.of_run.base,
    )
    if options.workload is not None:
        return replayed
    if options.step is not None:
        raise UsageError("--step does not apply to --records: the sizes are those recorded")
    return _of_record(replayed, record)


def _of_record(settings: RunSettings, record: Record) -> RunSettings:
    """The settings with the recorded keys and shapes that their options ask for.

    Raises:
        InputFileError: the record has none of them.
    """
    options, whole = settings.options, record.shape
    recorded = record.of_run.shapes or shapes_named((ShapeName.WHOLE,), whole)
    named = recorded
    if options.shapes is not None:
        named = shapes_named(parse_shape_names(options.shapes), whole)
        held = [each.shape for each in recorded]
        if missing := [each for each in named if each.shape not in held]:
            names = ", ".join(each.name for each in recorded)
            raise InputFileError(
                f"{options.records} has no times of communicators of shape {missing[0].name}; it "
                f"holds {names}: leave out --shapes, or name these"
            )
    operations, sizes_bytes = _recorded_keys(settings, record, [each.shape for each in named])
    weights, of_shapes = _weights(options, operations, [each.name for each in named])
    shapes = tuple(replace(each, weight=of_shapes.get(each.name, 1.0)) for each in named)
    added = tuple(
        (task, why)
        for task, why in record.of_run.added
        if task.operation in operations
        and task.shape in [each.shape for each in named]
        and sizes_bytes[0] < task.size_bytes < sizes_bytes[-1]
        and _has_stock(record, task)
    )
    return replace(
        settings,
        operations=operations,
        sizes_bytes=sizes_bytes,
        added=added,
        weights=weights,
        shapes=() if [each.shape for each in shapes] == [whole] else shapes,
    )


def _weights(
    options: RunOptions, operations: Sequence[Collective], names: Sequence[str] | None = None
) -> tuple[tuple[tuple[Collective, float], ...], Mapping[str, float]]:
    """Weights of operations, and of shapes; None: those that the options name."""
    if options.weights is None:
        return (), {}
    if names is None:
        names = [*ShapeName] if options.shapes is None else parse_shape_names(options.shapes)
    return parse_weights(options.weights, operations, names)


def with_shapes(settings: RunSettings, whole: Shape, *, only_possible: bool = False) -> RunSettings:
    """The settings with the shapes that their options name, or jobs usually have, on a machine.

    A workload names its own.

    Args:
        settings: Settings of the run.
        whole: Shape of the communicator of all GPUs.
        only_possible: Leave out the shapes that the machine has no communicators of.

    Raises:
        UsageError: the machine has no communicators of a shape.
    """
    options = settings.options
    if options.workload is not None:
        return settings
    if options.shapes is None:
        names = _usual_names(settings, whole)
    else:
        names = parse_shape_names(options.shapes)
        if only_possible:
            names = tuple(name for name in names if has_shape(name, whole)) or (ShapeName.WHOLE,)
    named = shapes_named(names, whole)
    _, weights = _weights(options, settings.operations, [each.name for each in named])
    if [each.shape for each in named] == [whole]:
        return settings
    shapes = tuple(replace(each, weight=weights.get(each.name, 1.0)) for each in named)
    return replace(settings, shapes=shapes)


def _usual_names(settings: RunSettings, whole: Shape) -> tuple[str, ...]:
    """The shapes of a run that names none: those on which all of its operations can be tuned.

    The whole alone where the budget would not suffice for the others, too.
    """
    budget_s = settings.budget_s
    names = _possible_names(settings, whole)
    if budget_s is not None and budget_s < _least_budget_s(settings, whole):
        return names[:1]
    return names


def short_budget_note(settings: RunSettings, whole: Shape) -> str | None:
    """A note on the shapes of several nodes that the budget is too short for; None: there are none.

    Args:
        settings: Settings of the run.
        whole: Shape of the communicator of all GPUs.
    """
    options, budget_s = settings.options, settings.budget_s
    if whole.nodes == 1 or budget_s is None or options.shapes or options.workload:
        return None
    left_out = _possible_names(settings, whole)[1:]
    least_s = _least_budget_s(settings, whole)
    if not left_out or budget_s >= least_s:
        return None
    return (
        f"--budget {options.budget} is short for more than the communicator of all GPUs: "
        f"{' and '.join(left_out)} are tuned from {format_seconds(least_s)}, or if --shapes "
        "names them"
    )


def _possible_names(settings: RunSettings, whole: Shape) -> tuple[str, ...]:
    return tuple(
        name
        for name in usual_names(whole, pairs=settings.budget_s is not None)
        if name == ShapeName.WHOLE
        or all(
            refusal_of(each, settings.options, shape_named(name, whole), settings.nccl) is None
            for each in settings.operations
        )
    )


def _least_budget_s(settings: RunSettings, whole: Shape) -> float:
    keys = sum(len(settings.sizes_of(each, whole)) for each in settings.operations)
    return LEAST_S_A_KEY * keys * len(_possible_names(settings, whole))


def _model(options: RunOptions, path: Path) -> ModelConstants:
    if options.backend_name != SIMULATED:
        raise UsageError(
            f"--model is for --backend {SIMULATED}; --backend {options.backend_name} models nothing"
        )
    return read_model_file(path).constants


def _recorded_keys(
    settings: RunSettings, record: Record, shapes: Sequence[Shape]
) -> tuple[tuple[Collective, ...], tuple[int, ...]]:
    """The requested operations, and the sizes that can be tuned for all of them on all shapes."""
    options = settings.options
    least = 0 if options.min_size is None else parse_size(options.min_size)
    most = MAX_SIZE_BYTES if options.max_size is None else parse_size(options.max_size)
    added = {task for task, _ in record.of_run.added}
    tasks = [
        task
        for task in record.tasks
        if least <= task.size_bytes <= most and task.shape in shapes and task not in added
    ]
    if options.operations is not None:
        operations = parse_operations(options.operations)
        tasks = [task for task in tasks if task.operation in operations]
    else:
        # Without schedules, records of alltoall have times of NCCL's own choice alone.
        if not settings.recorded_schedules:
            tasks = [task for task in tasks if task.operation.asks_tuner]
        held = {task.operation for task in tasks}
        in_order = dict.fromkeys(task.operation for task in record.of_run.keys)
        operations = tuple(each for each in (in_order or sorted(held)) if each in held)
    if not tasks:
        names = ", ".join(operations) or "any operation"
        raise InputFileError(
            f"{options.records} has no size in this range for {names}; it holds {_held(record)}"
        )
    tunable = [task for task in tasks if _has_stock(record, task)]
    sizes = [
        {task.size_bytes for task in tunable if (task.operation, task.shape) == (operation, shape)}
        for operation in operations
        for shape in shapes
    ]
    common = tuple(sorted(set.intersection(*sizes)))
    if not common:
        raise InputFileError(
            f"{options.records} has no size at which NCCL with nothing set was timed for each of "
            f"{', '.join(operations)}{_on_all(shapes)}: every gain is relative to it; record it "
            "too (beside NAME.csv: NAME_default.csv), or name fewer --operations"
        )
    return operations, common


def _on_all(shapes: Sequence[Shape]) -> str:
    """Words on several shapes, whose sizes a workload can name one by one."""
    if len(shapes) == 1:
        return ""
    return f" on each of {len(shapes)} shapes (or name fewer --shapes, or the run's --workload)"


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


def require_possible(options: RunOptions) -> None:
    """Require a backend that supports the laboratory options.

    Raises:
        UsageError: The backend does not support them.
    """
    backend = options.backend_name
    kind = backend_kind(backend)
    if options.fake_nodes and not kind.has_workers:
        raise UsageError(f"--fake-nodes is for workers on this host; --backend {backend} has none")
    if options.share_gpus and not options.fake_nodes:
        raise UsageError("--share-gpus says what GPUs faked nodes have: name --fake-nodes, too")
    if options.share_gpus and not kind.measures_nccl:
        raise UsageError(
            f"--share-gpus is for NCCL's ranks on this host; with --backend {backend} leave it out"
        )


def laboratory_of(options: RunOptions, topology: Topology) -> Laboratory:
    """The laboratory of the options, in which this host appears as another machine.

    Raises:
        UsageError: The machine is one node, which has no more GPUs than this host; or the nodes
            have more, and do not share them.
    """
    if not options.fake_nodes:
        return Laboratory()
    nodes, ranks = topology.node_count, len(topology.gpus)
    per_node = Counter(topology.node_of_rank)
    sizes = tuple(per_node[node] for node in range(nodes))
    uneven = sizes if topology.ranks_per_node == 0 else ()
    control = congestion_control() if nodes > 1 else ""
    laboratory = Laboratory(nodes, options.share_gpus, control, uneven)
    if not options.share_gpus:
        if backend_kind(options.backend_name).measures_nccl:
            _require_gpus(nodes, ranks, _gpus_here())
        return laboratory
    shared = laboratory.on_gpus(ranks, _gpus_here() or ranks)
    if nodes < 2 and not shared.gpus:
        raise UsageError(f"--share-gpus: {topology.name} is one node; name --nodes 2 or more")
    return shared


def _require_gpus(nodes: int, ranks: int, here: int) -> None:
    """Require that this host has the GPUs of all faked nodes; 0 here: the backend will tell."""
    if not 0 < here < ranks:
        return
    share, more = divmod(here, nodes)
    sizes = ",".join(str(share + (node < more)) for node in range(nodes))
    divided = f"--node-gpus {sizes} divides them among the nodes, or " if share else ""
    raise UsageError(
        f"--nodes {nodes} --fake-nodes: these nodes have {ranks} GPUs, and {here} are here; "
        f"{divided}--share-gpus lets each node have them all"
    )


def _gpus_here() -> int:
    """Return the number of GPUs; 0 where there are none, which the backend will tell."""
    try:
        return count_gpus()
    except MeasurementError:
        return 0
