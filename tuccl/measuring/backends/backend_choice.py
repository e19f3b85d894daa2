"""The measurement backends by name; a new backend is added here alone.

A backend is opened for one run, with the run's machine, schedules and record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from lookup_tables.program_header import MOST_RANKS, executor_serves
from lookup_tables.table import Shape
from probes.topology.graph import Topology
from tuccl.crew.cores import lanes_on, own_cores
from tuccl.crew.places import LocalPlaces, Places
from tuccl.errors import HostError, MeasurementError, UsageError
from tuccl.measuring.backends.replay import ReplayBackend
from tuccl.measuring.backends.simulated import SimulatedBackend
from tuccl.measuring.backends.workers_backend import WorkersOptions, open_workers_backend
from tuccl.measuring.engines.nccl_workers import (
    job_variables,
    nccl_worker_variables,
    preloaded,
)
from tuccl.measuring.records.record import Record
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.models.figures import Fabric, machine_figures
from tuccl.models.model_constants import SHIPPED, ModelConstants
from tuccl.models.model_ranking import modelled_opening
from tuccl.models.siblings import SiblingMachines
from tuccl.options.run_options import NCCL, NCCL_AND_EXECUTOR, REPLAY, SIMULATED, RunOptions
from tuccl.runtime.executor_library import PRELOAD_VARIABLE
from tuccl.schedules.candidates import Candidate
from tuccl.schedules.executor_schedules import executor_programs
from tuccl.search.trials.backend import Backend
from tuccl.search.trials.baseline import Baseline
from tuccl.search.trials.catalogue import axis_knobs
from tuccl.search.trials.config import Config, Settings, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.placement import ANYWHERE
from tuccl.search.trials.presets import nccl_space, stock_space
from tuccl.search.trials.space import Knob, Space, with_channels_up_to
from tuccl.search.trials.timing import Timing

_OPENING = 4
"""Configurations that the model proposes to a search; further ones are seldom better."""

Tell = Callable[[Task], CostTable | None]
"""What NCCL allows for a task; None if it does not tell."""


@dataclass(frozen=True)
class BackendRequest:
    """Inputs of a run to its backend."""

    topology: Topology
    shape: Shape
    """Shape of the communicator of all GPUs."""
    options: RunOptions = RunOptions()  # noqa: RUF009 - frozen
    spread: float = 0.0
    """Relative standard deviation of modelled times."""
    model: ModelConstants = SHIPPED
    """Constants of the model of NCCL."""
    schedules: Mapping[str, Candidate] = field(default_factory=dict)
    """Schedules for all GPUs by content hash."""
    shapes: Mapping[Shape, Mapping[str, Candidate]] = field(default_factory=dict)
    """Further shapes that are tuned, with their schedules by content hash."""
    knobs: tuple[Knob, ...] = field(default_factory=axis_knobs)
    """Variables that the race of process profiles turns."""
    baseline: Baseline | None = None
    """Choices of a tuner that are searched, too."""
    base: Settings = ()
    """Variables that all workers have, under every profile."""
    record: Record | None = None
    """Record to replay."""
    takes_recorded_steps: bool = False
    """Whether the search is that of the recorded run, with its spaces."""
    places: Places | None = None
    """Places of the workers; if None, the devices of this host."""
    laboratory: Laboratory = Laboratory()  # noqa: RUF009 - frozen
    timing: Timing = Timing()  # noqa: RUF009 - frozen
    """How calls are timed."""
    tell: Callable[[str], None] = lambda _: None
    """Called with each incident of the workers, a line."""

    @property
    def kind(self) -> BackendKind:
        """The backend that the options name."""
        return backend_kind(self.options.backend_name)

    @cached_property
    def machines(self) -> SiblingMachines:
        """The machines that the communicators of each shape see."""
        return SiblingMachines(self.topology)

    @property
    def keeps_128_bytes(self) -> bool:
        """Whether LL128 may run: not between ranks of a node that share a GPU, for NCCL neither."""
        return keeps_128_bytes(self.topology) and not self.laboratory.gpus

    @cached_property
    def most_lanes(self) -> int:
        """Most lanes of a schedule that the workers' cores can drive, where workers time it."""
        places = self.places.places if self.places else ()
        here = [("", own_cores())] * self.shape.ranks
        return lanes_on([(place.host, place.cores) for place in places] or here)


@dataclass(frozen=True, slots=True)
class BackendKind:
    """A backend that `--backend` can name."""

    open: Callable[[BackendRequest], AbstractContextManager[Backend]]
    runs_schedules: bool = False
    """Whether it times schedules; otherwise only NCCL's built-ins are searched."""
    needs_record: bool = False
    has_executor: bool = False
    """Whether it runs schedules on the executor, rather than modelling them."""
    tunes_nccl: bool = True
    """Whether NCCL's own algorithms are searched."""
    measures_nccl: bool = False
    """Whether its times are of the NCCL that is installed on this host."""
    has_workers: bool = False
    """Whether it measures on worker processes, which ranks of an MPI job can host."""
    require: Callable[[BackendRequest], object] = lambda _: None
    """Raises the errors that `open` would raise at once, before schedules are made."""


def backend_kind(name: str) -> BackendKind:
    """Return the backend of this name.

    Raises:
        UsageError: There is none.
    """
    if name not in BACKENDS:
        raise UsageError(f"backend {name!a:.60} is unknown: use one of {', '.join(BACKENDS)}")
    return BACKENDS[name]


def open_backend(name: str, request: BackendRequest) -> AbstractContextManager[Backend]:
    """Open the backend of this name for the block.

    Raises:
        UsageError: There is none of this name, or it lacks its record.
        MeasurementError: It cannot run here.
    """
    return backend_kind(name).open(request)


def require_backend(name: str, request: BackendRequest) -> None:
    """Require what `open_backend` needs, before schedules are made.

    Raises:
        UsageError: There is none of this name, or it does not support this machine.
        MeasurementError: It cannot run here.
    """
    backend_kind(name).require(request)


def builtins_of(request: BackendRequest, task: Task, cost_table: Tell = lambda _: None) -> Space:
    """Return the space of NCCL's settings for a task: the record's, or what NCCL has.

    Args:
        request: Request of the backend.
        task: A key.
        cost_table: What NCCL allows; where it does not tell, what it has on most machines.
    """
    found = _all_builtins_of(request, task, cost_table)
    return with_channels_up_to(found, request.options.max_channels)


def _all_builtins_of(request: BackendRequest, task: Task, cost_table: Tell) -> Space:
    # What runs on all communicators of a shape runs on those of a class. A replay asks, too: its
    # log and its own record are those of the run that it repeats.
    table = cost_table(replace(task, placement=ANYWHERE)) if task.operation.asks_tuner else None
    if request.record is not None:
        search = request.record.of_run.search if request.takes_recorded_steps else None
        if search is not None:
            return search.builtins_of(task)
        return ReplayBackend(request.record).space_of(task)
    if not request.kind.tunes_nccl:
        return stock_space()
    space = nccl_space(
        task.operation,
        task.shape,
        ll128=request.keeps_128_bytes,
        allowed=None if table is None else table.allowed,
        knobs=request.knobs,
        chunks_of_bytes=task.size_bytes if table is not None and table.asks_about_chunks else 0,
    )
    if request.baseline is None:
        return space
    return request.baseline.admitted(task, space, request.options.max_channels)


def has_executor(name: str, record: Record | None) -> bool:
    """Whether the backend of this name ran schedules as jobs do, or that of a record did."""
    if record is None:
        return backend_kind(name).has_executor
    recorded = BACKENDS.get(record.provenance.backend)
    return recorded is not None and recorded.has_executor


def keeps_128_bytes(topology: Topology) -> bool:
    """Whether stores of 128 bytes arrive whole, which LL128 needs: over NVLink, not over PCIe."""
    return machine_figures(topology).fabric is Fabric.NVLINK


def promising_of(request: BackendRequest, task: Task, space: Space) -> Sequence[Config]:
    """Return the configurations of a space that the model of NCCL would try first."""
    machine = request.machines.slowest_figures(task.shape)
    beside_us = request.timing.computation_us(task)
    return modelled_opening(machine, task, space, _OPENING, request.model, beside_us)


def chosen_of(request: BackendRequest, task: Task, space: Space) -> Sequence[Config]:
    """Return the configurations of a space that a tuner's file chooses."""
    return () if request.baseline is None else request.baseline.configs(task, space)


@contextmanager
def _simulated(request: BackendRequest) -> Iterator[Backend]:
    yield SimulatedBackend(
        request.topology,
        request.schedules,
        seed=request.options.seed,
        spread=request.spread,
        constants=request.model,
        of_shapes=request.shapes,
        timing=request.timing,
        base=request.base,
    )


@contextmanager
def _replay(request: BackendRequest) -> Iterator[Backend]:
    if request.record is None:
        raise UsageError(f"--backend {REPLAY} needs --records FILE: what is to be replayed")
    record = request.record
    of_workers = backend_kind(record.provenance.backend).has_workers
    yield ReplayBackend(
        record, request.options.seed, reserves_jobs=request.takes_recorded_steps and of_workers
    )


def _workers(
    name: str, engine: str, variables_of: Callable[[BackendRequest], Mapping[str, str]]
) -> Callable[[BackendRequest], AbstractContextManager[Backend]]:
    """Return what opens the backend of this name, whose workers run an engine."""

    @contextmanager
    def opened(request: BackendRequest) -> Iterator[Backend]:
        ranks = request.shape.ranks
        places = request.places or LocalPlaces(ranks, request.laboratory.devices(ranks))
        options = WorkersOptions(
            timing=request.timing,
            laboratory=request.laboratory,
            variables={**dict(request.base), **variables_of(request)},
            shapes=tuple(request.shapes),
            hosts_of_nodes=request.topology.hosts_of_nodes,
            invariant=request.options.invariant,
            tell=request.tell,
        )
        with TemporaryDirectory(prefix="tuccl-executor-") as folder:
            several_hosts = len({place.host for place in places.places}) > 1
            if BACKENDS[name].measures_nccl:
                bundles = None if several_hosts else Path(folder)
                options = replace(
                    options,
                    job_engine="job",
                    job_variables=partial(job_variables, folder=bundles),
                )
            if engine == "executor":
                own = (request.schedules, *request.shapes.values())
                programs = executor_programs({h: c for of in own for h, c in of.items()}.values())
                carried = programs.packed if several_hosts else programs.write(Path(folder))
                options = replace(
                    options,
                    variables={**options.variables, **carried},
                    schedules=programs.content_hashes,
                )
            with open_workers_backend(engine, places, options, request.shape) as backend:
                backend.name = name
                yield backend

    return opened


def _no_variables(_request: BackendRequest) -> dict[str, str]:
    return {}


def _nccl_variables(request: BackendRequest) -> dict[str, str]:
    """Return every worker's variables, if NCCL can be measured here.

    Ranks of an MPI job have those of their own hosts, and count their GPUs when workers start.
    """
    laboratory, ranks = request.laboratory, request.shape.ranks
    gpus = 1 if request.places else laboratory.devices(ranks)
    sharing = ranks if laboratory.gpus else 0
    found = nccl_worker_variables(gpus, shared=laboratory.share_gpus, ranks_on_gpus=sharing)
    return {} if request.places else found


def _executor_variables(request: BackendRequest) -> dict[str, str]:
    """Return every worker's variables, if schedules can run here."""
    shape = request.shape
    if shape.nodes > 1 and not executor_serves(shape):
        raise UsageError(
            f"--backend {request.options.backend_name}: the executor serves nodes of at most "
            f"{MOST_RANKS} GPUs; this machine has {shape.ranks} on {shape.nodes}, "
            f"{shape.ranks_per_node} on each: use --backend {NCCL}"
        )
    return {**_nccl_variables(request), PRELOAD_VARIABLE: _preloaded()}


def _preloaded() -> str:
    """Return LD_PRELOAD with the executor before other libraries."""
    try:
        return preloaded(executor=True)
    except HostError as error:
        raise MeasurementError(str(error)) from error


_NCCL = BackendKind(
    _workers(NCCL, "nccl", _nccl_variables),
    measures_nccl=True,
    has_workers=True,
    require=_nccl_variables,
)
_BOTH = replace(
    _NCCL,
    open=_workers(NCCL_AND_EXECUTOR, "executor", _executor_variables),
    runs_schedules=True,
    has_executor=True,
    require=_executor_variables,
)
BACKENDS = {
    SIMULATED: BackendKind(_simulated, runs_schedules=True),
    REPLAY: BackendKind(_replay, needs_record=True),
    NCCL: _NCCL,
    "executor": replace(
        _BOTH, open=_workers("executor", "executor", _executor_variables), tunes_nccl=False
    ),
    NCCL_AND_EXECUTOR: _BOTH,
    "sockets": BackendKind(_workers("sockets", "sockets", _no_variables), has_workers=True),
}
