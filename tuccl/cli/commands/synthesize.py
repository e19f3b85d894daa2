"""The command `tuccl synthesize`: the best schedule for one machine, collective and size."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from probes.cluster.mpi import mpi_tasks
from probes.topology.graph import Topology
from synthesizer.ir.collectives import parse_collective
from tuccl.cli.options.synthesize_command import SynthesizeCommand
from tuccl.errors import ExitCode, UsageError
from tuccl.options.machine import load_machine
from tuccl.options.machine_argument import read_machine_argument
from tuccl.options.machine_options import MachineOptions
from tuccl.options.output_file import check_output
from tuccl.options.sketch_argument import nodes_of, read_sketch_argument, sketch_for
from tuccl.processes.mpi_workers import lead_ranks
from tuccl.processes.workers import Workers
from tuccl.quantities import parse_seconds, parse_size
from tuccl.schedules.best_schedule import Means, best_schedule
from tuccl.schedules.making import Stopwatch
from tuccl.schedules.schedule_choice import Request
from tuccl.schedules.schedule_files import STDOUT, schedule_texts, wanted_format, write_schedule
from tuccl.schedules.synthesis_report import Outcome, as_dict, as_text
from tuccl.search.trials.events import Progress
from tuccl.views.terminal import display
from tuccl.views.terminal.json_output import print_json
from tuccl.views.terminal.progress import shown_progress

SCHEMA_VERSION = 1


def synthesize_command(command: SynthesizeCommand) -> int:
    """Run `tuccl synthesize`; the ranks of an MPI job share the work."""
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
        check_output(command.output, "--output", (command.topology, command.sketch))
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
    """Return the machine, or a cluster of `--nodes` copies as `tuccl init` makes it."""
    machine = read_machine_argument(options.topology or "", nodes_of_sketch)
    is_itself = options.nodes == 1 and options.node_gpus is None
    return machine if is_itself else load_machine(options, machine)


def _outcome(
    command: SynthesizeCommand, wanted: str | None, ranks: Workers | None, progress: Progress
) -> Outcome:
    request, watch = _request(command), Stopwatch()
    with watch.stage("reading"):
        given = None if command.sketch is None else read_sketch_argument(command.sketch)
        topology = _machine(command, nodes_of(given) if given else 1)
        sketch = (
            None
            if given is None or command.sketch is None
            else sketch_for(given, topology, command.sketch)
        )
    means = Means(sketch, wanted, command.jobs, ranks)
    return best_schedule(request, topology, means, progress, watch)
