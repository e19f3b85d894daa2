"""The command `tuccl synthesize`: the best schedule for one machine, collective and size."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.command import command
from tuccl.errors import ExitCode, UsageError
from tuccl.options.machine_options import MachineOptions
from tuccl.options.option import AS_JSON, OUTPUT, OUTPUT_FILE, SCOPE, SEARCH, option

if TYPE_CHECKING:
    from probes.topology.graph import Topology
    from tuccl.crew.places import Places
    from tuccl.crew.pool import Workers
    from tuccl.schedules.synthesis_report import Synthesis
    from tuccl.search.trials.events import Progress

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class SynthesizeOptions(MachineOptions):
    """The options of `tuccl synthesize`, whose machine is always named."""

    operation: str = option(SCOPE, "Collective, as nccl-tests names it.", "OP")
    size: str = option(SCOPE, "As 64K, 1M, 1G; as nccl-tests counts it.", "SIZE")
    sketch: Path | None = option(
        SEARCH,
        "Sketch to use, in TuCCL's or TACCL's JSON; candidates of its own if not given.",
        "FILE",
        default=None,
    )
    root: int = option(SCOPE, "Root rank of broadcast and reduce.", "RANK", default=0)
    time_limit: str = option(
        SEARCH,
        "Work of the solver on all sketches, in seconds of an idle core, as 30s or 2m.",
        "TIME",
        default="30s",
    )
    jobs: int | None = option(
        SEARCH, "Sketches solved side by side; as many as cores if not given.", "N", default=None
    )
    output: Path | None = option(
        OUTPUT,
        "Write the schedule there; -: standard output.",
        "FILE",
        default=None,
        names=OUTPUT_FILE,
    )
    format: str | None = option(
        OUTPUT,
        "Format of the file: msccl, msccl-microsoft, mscclpp or nccl-graph; by the file's "
        "ending if not given. The fastest schedule that it can express is taken.",
        "NAME",
        default=None,
    )
    as_json: bool = field(default=False, metadata=AS_JSON)


@command(
    "tuccl synthesize --topology topo.xml --operation all_gather --size 1M -o all_gather.xml",
    required=["topology"],
    helps={
        "topology": "Any file that `tuccl topology show` reads, shipped:NAME, FILE.json#name of a "
        "file of benchmark topologies, or a topology file of TACCL's."
    },
)
def synthesize(options: SynthesizeOptions) -> int:
    """Find the fastest schedule for one collective and size, proved right, beside its bound."""
    from tuccl.crew.pieces import HostExecutor
    from tuccl.crew.pool import Workers
    from tuccl.crew.ranks import run_ranks
    from tuccl.schedules.schedule_files import STDOUT

    def lead(places: Places | None) -> int:
        if places is None:
            return _synthesize(options, None)
        others = range(1, len(places.places))
        return _synthesize(options, Workers(HostExecutor(places, others), len(others)))

    file = None if options.output == STDOUT else options.output
    return run_ranks(lead, output=file)


def _synthesize(options: SynthesizeOptions, ranks: Workers | None) -> int:
    from tuccl.options.output_file import check_output
    from tuccl.schedules.schedule_files import (
        STDOUT,
        schedule_texts,
        wanted_format,
        write_schedule,
    )
    from tuccl.schedules.synthesis_report import as_dict, as_text
    from tuccl.views.terminal import display
    from tuccl.views.terminal.json_output import print_json
    from tuccl.views.terminal.live_view import shown_progress

    output = options.output
    if output == STDOUT and options.as_json:
        raise UsageError(
            "--json and -o - both want standard output: give a file, or leave --json out"
        )
    if output is not None and output != STDOUT:
        check_output(output, "--output", (options.topology, options.sketch))
    wanted = wanted_format(options.format, output)
    with shown_progress() as progress:
        outcome = _outcome(options, wanted, ranks, progress)
    texts: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    if wanted is not None and output is not None:
        texts = schedule_texts(outcome.choice.best, outcome.topology, wanted)
        if output != STDOUT:
            files = write_schedule(output, wanted, texts)
        elif len(texts) > 1:
            nodes = len(texts)
            raise UsageError(f"{wanted} takes a file for each of {nodes} nodes: give -o FILE")
    if options.as_json:
        print_json(as_dict(outcome, files, wanted), SCHEMA_VERSION)
        return ExitCode.OK
    sys.stdout.write(texts[0] if output == STDOUT else as_text(outcome))
    display.say_notes(outcome.notes)
    for file in files:
        display.say(f"written to {file}")
    return ExitCode.OK


def _outcome(
    options: SynthesizeOptions, wanted: str | None, ranks: Workers | None, progress: Progress
) -> Synthesis:
    from lookup_tables.collective import parse_collective
    from tuccl.options.sketch_argument import nodes_of, read_sketch_argument, sketch_for
    from tuccl.quantities import parse_seconds, parse_size
    from tuccl.schedules.best_schedule import Means, best_schedule
    from tuccl.schedules.making import Stopwatch
    from tuccl.schedules.schedule_choice import Request

    request = Request(
        collective=parse_collective(options.operation),
        size_bytes=parse_size(options.size),
        root=options.root,
        time_limit_s=parse_seconds(options.time_limit, "--time-limit"),
    )
    if request.root and not request.collective.has_root:
        raise UsageError(f"--root {request.root}: {request.collective} has no root; leave it out")
    watch, sketch = Stopwatch(), None
    with watch.stage("reading"):
        given = None if options.sketch is None else read_sketch_argument(options.sketch)
        topology = _machine(options, nodes_of(given) if given else 1)
        if given is not None and options.sketch is not None:
            sketch = sketch_for(given, topology, options.sketch)
    means = Means(sketch, wanted, options.jobs, ranks)
    return best_schedule(request, topology, means, progress, watch)


def _machine(options: SynthesizeOptions, nodes_of_sketch: int) -> Topology:
    """Return the machine, or a cluster of `--nodes` copies as `tuccl init` makes it."""
    from tuccl.options.machine import load_machine
    from tuccl.options.machine_argument import read_machine_argument

    machine = read_machine_argument(options.topology or "", nodes_of_sketch)
    is_itself = options.nodes == 1 and options.node_gpus is None and options.racks is None
    return machine if is_itself else load_machine(options, machine)
