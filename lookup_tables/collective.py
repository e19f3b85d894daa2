"""`Collective`: the collectives, with all facts that differ from one to another.

A collective is described by what its ranks give and get. Ranks that give are all ranks or the root,
likewise those that get. A rank gives the same to all receivers, or `splits` its buffer into a part
for each; a rank that gets `joins` what the senders gave, a part from each, or adds it up
(`reduces`). Buffers, results, bounds, models and checks follow from these facts, so that other
modules ask for them instead of listing collectives.

Sizes are those of nccl-tests, the larger of a rank's two buffers. A part is the share of one rank.
`tuccl/runtime/collectives.h` has the same table in C, and tests compare both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from tuccl.errors import UsageError


@dataclass(frozen=True, slots=True)
class _Flow:
    """What ranks give and get."""

    from_root: bool = False
    to_root: bool = False
    splits: bool = False
    joins: bool = False
    reduces: bool = False


class Collective(StrEnum):
    """The collectives, with the names of nccl-tests; the first five in the order of ncclFunc_t."""

    BROADCAST = "broadcast", "Broadcast", _Flow(from_root=True)
    REDUCE = "reduce", "Reduce", _Flow(to_root=True, reduces=True)
    ALL_GATHER = "all_gather", "AllGather", _Flow(joins=True)
    REDUCE_SCATTER = "reduce_scatter", "ReduceScatter", _Flow(splits=True, reduces=True)
    ALL_REDUCE = "all_reduce", "AllReduce", _Flow(reduces=True)
    ALLTOALL = "alltoall", "AlltoAll", _Flow(splits=True, joins=True), (2, 28)
    CUSTOM = "custom", "", _Flow()
    """An operation of a schedule alone, without a known result."""

    nccl_name: str
    """NCCL's function, without `nccl`."""
    flow: _Flow
    since: tuple[int, ...]
    """The first version of NCCL that has it; empty if every version does."""

    def __new__(cls, name: str, nccl_name: str, flow: _Flow, since: tuple[int, ...] = ()) -> Self:
        """Return a member, which is its name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.nccl_name, member.flow, member.since = nccl_name, flow, since
        return member

    @property
    def code(self) -> int:
        """The number in bundles and programs."""
        return COLLECTIVES.index(self)

    @property
    def short_name(self) -> str:
        """The name without underscores, as MSCCL and NCCL's CSV tuner have it."""
        return self.value.replace("_", "")

    @property
    def asks_tuner(self) -> bool:
        """Whether NCCL asks its tuner about calls; else schedules alone can be chosen."""
        return self in ASKED_ABOUT

    @property
    def from_root(self) -> bool:
        """Whether the root alone has an input."""
        return self.flow.from_root

    @property
    def to_root(self) -> bool:
        """Whether the root alone has an output."""
        return self.flow.to_root

    @property
    def has_root(self) -> bool:
        """Whether a call names a root."""
        return self.from_root or self.to_root

    @property
    def splits(self) -> bool:
        """Whether an input has a part for each receiver."""
        return self.flow.splits

    @property
    def joins(self) -> bool:
        """Whether an output has a part from each sender."""
        return self.flow.joins

    @property
    def reduces(self) -> bool:
        """Whether contributions of several ranks are added up."""
        return self.flow.reduces

    @property
    def divides(self) -> bool:
        """Whether the larger buffer has a part for each rank."""
        return self.splits or self.joins

    @property
    def is_paired(self) -> bool:
        """Whether each byte goes from one sender to one receiver."""
        return not self.reduces and (self.splits or self.to_root)

    @property
    def input_is_part(self) -> bool:
        """Whether the input is one part; in place, the rank's part of the output."""
        return self.joins and not self.splits

    @property
    def output_is_part(self) -> bool:
        """Whether the output is one part; in place, the rank's part of the input."""
        return self.splits and not self.joins

    @property
    def has_place(self) -> bool:
        """Whether NCCL takes calls in place."""
        return not (self.splits and self.joins)

    @property
    def passes(self) -> int:
        """How often data goes through all ranks: 2 if sums are collected and spread."""
        return 2 if self.reduces and not (self.to_root or self.splits) else 1

    def parts(self, ranks: int) -> int:
        """Return the parts of the larger buffer."""
        return ranks if self.divides else 1

    def bus_factor(self, ranks: int) -> float:
        """Return busbw over algbw (nccl-tests, doc/PERFORMANCE.md)."""
        whole = self.has_root and not self.divides
        return 1.0 if whole else self.passes * (ranks - 1) / ranks

    @classmethod
    def named(cls, name: str) -> Collective:
        """Return the collective of NCCL that has this name.

        Raises:
            ValueError: There is none.
        """
        for collective in COLLECTIVES:
            if collective.value == name:
                return collective
        msg = f"{name!r} is not a collective of NCCL"
        raise ValueError(msg)


COLLECTIVES: tuple[Collective, ...] = tuple(
    each for each in Collective if each is not Collective.CUSTOM
)
"""The collectives of NCCL, by code."""
ASKED_ABOUT = COLLECTIVES[:5]
"""Those of ncclFunc_t: NCCL asks its tuner about them, and has estimates of them."""


def parse_collective(name: str) -> Collective:
    """Return a collective by the name that a user gives; `AllReduce` and `allreduce` work too.

    Raises:
        UsageError: The name is unknown.
    """
    wanted = name.lower().replace("_", "").replace("-", "")
    for collective in COLLECTIVES:
        if collective.short_name == wanted:
            return collective
    raise UsageError(f"operation {name!a:.60} is unknown: use one of {', '.join(COLLECTIVES)}")
