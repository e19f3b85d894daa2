"""`--workload`: the keys of a run from the collectives of a job, and how their calls are timed.

A workload names operations, sizes and communicators, and the times of its calls weigh them, so the
options that say the same are refused beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from tuccl.errors import UsageError
from tuccl.measuring.backends.backend_choice import backend_kind
from tuccl.measuring.records.record import Record
from tuccl.options.run_options import RunOptions
from tuccl.quantities import count_of
from tuccl.search.trials.config import STOCK, Task
from tuccl.search.trials.shapes import NamedShape, ShapeName, shapes_dividing
from tuccl.search.trials.timing import Timing
from tuccl.tuning.settings import RunSettings, refusal_of
from tuccl.workloads.call_timing import has_place, mostly_in_place, mostly_outside_graphs
from tuccl.workloads.machine_keys import Offer, step_calls
from tuccl.workloads.step_calls import StepCalls
from tuccl.workloads.workload import Workload
from tuccl.workloads.workload_file import read_workload

_NAMED_BY_WORKLOAD = ("operations", "min_size", "max_size", "step", "shapes", "weights")
_MOSTLY_HIDDEN = 0.5
"""Hidden share of the calls' time from which a run says that they may cost the computation."""


def workload_of_options(options: RunOptions) -> Workload | None:
    """Read the workload that the options name; None where they name none.

    Raises:
        UsageError: another option says what is tuned, too.
        InputFileError: the file is no workload.
    """
    if options.workload is None:
        return None
    for name in _NAMED_BY_WORKLOAD:
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} beside --workload: the workload says what is tuned "
                "and what it weighs; leave out one of them"
            )
    return read_workload(Path(options.workload))


def with_workload(
    settings: RunSettings, workload: Workload, whole: Shape, record: Record | None = None
) -> RunSettings:
    """The settings of a run that tunes a workload's keys, timed as most of its calls are made.

    Args:
        settings: Settings of the other options.
        workload: The workload.
        whole: Shape of the communicator of all GPUs.
        record: Record that is replayed, with the sizes that can be tuned; None: any size can be.

    Raises:
        UsageError: no call of the workload can be tuned here.
    """
    shapes = shapes_dividing(whole)
    if record is not None:
        shapes = record.of_run.shapes or (NamedShape(ShapeName.WHOLE, whole),)

    def refusal(operation: Collective, shape: Shape) -> str | None:
        if record is None:
            return refusal_of(operation, settings.options, shape, settings.nccl)
        if operation.asks_tuner or settings.recorded_schedules:
            return None
        return f"NCCL asks no tuner about {operation}"

    calls = step_calls(workload, Offer(shapes, refusal))
    if record is not None:
        recorded = _recorded_tasks(record)
        if not (record.of_run.keys and all(key.task in recorded for key in calls.keys)):
            calls = step_calls(workload, Offer(shapes, refusal, recorded))
    if not calls.keys:
        raise UsageError(f"--workload {settings.options.workload}: {_nothing(calls)}")
    tasks = [key.task for key in calls.keys]
    used = {task.shape for task in tasks}
    named = tuple(each for each in shapes if each.shape in used)
    return replace(
        settings,
        operations=tuple(sorted({task.operation for task in tasks})),
        sizes_bytes=tuple(sorted({task.size_bytes for task in tasks})),
        shapes=() if used == {whole} else named,
        workload=calls,
        options=_timed_alike(settings.options, workload, calls),
    )


def workload_notes(settings: RunSettings, workload: Workload | None, timing: Timing) -> list[str]:
    """Notes on the calls that a run of a workload leaves out, and on how the others are timed.

    Args:
        settings: Settings of the run.
        workload: The workload; None: there is none.
        timing: How its calls are timed, or were where a record is replayed.
    """
    calls = settings.workload
    if calls is None or workload is None:
        return []
    kind = backend_kind(settings.backend)
    listed = [*calls.left_out_notes]
    if timing.computations:
        listed.append(_beside(calls, timing, can_be_alone=not kind.needs_record))
    else:
        listed += _hidden(settings, workload)
    if kind.measures_nccl:
        graphs = "in CUDA graphs" if timing.graph else "one by one, outside of CUDA graphs"
        place = "in place" if timing.in_place else "out of place"
        listed.append(f"the workload's calls are timed {graphs}, {place}")
    return listed


def _beside(calls: StepCalls, timing: Timing, *, can_be_alone: bool) -> str:
    """Note that calls are timed beside computation."""
    beside = sum(timing.computation_us(key.task) > 0.0 for key in calls.keys)
    return (
        f"calls of {beside} of {count_of(len(calls.keys), 'key')} are timed beside as much "
        "computation as a recording had beside them, until both have ended"
        f"{' (--alone: without)' if can_be_alone else ''}"
    )


def _hidden(settings: RunSettings, workload: Workload) -> Iterator[str]:
    """Yield a note where steps do not wait for most of the time of calls that are timed alone."""
    times = workload.exposure
    if times is None or settings.options.max_channels is not None:
        return
    if times.hidden_share >= _MOSTLY_HIDDEN:
        yield (
            f"steps do not wait for {times.hidden_share:.0%} of the calls' time; there calls share "
            "the GPU with computation, but are timed alone: --max-channels N bounds what they take "
            "of it"
        )


def _recorded_tasks(record: Record) -> frozenset[Task]:
    """Keys with configurations to choose from and a time of NCCL with nothing set."""
    stocks = ((task, record.row(task, STOCK)) for task in record.tasks)
    return frozenset(task for task, stock in stocks if stock is not None and stock.samples_us)


def _timed_alike(options: RunOptions, workload: Workload, calls: StepCalls) -> RunOptions:
    """The options with calls timed as most calls of the workload are made, if NCCL is timed."""
    if not backend_kind(options.backend_name).measures_nccl:
        return options
    if options.in_place and not has_place(calls):
        raise UsageError("--in-place: the workload has an operation without such a form")
    return replace(
        options,
        plain=options.plain or mostly_outside_graphs(workload),
        in_place=options.in_place or (mostly_in_place(workload) and has_place(calls)),
    )


def _nothing(calls: StepCalls) -> str:
    if not calls.left_out:
        return "it has no calls; record more of the job"
    return f"no call of it can be tuned here; {calls.left_out_notes[0]}"
