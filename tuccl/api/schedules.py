"""Schedules: find them for a machine, read, write, verify and simulate them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lookup_tables.collective import Collective, parse_collective
from sketches.candidates import sketch_candidates, whole_machine
from synthesizer.bounds.time_bounds import time_bound
from synthesizer.dsl import Schedule
from synthesizer.experts import expert_algorithms
from synthesizer.formats.exports import export_files
from synthesizer.formats.nccl_graph_figures import GraphMachine
from synthesizer.ir.algorithm import Algorithm
from synthesizer.lower.lowering import lower
from synthesizer.prove.verifier import Verdict
from synthesizer.prove.verifier import verify as prove
from synthesizer.simulate.simulator import simulate as simulate_schedule
from tuccl.api.machines import Machine, machine_of
from tuccl.api.stages import OnStage, progress_of
from tuccl.errors import UsageError
from tuccl.models.figures import communicator_shape
from tuccl.options.sketch_argument import read_sketch_argument, sketch_for
from tuccl.quantities import parse_size
from tuccl.schedules.best_schedule import Means, best_schedule
from tuccl.schedules.own_schedules import connecting_sketch
from tuccl.schedules.own_schedules import read_schedule as read_any_schedule
from tuccl.schedules.schedule_choice import WIRES_ALONE, Request
from tuccl.schedules.schedule_files import wanted_format
from tuccl.schedules.schedule_files import write_schedule as write_texts
from tuccl.schedules.synthesis_report import Synthesis

AnySchedule = Algorithm | Schedule | str | Path
"""A schedule, one in the schedule language, or the file that holds one."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """The simulated times of one call, without the overheads of protocol and executor."""

    name: str
    """Name of the schedule."""
    size_bytes: int
    in_turn_us: float
    """Time if the messages on a link pass it one after another."""
    fair_us: float
    """Time if they share it fairly."""
    bound_us: float | None
    """Time that no schedule on this machine undercuts; None: not known for the operation."""

    @property
    def time_us(self) -> float:
        """The worse of both times."""
        return max(self.in_turn_us, self.fair_us)

    @property
    def gb_per_s(self) -> float:
        """Algorithm bandwidth as nccl-tests defines it: bytes of the call over its time."""
        return self.size_bytes * 1e-3 / self.time_us

    @property
    def share_of_bound(self) -> float | None:
        """Share of the bound that the schedule reaches, at most 1."""
        return None if self.bound_us is None else self.bound_us / self.time_us


def synthesize(
    machine: Machine,
    operation: str,
    size: int | str,
    *,
    root: int = 0,
    sketch: str | Path | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    time_limit_s: float = 30.0,
    jobs: int = 1,
    on_stage: OnStage = None,
) -> Synthesis:
    """Find the fastest schedule for one operation and size, and prove it right.

    Args:
        machine: Machine that runs the schedule.
        operation: Its name in nccl-tests, as `all_reduce`; `AllReduce` is understood, too.
        size: Bytes, or `64K`, `1M`; as nccl-tests counts them.
        root: Root rank of broadcast and reduce.
        sketch: A sketch file, in TuCCL's or TACCL's JSON; None: candidates of its own.
        format: Format to be written; only schedules that it can express are chosen.
        time_limit_s: Limit of the solver's work, in seconds of an idle core.
        jobs: Number of processes. With several, a script needs `if __name__ == "__main__":`.
        on_stage: Called with the progress.

    Raises:
        ScheduleError: There is no schedule, or no solver.
        MachineError: The machine cannot be read, or has GPUs that no links connect.
        UsageError: The operation, size or format is unknown.
    """
    topology = machine_of(machine)
    request = Request(
        _collective(operation, root), parse_size(str(size)), root, time_limit_s=time_limit_s
    )
    path = None if sketch is None else Path(sketch)
    given = None if path is None else sketch_for(read_sketch_argument(path), topology, path)
    means = Means(given, wanted_format(format, None), jobs)
    return best_schedule(request, topology, means, progress_of(on_stage))


def expert_schedules(machine: Machine, operation: str, *, root: int = 0) -> tuple[Algorithm, ...]:
    """Return the known algorithms that a machine's links allow, as `all_reduce_ring_4x`.

    Args:
        machine: Machine that runs the schedules.
        operation: Its name in nccl-tests.
        root: Root rank of broadcast and reduce.

    Raises:
        ScheduleError: The machine has a single rank, or no such root.
        MachineError: The machine cannot be read, or has GPUs that no links connect.
        UsageError: The operation is unknown.
    """
    collective = _collective(operation, root)
    found: dict[str, Algorithm] = {}
    for sketch in sketch_candidates(machine_of(machine)):
        for algorithm in expert_algorithms(collective, sketch, root):
            found.setdefault(algorithm.content_hash(), algorithm)
    return tuple(found.values())


def read_schedule(path: str | Path, *, machine: Machine | None = None) -> Algorithm:
    """Read a schedule, without proving it.

    Args:
        path: MSCCL XML, or a program in the schedule language (.py), which is run.
        machine: Machine whose shape a program's function `schedule` is called with; None: the
            program must not need it.

    Raises:
        UsageError: The file cannot be read, or holds no schedule.
        MachineError: The machine cannot be read.
    """
    shape = None if machine is None else communicator_shape(machine_of(machine))
    return read_any_schedule(Path(path), shape)


def write_schedule(
    schedule: AnySchedule,
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the option's name
    machine: Machine | None = None,
) -> tuple[Path, ...]:
    """Write a schedule for a runtime; return the paths of the files.

    Args:
        schedule: The schedule; one in the schedule language takes the file's name.
        path: The file; `nccl-graph` may need one for each node, with names derived from it.
        format: `msccl`, `msccl-microsoft`, `mscclpp` or `nccl-graph`; None: by the file's ending.
        machine: Machine that the schedule was made for; `nccl-graph` needs it.

    Raises:
        ScheduleError: The format cannot express the schedule, or the file's ending names none.
        UsageError: There is no such format.
        WorkspaceError: The file cannot be written.
    """
    path = Path(path)
    name = wanted_format(format, path) or "msccl"
    algorithm = _algorithm(schedule, machine, path.name.partition(".")[0])
    made_for = None
    if machine is not None:
        topology = machine_of(machine)
        sketches = sketch_candidates(topology)
        sketch = connecting_sketch(algorithm, sketches, whole_machine(topology))
        made_for = GraphMachine(topology, sketch)
    return write_texts(path, name, export_files(algorithm, name, made_for))


def verify(schedule: AnySchedule, *, machine: Machine | None = None) -> Verdict:
    """Prove a schedule right for every interleaving, or name its defects.

    Args:
        schedule: A schedule, one in the schedule language, or its file.
        machine: As for `read_schedule`.

    Returns:
        `proved`, and `defects` if it is not; `describe()` puts them into words.

    Raises:
        UsageError: The file cannot be read, or holds no schedule.
        ScheduleError: The program in the schedule language is empty, or beyond its limits.
    """
    return prove(_algorithm(schedule, machine))


def simulate(schedule: AnySchedule, machine: Machine, size: int | str) -> Simulation:
    """Simulate one call of a schedule, without the overheads of protocol and executor.

    Args:
        schedule: A schedule, one in the schedule language, or its file.
        machine: Machine that runs it.
        size: Bytes, or `64K`, `1M`; as nccl-tests counts them.

    Raises:
        ScheduleError: The schedule is for another number of ranks, uses a connection that the
            machine lacks, or deadlocks.
        MachineError: The machine cannot be read.
        UsageError: The file cannot be read, or the size is unknown.
    """
    topology = machine_of(machine)
    algorithm = _algorithm(schedule, topology)
    size_bytes = parse_size(str(size))
    whole = whole_machine(topology)
    sketch = connecting_sketch(algorithm, sketch_candidates(topology), whole)
    bound_us = None
    if algorithm.collective is not Collective.CUSTOM:
        bound_us = time_bound(algorithm.collective, whole, algorithm.root).time_us(size_bytes)
    times = simulate_schedule(algorithm, sketch, size_bytes, WIRES_ALONE)
    return Simulation(algorithm.name, size_bytes, *times, bound_us)


def _algorithm(schedule: AnySchedule, machine: Machine | None, name: str = "") -> Algorithm:
    if isinstance(schedule, Algorithm):
        return schedule
    if isinstance(schedule, Schedule):
        return lower(schedule.program(), name or f"{schedule.collective}_schedule")
    return read_schedule(schedule, machine=machine)


def _collective(operation: str, root: int) -> Collective:
    collective = parse_collective(operation)
    if root and not collective.has_root:
        raise UsageError(f"root {root}: {collective} has no root; leave it out")
    return collective
