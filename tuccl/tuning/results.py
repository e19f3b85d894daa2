"""The search spaces of a run, and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lookup_tables.table import Entry, Shape
from tuccl.models.placements import PlacementClass
from tuccl.reports.ratios import MeasuredGain
from tuccl.reports.report import Dropped
from tuccl.search.statistics.moderation import MeanError
from tuccl.search.strategies.strategy import SearchResult
from tuccl.search.trials.baseline import Choice, TunerRow
from tuccl.search.trials.config import Config, ProcessProfile, Task
from tuccl.search.trials.space import Space
from tuccl.tuning.decision import Decision
from tuccl.tuning.placing.seen import Estimate, SeenClass
from tuccl.tuning.profile_race import RaceResult


@dataclass(frozen=True, slots=True)
class SearchSpaces:
    """The spaces that a backend offers to the search."""

    builtins: Callable[[Task], Space]
    """Joint space of the parameters per call and per process; the same variables for all keys."""
    schedules: Callable[[Task], Space]
    """Schedules with the executor's parameters; empty where there is no executor."""
    promising: Callable[[Task, Space], Sequence[Config]] = lambda _task, _space: ()
    """Configurations of a space to try first, by a model."""
    chosen: Callable[[Task, Space], Sequence[Config]] = lambda _task, _space: ()
    """Configurations of a space that a tuner's file chooses, which come before all others."""
    jobs_run_schedules: bool = False
    """Whether the schedules run as in a job, on the executor; a model's do not."""
    placements: Callable[[Shape], Sequence[PlacementClass]] = lambda _: ()
    """Classes of a shape's communicators by where their ranks sit; fewer than two where it makes no
    difference, or nothing can be timed elsewhere."""
    estimate: Estimate = lambda _: None
    """NCCL's own estimates, by which the plugin distinguishes classes."""


@dataclass(frozen=True, slots=True)
class TunersChoice:
    """What the rows of a tuner's file choose for a key."""

    file: str
    choices: tuple[Choice, ...]
    """Empty: NCCL has none of them here."""
    rows: tuple[TunerRow, ...]
    """Rows that match the key, one at least."""


@dataclass(frozen=True)
class KeyResult:
    """The results for one key."""

    task: Task
    searches: tuple[SearchResult, ...]
    """Searches of built-ins under the profile, and of schedules if there are any."""
    decision: Decision
    stock_us: float
    """Stock NCCL's time. For an entry of a table without a profile, the reference of its decision;
    else the interquartile mean of the samples from the beginning and the end."""
    range_bytes: tuple[int, int]
    """Smallest and largest size that an entry of this key serves."""
    sample_s: float = 0.0
    """Seconds of a sample at stock NCCL's speed."""
    tuners: TunersChoice | None = None
    """None: there is no tuner's file, or it has no row for the key."""


@dataclass(frozen=True, slots=True)
class AgainstBefore:
    """A key under the new table and under an earlier one, on the machine as it is now."""

    task: Task
    before: Config
    """Choice of a job under the earlier table."""
    before_us: float
    """Median of its samples in this run, as for `now_us`."""
    now: Config
    now_us: float

    @property
    def ratio(self) -> float:
        """Time under the earlier table over that under the new one: above 1 is a gain."""
        return self.before_us / self.now_us


@dataclass(frozen=True)
class PlacedResult:
    """The entries of communicators that the plugin distinguishes by where their ranks sit."""

    shape: Shape
    seen: SeenClass
    keys: tuple[KeyResult, ...]
    """Keys with an entry of their own, by a setting of NCCL."""
    kept: tuple[Entry, ...] = ()
    """Entries that an earlier run proved, where a change of the machine does not touch them."""

    @property
    def has_entries(self) -> bool:
        """Whether there is any entry."""
        return bool(self.keys or self.kept)


@dataclass(frozen=True, slots=True)
class SeenKey:
    """A key in jobs with the whole table and of stock NCCL; times are means over the rounds."""

    stock_us: float
    table_us: float
    gain: MeasuredGain
    rounds: int
    beside: MeasuredGain | None = None
    """Gain of computation and call together, until both have ended; None: not timed so."""
    in_windows: MeasuredGain | None = None
    """Gain of the call on registered buffers; None: not timed so."""

    @property
    def serves_windows(self) -> bool:
        """Whether a schedule was not slower than NCCL on registered buffers."""
        return self.in_windows is not None and self.in_windows.ratio >= 1.0

    def losses(self, least_beside: float = 0.0) -> Mapping[str, MeasuredGain]:
        """Return what jobs with the table are slower at, in words.

        Args:
            least_beside: Ratio beside computation below which no proof is asked for.
        """
        losses = {} if self.gain.high >= 1.0 else {"": self.gain}
        beside = self.beside
        if beside is not None and (beside.high < 1.0 or beside.ratio < least_beside):
            losses[" beside computation"] = beside
        return losses

    @property
    def is_slower(self) -> bool:
        """Whether jobs with the table are slower beyond the noise, alone or beside computation."""
        return bool(self.losses())


@dataclass(frozen=True, slots=True)
class WholeTable:
    """The table as a whole, in jobs in turn with those of stock NCCL."""

    rounds: int = 0
    """Fewest rounds behind the figures; 0: there are none."""
    keys: Mapping[Task, SeenKey] = field(default_factory=dict)
    """Keys that still run what they ran then."""
    dropped: Dropped | None = None
    """The part that was left out, if any."""
    dropped_why: str = ""
    """Why jobs with that part did not run; empty if they ran, and it cost more than it gained."""
    failed: str = ""
    """Why a job with the rest of the table, or with stock NCCL, did not run; empty if all ran."""
    seconds: float = 0.0
    """Seconds of all jobs, those before something was left out included."""


@dataclass(frozen=True)
class TunedKeys:
    """The outcome of a run."""

    profile: ProcessProfile
    race: RaceResult
    keys: tuple[KeyResult, ...]
    spent_s: float
    """Machine time spent."""
    starts: int | None
    """Starts of the workers that confirmed entries; 0: none were possible; None: none were
    needed."""
    between_starts: MeanError
    """Error of a ratio of two times of different starts, on logarithms."""
    start_s: float = 0.0
    """Seconds of a start of the workers."""
    against: tuple[AgainstBefore, ...] = ()
    """Keys against an earlier table; empty where there is none, or the budget is spent."""
    placed: tuple[PlacedResult, ...] = ()
    """All classes of each shape whose classes can be told apart."""
    whole: WholeTable | None = None
    """None: the table was not held as a whole."""
    stock_faults: Mapping[Task, str] = field(default_factory=dict)
    """What is wrong with stock NCCL's own data, by key."""


@dataclass(frozen=True)
class Tuned:
    """Results of the stages from the race on, by key."""

    raced: RaceResult
    found: Mapping[Task, tuple[SearchResult, ...]]
    confirmed: Mapping[Task, Decision]
    ranges: Mapping[Task, tuple[int, int]]
    starts: int | None

    def under_floor(self, stock_us: Mapping[Task, float], floor: float) -> list[Task]:
        """Return the keys that the profile needs a schedule for, and that are under the floor now.

        A setting of NCCL that won its entry may hold it, too: by its lower bound, as the race could
        not tell.

        Args:
            stock_us: Stock NCCL's time by key.
            floor: Least ratio of that to a key's time.
        """

        def holds(decision: Decision, stock_us: float) -> bool:
            if decision.schedule is not None:
                return True
            own = decision.builtin
            lowered = 0.0 if own is None else own.lower_bound / own.ratio / own.time_us
            return stock_us * lowered >= floor

        served = self.raced.by_schedule
        return [task for task in served if not holds(self.confirmed[task], stock_us[task])]
