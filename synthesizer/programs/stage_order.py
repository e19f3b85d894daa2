"""The order of a stage's statements: list scheduling on the ports of the ranks.

A thread of a stage's kernel takes the steps of its rank in the order of statements, receives as
late as they may (`tuccl/runtime/executor/statement_plan.cc`). So the order decides which data each
port carries when. Of the statements whose data is there the one whose ports are free first comes
next, of several the one with the longest chain of statements behind it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from synthesizer.ir.program import Program, Statement
from synthesizer.lower.merging import waits_of


def in_good_order(
    statements: Sequence[Statement], buffers: Program, node_of_rank: Sequence[int]
) -> tuple[Statement, ...]:
    """Return statements with the same effect, node after node, each in an order that waits little.

    Args:
        statements: The statements of a stage, in an order that is right.
        buffers: The buffers, and whether calls may be in place.
        node_of_rank: Node of each rank.
    """
    of_node: defaultdict[int, list[Statement]] = defaultdict(list)
    for statement in statements:
        of_node[node_of_rank[statement.dst.rank]].append(statement)
    return tuple(
        statement for node in sorted(of_node) for statement in _scheduled(of_node[node], buffers)
    )


def _scheduled(statements: Sequence[Statement], buffers: Program) -> Iterator[Statement]:
    waits = waits_of(replace(buffers, statements=list(statements)))
    followers = [sorted(after) for after in waits.after]
    awaited = [len(before) for before in waits.before]
    behind = _chunks_behind(statements, followers)
    sends_from: defaultdict[int, float] = defaultdict(float)
    receives_from: defaultdict[int, float] = defaultdict(float)
    ready_from = [0.0] * len(statements)

    def starts(number: int) -> float:
        src, dst = statements[number].src.rank, statements[number].dst.rank
        into = receives_from[dst] if src != dst else 0.0
        return max(sends_from[src], into, ready_from[number])

    def key(number: int) -> tuple[float, float, int]:
        return starts(number), -behind[number], number

    ready = [key(number) for number, count in enumerate(awaited) if not count]
    heapq.heapify(ready)
    while ready:
        _, _, number = heapq.heappop(ready)
        # Ports have become busier since. Starts only grow, so the least current one is next.
        if ready and (current := key(number)) > ready[0]:
            heapq.heappush(ready, current)
            continue
        statement = statements[number]
        end = starts(number) + statement.dst.count
        sends_from[statement.src.rank] = end
        if statement.remote:
            receives_from[statement.dst.rank] = end
        yield statement
        for follower in followers[number]:
            ready_from[follower] = max(ready_from[follower], end)
            awaited[follower] -= 1
            if not awaited[follower]:
                heapq.heappush(ready, key(follower))


def _chunks_behind(
    statements: Sequence[Statement], followers: Sequence[Sequence[int]]
) -> list[float]:
    """Return the chunks of the longest chain that begins with each statement."""
    behind = [0.0] * len(statements)
    for number in reversed(range(len(statements))):
        after = max((behind[follower] for follower in followers[number]), default=0.0)
        behind[number] = statements[number].dst.count + after
    return behind
