"""The schedules of a run: those of each communicator shape, on its part of the machine.

They are saved in the run, and loaded from there when it continues.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.topology.graph import Topology
from sketches.candidates import sketch_candidates, whole_machine
from sketches.sketch import Sketch
from sketches.sketch_json import sketch_to_json
from tuccl.crew.pool import worker_processes, workers_for
from tuccl.measuring.backends.backend_choice import backend_kind, keeps_128_bytes
from tuccl.models.figures import communicator_shape
from tuccl.models.siblings import SiblingMachines
from tuccl.schedules.candidates import Candidate, make_candidates
from tuccl.schedules.executor_schedules import with_kernels
from tuccl.schedules.guidance import guided
from tuccl.schedules.own_schedules import OwnSchedule, own_candidates, with_own
from tuccl.schedules.saved_candidates import load_candidates, save_candidates
from tuccl.schedules.staged_candidates import RoundsRequest, candidates_across_hosts
from tuccl.search.trials.events import Progress, silent
from tuccl.tuning.pipeline.estimate import schedules_seconds
from tuccl.tuning.settings import RunSettings
from tuccl.workspace.atomic_file import write_atomically
from tuccl.workspace.runs import Run


@dataclass(frozen=True)
class MachinePart:
    """The part of the machine that a communicator of one shape spans, and its schedules' files."""

    shape: Shape
    topology: Topology
    is_whole: bool
    sketches: Path
    schedules: Path
    stage: str
    """Name of making its schedules, for people."""


def parts_of(topology: Topology, settings: RunSettings, run: Run) -> list[MachinePart]:
    """The parts of the machine whose communicators are tuned."""
    whole = communicator_shape(topology)
    machines = SiblingMachines(topology)
    parts = []
    for shape in settings.shapes_of(whole):
        name = "" if shape == whole else f"{shape.ranks}x{shape.nodes}"
        parts.append(
            MachinePart(
                shape,
                machines.slowest(shape),
                shape == whole,
                run.sketches / name,
                run.schedules / name,
                f"schedules {name}".strip(),
            )
        )
    return parts


def sketches_of(part: MachinePart, settings: RunSettings) -> Sequence[Sketch]:
    """Sketches of a part of the machine, saved in the run; none where none is needed."""
    if not settings.schedules or _runs_across_hosts(settings, part):
        return ()
    sketches = guided(settings.operations_of(part.shape), sketch_candidates(part.topology))
    for sketch in sketches:
        write_atomically(part.sketches / f"{sketch.name}.json", sketch_to_json(sketch))
    return sketches


def saved_schedules(
    topology: Topology,
    settings: RunSettings,
    run: Run,
    shapes: Container[Shape],
    own_schedules: Sequence[OwnSchedule],
) -> dict[Shape, dict[Collective, tuple[Candidate, ...]]]:
    """The schedules that a run has made for these shapes."""
    return {
        part.shape: candidates_of(
            part, settings, sketches_of(part, settings), own_schedules, silent
        )
        for part in parts_of(topology, settings, run)
        if part.shape in shapes
    }


def candidates_of(
    part: MachinePart,
    settings: RunSettings,
    sketches: Sequence[Sketch],
    own_schedules: Sequence[OwnSchedule],
    progress: Progress,
) -> dict[Collective, tuple[Candidate, ...]]:
    """Schedules on the sketches of a part of the machine; the user's own are for all GPUs."""
    if not settings.schedules:
        return {}
    machine = whole_machine(part.topology)
    if _runs_across_hosts(settings, part):
        found = _across_hosts(settings, part, machine, progress)
    else:
        found = _schedules(settings, part, sketches, machine, progress)
    takes_kernels = settings.options.invariant or backend_kind(settings.backend).has_executor
    if takes_kernels and part.shape.nodes == 1:
        found = {
            operation: with_kernels(
                operation, candidates, sketches, machine, settings.sizes_of(operation, part.shape)
            )
            for operation, candidates in found.items()
        }
    if not part.is_whole:
        return found
    in_rounds = _runs_across_hosts(settings, part)
    own = own_candidates(
        own_schedules, sketches, machine, settings.sizes_bytes, in_rounds=in_rounds
    )
    return with_own(found, own)


def _runs_across_hosts(settings: RunSettings, part: MachinePart) -> bool:
    """Whether plans of phases are searched, or on nodes of different sizes schedules in rounds.

    No other schedules are made there; a user's own are searched as well.
    """
    return part.shape.nodes > 1 and backend_kind(settings.backend).runs_schedules


def _across_hosts(
    settings: RunSettings, part: MachinePart, machine: Sketch, progress: Progress
) -> dict[Collective, tuple[Candidate, ...]]:
    """Load the saved schedules across hosts, or make and save them."""
    operations = settings.operations_of(part.shape)
    saved = {
        operation: load_candidates(part.schedules / operation.value, [machine])
        for operation in operations
    }
    found: dict[Collective, tuple[Candidate, ...]] = {}
    with worker_processes(workers_for(machine.ranks) if None in saved.values() else 1) as workers:
        for number, (operation, candidates) in enumerate(saved.items()):

            def report(share: float, number: int = number) -> None:
                total = len(operations)
                progress(part.stage, number, total, share=(number + share) / total)

            report(0.0)
            if candidates is None:
                request = RoundsRequest(
                    operation,
                    part.topology,
                    machine,
                    settings.sizes_of(operation, part.shape),
                    search_s=settings.solver_seconds,
                    ll128=keeps_128_bytes(part.topology),
                )
                candidates = candidates_across_hosts(  # noqa: PLW2901 - made if not saved
                    request, report, workers
                )
                save_candidates(part.schedules / operation.value, candidates)
            found[operation] = candidates
    progress(part.stage, len(operations), len(operations), share=1.0)
    return found


def _schedules(
    settings: RunSettings,
    part: MachinePart,
    sketches: Sequence[Sketch],
    machine: Sketch,
    progress: Progress,
) -> dict[Collective, tuple[Candidate, ...]]:
    """Load the saved schedules; generate and save the missing ones, operation by operation."""
    found: dict[Collective, tuple[Candidate, ...]] = {}
    operations = settings.operations_of(part.shape)
    sizes = {operation: settings.sizes_of(operation, part.shape) for operation in operations}
    total = len(operations) * len(sketches)
    saved = {
        operation: load_candidates(part.schedules / operation.value, sketches)
        for operation in operations
    }
    count = workers_for(machine.ranks) if None in saved.values() else 1
    costs = {
        operation: schedules_seconds([operation], sketches, sizes[operation], count)
        for operation, candidates in saved.items()
        if candidates is None
    }
    whole_s = sum(costs.values())
    with worker_processes(count) as workers:
        for number, (operation, candidates) in enumerate(saved.items()):
            first = number * len(sketches)
            past_s = sum(costs.get(past, 0.0) for past in operations[:number])
            cost_s = costs.get(operation, 0.0)

            def report(
                done: int,
                share: float,
                first: int = first,
                past_s: float = past_s,
                cost_s: float = cost_s,
            ) -> None:
                past_s += share * cost_s
                share = min(1.0, past_s / whole_s) if whole_s else 1.0
                progress(part.stage, first + done, total, share=share)

            report(0, 0.0)
            if candidates is None:
                candidates = make_candidates(  # noqa: PLW2901 - generated if not saved
                    operation,
                    sketches,
                    machine,
                    sizes[operation],
                    settings.solver_seconds,
                    report,
                    workers,
                )
                save_candidates(part.schedules / operation.value, candidates)
            found[operation] = candidates
    progress(part.stage, total, total, share=1.0)
    return found
