"""What `tuccl synthesize` does: the best schedule for one machine, collective and size.

Bounds are those of the whole machine, whatever the sketch leaves out.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.topology import Topology
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from synthesizer.bounds import algbw_bound_gb_per_s, latency_bound_us
from synthesizer.collectives import Collective
from synthesizer.errors import ExportError
from tuccl import display
from tuccl.atomic_file import write_atomically
from tuccl.errors import ExitCode, UsageError
from tuccl.machine import MachineOptions, load_machine
from tuccl.machine_argument import read_machine_argument
from tuccl.schedule_choice import PIECES_PER_SKETCH, Choice, choose_schedule
from tuccl.schedule_files import STDOUT, runtime_notes, schedule_text, wanted_format
from tuccl.sizes import format_size, parse_size
from tuccl.sketch_argument import nodes_of, read_sketch_argument, sketch_for
from tuccl.sketch_attempt import Request, Stopwatch, Tried
from tuccl.workers import usable_cores, worker_processes

SCHEMA_VERSION = 1
_SECONDS = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|m|h|)", re.ASCII)
_UNIT_S = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_SECONDS = 7 * 24 * 3600.0
_MOST_JOBS = 1024
_LEAST_RANKS_OF_PROCESSES = 16
_MOST_SHOWN = 5
"""Other schedules that are listed for people."""


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


@dataclass(frozen=True, slots=True)
class Bounds:
    """What no schedule on the machine beats."""

    bandwidth_gb_per_s: float
    latency_us: float

    def time_us(self, size_bytes: int) -> float:
        """The larger of both bounds, as a time."""
        return max(self.latency_us, size_bytes * 1e-3 / self.bandwidth_gb_per_s)


@dataclass(frozen=True)
class Outcome:
    """Everything that there is to tell."""

    topology: Topology
    request: Request
    bounds: Bounds
    choice: Choice
    notes: tuple[str, ...]
    seconds: dict[str, float]


def synthesize_command(command: SynthesizeCommand) -> int:
    """`tuccl synthesize`."""
    if command.output == STDOUT and command.as_json:
        raise UsageError(
            "--json and -o - both want standard output: give a file, or leave --json out"
        )
    wanted = wanted_format(command.format, command.output)
    outcome = _outcome(command, wanted)
    text = ""
    if wanted is not None and command.output is not None:
        text = schedule_text(outcome.choice.best, outcome.topology, wanted)
        if command.output != STDOUT:
            write_atomically(command.output, text)
    if command.as_json:
        document = {"schema_version": SCHEMA_VERSION, **_as_dict(outcome, command.output, wanted)}
        sys.stdout.write(json.dumps(document, indent=1, allow_nan=False) + "\n")
        return ExitCode.OK
    sys.stdout.write(text if command.output == STDOUT else _as_text(outcome))
    for note in outcome.notes:
        display.say(f"note: {note}")
    if command.output not in {None, STDOUT}:
        display.say(f"written to {command.output}")
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


def parse_seconds(text: str) -> float:
    """Seconds of `30s`, `500ms`, `2m` or `30`.

    Raises:
        UsageError: when the text is no duration, is zero, or is beyond a week.
    """
    match = _SECONDS.fullmatch(text.strip())
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else math.nan
    if not 0 < seconds <= _MOST_SECONDS:
        raise UsageError(f"time limit {text!a:.60}: use more than 0 as 30s, 500ms or 2m, to a week")
    return seconds


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


def _outcome(command: SynthesizeCommand, wanted: str | None) -> Outcome:
    request, watch = _request(command), Stopwatch()
    with watch.stage("reading"):
        given = None if command.sketch is None else read_sketch_argument(command.sketch)
        topology = _machine(command.machine, nodes_of(given) if given else 1)
    with watch.stage("sketching"):
        sketches = (
            sketch_candidates(topology)
            if given is None or command.sketch is None
            else (sketch_for(given, topology, command.sketch),)
        )
        machine = whole_machine(topology)
    with (
        worker_processes(_jobs(command.jobs, sketches)) as workers,
        display.progress_line() as progress,
    ):
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


def _jobs(wanted: int | None, sketches: Sequence[Sketch]) -> int:
    """Processes for the sketches; small machines are solved before a process has started."""
    if wanted is None:
        wanted = usable_cores() if sketches[0].ranks >= _LEAST_RANKS_OF_PROCESSES else 1
    if not 1 <= wanted <= _MOST_JOBS:
        raise UsageError(f"--jobs {wanted} is out of range: use 1 to {_MOST_JOBS}")
    return min(wanted, PIECES_PER_SKETCH * len(sketches))


def _refusal(tried: Tried, topology: Topology, wanted: str | None) -> str | None:
    """Why the format has no words for a schedule."""
    try:
        if wanted is not None:
            schedule_text(tried, topology, wanted)
    except ExportError as error:
        return str(error)
    return None


def _contradictions(request: Request, bounds: Bounds, choice: Choice) -> tuple[str, ...]:
    """A sketch from a file may have other figures than the machine."""
    if choice.best.time_us >= bounds.time_us(request.size_bytes) * 0.999:
        return ()
    what = f"sketch {choice.best.sketch.name} has higher bandwidths or lower latencies"
    return (f"faster than this machine can be: {what} than the topology; correct one of them",)


def _as_dict(outcome: Outcome, output: Path | None, wanted: str | None) -> dict[str, Any]:
    request, bounds, best = outcome.request, outcome.bounds, outcome.choice.best
    algbw = request.size_bytes * 1e-3 / best.time_us
    return {
        "topology": outcome.topology.name,
        "fingerprint": outcome.topology.fingerprint(),
        "ranks": best.sketch.ranks,
        "nodes": outcome.topology.node_count,
        "operation": request.collective.value,
        "size_bytes": request.size_bytes,
        "algorithm": best.algorithm.name,
        "origin": _origin(best),
        "steps": best.algorithm.step_count,
        "chunks": best.algorithm.chunks_per_loop,
        "time_us": best.time_us,
        "algbw_gb_per_s": algbw,
        "bound_gb_per_s": bounds.bandwidth_gb_per_s,
        "bandwidth_ratio": algbw / bounds.bandwidth_gb_per_s,
        "latency_bound_us": bounds.latency_us,
        "ratio": bounds.time_us(request.size_bytes) / best.time_us,
        "solver": _solver(best),
        "seconds": {stage: round(taken, 6) for stage, taken in outcome.seconds.items()},
        "sketch": {"name": best.sketch.name, "why": best.sketch.why},
        "file": None if output is None else str(output),
        "format": wanted,
        "tried": [
            {
                "algorithm": one.algorithm.name,
                "origin": _origin(one),
                "sketch": one.sketch.name,
                "time_us": one.time_us,
            }
            for one in outcome.choice.tried
        ],
        "notes": list(outcome.notes),
    }


def _origin(tried: Tried) -> str:
    return "expert" if tried.synthesis is None else "synthesized"


def _solver(tried: Tried) -> dict[str, Any]:
    """How sure the solver is of the routes; an expert algorithm has none."""
    result = tried.synthesis
    if result is None:
        return {"status": "not used", "gap": None, "fallback": None}
    status = "fallback" if result.fallback else "optimal"
    return {"status": status, "gap": result.solver_gap, "fallback": result.fallback}


def _as_text(outcome: Outcome) -> str:
    request, bounds, best = outcome.request, outcome.bounds, outcome.choice.best
    algbw = request.size_bytes * 1e-3 / best.time_us
    result = best.synthesis
    how = "expert algorithm"
    if result is not None:
        how = f"synthesized, {result.fallback or 'optimal routes'}, gap {result.solver_gap:.1%}"
    stages = ", ".join(f"{stage} {taken:.2f}" for stage, taken in outcome.seconds.items())
    share = bounds.time_us(request.size_bytes) / best.time_us
    task = f"{request.collective} of {format_size(request.size_bytes)}"
    machine = f"{outcome.topology.name}, {best.sketch.ranks} GPUs"
    limits = f"{bounds.latency_us:.2f} us and {bounds.bandwidth_gb_per_s:.2f} GB/s"
    lines = [
        f"{task} on {machine} on {outcome.topology.node_count} node(s): {best.algorithm.name}",
        f"  {how}; {best.algorithm.chunks_per_loop} chunks, {best.algorithm.step_count} steps",
        f"  sketch {best.sketch.name}: {best.sketch.why}",
        f"  simulated {best.time_us:.2f} us, {algbw:.2f} GB/s",
        f"  bounds of the machine {limits}: {share:.1%} reached",
        f"  seconds: {stages}",
    ]
    others = outcome.choice.tried[1:]
    lines += [
        f"  beside it: {one.algorithm.name} on {one.sketch.name}, {one.time_us:.2f} us"
        for one in others[:_MOST_SHOWN]
    ]
    if len(others) > _MOST_SHOWN:
        lines.append(f"  and {len(others) - _MOST_SHOWN} slower ones")
    return "\n".join(lines) + "\n"
