"""What a worker can be asked about its engine: the methods of `Engine` as messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tuccl.crew.messages import Request
from tuccl.measuring.workers.engine import Call


@dataclass(frozen=True, slots=True)
class Opened:
    """Answer to `Open`: the versions of library, driver and device."""

    text: str
    """Versions in one line, for display."""
    nccl: int | None
    """NCCL's version code, if there is an NCCL."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Answer to `Time`: us per call, by launch."""

    times_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EngineRequest(Request):
    """Root of the requests about an engine."""

    duty: ClassVar[str] = "engine"


@dataclass(frozen=True, slots=True)
class MakeGroupId(EngineRequest):
    """`Engine.make_group_id`, of rank 0; answered with hexadecimal digits."""

    engine: str
    """Name of the worker's engine."""


@dataclass(frozen=True, slots=True)
class Prepare(EngineRequest):
    """`Engine.prepare`."""

    engine: str
    """Name of the worker's engine."""
    local_rank: int


@dataclass(frozen=True, slots=True)
class Open(EngineRequest):
    """`Engine.open`."""

    answer: ClassVar[type[Opened]] = Opened
    engine: str
    rank: int
    ranks: int
    local_rank: int
    group_id: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class Split(EngineRequest):
    """`Engine.split`."""

    colour: int
    ranks: int
    rank: int


@dataclass(frozen=True, slots=True)
class Time(EngineRequest):
    """`Engine.time`."""

    answer: ClassVar[type[Timed]] = Timed
    call: Call
    launches: int


@dataclass(frozen=True, slots=True)
class CheckOrder(EngineRequest):
    """`Engine.check_order`; answered with its finding."""

    call: Call
    local_ranks: int
    shift: int


@dataclass(frozen=True, slots=True)
class Tell(EngineRequest):
    """One of the engine's methods on a call; answered with its text, empty if it has none."""

    what: Literal["check", "ran_by", "cost_table"]
    call: Call
