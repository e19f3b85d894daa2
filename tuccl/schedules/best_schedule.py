"""`best_schedule`: the fastest schedule on a machine, with the bounds of that machine.

Bounds are those of the whole machine, whatever the sketch leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s, latency_bound_us, time_bound
from synthesizer.formats.exports import EXPORTS
from tuccl.crew.pool import Workers, worker_processes, workers_for
from tuccl.errors import FormatError, UsageError
from tuccl.schedules.guidance import guided
from tuccl.schedules.making import Stopwatch
from tuccl.schedules.schedule_choice import Choice, Request, Tried, choose_schedule
from tuccl.schedules.schedule_files import is_for_msccl, runtime_notes, schedule_texts
from tuccl.schedules.synthesis_report import Bounds, Synthesis
from tuccl.search.trials.events import Progress

_MOST_JOBS = 1024


@dataclass(frozen=True, slots=True)
class Means:
    """Sketch, processes and file format of a synthesis."""

    sketch: Sketch | None = None
    """Sketch to use; if None, candidates made from the machine."""
    format: str | None = None
    """Format that the schedule will be written in; None means any."""
    jobs: int | None = None
    """Number of processes; None means as many as pay."""
    ranks: Workers | None = None
    """Ranks of an MPI job; if None, processes of this host."""


def best_schedule(
    request: Request,
    topology: Topology,
    means: Means,
    progress: Progress,
    watch: Stopwatch | None = None,
) -> Synthesis:
    """Search the sketches of a machine.

    Args:
        request: Operation, size and limits.
        topology: The machine.
        means: Sketch, processes and file format.
        progress: Called with the number of sketches that are done.
        watch: Seconds of earlier stages, which the outcome includes.

    Raises:
        UsageError: The format cannot express schedules of this machine, or `jobs` is impossible.
        MachineError: The machine has fewer than two GPUs, or two that no links connect.
        ScheduleError: As `choose_schedule`.
    """
    watch = watch or Stopwatch()
    _check_format(means.format, topology)
    with watch.stage("sketching"):
        sketches = (
            guided([request.collective], sketch_candidates(topology), request.root)
            if means.sketch is None
            else (means.sketch,)
        )
        if not is_for_msccl(means.format):
            # All other runtimes accept any number of chunks.
            sketches = tuple(replace(sketch, chunking=()) for sketch in sketches)
        machine = whole_machine(topology)
    with _workers(means, sketches) as workers:
        choice = choose_schedule(
            request,
            sketches,
            lambda done: progress("sketches", done, len(sketches)),
            lambda tried: _refusal(tried, topology, means.format),
            workers,
        )
    with watch.stage("bounding"):
        bounds = bounds_of(request, machine)
    notes = (
        *topology.notes,
        *choice.best.sketch.notes,
        *machine.notes,
        *choice.notes,
        *_contradictions(request, bounds, choice),
        *runtime_notes(choice.best.algorithm, request.size_bytes, means.format),
    )
    seconds = {**watch.seconds, **choice.seconds}
    return Synthesis(topology, request, bounds, choice, tuple(dict.fromkeys(notes)), seconds)


def bounds_of(request: Request, machine: Sketch) -> Bounds:
    """Return the bounds of all schedules on the whole machine."""
    return Bounds(
        algbw_bound_gb_per_s(request.collective, machine, request.root),
        latency_bound_us(request.collective, machine, request.root),
        time_bound(request.collective, machine, request.root),
    )


def _check_format(wanted: str | None, topology: Topology) -> None:
    """Require a format that can express schedules of the machine, before anything is solved."""
    if wanted is None or topology.node_count == 1 or EXPORTS[wanted].crosses_nodes:
        return
    others = ", ".join(export.name for export in EXPORTS.values() if export.crosses_nodes)
    raise UsageError(
        f"format {wanted} knows no messages between nodes, and {topology.name} has "
        f"{topology.node_count}: take --format {others}, or one node"
    )


def _workers(means: Means, sketches: Sequence[Sketch]) -> AbstractContextManager[Workers]:
    """Return MPI's ranks, else processes of this host."""
    jobs = means.jobs
    if means.ranks is not None:
        if jobs is not None:
            raise UsageError("--jobs is for one host; leave it out, the ranks of MPI do the work")
        return nullcontext(means.ranks)
    if jobs is None:
        jobs = workers_for(sketches[0].ranks)
    if not 1 <= jobs <= _MOST_JOBS:
        raise UsageError(f"--jobs {jobs} is out of range: use 1 to {_MOST_JOBS}")
    return worker_processes(jobs)


def _refusal(tried: Tried, topology: Topology, wanted: str | None) -> str | None:
    """Return why the format cannot express a schedule; None if it can."""
    try:
        if wanted is not None:
            schedule_texts(tried, topology, wanted)
    except FormatError as error:
        return str(error)
    return None


def _contradictions(request: Request, bounds: Bounds, choice: Choice) -> tuple[str, ...]:
    """Return a note where a sketch from a file has better figures than the machine."""
    if choice.best.time_us >= bounds.time_us(request.size_bytes) * 0.999:
        return ()
    what = f"sketch {choice.best.sketch.name} has higher bandwidths or lower latencies"
    return (f"faster than this machine can be: {what} than the topology; correct one of them",)
