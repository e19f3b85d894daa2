"""The user's own schedules: read from a directory, checked for a run, tried in its search.

A file is MSCCL XML (`.xml`) or a program in the schedule language (`.py`), which defines
`schedule`: a `synthesizer.dsl.Schedule`, or a function of the number of nodes and of GPUs on
each that returns one. Each file is proved right and checked against the machine and the run; one
that does not fit stops the run before it begins, so that the user learns of it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.topology.graph import Topology
from sketches.candidates import whole_machine
from sketches.sketch import Sketch
from synthesizer.bounds.time_bounds import time_bound
from synthesizer.dsl import Schedule
from synthesizer.formats.msccl_xml import write_msccl_xml
from synthesizer.ir.algorithm import Algorithm
from synthesizer.lower.lowering import lower
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.cutting import cut
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import compile_schedule
from tuccl.errors import InfeasibleError, NoProgramError, ProgramError, ScheduleError, UsageError
from tuccl.schedules.candidates import Candidate, is_across_nodes, promises_of
from tuccl.schedules.executor_schedules import why_not_run
from tuccl.schedules.schedule_files import read_schedule_file
from tuccl.schedules.staged_candidates import node_sizes_of

OPTION = "--schedules"
_FORMS = "MSCCL XML (.xml) or programs in the schedule language (.py)"


@dataclass(frozen=True, slots=True)
class OwnSchedule:
    """A schedule that the user wrote, with its file."""

    file: Path
    algorithm: Algorithm

    @property
    def operation(self) -> Collective:
        """Operation of the calls that it is for."""
        return self.algorithm.collective

    @property
    def digest(self) -> str:
        """Hash of 16 hex digits over all of it that a run uses, name and sizes included."""
        return sha256(write_msccl_xml(self.algorithm).encode()).hexdigest()[:16]

    def serves(self, size_bytes: int) -> bool:
        """Whether it is for calls of this size, and cuts it into chunks of a byte or more."""
        algorithm = self.algorithm
        most = algorithm.max_bytes or size_bytes
        return max(algorithm.min_bytes, algorithm.chunks_per_loop) <= size_bytes <= most


@dataclass(frozen=True, slots=True)
class Demands:
    """Demands of a run on the schedules that it tries."""

    topology: Topology
    shape: Shape
    operations: tuple[Collective, ...]
    sizes_bytes: tuple[int, ...]
    in_place: bool = False
    """Whether calls are timed in place."""
    on_executor: bool = False
    """Whether TuCCL's executor runs them, rather than a model."""


def schedule_files(directory: Path) -> tuple[Path, ...]:
    """Return the schedule files of a directory, by name; other files are ignored.

    Raises:
        UsageError: It is not a readable directory, or holds no schedule.
    """
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in {".py", ".xml"})
    except OSError as error:
        raise UsageError(
            f"{OPTION} {directory}: {error.strerror}; name a directory with {_FORMS}"
        ) from error
    if not files:
        raise UsageError(f"{OPTION} {directory} holds no schedule; put {_FORMS} there")
    return tuple(files)


def read_own_schedules(directory: Path, demands: Demands) -> tuple[OwnSchedule, ...]:
    """Return the schedules of a directory, all proved right and fit for the run.

    Raises:
        UsageError: A file cannot be read, is wrong, or does not fit; it is named with the reason.
        MachineError: The machine has no two GPUs that links connect.
    """
    machine = whole_machine(demands.topology)
    found: dict[str, OwnSchedule] = {}
    for file in schedule_files(directory):
        try:
            own = OwnSchedule(file, read_schedule(file, demands.shape))
        except UsageError as error:
            raise UsageError(f"{OPTION} {error}") from error
        refusal = _misfit(own, demands) or _defect(own.algorithm) or _unusable(own, machine)
        if refusal is None and demands.on_executor:
            refusal = _not_run(own.algorithm, machine)
        if refusal is not None:
            raise UsageError(f"{OPTION} {file}: {' '.join(refusal.split())}")
        twin = found.setdefault(own.algorithm.content_hash(), own)
        if twin is not own:
            raise UsageError(
                f"{OPTION} {file}: the same schedule as {twin.file.name}; take one away"
            )
    return tuple(found.values())


def own_candidates(
    own: Sequence[OwnSchedule],
    sketches: Sequence[Sketch],
    machine: Sketch,
    sizes_bytes: Sequence[int],
    *,
    in_rounds: bool = False,
) -> dict[Collective, tuple[Candidate, ...]]:
    """Return candidates for every size that the schedules are for, by operation.

    Args:
        own: The schedules.
        sketches: Sketches that they may run on.
        machine: The whole machine.
        sizes_bytes: Sizes that are tuned.
        in_rounds: Whether they run across hosts, in stages and rounds where they have that form.
    """
    node_sizes = node_sizes_of(machine) if in_rounds else ()
    found: dict[Collective, tuple[Candidate, ...]] = {}
    for schedule in own:
        algorithm = schedule.algorithm
        sizes = [size for size in sizes_bytes if schedule.serves(size)]
        sketch = connecting_sketch(algorithm, sketches, machine)
        bound = time_bound(algorithm.collective, machine)
        origin = f"own, from {schedule.file.name}"
        candidate = _in_rounds(Candidate(algorithm, sketch, origin, own=True), node_sizes)
        promising = replace(candidate, promises=promises_of(candidate, bound, sizes))
        found[schedule.operation] = (*found.get(schedule.operation, ()), promising)
    return found


def _in_rounds(candidate: Candidate, node_sizes: tuple[int, ...]) -> Candidate:
    """Return a candidate that runs in stages and rounds; itself if it has no such form."""
    if not node_sizes:
        return candidate
    found = replace(candidate, node_sizes=node_sizes)
    try:
        return found if found.program else candidate
    except NoProgramError:
        return candidate


def with_own(
    made: Mapping[Collective, tuple[Candidate, ...]],
    own: Mapping[Collective, tuple[Candidate, ...]],
) -> dict[Collective, tuple[Candidate, ...]]:
    """Return all candidates; a made one that the user wrote, too, has the user's name."""
    return {
        operation: (
            *(mine := own.get(operation, ())),
            *(c for c in found if c.content_hash not in {own.content_hash for own in mine}),
        )
        for operation, found in made.items()
    }


def connecting_sketch(algorithm: Algorithm, sketches: Sequence[Sketch], machine: Sketch) -> Sketch:
    """Return the first sketch with every connection of a schedule, else the whole machine.

    Raises:
        InfeasibleError: The machine does not connect two ranks, either, or has another number.
        ScheduleError: Sends and receives of a connection differ.
    """
    for sketch in sketches:
        try:
            compile_schedule(algorithm, sketch)
        except InfeasibleError:
            continue
        return sketch
    compile_schedule(algorithm, machine)
    return machine


def read_schedule(file: Path, shape: Shape | None) -> Algorithm:
    """Read the schedule of a file, without proving it.

    Args:
        file: MSCCL XML, or a program in the schedule language.
        shape: Arguments of a program's function; None if it must not need them.

    Raises:
        UsageError: The file cannot be read, or is no schedule.
    """
    if file.suffix != ".py":
        try:
            return _named(read_schedule_file(file), file)
        except ScheduleError as error:
            raise UsageError(str(error)) from error
    made = _defined(file)
    if callable(made):
        if shape is None or not shape.ranks_per_node:
            raise UsageError(
                f"{file}: `schedule` is a function of the number of nodes and of GPUs on each, "
                "which are not known here; give a machine whose nodes are alike (`tuccl verify` "
                "takes --nodes 4+4), or let it be a Schedule"
            )
        made = _run(file, partial(made, shape.nodes, shape.ranks_per_node))
        if not isinstance(made, Schedule):
            raise UsageError(
                f"{file}: `schedule({shape.nodes}, {shape.ranks_per_node})` returned a "
                f"{type(made).__name__}; let it return a Schedule"
            )
    if not isinstance(made, Schedule):
        raise UsageError(
            f"{file}: defines no `schedule`; let it be a Schedule, or a function of the number of "
            "nodes and of GPUs on each that returns one"
        )
    try:
        return lower(made.program(), file.stem)
    except ProgramError as error:
        raise UsageError(f"{file}: {error}") from error


def _defined(file: Path) -> object:
    """Return a program's `schedule`."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    names: dict[str, object] = {"__name__": file.stem, "__file__": str(file)}
    _run(file, lambda: exec(compile(text, str(file), "exec"), names))  # noqa: S102 - the user's
    return names.get("schedule")


def _run(file: Path, call: Callable[[], object]) -> object:
    """Run the user's code; an error of it becomes a line with its place."""
    try:
        return call()
    except (Exception, SystemExit) as error:  # an exit of the program would look like a proof
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        if isinstance(error, SyntaxError):
            lines, text = [error.lineno], error.msg
        else:
            text = str(error)
        where = f", line {lines[-1]}" if lines else ""
        kind = () if isinstance(error, ProgramError) else (type(error).__name__,)
        said = ": ".join((*kind, *filter(None, (" ".join(text.split()),))))
        raise UsageError(f"{file}{where}: {said}") from error


def _named(algorithm: Algorithm, file: Path) -> Algorithm:
    """Return the schedule with a name that a table can hold: its own, or the file's."""
    name = algorithm.name if algorithm.name.isprintable() else ""
    return replace(algorithm, name=name or ascii(file.stem).strip("'\""))


def _misfit(own: OwnSchedule, demands: Demands) -> str | None:
    """Return why the schedule does not fit the run; None if it does."""
    algorithm = own.algorithm
    if algorithm.collective is Collective.CUSTOM:
        return "its operation is custom, which no call of NCCL asks for"
    if own.operation not in demands.operations:
        tuned = ", ".join(demands.operations)
        return f"it is for {own.operation}, this run tunes {tuned}; take it out, or tune that, too"
    if algorithm.ranks != demands.shape.ranks:
        name = demands.topology.name
        return f"it is for {algorithm.ranks} ranks, {name} has {demands.shape.ranks}"
    return _idle(own, demands)


def _idle(own: OwnSchedule, demands: Demands) -> str | None:
    """Return why it does not serve the calls of the run's operations; None if it does."""
    algorithm = own.algorithm
    if algorithm.root:
        return f"it is for root {algorithm.root}; a table's schedules are for root 0"
    if not algorithm.out_of_place:
        return "it runs in place only, and a call may be either"
    if demands.in_place and not algorithm.in_place:
        return "it runs out of place only, and --in-place has calls timed in place"
    if not any(map(own.serves, demands.sizes_bytes)):
        return "no size of this run is within its sizes and has a byte for each of its chunks"
    return None


def _defect(algorithm: Algorithm) -> str | None:
    """Return its first defect; None if it is proved."""
    verdict = verify(algorithm)
    return None if verdict.proved else f"it is wrong, {verdict.defects[0].describe()}"


def _not_run(algorithm: Algorithm, machine: Sketch) -> str | None:
    """Return why the executor cannot run it; None if it can."""
    if not is_across_nodes(machine):
        return why_not_run(algorithm)
    sizes = node_sizes_of(machine)
    if not sizes:
        return "TuCCL's executor cannot run it: a node's ranks do not follow one another"
    try:
        compile_program(cut(algorithm, sizes))
    except NoProgramError as error:
        return f"TuCCL's executor cannot run it in rounds across hosts: {error}"
    return None


def _unusable(own: OwnSchedule, machine: Sketch) -> str | None:
    """Return why the machine cannot run it; None if it can."""
    try:
        compile_schedule(own.algorithm, machine)
    except ScheduleError as error:
        return str(error)
    return None
