"""`StagedLoad`: demands of a schedule in stages and rounds, for chunks of one byte.

A thread of a stage's kernel takes the steps of its rank in order, and waits for the lines of its
own messages alone. So a stage takes as long as its longest chain of chunks that are sent and
received: half a handover at each end. On the links the messages of a rank follow one another in the
same order; a port takes as long as all that pass it need. A round has all its messages on the
network at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synthesizer.ir.program import Statement
from synthesizer.programs.phases import PhasedSchedule, Statements
from tuccl.models.across_hosts.gpu_ways import GpuWays, shared_us_per_byte

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
    network_us_per_byte: float
    """Time until all messages have passed, for chunks of one byte."""


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
    nodes = phased.node_of_rank()
    return StagedLoad(
        tuple(_slowest_node(stage, nodes, ways) for stage in phased.stages),
        tuple(_round_load(sent, ways) for sent in phased.rounds),
        max((_arrivals(stage) for stage in phased.stages), default=0),
    )


def _slowest_node(stage: Statements, nodes: Sequence[int], ways: GpuWays) -> StageLoad | None:
    of_node: dict[int, list[Statement]] = {}
    for statement in stage:
        of_node.setdefault(nodes[statement.dst.rank], []).append(statement)
    loads = [_stage_load(own, ways) for own in of_node.values()]
    if not loads:
        return None
    return StageLoad(
        max(load.handovers for load in loads), max(load.wire_us_per_byte for load in loads)
    )


def _stage_load(statements: Sequence[Statement], ways: GpuWays) -> StageLoad:
    ends: defaultdict[int, float] = defaultdict(float)
    wire_ends: defaultdict[int, float] = defaultdict(float)
    on_port: Counter[str] = Counter()
    gb_per_s: dict[str, float] = {}
    for statement in statements:
        src, dst, chunks = statement.src.rank, statement.dst.rank, statement.dst.count
        begun = ends[src]
        ends[src] += _HALF * chunks
        if src == dst:
            continue
        # The first chunk is there when it is sent, each further one as soon.
        ends[dst] = max(ends[dst] + _HALF * chunks, begun + _HALF * (chunks + 1))
        own, *shared = ways.inside[src, dst]
        wire_ends[src] += chunks / own.bandwidth_gb_per_s
        wire_ends[dst] = max(wire_ends[dst], wire_ends[src])
        for port in shared:
            on_port[port.name] += chunks
            gb_per_s[port.name] = port.bandwidth_gb_per_s
    shares = [chunks / gb_per_s[name] for name, chunks in on_port.items()]
    return StageLoad(max(ends.values()), max([*wire_ends.values(), *shares, 0.0]) / 1e3)


def _round_load(sent: Statements, ways: GpuWays) -> RoundLoad:
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
        shared_us_per_byte(amounts, ways.across(amounts)),
    )


def _arrivals(statements: Iterable[Statement]) -> int:
    arrived: Counter[int] = Counter()
    for statement in statements:
        if statement.remote:
            arrived[statement.dst.rank] += statement.dst.count
    return max(arrived.values(), default=0)
