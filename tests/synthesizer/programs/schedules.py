"""Hand-written schedules for the tests of programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, Step, Threadblock
from synthesizer.programs.compiler import read_program
from tests.synthesizer.hand_schedules import algorithm, block, i, o, s, step


def with_blocks(
    schedule: Algorithm, change: Callable[[Threadblock], Threadblock], *ranks: int
) -> Algorithm:
    """Return the schedule with changed threadblocks of these ranks, or of all."""
    return replace(
        schedule,
        programs=tuple(
            replace(gpu, threadblocks=tuple(map(change, gpu.threadblocks)))
            if gpu.rank in (ranks or range(schedule.ranks))
            else gpu
            for gpu in schedule.programs
        ),
    )


def with_steps(schedule: Algorithm, change: Callable[[Step], Step], *ranks: int) -> Algorithm:
    """Return the schedule with changed steps of these ranks, or of all."""
    return with_blocks(
        schedule, lambda block: replace(block, steps=tuple(map(change, block.steps))), *ranks
    )


def exchange(name: str = "exchange") -> Algorithm:
    """all_reduce of two ranks: each sends its buffer, then adds its peer's."""
    moves = (step("s", i(0), s(0)), step("r", s(0)), step("cpy", i(0), o(0)))
    adds = block(1, -1, -1, step("re", s(0), o(0), dep=(0, 2)))
    ranks = [[block(0, 1 - rank, 1 - rank, *moves), adds] for rank in range(2)]
    return replace(algorithm(Collective.ALL_REDUCE, 1, ranks, scratch=1), name=name)


def halves() -> Algorithm:
    """all_reduce of two ranks: each adds up one half and sends it back."""
    ranks = []
    for rank, peer in ((0, 1), (1, 0)):
        steps = (step("s", i(peer), o(peer)), step("rrcs", i(rank), o(rank)), step("r", o(peer)))
        ranks.append([block(0, peer, peer, *steps)])
    return algorithm(Collective.ALL_REDUCE, 2, ranks)


def chain() -> Algorithm:
    """broadcast of three ranks in a row, two chunks."""
    ranks = [
        [block(0, send, receive, *(step(kind, at(c), o(c)) for c in range(2)))]
        for at, kind, send, receive in ((i, "s", 1, -1), (o, "rcs", 2, 0), (o, "r", -1, 1))
    ]
    ranks[0].append(block(1, -1, -1, step("cpy", i(0), o(0), 2)))
    return algorithm(Collective.BROADCAST, 2, ranks)


def read_steps(program: bytes) -> Algorithm:
    """Return the schedule of a program of one node."""
    schedule = read_program(program, "p")
    assert isinstance(schedule, Algorithm)
    return schedule
