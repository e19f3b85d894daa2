"""report.json: what a run decided for every key, and why.

Written once by a run, read by `table`, `explain` and `--json`.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from lookup_tables.confirmation import Estimator, NoStarts, Reference
from tuccl.errors import WorkspaceError
from tuccl.measuring.laboratory import Laboratory
from tuccl.workspace.runs import Run, parse_workspace_file, read_text_if_present

REPORT_VERSION = 2
_OF_LABORATORY = {"congestion_control", "share_gpus"}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ComparisonReport(_Model):
    """A configuration against its reference; see `tuccl.tuning.decision.Comparison`."""

    config: str
    time_us: float
    reference_us: float
    ratio: float
    lower_bound: float
    samples: int
    spread: float
    upper_bound: float | None = None
    """None: nothing is known of it. None, as all that follows, also in reports of earlier
    releases."""
    confidence: float | None = None
    """With which each bound holds by itself."""
    reference: Reference | None = None
    """What it was held against."""
    estimator: Estimator | None = None
    starts: int | NoStarts | None = None
    """Number of starts of the workers that the times are of; or why there were none."""


class ScheduleReport(_Model):
    """A schedule that was tried."""

    name: str
    sketch: str
    sketch_why: str
    origin: str
    of_bound: dict[str, float]
    """By size in bytes: the share of the bound that it reaches on the wires alone."""
    operation: str = ""
    """Empty in reports of earlier releases."""
    own: bool = False
    """Whether the user wrote it."""


class ProfileRatio(_Model):
    """Stock NCCL's time over that of NCCL's own choice under the profile, started in turn."""

    ratio: float
    low: float
    high: float
    starts: int
    """Of each."""


class KeyReport(_Model):
    """The decision for one operation and size."""

    operation: str
    size_bytes: int
    min_bytes: int
    """Smallest size that an entry of this key serves."""
    max_bytes: int
    stock_us: float
    profile_default_us: float
    builtin: ComparisonReport | None
    schedule: ComparisonReport | None
    rejected: list[ComparisonReport]
    configs_tried: int
    repeats_measured: int
    converged: bool
    why: str
    profile_ratio: ProfileRatio | None = None
    """None: the two were not started in turn for this key, so that `stock_us` and
    `profile_default_us` are of different starts. None also in reports of earlier releases."""


class ProfileReport(_Model):
    """What the floor made of a process profile."""

    profile: dict[str, str]
    speedup: float
    """Geometric mean over the raced keys, by their weights, of stock's time over the best under the
    profile."""
    operation: str
    size_bytes: int
    """Of the key that gets least."""
    ratio: float
    """Stock's time of that key over its best under the profile."""
    low: float
    high: float
    starts: int
    """Of stock NCCL and the profile in turn; 1: only what the race saw."""
    holds: bool


class FloorReport(_Model):
    """How the floor bore on the choice of the process profile."""

    least: float
    """`RunSettings.floor`."""
    chosen: ProfileReport | None
    """None: the profile is stock NCCL's."""
    forgone: list[ProfileReport]
    """Profiles that were faster on average, the fastest first: under the floor, or less clear of
    it than the chosen one."""


class Report(_Model):
    """All of it."""

    version: int
    backend: str
    profile: dict[str, str]
    schedules: dict[str, ScheduleReport]
    """By content hash."""
    keys: list[KeyReport]
    measuring_s: float = 0.0
    """Seconds of the machine that measuring took."""
    budget_s: float | None = None
    """What it was allowed."""
    graphs: bool = True
    in_place: bool = False
    """How calls were timed."""
    starts: int | None = None
    """Of the workers, that confirm entries where one start does not tell; 0: none could be
    had; None: one told all."""
    floor: FloorReport | None = None
    """None: there was no floor."""
    weights: dict[str, float] = {}
    """How much operations counted when the process profile was chosen; 1 where nothing is said."""
    laboratory: Laboratory = Laboratory()

    def own_schedules(self, operation: str, size_bytes: int) -> list[tuple[str, float]]:
        """The user's schedules tried for a size: their names, and the share of the bound."""
        return [
            (schedule.name, schedule.of_bound[str(size_bytes)])
            for schedule in self.schedules.values()
            if schedule.own
            and schedule.operation == operation
            and str(size_bytes) in schedule.of_bound
        ]

    def readable(self, text: str) -> str:
        """The text with schedules named instead of hashed."""
        for content_hash, schedule in self.schedules.items():
            text = text.replace(f"schedule:{content_hash}", schedule.name)
        return text

    @model_validator(mode="before")
    @classmethod
    def _laboratory_of_earlier_releases(cls, values: Any) -> Any:
        """Its fields, which reports of earlier releases have among their own."""
        if not isinstance(values, dict):
            return values
        own = {name: values[name] for name in _OF_LABORATORY & values.keys()}
        rest = {name: value for name, value in values.items() if name not in own}
        return {"laboratory": own, **rest} if own else rest


def read_report(run: Run) -> Report:
    """The report of a finished run.

    Raises:
        WorkspaceError: when there is none, or it is damaged.
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
