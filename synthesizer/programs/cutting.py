"""The cut: any proved schedule as stages inside nodes and rounds on the network.

The cut follows the schedule's data flow alone. Threadblocks, channels and the order of steps are
found anew for each stage, by the same lowering as everywhere. The rounds are as few as the data
flow allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lookup_tables.collective import Collective
from lookup_tables.program_header import MOST_RANKS
from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.program import Chunk, Program, Statement
from synthesizer.lower.merging import merged
from synthesizer.programs.data_flow import data_flow_of
from synthesizer.programs.layout import MOST_CHUNKS, MOST_ROUNDS
from synthesizer.programs.phases import PhasedSchedule, in_turn
from synthesizer.programs.placing import Places, Timing, places_of, timing_of
from synthesizer.programs.stage_order import in_good_order
from tuccl.errors import NoProgramError

_LEAST_NODES = 2


class _Work(NamedTuple):
    stages: list[list[Statement]]
    messages: list[list[Statement]]
    beside: list[list[Statement]]

    def inside(self, time: int) -> list[Statement]:
        """Return the statements of a stage, or of what runs beside a round."""
        return (self.beside if time % 2 else self.stages)[time // 2]


def cut(algorithm: Algorithm, node_sizes: Sequence[int]) -> PhasedSchedule:
    """Cut a schedule into stages and rounds, for calls in place and out of place.

    The ranks of a node follow one another.

    Raises:
        NoProgramError: The schedule is not proved, has no result to keep, or exceeds a limit.
    """
    _check(algorithm, node_sizes)
    node_of_rank = [node for node, size in enumerate(node_sizes) for _ in range(size)]
    flow = data_flow_of(algorithm)
    timing = timing_of(flow, node_of_rank)
    if timing.rounds > MOST_ROUNDS:
        raise NoProgramError(
            f"a chunk crosses between nodes {timing.rounds} times, one after the second; "
            f"at most {MOST_ROUNDS} rounds are allowed"
        )
    collective = algorithm.collective
    chunks, root = algorithm.chunks_per_loop // collective.parts(algorithm.ranks), algorithm.root
    buffers = Program(collective, algorithm.ranks, chunks, root, in_place=collective.has_place)
    places = places_of(timing, buffers)
    if max(places.scratch_chunks) > MOST_CHUNKS:
        raise NoProgramError(
            f"a rank needs {max(places.scratch_chunks)} scratch chunks, at most {MOST_CHUNKS} "
            "are allowed"
        )
    work = _work(timing, places)

    def in_order(inside: Sequence[Statement]) -> tuple[Statement, ...]:
        return in_good_order(merged(inside, buffers), buffers, node_of_rank)

    return PhasedSchedule(
        name="",
        collective=collective,
        node_sizes=tuple(node_sizes),
        chunks=chunks,
        scratch_chunks=tuple(places.scratch_chunks),
        phases=in_turn(
            tuple(in_order(stage) for stage in work.stages),
            tuple(
                merged(sorted(sent, key=_by_peers), buffers) + in_order(beside)
                for sent, beside in zip(work.messages, work.beside, strict=True)
            ),
        ),
        root=root,
    )


def _check(algorithm: Algorithm, node_sizes: Sequence[int]) -> None:
    if algorithm.collective is Collective.CUSTOM:
        raise NoProgramError("no call of NCCL asks for a custom operation")
    if sum(node_sizes) != algorithm.ranks or min(node_sizes, default=0) < 1:
        raise NoProgramError(
            f"nodes of {' + '.join(map(str, node_sizes))} ranks do not hold its"
            f" {algorithm.ranks} ranks"
        )
    if len(node_sizes) < _LEAST_NODES:
        raise NoProgramError("one node has no network to cross")
    if max(node_sizes) > MOST_RANKS:
        raise NoProgramError(
            f"a node has {max(node_sizes)} ranks, an executor serves at most {MOST_RANKS}"
        )
    if algorithm.chunks_per_loop > MOST_CHUNKS:
        raise NoProgramError(
            f"it has {algorithm.chunks_per_loop} chunks, at most {MOST_CHUNKS} are allowed"
        )


def _by_peers(statement: Statement) -> tuple[object, ...]:
    src, dst = statement.src, statement.dst
    return (src.rank, dst.rank, src.buffer, dst.buffer, src.offset, dst.offset)


def _work(timing: Timing, places: Places) -> _Work:
    rounds = range(timing.rounds)
    work = _Work([[], *([] for _ in rounds)], [[] for _ in rounds], [[] for _ in rounds])
    absorbed = set(places.fused.values())
    values = timing.flow.values
    # Output chunks that hold input values from the first stage on.
    copied = {
        number: chunk
        for time, number, chunk in places.late
        if values[number].is_input and time == 0
    }
    for number, value in enumerate(values):
        if not timing.needed[number] or value.is_input or number in absorbed:
            continue
        at = timing.made[number]
        if timing.crosses[number]:
            work.messages[at // 2].append(_message(timing, places, number, copied))
        elif value.is_arrival:
            work.inside(at).append(_message(timing, places, number, {}))
        else:
            work.inside(at).extend(_sum(timing, places, number))
    for time, number, target in places.late:
        work.inside(time).append(Statement(places.place[number], target, None, 0))
    return work


def _message(timing: Timing, places: Places, number: int, copied: Mapping[int, Chunk]) -> Statement:
    """Return the copy of an arrival, from the output if that holds the same (`copied`).

    What was gathered from other ranks lies beside it there, and both are one message.
    """
    (source,) = timing.flow.values[number].operands
    return Statement(copied.get(source, places.place[source]), places.place[number], None, 0)


def _sum(timing: Timing, places: Places, number: int) -> list[Statement]:
    """Return the statements that add two values at the place of their sum."""
    target = places.place[number]
    left, right = timing.flow.values[number].operands
    fused, head = places.fused.get(number), places.head.get(number)
    if fused is not None:
        (source,) = timing.flow.values[fused].operands
        second = places.place[left if fused == right else right]
        return [Statement(places.place[source], target, second, 0)]
    if head is not None:
        second = places.place[left if head == right else right]
        return [Statement(second, target, target, 0)]
    first, second = places.place[left], places.place[right]
    return [Statement(first, target, None, 0), Statement(second, target, target, 0)]
