"""Hand-written schedules for the tests of programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Protocol,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.ir.contents import input_chunks, output_chunks
from synthesizer.programs.compiler import read_program

RawStep = tuple[str, str, int, str, int, int, tuple[int, int]]
"""Type, source buffer and offset, destination buffer and offset, count, awaited step."""
Block = tuple[int, int, Sequence[RawStep]]
"""Send peer, receive peer, steps."""
ALONE = (-1, -1)


def by_hand(
    collective: Collective,
    chunks: int,
    ranks: Sequence[Sequence[Block]],
    *,
    scratch: int = 0,
    name: str = "by_hand",
    root: int = 0,
) -> Algorithm:
    sizes = (collective, len(ranks), chunks)
    return Algorithm(
        name=name,
        collective=collective,
        protocol=Protocol.LL,
        channels=1,
        chunks_per_loop=chunks,
        in_place=True,
        out_of_place=True,
        programs=tuple(
            GpuProgram(
                rank,
                input_chunks(*sizes, rank, root),
                output_chunks(*sizes, rank, root),
                scratch,
                tuple(
                    Threadblock(number, send, receive, 0, tuple(map(step, steps)))
                    for number, (send, receive, steps) in enumerate(blocks)
                ),
            )
            for rank, blocks in enumerate(ranks)
        ),
        root=root,
    )


def step(raw: RawStep) -> Step:
    kind, source, src, target, dst, count, waits = raw
    return Step(
        StepType(kind),
        ChunkRef(Buffer(source), src),
        ChunkRef(Buffer(target), dst),
        count,
        None if waits == ALONE else StepRef(*waits),
    )


def with_blocks(
    algorithm: Algorithm, change: Callable[[Threadblock], Threadblock], *ranks: int
) -> Algorithm:
    """Return the schedule with changed threadblocks of these ranks, or of all."""
    return replace(
        algorithm,
        programs=tuple(
            replace(gpu, threadblocks=tuple(map(change, gpu.threadblocks)))
            if gpu.rank in (ranks or range(algorithm.ranks))
            else gpu
            for gpu in algorithm.programs
        ),
    )


def with_steps(algorithm: Algorithm, change: Callable[[Step], Step], *ranks: int) -> Algorithm:
    """Return the schedule with changed steps of these ranks, or of all."""
    return with_blocks(
        algorithm, lambda block: replace(block, steps=tuple(map(change, block.steps))), *ranks
    )


def exchange(name: str = "exchange") -> Algorithm:
    """all_reduce of two ranks: each sends its buffer, then adds its peer's."""
    blocks = [
        (
            1 - rank,
            1 - rank,
            [
                ("s", "i", 0, "s", 0, 1, ALONE),
                ("r", "s", 0, "s", 0, 1, ALONE),
                ("cpy", "i", 0, "o", 0, 1, ALONE),
            ],
        )
        for rank in range(2)
    ]
    adds = (-1, -1, [("re", "s", 0, "o", 0, 1, (0, 2))])
    ranks = [[block, adds] for block in blocks]
    return by_hand(Collective.ALL_REDUCE, 1, ranks, scratch=1, name=name)


def halves() -> Algorithm:
    """all_reduce of two ranks: each adds up one half and sends it back."""
    ranks = []
    for rank in range(2):
        peer = 1 - rank
        send = ("s", "i", peer, "o", peer, 1, ALONE)
        add = ("rrcs", "i", rank, "o", rank, 1, ALONE)
        receive = ("r", "o", peer, "o", peer, 1, ALONE)
        ranks.append([(peer, peer, [send, add, receive])])
    return by_hand(Collective.ALL_REDUCE, 2, ranks)


def chain() -> Algorithm:
    """broadcast of three ranks in a row, two chunks."""
    moves = [("i", "s", 1, -1), ("o", "rcs", 2, 0), ("o", "r", -1, 1)]
    ranks = [
        [(send, receive, [(kind, buffer, c, "o", c, 1, ALONE) for c in range(2)])]
        for buffer, kind, send, receive in moves
    ]
    ranks[0].append((-1, -1, [("cpy", "i", 0, "o", 0, 2, ALONE)]))
    return by_hand(Collective.BROADCAST, 2, ranks)


def read_steps(program: bytes) -> Algorithm:
    """Return the schedule of a program of one node."""
    schedule = read_program(program, "p")
    assert isinstance(schedule, Algorithm)
    return schedule
