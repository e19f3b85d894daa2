"""The protocol that every measurement backend answers.

Search, table and reports know this protocol only, never which backend they talk to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from zlib import crc32

from lookup_tables.provenance import Provenance
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.cost_table import CostTable

STOCK_PROFILE = ProcessProfile()


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples of a configuration, and the machine's time that they took."""

    samples_us: tuple[float, ...]
    """Mean time of a call in each launch of back-to-back calls, on the slowest rank."""
    seconds: float
    """Machine time, restarts of the workers included; modelled where the samples are."""
    restart_s: float = 0.0
    """`Backend.restart_s` afterwards; the measurement log adds it, for planning."""


class Backend(Protocol):
    """Times configurations on tasks."""

    @property
    def name(self) -> str:
        """As written on the command line: `simulated`, `nccl`, ..."""

    @property
    def provenance(self) -> Provenance:
        """Provenance of the figures: the backend, its NCCL, this release."""

    @property
    def restart_s(self) -> float:
        """Seconds that a change of the process profile costs in addition."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        """Samples number `first` to `first + repeats - 1` of a configuration.

        A search that resumes asks for the samples it does not have yet, so a backend with simulated
        noise derives the noise from the number of the sample.

        Raises:
            ConfigurationFailedError: This configuration cannot run; others can.
            MeasurementError: The backend cannot go on.
        """

    def restart(self) -> None:
        """Let the next sample of a call that needs a process profile come from a new start."""

    def check(self, task: Task, config: Config) -> None:
        """Hold the data that a configuration delivers against what it must be.

        Models and records have no data and accept everything.

        Raises:
            ConfigurationFailedError: A byte is wrong, or the configuration cannot run.
            MeasurementError: The backend cannot go on.
        """


@runtime_checkable
class Estimating(Protocol):
    """A backend that knows NCCL's cost tables, which the tuner plugin is handed in jobs."""

    def cost_table(self, task: Task) -> CostTable | None:
        """What NCCL allows on all of a task's communicators; None if it does not tell.

        Raises:
            ConfigurationFailedError: The call cannot run.
            MeasurementError: The backend cannot go on.
        """


@dataclass(frozen=True, slots=True)
class JobTable:
    """A table as a job has it, all of it loaded."""

    name: str
    """Checksum of the bundle, or of the profile without one, 8 hex digits."""
    bundle: bytes
    profile: ProcessProfile
    calls: Mapping[Task, Config]
    """What the table has each key run; keys without an entry are left out."""
    loads_executor: bool

    @classmethod
    def bare(cls, profile: ProcessProfile) -> JobTable:
        """Return a profile without a bundle, of which a job loads nothing else."""
        variables = sorted(profile.environment.items())
        return cls(f"{crc32(repr(variables).encode()):08x}", b"", profile, {}, False)

    @property
    def is_bare(self) -> bool:
        """Whether a job has nothing of it but the profile."""
        return not (self.bundle or self.calls)


@dataclass(frozen=True, slots=True, order=True)
class JobCall:
    """A key in a job, timed as in the run, or beside a computation, or on registered buffers."""

    task: Task
    computation_us: float = 0.0
    """How long the GPU computes beside each call, if it does nothing else; 0: as the run has it."""
    in_windows: bool = False
    """Whether its buffers are registered (`RunsJobs.has_windows`)."""

    @property
    def is_plain(self) -> bool:
        """Whether it is timed as in the run."""
        return not (self.computation_us or self.in_windows)


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Times of the calls in one job, in us, and the machine's time that the job took."""

    times_us: tuple[tuple[JobCall, float], ...]
    seconds: float


@runtime_checkable
class RunsJobs(Protocol):
    """A backend that times keys in jobs as users start them, with a table or without."""

    @property
    def runs_jobs(self) -> bool:
        """Whether it can: a record may hold no jobs."""

    @property
    def has_windows(self) -> bool:
        """Whether calls can be timed on symmetric windows (ncclCommWindowRegister, NCCL 2.27)."""

    def time_job(
        self, launches: Mapping[JobCall, int], table: JobTable | None, number: int
    ) -> JobTimes:
        """Time keys in a job of new processes; no others run meanwhile.

        Args:
            launches: The calls in their order, with the number of launches of each.
            table: What the job has loaded; None: it is one of stock NCCL.
            number: Number of the job among those of this table.

        Returns:
            The times; a record may lack those that are not plain.

        Raises:
            ConfigurationFailedError: The job cannot run.
            MeasurementError: The backend cannot go on.
        """


class RunningProfiles:
    """The profile whose workers are up: one at a time.

    On four H200 (NCCL 2.28.9) a second group of workers on the same GPUs, all others idle, took 3 %
    more than the first for messages of a few KB, whatever its profile: a comparison of both would
    show nothing.
    """

    def __init__(self) -> None:
        """Nothing runs."""
        self._profile: ProcessProfile | None = None

    def use(self, profile: ProcessProfile) -> bool:
        """Turn to workers with a profile; return whether they have to be started."""
        starts = profile != self._profile
        self._profile = profile
        return starts

    def end(self) -> None:
        """End the workers, so that the next are started whatever their profile."""
        self._profile = None

    def run(self, config: Config) -> bool:
        """Turn to workers that can run a configuration; return whether they have to be started."""
        return config.needs_profile and self.use(config.profile)
