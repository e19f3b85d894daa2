"""report.json: the decisions of a run for every key, and their reasons.

A run writes it once; `table`, `explain` and `--json` read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lookup_tables.collective import Collective
from lookup_tables.confirmation import Estimator, NoStarts, Reference
from lookup_tables.lookup import LEAST_TIME_US, MOST_TIME_US
from lookup_tables.table import Shape, SumOrder
from tuccl.errors import WorkspaceError
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.search.trials.config import SCHEDULE_PREFIXES, Task
from tuccl.search.trials.shapes import ShapeName
from tuccl.search.trials.timing import Computation
from tuccl.workloads.step_calls import StepCalls
from tuccl.workspace.runs import Run, parse_workspace_file, read_text_if_present

REPORT_VERSION = 2


_Time = Annotated[float, Field(ge=LEAST_TIME_US, le=MOST_TIME_US)]
"""A time in us, as in a table."""

_LEAST_SHOWN = 1.0005
"""Least gain that three decimals show."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class ComparisonReport(_Model):
    """A configuration against its reference; see `tuccl.tuning.decision.Comparison`."""

    config: str
    time_us: _Time
    reference_us: _Time
    ratio: float
    lower_bound: float
    samples: int
    spread: float
    upper_bound: float | None
    """None: unknown."""
    confidence: float
    """Confidence of each bound by itself."""
    reference: Reference
    """The reference of the ratio."""
    estimator: Estimator
    starts: int | NoStarts
    """Number of starts of the workers behind the times; or why there were none."""
    stalls: int = 0
    """Samples that took over 1.5 times the median, where these recur; the times count them."""


class ScheduleReport(_Model):
    """A schedule that was tried."""

    name: str
    sketch: str
    sketch_why: str
    origin: str
    of_bound: dict[str, float]
    """Share of the bound that the transfers alone reach, by size in bytes."""
    operation: str
    own: bool
    """Whether it is a schedule of the user's."""


class UnprovedGain(_Model):
    """The call of a key that gained most where it was compared, more than what won, if any did."""

    config: str
    gain: float
    """Time of NCCL's own choice under the profile over its own."""
    comparison: ComparisonReport
    """Against its reference, which may be the built-in that won."""
    starts_needed: int | None
    """Starts that would have proved it if the ratio stays, or fewer; None: not known."""
    further_s: float
    """Seconds of its samples in these starts, beyond those that it had."""
    further_starts: int


class ProfileRatio(_Model):
    """Stock NCCL's time over that of NCCL's own choice under the profile, started in turn."""

    ratio: Annotated[float, Field(ge=1e-9, le=1e9)]
    low: float
    high: float
    starts: int
    """Number of starts of each."""


class BesideComputation(_Model):
    """Stock NCCL's time over a job's for a computation and a call together, in turn."""

    ratio: Annotated[float, Field(ge=1e-9, le=1e9)]
    low: float
    high: float


class WholeKey(_Model):
    """A key in jobs with the whole table loaded and in jobs of stock NCCL, in turn."""

    stock_us: _Time
    table_us: _Time
    ratio: Annotated[float, Field(ge=1e-9, le=1e9)]
    low: float
    """The bounds of all keys hold together at 95 %, as those of `bench`."""
    high: float
    rounds: int
    """Jobs of each."""
    beside: BesideComputation | None = None
    """Of calls of 16 MB and more, beside twice the time of stock NCCL's; None: not timed so."""
    in_windows: Annotated[float, Field(ge=1e-9, le=1e9)] | None = None
    """Ratio on registered buffers, of a schedule; below 1, its entry leaves these calls to NCCL.
    None: not timed so."""


class BaselineFate(StrEnum):
    """What became of a baseline's choice for a key."""

    WON = "won"
    """It is the entry's setting of NCCL."""
    COMPARED = "compared"
    """It was compared, and not proved faster."""
    BEHIND = "behind"
    """Other settings were faster in the search."""
    FAILED = "failed"
    """It does not run here."""
    UNTRIED = "untried"
    NOT_HERE = "not_here"
    """NCCL does not have its algorithm and protocol here."""


class BaselineReport(_Model):
    """The choice of a tuner's file for a key, which the search tried first."""

    file: str
    """Name of the file."""
    line: int
    """0: it is a library, which was asked."""
    config: str
    fate: BaselineFate
    time_us: _Time | None = None
    """Its time in the search, or where it was compared; None: it was not timed."""
    best_us: _Time | None = None
    """Time of the fastest of NCCL's settings, likewise."""
    comparison: ComparisonReport | None = None
    """If it was compared, and not proved."""
    why: str = ""
    """Why it does not run or was not tried."""


class FreeReport(_Model):
    """A table whose sums do not move, beside that of the same run with sums that may."""

    run: str
    """Identity of the other run."""
    keys: int
    """Keys that reduce, of both."""
    ratio: Annotated[float, Field(ge=1e-9, le=1e9)]
    """Time of this table's winners over that of the other's, each against its own stock NCCL:
    geometric mean; above 1 is what it costs."""


class KeyReport(_Model):
    """The decision for one operation, size and communicator shape."""

    operation: Collective
    size_bytes: int
    shape: Shape
    """Shape of its communicators."""
    min_bytes: int
    """Smallest size that an entry of this key serves."""
    max_bytes: int
    stock_us: _Time
    profile_default_us: _Time
    builtin: ComparisonReport | None
    schedule: ComparisonReport | None
    rejected: list[ComparisonReport]
    configs_tried: int
    repeats_measured: int
    converged: bool
    why: str
    added: str = ""
    """The change of NCCL's own choice beside which its size was added to the ladder, such as `from
    ring LL to ring Simple between 672K and 704K`; empty: it was not added."""
    left_out: list[str] = []
    """Calls that won and are no entry, since they are slower where ranks sit elsewhere or with the
    whole table loaded: a sentence each."""
    is_obliged: bool = False
    """Whether what runs was not proved faster, and runs since the table's sums must not move."""
    computation_us: float = 0.0
    """Time of the computation beside each call while it was timed; 0: there was none."""
    unproved: UnprovedGain | None = None
    """None: no call was seen to gain more than what won."""
    profile_ratio: ProfileRatio | None = None
    """None: not measured in turn for this key, so that `stock_us` and `profile_default_us` are of
    different starts."""
    baseline: list[BaselineReport] = []
    """Choices of a tuner's file: one, or two if those for registered buffers differ; empty if there
    was no file, or no row for the key."""
    whole: WholeKey | None = None
    """None: it was not timed so, or ran something else then."""

    @property
    def gain(self) -> float:
        """Stock NCCL's time over that of what won, or of NCCL's own choice under the profile."""
        won = self.schedule or self.builtin
        return self.stock_us / (self.profile_default_us if won is None else won.time_us)

    @property
    def proved_gain(self) -> float:
        """Time of NCCL's own choice under the profile over that of what won; 1 if nothing did."""
        won = self.schedule or self.builtin
        return 1.0 if won is None else self.profile_default_us / won.time_us


class ProfileReport(_Model):
    """A process profile, judged against the floor."""

    profile: dict[str, str]
    speedup: float
    """Stock's time over the best under the profile: weighted geometric mean over the raced keys."""
    operation: Collective
    size_bytes: int
    """Size of the worst key."""
    shape: Shape
    """Shape of the worst key."""
    ratio: float
    """Stock's time of the worst key over its best under the profile."""
    low: float
    high: float
    starts: int
    """Starts of the profile in turn with stock NCCL; 1: only the visit in the race."""
    holds: bool
    schedule: str = ""
    """Content hash of the schedule that the worst key was judged by; empty: NCCL's best call."""
    wrong: str = ""
    """The key whose data NCCL gets wrong under the profile, and how; empty: none was found."""
    beside: BesideComputation | None = None
    """The mean over calls of 16 MB and more, if jobs lose by the profile there."""


class VariableReport(_Model):
    """What a value of a further variable of NCCL gained over all raced keys."""

    value: dict[str, str]
    """The variable, and those that are set with it."""
    gain: float
    """Time without it over time with it, weighted geometric mean; 0: a key cannot run."""
    low: float | None
    """Lower bound by fresh starts in turn; None: one start of each."""
    starts: int
    taken: bool
    """Whether the table's profile has it."""


class UntunedKey(_Model):
    """A call on communicators that were not tuned, by NCCL's own choice under the profile."""

    operation: Collective
    size_bytes: int
    shape: Shape
    ratio: Annotated[float, Field(ge=1e-9, le=1e9)]
    """Stock NCCL's time over that of the call."""
    low: float
    high: float


class LossWithoutExecutor(UntunedKey):
    """A key that a schedule serves, by NCCL's best call under the profile."""

    starts: int
    """As `ProfileReport.starts`."""


class FloorReport(_Model):
    """The effect of the floor on the choice of the process profile."""

    least: float
    """`RunSettings.floor`."""
    chosen: ProfileReport | None
    """None: the profile is stock NCCL's."""
    forgone: list[ProfileReport]
    """Profiles that were faster on average, but under the floor or less clear of it; the fastest
    first."""
    without_executor: LossWithoutExecutor | None = None
    """The key that loses most where a job lacks the executor; None: none is known to be under the
    floor then."""
    untuned: list[UntunedKey] = []
    """Calls on communicators that were not tuned, under what these have of the profile; empty if
    they have nothing of it, or none was timed."""


class RetunedKey(_Model):
    """A measured key under the new table and under the old one, on the machine as it is now."""

    operation: Collective
    size_bytes: int
    shape: Shape
    before: str
    """Choice of a job under the old table."""
    before_us: _Time
    now: str
    now_us: _Time
    ratio: Annotated[float, Field(ge=1e-9, le=1e9)]
    """Time under the old table over that under the new one."""


class Dropped(StrEnum):
    """A part of a table that was left out: it cost too much, or jobs did not run with it."""

    EXECUTOR = "executor"
    """The executor, with all schedules."""
    TABLE = "table"
    """All of it."""


class WholeReport(_Model):
    """The table as a whole, in jobs of new processes in turn with those of stock NCCL."""

    rounds: int
    """Jobs of each behind the figures of the keys, or more; 0: there are none."""
    dropped: Dropped | None
    """The part that was left out, if any."""
    failed: str
    """Why a job with the rest of the table, or with stock NCCL, did not run; empty if all ran, or
    if the budget paid for none."""
    seconds: float
    dropped_why: str = ""
    """Why jobs with `dropped` did not run; empty if they ran, and it cost more than it gained."""


@dataclass(frozen=True, slots=True)
class LongerBudget:
    """What further starts would be likely to prove."""

    keys: int
    """Keys whose unproved gains they would decide."""
    gain: float
    """Geometric mean over all keys of the gains that would be proved, if the ratios stay."""
    seconds: float
    """Seconds of these starts."""


class RetunedReport(_Model):
    """The relation of a table to the one before a change."""

    run: str
    """Identity of the run before."""
    kept: int
    """Keys that keep the entries of that run."""
    measured: int
    """Keys that were measured."""
    keys: list[RetunedKey]
    """Measured keys against the old table; empty where nothing was measured, or the budget was
    spent before."""
    gain: Annotated[float, Field(ge=1e-9, le=1e9)] | None
    """Speedup over the old table on the machine as it is now: geometric mean over all keys, those
    that were kept at 1; None: it was not measured."""
    samples: int
    """Samples that were taken."""
    samples_before: int | None
    """Samples that the run before took; None: its log cannot be read."""


class Report(_Model):
    """The content of report.json."""

    version: int
    backend: str
    recorded_backend: str | None = None
    """Backend whose record was replayed; None: none was."""
    recorded_at: str = ""
    """When the run of that record began: ISO 8601, UTC; empty: unknown."""
    profile: dict[str, str]
    variables: list[VariableReport] = []
    """Further variables of NCCL that were tried, in their order."""
    untried: list[dict[str, str]] = []
    """Values of `--vary` and `--knobs` that the budget did not pay for."""
    untried_s: float = 0.0
    """Seconds that the budget lacks for these."""
    base: dict[str, str] | None = None
    """Variables of NCCL that every process had, stock NCCL's too, by the site or by `--set`; None:
    unknown, or nothing was measured."""
    schedules: dict[str, ScheduleReport]
    """Tried schedules by content hash."""
    keys: list[KeyReport]
    measuring_s: float = 0.0
    """Seconds of machine time that measuring took."""
    budget_s: float | None = None
    """Limit of `measuring_s`; None: no limit."""
    limits: dict[str, int] = {}
    """Limits of the search by the option that set them, as `--max-channels`."""
    graphs: bool = True
    """Whether calls were timed in CUDA graphs."""
    in_place: bool = False
    """Whether calls were timed in place."""
    computations: tuple[Computation, ...] = ()
    """Computation beside calls while they were timed; empty: they were timed alone."""
    stock_faults: list[str] = []
    """What is wrong with data of stock NCCL's own choice, a sentence for each reduction."""
    starts: int | None = None
    """Starts of the workers that confirmed entries; 0: none were possible; None: none were
    needed."""
    start_s: float = 0.0
    """Seconds of a start of the workers."""
    start_error: float = 0.0
    """How far a ratio of times of two starts may be off, on logarithms, with 2.5 % beyond it on
    either side."""
    floor: FloorReport | None = None
    """None: there was no floor."""
    weights: dict[str, float] = {}
    """Weights of operations and shapes in the choice of the process profile; 1 where none is
    given."""
    shapes: dict[str, Shape] = {}
    """Communicator shapes by name, in the order of the keys; empty: that of all GPUs alone."""
    workload: StepCalls | None = None
    """Calls of a job whose keys were tuned; None: the options named the keys."""
    laboratory: Laboratory = Laboratory()
    assumed: str = ""
    """A sentence on figures of the machine that a model computed with and nobody measured; empty:
    the times are measured, or there are none such."""
    whole: WholeReport | None = None
    """None: the backend runs no jobs, or the table was kept in part."""
    sums: list[SumOrder] = []
    """Of a table whose sums do not move; empty: those of this one may."""
    free: FreeReport | None = None
    """What that costs; None: no other run in the workspace says."""
    retuned: RetunedReport | None = None
    """None: there was no run before."""

    @property
    def longer_budget(self) -> LongerBudget | None:
        """What a longer budget would be likely to bring; None if no gain counts.

        A gain that rounds to 1.000 does not count, nor do gains that would need more starts than
        are ever made. Starts are shared by the keys, and their samples are not.
        """
        seen = [(own, key) for key in self.keys if (own := key.unproved) and own.further_starts > 0]
        if not seen:
            return None
        logs = (math.log(own.gain / key.proved_gain) for own, key in seen)
        gain = math.exp(sum(logs) / len(self.keys))
        if gain < _LEAST_SHOWN:
            return None
        starts_s = self.start_s * max(own.further_starts for own, _ in seen)
        return LongerBudget(
            len(seen),
            gain,
            starts_s + sum(own.further_s for own, _ in seen),
        )

    @property
    def added(self) -> tuple[tuple[Task, str], ...]:
        """Keys whose sizes were added to the ladder, with the change beside each."""
        return tuple(
            (Task(key.operation, key.size_bytes, key.shape), key.added)
            for key in self.keys
            if key.added
        )

    @property
    def source(self) -> str:
        """Backend that took or computed the times, also where a record of it was replayed."""
        return self.recorded_backend or self.backend

    @property
    def recorded_with_executor(self) -> bool:
        """Whether a record was replayed of a machine whose jobs have the executor."""
        return "executor" in (self.recorded_backend or "").split(",")

    def own_schedules(self, key: KeyReport) -> list[tuple[str, float]]:
        """The user's schedules for a key: names, and shares of the bound that they reach.

        They are for the communicator of all GPUs.
        """
        if self.shapes and key.shape != self.shapes.get(ShapeName.WHOLE):
            return []
        size_bytes = key.size_bytes
        return [
            (schedule.name, schedule.of_bound[str(size_bytes)])
            for schedule in self.schedules.values()
            if schedule.own
            and schedule.operation == key.operation
            and str(size_bytes) in schedule.of_bound
        ]

    def readable(self, text: str) -> str:
        """Replace the hashes of schedules in a text by their names."""
        for content_hash, schedule in self.schedules.items():
            for prefix in SCHEDULE_PREFIXES:
                text = text.replace(f"{prefix}{content_hash}", schedule.name)
        return text


def read_report(run: Run) -> Report:
    """Read the report of a finished run.

    Raises:
        WorkspaceError: the report is missing or damaged.
    """
    text = read_text_if_present(run.report)
    if text is None:
        raise WorkspaceError(f"{run.report} is missing; run `tuccl init` again to make it anew")
    report = parse_workspace_file(Report, text, run.report)
    if report.version != REPORT_VERSION:
        raise WorkspaceError(
            f"{run.report} has version {report.version}, this release reads {REPORT_VERSION}; "
            "tune again"
        )
    return report
