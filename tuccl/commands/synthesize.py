"""What `tuccl synthesize` does: the best schedule for one machine, collective and size.

Bounds are those of the whole machine, whatever the sketch leaves out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from probes.cluster.mpi import mpi_tasks
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import algbw_bound_gb_per_s, latency_bound_us, time_bound
from synthesizer.errors import ExportError
from synthesizer.formats.exports import EXPORTS
from synthesizer.ir.collectives import Collective
from tuccl.console import display
from tuccl.console.json_output import print_json
from tuccl.console.progress import shown_progress
from tuccl.errors import ExitCode, UsageError
from tuccl.inputs.machine import MachineOptions, load_machine
from tuccl.inputs.machine_argument import read_machine_argument
from tuccl.inputs.output_file import check_output
from tuccl.inputs.sketch_argument import nodes_of, read_sketch_argument, sketch_for
from tuccl.processes.mpi_workers import lead_ranks
from tuccl.processes.workers import Workers, worker_processes, workers_for
from tuccl.schedules.guidance import guided
from tuccl.schedules.schedule_choice import PIECES_PER_SKETCH, Choice, choose_schedule
from tuccl.schedules.schedule_files import (
    STDOUT,
    is_for_msccl,
    runtime_notes,
    schedule_texts,
    wanted_format,
    write_schedule,
)
from tuccl.schedules.sketch_attempt import Request, Stopwatch, Tried
from tuccl.schedules.synthesis_report import Bounds, Outcome, as_dict, as_text
from tuccl.words.durations import parse_seconds
from tuccl.words.progress import Progress
from tuccl.words.sizes import parse_size

SCHEMA_VERSION = 1
_MOST_JOBS = 1024


@dataclass(frozen=True, slots=True)
class SynthesizeCommand:
    """The command line."""

    machine: MachineOptions
    operation: str
    size: str
    sketch: Path | None
    root: int
    time_limit: str
    jobs: int | None
    output: Path | None
    format: str | None
    as_json: bool


def synthesize_command(command: SynthesizeCommand) -> int:
    """`tuccl synthesize`; the ranks of an MPI job share the work."""
    tasks = mpi_tasks(os.environ)
    if tasks < 2:
        return _synthesize(command, None)
    return lead_ranks(tasks, lambda ranks: _synthesize(command, ranks))


def _synthesize(command: SynthesizeCommand, ranks: Workers | None) -> int:
    if command.output == STDOUT and command.as_json:
        raise UsageError(
            "--json and -o - both want standard output: give a file, or leave --json out"
        )
    if command.output is not None and command.output != STDOUT:
        check_output(command.output, "--output", (command.machine.topology, command.sketch))
    wanted = wanted_format(command.format, command.output)
    with shown_progress() as progress:
        outcome = _outcome(command, wanted, ranks, progress)
    texts: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    if wanted is not None and command.output is not None:
        texts = schedule_texts(outcome.choice.best, outcome.topology, wanted)
        if command.output != STDOUT:
            files = write_schedule(command.output, wanted, texts)
        elif len(texts) > 1:
            nodes = len(texts)
            raise UsageError(f"{wanted} takes a file for each of {nodes} nodes: give -o FILE")
    if command.as_json:
        print_json(as_dict(outcome, files, wanted), SCHEMA_VERSION)
        return ExitCode.OK
    sys.stdout.write(texts[0] if command.output == STDOUT else as_text(outcome))
    display.say_notes(outcome.notes)
    for file in files:
        display.say(f"written to {file}")
    return ExitCode.OK


def parse_collective(name: str) -> Collective:
    """A collective by its nccl-tests name; `AllGather` and `all-gather` are understood too.

    Raises:
        UsageError: for anything else.
    """
    wanted = name.lower().replace("_", "").replace("-", "")
    known = [one for one in Collective if one is not Collective.CUSTOM]
    for collective in known:
        if collective.value.replace("_", "") == wanted:
            return collective
    raise UsageError(f"operation {name!a:.60} is unknown: use one of {', '.join(known)}")


def _request(command: SynthesizeCommand) -> Request:
    request = Request(
        collective=parse_collective(command.operation),
        size_bytes=parse_size(command.size),
        root=command.root,
        time_limit_s=parse_seconds(command.time_limit),
    )
    if request.root and not request.collective.has_root:
        raise UsageError(f"--root {request.root}: {request.collective} has no root; leave it out")
    return request


def _machine(options: MachineOptions, nodes_of_sketch: int) -> Topology:
    """The machine as it is read, or that many of it as `tuccl init` takes them."""
    machine = read_machine_argument(options.topology or "", nodes_of_sketch)
    return machine if options.nodes == 1 else load_machine(options, machine)


def _outcome(
    command: SynthesizeCommand, wanted: str | None, ranks: Workers | None, progress: Progress
) -> Outcome:
    request, watch = _request(command), Stopwatch()
    with watch.stage("reading"):
        given = None if command.sketch is None else read_sketch_argument(command.sketch)
        topology = _machine(command.machine, nodes_of(given) if given else 1)
        _check_format(wanted, topology)
    with watch.stage("sketching"):
        sketches = (
            guided([request.collective], sketch_candidates(topology), request.root)
            if given is None or command.sketch is None
            else (sketch_for(given, topology, command.sketch),)
        )
        if not is_for_msccl(wanted):
            # What else reads schedules takes any number of chunks.
            sketches = tuple(replace(sketch, chunking=()) for sketch in sketches)
        machine = whole_machine(topology)
    with _workers(command.jobs, sketches, ranks) as workers:
        choice = choose_schedule(
            request,
            sketches,
            lambda done: progress("sketches", done, len(sketches)),
            lambda tried: _refusal(tried, topology, wanted),
            workers,
        )
    with watch.stage("bounding"):
        bounds = Bounds(
            algbw_bound_gb_per_s(request.collective, machine, request.root),
            latency_bound_us(request.collective, machine, request.root),
            time_bound(request.collective, machine, request.root),
        )
    notes = (
        *topology.notes,
        *choice.best.sketch.notes,
        *machine.notes,
        *choice.notes,
        *_contradictions(request, bounds, choice),
        *runtime_notes(choice.best.algorithm, request.size_bytes, wanted),
    )
    seconds = {**watch.seconds, **choice.seconds}
    return Outcome(topology, request, bounds, choice, tuple(dict.fromkeys(notes)), seconds)


def _check_format(wanted: str | None, topology: Topology) -> None:
    """Before anything is solved: whether the format can say what runs on such a machine."""
    if wanted is None or topology.node_count == 1 or EXPORTS[wanted].crosses_nodes:
        return
    others = ", ".join(one.name for one in EXPORTS.values() if one.crosses_nodes)
    raise UsageError(
        f"format {wanted} knows no messages between nodes, and {topology.name} has "
        f"{topology.node_count}: take --format {others}, or one node"
    )


def _workers(
    jobs: int | None, sketches: Sequence[Sketch], ranks: Workers | None
) -> AbstractContextManager[Workers]:
    """MPI's ranks, else processes."""
    if ranks is not None:
        if jobs is not None:
            raise UsageError("--jobs is for one host; leave it out, the ranks of MPI do the work")
        return nullcontext(ranks)
    if jobs is None:
        jobs = workers_for(sketches[0].ranks)
    if not 1 <= jobs <= _MOST_JOBS:
        raise UsageError(f"--jobs {jobs} is out of range: use 1 to {_MOST_JOBS}")
    return worker_processes(min(jobs, PIECES_PER_SKETCH * len(sketches)))


def _refusal(tried: Tried, topology: Topology, wanted: str | None) -> str | None:
    """Why the format has no words for a schedule."""
    try:
        if wanted is not None:
            schedule_texts(tried, topology, wanted)
    except ExportError as error:
        return str(error)
    return None


def _contradictions(request: Request, bounds: Bounds, choice: Choice) -> tuple[str, ...]:
    """A sketch from a file may have other figures than the machine."""
    if choice.best.time_us >= bounds.time_us(request.size_bytes) * 0.999:
        return ()
    what = f"sketch {choice.best.sketch.name} has higher bandwidths or lower latencies"
    return (f"faster than this machine can be: {what} than the topology; correct one of them",)
