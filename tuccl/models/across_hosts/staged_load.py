"""`StagedLoad`: demands of a schedule in stages and rounds, for chunks of one byte.

A thread of a stage's kernel takes the steps of its rank in order, receives as late as they may
(`tuccl/runtime/executor/statement_plan.cc`), and waits for the lines of its own messages alone. So
a stage takes as long as its longest chain of chunks that are sent and received: half a handover at
each end. On the links the messages of a rank follow one another in the
same order; a port takes as long as all that pass it need. A round has all its messages on the
network at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sketches.sketch import Port
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs.phases import PhasedSchedule, Statements
from tuccl.models.across_hosts.gpu_ways import GpuWays

_HALF = 0.5
"""Handover of a chunk at one end of its message."""


@dataclass(frozen=True, slots=True)
class StageLoad:
    """A stage on the node that takes longest."""

    handovers: float
    """Handovers of chunks in the longest chain."""
    wire_us_per_byte: float
    """Time on the links, for chunks of one byte."""


@dataclass(frozen=True, slots=True)
class RoundLoad:
    """A round on the network."""

    messages: int
    """Messages of the rank that sends or receives most."""
    message_chunks: int
    """Chunks of the largest message."""
    rank_chunks: int
    """Chunks of the rank that sends or receives most."""
    peer_chunks: int
    """Most chunks that one rank sends another."""
    network_us_per_byte: float
    """Time until all messages have passed, for chunks of one byte."""
    beside: StageLoad | None
    """What runs inside nodes beside the messages; None if nothing does."""


@dataclass(frozen=True, slots=True)
class StagedLoad:
    """All stages and rounds."""

    stages: tuple[StageLoad | None, ...]
    """None if nothing runs in the stage."""
    rounds: tuple[RoundLoad, ...]
    arrivals: int
    """Most chunks that arrive at one rank in one stage, which share the staging memory."""


def staged_load(phased: PhasedSchedule, ways: GpuWays) -> StagedLoad:
    """Return what a schedule asks of a machine."""
    # A call may be in place, where input and output are one memory.
    addresses = [phased.addresses(rank, in_place=True) for rank in range(phased.ranks)]
    slowest = partial(_slowest_node, nodes=phased.node_of_rank(), addresses=addresses, ways=ways)
    return StagedLoad(
        tuple(map(slowest, phased.stages)),
        tuple(
            _round_load(sent, slowest(beside), ways)
            for sent, beside in zip(phased.messages, phased.beside, strict=True)
        ),
        max(map(_arrivals, (*phased.stages, *phased.beside)), default=0),
    )


def _slowest_node(
    stage: Statements, nodes: Sequence[int], addresses: _Addresses, ways: GpuWays
) -> StageLoad | None:
    runs: defaultdict[int, _StageRun] = defaultdict(lambda: _StageRun(addresses, ways))
    for statement in stage:
        runs[nodes[statement.dst.rank]].add(statement)
    loads = [each.load() for each in runs.values()]
    if not loads:
        return None
    return StageLoad(
        max(load.handovers for load in loads), max(load.wire_us_per_byte for load in loads)
    )


_Addresses = Sequence[Mapping[Buffer, int]]
"""Address of each buffer, by rank."""
_Span = tuple[int, int]
"""Addresses of a rank, from the first to before the last."""


class _Message(NamedTuple):
    """A message that waits in its lines until its receiver looks for it."""

    chunks: int
    target: _Span
    kept: tuple[_Span, ...]
    """What nothing may overwrite before the receive."""
    begun: float
    """Handovers before its first chunk was sent."""
    wire_end: float


class _StageRun:
    """The ranks of a node in a stage, statement after statement."""

    def __init__(self, addresses: _Addresses, ways: GpuWays) -> None:
        self._addresses = addresses
        self._ways = ways
        self._ends: defaultdict[int, float] = defaultdict(float)
        self._wire_ends: defaultdict[int, float] = defaultdict(float)
        self._waiting: defaultdict[int, list[_Message]] = defaultdict(list)
        self._on_port: Counter[Port] = Counter()

    def add(self, statement: Statement) -> None:
        """Take a statement: a send, or a copy or sum of one rank."""
        src, dst, chunks = statement.src.rank, statement.dst.rank, statement.dst.count
        read, target = self._span(statement.src), self._span(statement.dst)
        self._receive(src, self._needed(src, read, target if src == dst else None))
        begun = self._ends[src]
        self._ends[src] += _HALF * chunks
        if src == dst:
            return
        own, *shared = self._ways.inside[src, dst]
        self._wire_ends[src] += chunks / own.bandwidth_gb_per_s
        self._on_port.update(dict.fromkeys(shared, chunks))
        operand = statement.operand
        kept = (target,) if operand is None else (target, self._span(operand))
        message = _Message(chunks, target, kept, begun, self._wire_ends[src])
        self._waiting[dst].append(message)

    def load(self) -> StageLoad:
        """Return the load, when all ranks have received what waits for them."""
        for rank, waiting in self._waiting.items():
            self._receive(rank, len(waiting))
        shares = [chunks / port.bandwidth_gb_per_s for port, chunks in self._on_port.items()]
        wires = max([*self._wire_ends.values(), *shares, 0.0])
        return StageLoad(max(self._ends.values()), wires / 1e3)

    def _needed(self, rank: int, read: _Span, written: _Span | None) -> int:
        """Return how many of the messages for a rank must be received before a statement."""
        waiting = self._waiting[rank]
        for count in range(len(waiting), 0, -1):
            message = waiting[count - 1]
            if _overlap(message.target, read):
                return count
            if written is not None and any(_overlap(kept, written) for kept in message.kept):
                return count
        return 0

    def _span(self, chunk: Chunk) -> _Span:
        first = self._addresses[chunk.rank][chunk.buffer] + chunk.offset
        return first, first + chunk.count

    def _receive(self, rank: int, count: int) -> None:
        waiting = self._waiting[rank]
        for message in waiting[:count]:
            # The first chunk is there when it is sent, each further one as soon.
            arrived = message.begun + _HALF * (message.chunks + 1)
            self._ends[rank] = max(self._ends[rank] + _HALF * message.chunks, arrived)
            self._wire_ends[rank] = max(self._wire_ends[rank], message.wire_end)
        del waiting[:count]


def _overlap(a: _Span, b: _Span) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _round_load(sent: Statements, beside: StageLoad | None, ways: GpuWays) -> RoundLoad:
    amounts: Counter[tuple[int, int]] = Counter()
    messages: Counter[tuple[int, bool]] = Counter()
    chunks: Counter[tuple[int, bool]] = Counter()
    for statement in sent:
        src, dst, count = statement.src.rank, statement.dst.rank, statement.dst.count
        amounts[src, dst] += count
        for end in ((src, True), (dst, False)):
            messages[end] += 1
            chunks[end] += count
    return RoundLoad(
        max(messages.values(), default=1),
        max((statement.dst.count for statement in sent), default=0),
        max(chunks.values(), default=0),
        max(amounts.values(), default=0),
        ways.across_us_per_byte(amounts),
        beside,
    )


def _arrivals(statements: Iterable[Statement]) -> int:
    arrived: Counter[int] = Counter()
    for statement in statements:
        if statement.remote:
            arrived[statement.dst.rank] += statement.dst.count
    return max(arrived.values(), default=0)
