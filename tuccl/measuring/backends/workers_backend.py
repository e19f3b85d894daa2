"""Backends that measure for real: `WorkersBackend` over groups of worker processes.

A sample is the slowest rank's time of a launch of back-to-back calls; all communicators of a shape
make it at the same time, and the slowest of them counts. Workers are started for a process profile
that no group runs under, and the seconds of a measurement include that start.

Failures are told apart as far as possible. A configuration that all ranks refuse, or whose data are
wrong, failed by itself. After a configuration that crashed or missed its deadline the workers are
killed, started again and tried on the simplest call, so that a broken machine is not taken for a
broken configuration. A configuration whose workers were killed from outside, or that has run
before, gets a second try.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from lookup_tables.provenance import NcclVersion, Provenance
from lookup_tables.table import Shape
from tuccl import __version__
from tuccl.crew.places import Places
from tuccl.errors import (
    ConfigurationFailedError,
    EngineError,
    GroupLostError,
    MeasurementError,
)
from tuccl.measuring.engines.job import Job, Site, divisions_of
from tuccl.measuring.engines.job_processes import STOCK as STOCK_JOB
from tuccl.measuring.engines.job_processes import Contender
from tuccl.measuring.workers.engine import WITHOUT_GRAPHS, Call, call_of, order_calls
from tuccl.measuring.workers.groups import Communicator, Groups
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.measuring.workers.seating import whole_shape
from tuccl.search.trials.backend import STOCK_PROFILE, JobCall, JobTable, JobTimes, Measured
from tuccl.search.trials.config import STOCK, Config, ProcessProfile, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.timing import Timing

_Result = TypeVar("_Result")
_SLOW = 4.0
"""Multiple of NCCL's own time: a slower configuration gets one sample and a deadline."""
_WORTH_CUTTING_S = 0.05
"""Least cost of further samples of a slow configuration for which they are left out."""
_SLOWEST_GB_PER_S = 0.05
"""Least rate expected of NCCL's own choice before its first measurement."""
_CHECKED_GB_PER_S = 0.2
"""Least rate expected of checking data."""
_FIRST_WITH_WINDOWS = NcclVersion(2, 27, 0)
"""First release of NCCL with ncclCommWindowRegister."""
_WARM_UP_LAUNCHES = 2


@dataclass(frozen=True, slots=True)
class WorkersOptions:
    """Options of a `WorkersBackend`."""

    timing: Timing = Timing()  # noqa: RUF009 - frozen
    laboratory: Laboratory = Laboratory()  # noqa: RUF009 - frozen
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every worker, beyond those of this process."""
    start_timeout_s: float = 60.0
    """Time limit for the start of a group."""
    least_deadline_s: float = 5.0
    """Deadline of a request beyond its own time: a call's first use may set up connections."""
    schedules: frozenset[str] = frozenset()
    """Content hashes of the schedules that the workers' executor has; others cannot run."""
    shapes: tuple[Shape, ...] = ()
    """Shapes of communicators that every start splits from that of all ranks."""
    hosts_of_nodes: tuple[int, ...] = ()
    """Number of hosts of each node, where NVLink joins several to one; empty: each is a node."""
    job_engine: str = ""
    """Engine of jobs that load tables; empty: the workers' own, which runs a table's calls one by
    one."""
    job_variables: Callable[[JobTable | None], Mapping[str, str]] = lambda _: MappingProxyType({})
    """Variables with which a job loads a table, or none."""
    invariant: bool = False
    """Whether a check demands that sums are added in the order of ranks in each node, then of
    nodes, whatever the size and place of a call."""
    tell: Callable[[str], None] = lambda _: None
    """Called with a sentence when lost workers have been replaced."""


@contextmanager
def open_workers_backend(
    engine: str, places: Places, options: WorkersOptions, shape: Shape | None = None
) -> Iterator[WorkersBackend]:
    """Open a backend whose workers run for the block.

    Args:
        engine: A name of `tuccl.measuring.workers.engine.ENGINES`, or MODULE:CLASS.
        places: Places of the workers (`LocalPlaces`, or those of `run_ranks`).
        options: Options of the backend.
        shape: Shape of most tasks; all places if left out.

    Raises:
        MeasurementError: The workers cannot be started.
    """
    backend = WorkersBackend(engine, places, options)
    try:
        faked = options.laboratory.node_sizes(len(places.places))
        backend.start(shape or whole_shape(places.places, faked))
        yield backend
    except KeyboardInterrupt:
        backend.end()
        raise
    finally:
        backend.close()


class WorkersBackend:
    """Times configurations on worker processes; see `Backend`."""

    def __init__(self, engine: str, places: Places, options: WorkersOptions) -> None:
        self.name = engine
        graph = options.timing.graph and engine not in WITHOUT_GRAPHS
        self.timing = replace(options.timing, graph=graph)
        """See `Timed`."""
        self.incidents: list[str] = []
        """Losses of workers, a sentence each; all of them have been replaced."""
        self._options = options
        self._groups = Groups(
            engine,
            places,
            options.laboratory.node_sizes(len(places.places)),
            options.variables,
            options.start_timeout_s,
            options.shapes,
            options.hosts_of_nodes,
        )
        self._reference_us: dict[Task, float] = {}
        """Time of NCCL's own choice, under the stock profile once that is measured."""
        self._last_us: dict[tuple[Task, Config], float] = {}
        """Latest time of every task and configuration that has run."""

    @property
    def provenance(self) -> Provenance:
        """See `Backend`."""
        said = self._groups.versions
        return Provenance(self.name, said.nccl, __version__, details=said.text)

    @property
    def restart_s(self) -> float:
        """See `Backend`: the mean of the starts so far."""
        return self._groups.start_s

    def start(self, shape: Shape) -> None:
        """Start the workers under the stock profile.

        Raises:
            MeasurementError: They cannot be started.
        """
        self._groups.recover(STOCK_PROFILE, shape, "")

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:  # noqa: ARG002 - no sample is like another
        """See `Backend`; a configuration that is too slow gets one sample."""
        began = time.monotonic()
        samples = self._carry_out(
            task, config, lambda communicator: self._samples(communicator, task, config, repeats)
        )
        return Measured(tuple(samples), time.monotonic() - began)

    def restart(self) -> None:
        """See `Backend`; a call that needs no profile begins the start, too."""
        self._groups.restart()

    runs_jobs = True

    @property
    def has_windows(self) -> bool:
        """See `RunsJobs`."""
        nccl = self._groups.versions.nccl
        return nccl is not None and nccl >= _FIRST_WITH_WINDOWS

    def time_job(
        self,
        launches: Mapping[JobCall, int],
        table: JobTable | None,
        number: int,  # noqa: ARG002 - no job is like another
    ) -> JobTimes:
        """See `RunsJobs`; the workers end before, as their GPUs are the job's."""
        began = time.monotonic()
        self._groups.end_running()
        options, whole = self._options, self._groups.whole
        site = Site(
            self._groups.places,
            whole,
            self.timing,
            tuple(self._groups.faked_sizes),
            divisions_of((call.task for call in launches), whole),
            options.hosts_of_nodes,
            options.job_engine or self._groups.engine,
        )
        try:
            with Job(site, self._contender(table)) as job:
                times_us = tuple(
                    (call, job.time_us(call, count)) for call, count in launches.items()
                )
        except MeasurementError as error:
            spent_s = time.monotonic() - began
            raise ConfigurationFailedError(str(error), seconds=spent_s) from error
        return JobTimes(times_us, time.monotonic() - began)

    def _contender(self, table: JobTable | None) -> Contender:
        variables = {**self._options.variables, **self._options.job_variables(table)}
        variables |= {} if table is None else table.profile.environment
        if table is None or table.is_bare:
            return replace(STOCK_JOB, variables={**variables, **STOCK_JOB.variables})
        calls = {} if self._options.job_engine else table.calls
        return Contender("the whole table", variables, calls=calls)

    def check(self, task: Task, config: Config) -> None:
        """See `Backend`."""
        began = time.monotonic()
        call = call_of(task, self.timing, config)
        allowed_s = self._deadline_s(call, 1, self._last_us.get((task, config), 0.0))
        allowed_s += task.size_bytes / (_CHECKED_GB_PER_S * 1e9)

        def found(communicator: Communicator) -> str:
            if wrong := communicator.check(call, allowed_s):
                return f"wrong data: {wrong}"
            if not self._options.invariant or not task.operation.reduces:
                return ""
            local_ranks = task.shape.ranks_per_node
            for own in order_calls(call, task.shape.ranks):
                if moved := communicator.check_order(own, local_ranks, allowed_s):
                    return f"its sums are not added in the order of ranks: {moved}"
            return ""

        if fault := self._carry_out(task, config, found):
            raise ConfigurationFailedError(fault, seconds=time.monotonic() - began)

    def cost_table(self, task: Task) -> CostTable | None:
        """See `Estimating`: NCCL tells it with its own choice under the stock profile."""
        call = call_of(task, self.timing, STOCK)
        allowed_s = self._deadline_s(call, 1, 0.0)
        try:
            return self._carry_out(
                task, STOCK, lambda communicator: communicator.cost_table(call, allowed_s)
            )
        except ConfigurationFailedError:
            return None

    def close(self) -> None:
        """Let the workers end."""
        self._groups.close()

    def end(self) -> None:
        """Kill the workers."""
        self._groups.close(0.0)

    def _carry_out(
        self, task: Task, config: Config, act: Callable[[Communicator], _Result]
    ) -> _Result:
        """Run `act` on the group of a configuration, and recover a lost group.

        Raises:
            ConfigurationFailedError: It is the configuration's fault.
            MeasurementError: The group cannot be recovered.
        """
        if config.is_schedule and config.schedule not in self._options.schedules:
            raise ConfigurationFailedError(
                f"{self.name} has no program of {config.algorithm}"
                if self._options.schedules
                else f"{self.name} runs no schedules"
            )
        began = time.monotonic()
        tries = 0
        while True:
            tries += 1
            try:
                profile = self._profile(task, config)
                return act(self._groups.under(profile, task.shape, task.placement))
            except EngineError as error:
                spent_s = time.monotonic() - began
                raise ConfigurationFailedError(str(error), seconds=spent_s) from error
            except GroupLostError as lost:
                self._recover(task, config, lost)
                again = lost.from_outside or (task, config) in self._last_us
                if tries > 1 or not again:
                    spent_s = time.monotonic() - began
                    raise ConfigurationFailedError(str(lost), seconds=spent_s) from lost

    def _profile(self, task: Task, config: Config) -> ProcessProfile:
        """Return the profile to run under; without a restart where any will do."""
        return config.profile if config.needs_profile else self._groups.profile_up(task.shape)

    def _recover(self, task: Task, config: Config, lost: GroupLostError) -> None:
        """Restart the workers, under the stock profile where this one has never worked."""
        incident = f"{task.full_name} {config.describe()}: {lost}"
        self.incidents.append(incident)
        profile = self._profile(task, config)
        proved = any(ran.profile == profile for _, ran in self._last_us)
        self._groups.drop(profile, task.shape)
        self._groups.recover(profile if proved else STOCK_PROFILE, task.shape, str(lost))
        self._options.tell(f"workers were lost and are back: {incident}")

    def _samples(
        self, communicator: Communicator, task: Task, config: Config, repeats: int
    ) -> list[float]:
        reference_us = self._reference(communicator, task, config)
        call = call_of(task, self.timing, config)
        known_us = self._last_us.get((task, config), 0.0)
        samples: list[float] = []
        if not known_us and repeats > 1:
            samples = self._time(communicator, call, 1, reference_us)
            known_us = samples[0]
        left = repeats - len(samples)
        slow = reference_us and known_us > _SLOW * reference_us
        if slow and known_us * call.calls * left > _WORTH_CUTTING_S * 1e6:
            left = 1 - len(samples)
        if left:
            samples += self._time(communicator, call, left, max(reference_us, known_us))
        self._last_us[task, config] = min(samples)
        if config == STOCK:
            self._reference_us[task] = min(samples)
        return samples

    def _reference(self, communicator: Communicator, task: Task, config: Config) -> float:
        """Return the time of NCCL's own choice, measured now if unknown; 0 for itself."""
        if config.is_default:
            return 0.0
        if task not in self._reference_us:
            default = call_of(task, self.timing, config.profile.default)
            try:
                self._reference_us[task] = self._time(communicator, default, 1, 0.0)[0]
            except EngineError as error:
                raise EngineError(f"even the default is refused: {error}") from error
        return self._reference_us[task]

    def _time(
        self, communicator: Communicator, call: Call, launches: int, expected_us: float
    ) -> list[float]:
        return communicator.time(call, launches, self._deadline_s(call, launches, expected_us))

    def _deadline_s(self, call: Call, launches: int, expected_us: float) -> float:
        allowed_us = _SLOW * expected_us or call.size_bytes / (_SLOWEST_GB_PER_S * 1e3)
        allowed_us += _SLOW * call.computation_us
        calls = call.calls * (launches + _WARM_UP_LAUNCHES)
        return self._options.least_deadline_s + allowed_us * calls / 1e6
