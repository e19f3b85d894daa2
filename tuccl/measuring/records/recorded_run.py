"""`RecordedRun`: the keys, schedules and search of the run whose measurements a record holds.

With them a replay names the schedules of its table and ships them, and can take the very steps of
the recorded search. The classes are what a record's file holds as JSON
(`tuccl.measuring.records.run_json`).
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from pydantic import BeforeValidator, JsonValue, PlainSerializer, PlainValidator

from lookup_tables.collective import Collective
from tuccl.measuring.workers.laboratory import Laboratory
from tuccl.search.trials.baseline import Baseline
from tuccl.search.trials.config import Settings, Task
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.placement import ANYWHERE
from tuccl.search.trials.shapes import NamedShape
from tuccl.search.trials.space import Space
from tuccl.workspace.measurement_lines import RecordedJob

_MOST_BYTES = 64 << 20
"""Most bytes of a schedule's steps or program that are read."""


def _packed(data: bytes) -> str:
    return b64encode(zlib.compress(data)).decode() if data else ""


def _unpacked(text: str) -> bytes:
    if not text:
        return b""
    opened = zlib.decompressobj()
    try:
        data = opened.decompress(b64decode(text, validate=True), _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"a schedule is damaged: {error}") from error
    if not opened.eof:
        raise ValueError("a schedule is cut, or larger than any")
    return data


_Bytes = Annotated[bytes, PlainSerializer(_packed), PlainValidator(_unpacked)]
"""Bytes that are compressed in JSON; `_Text` likewise."""
_Text = Annotated[
    str,
    PlainSerializer(lambda text: _packed(text.encode())),
    BeforeValidator(lambda packed: _unpacked(packed).decode()),
]
_CostTable = Annotated[CostTable, PlainSerializer(str), PlainValidator(CostTable.parse)]


@dataclass(frozen=True, slots=True)
class RecordedSchedule:
    """A schedule that was tried, as a table stores it and a report describes it."""

    content_hash: str
    name: str
    operation: Collective
    msccl_xml: _Text
    """Its steps; empty across nodes."""
    program: _Bytes
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

    settings: dict[str, JsonValue]
    """Everything beside the machine that decides the steps of the search."""
    spaces: tuple[Space, ...]
    """The different spaces of the keys."""
    builtins: tuple[tuple[Task, int], ...]
    """For each key the number of its space of NCCL's settings."""
    schedules: tuple[tuple[Task, int], ...]
    """For each key the number of its space of schedules; none where none were searched."""

    @classmethod
    def of(
        cls,
        settings: dict[str, JsonValue],
        builtins: Mapping[Task, Space],
        schedules: Mapping[Task, Space],
    ) -> RecordedSearch:
        """Return a search with the spaces of these keys."""
        number = {
            space: index
            for index, space in enumerate(dict.fromkeys([*builtins.values(), *schedules.values()]))
        }
        numbered = [
            tuple((task, number[space]) for task, space in spaces.items())
            for spaces in (builtins, schedules)
        ]
        return cls(settings, tuple(number), *numbered)

    def builtins_of(self, task: Task) -> Space:
        """Return the space of NCCL's settings for a task of a key's size and shape."""
        return self.spaces[self._builtins[replace(task, placement=ANYWHERE)]]

    def schedules_of(self, task: Task) -> Space:
        """Return the space of schedules for a task, which communicators elsewhere do not have."""
        number = self._schedules.get(task)
        return Space("executor", ()) if number is None else self.spaces[number]

    @cached_property
    def _builtins(self) -> dict[Task, int]:
        return dict(self.builtins)

    @cached_property
    def _schedules(self) -> dict[Task, int]:
        return dict(self.schedules)


@dataclass(frozen=True)
class RecordedRun:
    """The keys, schedules and search of a run, as far as its record has them."""

    keys: tuple[Task, ...] = ()
    """Keys that were tuned; none: unknown."""
    added: tuple[tuple[Task, str], ...] = ()
    """Those of the keys that were added where NCCL's own choice changes, with the change."""
    shapes: tuple[NamedShape, ...] = ()
    """Shapes that were tuned; none: that of all GPUs alone."""
    laboratory: Laboratory = Laboratory()  # noqa: RUF009 - frozen
    """The faked properties of the host that was measured."""
    base: Settings | None = None
    """Variables of NCCL that every process had; None: unknown."""
    schedules: tuple[RecordedSchedule, ...] = ()
    """Schedules that were tried, ascending by content hash."""
    cost_tables: tuple[tuple[Task, _CostTable | None], ...] = ()
    """What NCCL allows for a task, with its estimates; None: NCCL did not tell."""
    jobs: tuple[RecordedJob, ...] = ()
    """Jobs that timed all keys, with a whole table loaded or with stock NCCL."""
    baseline: Baseline | None = None
    """Choices of a tuner that the search tried first; None: there were none."""
    search: RecordedSearch | None = None
    """None: its steps cannot be taken again."""
    begun_at: str = ""
    """When it began: ISO 8601, UTC; empty: unknown."""
