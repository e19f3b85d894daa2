"""A job of new processes, which runs calls as a user's job does: with stock NCCL, or with a table.

`bench` and `watch` run jobs of a shipped directory, `init` those of the table that it has found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar

from lookup_tables.table import Shape
from tuccl.crew.places import Places
from tuccl.errors import EngineError, GroupLostError, MeasurementError
from tuccl.measuring.engines.job_processes import START_TIMEOUT_S, Contender, JobProcesses
from tuccl.measuring.workers.engine import Call, call_of
from tuccl.measuring.workers.groups import Group
from tuccl.quantities import format_size
from tuccl.search.statistics.estimators import interquartile_mean
from tuccl.search.trials import config as trials
from tuccl.search.trials.backend import JobCall
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import Placement
from tuccl.search.trials.shapes import shape_text
from tuccl.search.trials.timing import Timing

_T = TypeVar("_T")
_LEAST_DEADLINE_S = 30.0
"""Deadline beyond a call's own time: its first use may set up connections."""
_SLOWEST_GB_PER_S = 0.05
"""Least rate of a call; a slower one counts as hung."""
_SLOWED = 4.0
"""Multiple of its time alone that computation beside a call may take."""
WARM_UP_LAUNCHES = 2
"""Launches that the first use of a call costs."""
LAUNCHES = 6
"""Launches of a key in a job; its time is the mean of the middle ones."""


@dataclass(frozen=True)
class Site:
    """Places and conditions under which all contenders are timed."""

    places: Places
    shape: Shape
    """Shape of the communicator of all ranks."""
    timing: Timing
    faked_sizes: tuple[int, ...] = ()
    """Ranks of each node that this host appears as; empty: none are faked."""
    divisions: tuple[tuple[Shape, int], ...] = ()
    """Shape and stride of further communicators that every job splits from that of all ranks."""
    hosts_of_nodes: tuple[int, ...] = ()
    """As in `seats_of`."""
    engine: str = "job"
    """Name of the workers' engine."""


def turn_order(contenders: Sequence[_T], number: int) -> tuple[_T, ...]:
    """Return the order of a round; the first place rotates, so that no contender gains by it."""
    first = number % len(contenders)
    return (*contenders[first:], *contenders[:first])


def divisions_of(tasks: Iterable[Task], whole: Shape) -> tuple[tuple[Shape, int], ...]:
    """Return shape and stride of the communicators of these keys that are not of all ranks."""
    found = dict.fromkeys((task.shape, task.placement.stride) for task in tasks)
    return tuple(division for division in found if division[0] != whole)


class Job:
    """The processes of a contender, for the duration of a block."""

    def __init__(
        self, site: Site, contender: Contender, processes: JobProcesses | None = None
    ) -> None:
        """Prepare the job.

        Args:
            site: Places and conditions.
            contender: The contender.
            processes: Its processes, if they start already.
        """
        self.versions = ""
        self._site = site
        self._contender = contender
        self._processes = processes or JobProcesses(
            contender,
            site.places,
            site.shape,
            site.faked_sizes,
            site.hosts_of_nodes,
            site.engine,
        )
        self._leader = self._processes.leader
        self._group = Group(self._leader, site.shape, START_TIMEOUT_S)

    def __enter__(self) -> Self:
        """Start the job, as `start` does."""
        self.start()
        return self

    def start(self) -> None:
        """Start one process for each rank.

        Raises:
            MeasurementError: They cannot be started, or NCCL refuses the table.
        """
        self.versions = self._processes.ready()
        with self._processes.start_told():
            for shape, stride in self._site.divisions:
                self._group.communicator(shape, Placement(stride))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """End the processes, by force where something went wrong."""
        if error is None:
            self._leader.end()
            return
        with suppress(MeasurementError):
            self._leader.end(0.0)

    def time_us(self, timed: JobCall, launches: int = LAUNCHES) -> float:
        """Return the time of a call: the interquartile mean of its launches.

        Raises:
            MeasurementError: It cannot run.
        """
        task = timed.task
        call = self._call(task)
        if timed.computation_us:
            call = replace(call, computation_us=timed.computation_us)
        if timed.in_windows:
            call = replace(call, in_windows=True)
        calls = call.calls * (launches + WARM_UP_LAUNCHES)
        try:
            return interquartile_mean(
                self._group.communicator(task.shape, task.placement).time(
                    call, launches, self._deadline_s(call, calls)
                )
            )
        except (EngineError, GroupLostError) as error:
            raise self._failed(task, str(error)) from error

    def check(self, task: Task) -> str:
        """Run a call on known data; return its runner, `executor` or `nccl`.

        Raises:
            MeasurementError: It cannot run, or its data are wrong.
        """
        call = self._call(task)
        allowed_s = self._deadline_s(call, call.calls * WARM_UP_LAUNCHES)
        try:
            communicator = self._group.communicator(task.shape, task.placement)
            if wrong := communicator.check(call, allowed_s):
                raise self._failed(task, f"wrong data: {wrong}")
            return communicator.ran_by(call, _LEAST_DEADLINE_S)
        except (EngineError, GroupLostError) as error:
            raise self._failed(task, str(error)) from error

    def _call(self, task: Task) -> Call:
        config = self._contender.calls.get(task, trials.STOCK)
        return call_of(task, self._site.timing, config)

    def _deadline_s(self, call: Call, calls: int) -> float:
        call_s = call.size_bytes / (_SLOWEST_GB_PER_S * 1e9) + _SLOWED * call.computation_us * 1e-6
        return _LEAST_DEADLINE_S + calls * call_s

    def _failed(self, task: Task, why: str) -> MeasurementError:
        called = f"{task.operation.value} of {format_size(task.size_bytes)}"
        if task.shape != self._site.shape:
            called += f" on {shape_text(task.shape)}"
        return MeasurementError(f"{self._contender.name}, {called}: {why}")
