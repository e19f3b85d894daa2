"""`RecordedRun`: the keys, schedules and search of the run whose measurements a record holds.

With them a replay names the schedules of its table and ships them, and can take the very steps of
the recorded search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from lookup_tables.table import Operation
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.search.trials.config import Task
from tuccl.search.trials.placement import ANYWHERE
from tuccl.search.trials.shapes import NamedShape
from tuccl.search.trials.space import Space


@dataclass(frozen=True, slots=True)
class RecordedSchedule:
    """A schedule that was tried, as a table stores it and a report describes it."""

    content_hash: str
    name: str
    operation: Operation
    msccl_xml: str
    """Its steps; empty across nodes."""
    program: bytes
    """Program of the executor; empty where it cannot run the schedule."""
    sketch: str
    """Name of the sketch that it runs on."""
    sketch_why: str
    origin: str
    """Expert or synthesized, with the solver's gap."""
    own: bool
    """Whether the user wrote it."""
    of_bound: tuple[tuple[int, float], ...]
    """Sizes that it was worth trying for, with the share of the bound that it reaches there."""


@dataclass(frozen=True)
class RecordedSearch:
    """The settings and spaces of a search."""

    settings: Mapping[str, JsonValue]
    """Everything beside the machine that decides the steps of the search."""
    builtins: Mapping[Task, Space]
    """Space of NCCL's settings by key."""
    schedules: Mapping[Task, Space]
    """Space of schedules by key; none where none were searched."""

    def builtins_of(self, task: Task) -> Space:
        """Return the space of NCCL's settings for a task of a key's size and shape."""
        return self.builtins[replace(task, placement=ANYWHERE)]

    def schedules_of(self, task: Task) -> Space:
        """Return the space of schedules for a task, which communicators elsewhere do not have."""
        return self.schedules.get(task) or Space("executor", ())


@dataclass(frozen=True)
class RecordedRun:
    """The keys, schedules and search of a run, as far as its record tells them."""

    keys: tuple[Task, ...] = ()
    """Keys that were tuned; none: unknown."""
    shapes: tuple[NamedShape, ...] = ()
    """Shapes that were tuned; none: that of all GPUs alone."""
    laboratory: Laboratory = Laboratory()  # noqa: RUF009 - frozen
    """The faked properties of the host that was measured."""
    schedules: tuple[RecordedSchedule, ...] = ()
    """Schedules that were tried, ascending by content hash."""
    estimates_us: Mapping[str, float | None] = field(default_factory=dict)
    """NCCL's estimates for ring with Simple by `Task.full_name`; None: NCCL told none."""
    search: RecordedSearch | None = None
    """None: its steps cannot be taken again."""
    begun_at: str = ""
    """When it began: ISO 8601, UTC; empty: unknown."""
