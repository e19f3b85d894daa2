"""Small correct schedules written step by step, independent of the product's builders.

They work in place and out of place unless noted: results are written to the output buffer, and the
rank's own data is copied to it with `cpy`, which in place copies a chunk onto itself.
"""

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


def i(offset: int) -> ChunkRef:
    return ChunkRef(Buffer.INPUT, offset)


def o(offset: int) -> ChunkRef:
    return ChunkRef(Buffer.OUTPUT, offset)


def s(offset: int) -> ChunkRef:
    return ChunkRef(Buffer.SCRATCH, offset)


def step(
    kind: str,
    src: ChunkRef,
    dst: ChunkRef | None = None,
    count: int = 1,
    dep: tuple[int, int] | None = None,
) -> Step:
    return Step(StepType(kind), src, dst or src, count, StepRef(*dep) if dep else None)


def block(number: int, send: int, recv: int, *steps: Step, channel: int = 0) -> Threadblock:
    return Threadblock(number, send, recv, channel, steps)


def algorithm(
    collective: Collective,
    chunks: int,
    blocks: list[list[Threadblock]],
    scratch: int = 0,
    in_place: bool = True,
    out_of_place: bool = True,
    root: int = 0,
) -> Algorithm:
    ranks = len(blocks)
    full = collective.has_root and in_place
    programs = tuple(
        GpuProgram(
            rank,
            chunks if full else input_chunks(collective, ranks, chunks, rank, root),
            chunks if full else output_chunks(collective, ranks, chunks, rank, root),
            scratch,
            tuple(blocks[rank]),
        )
        for rank in range(ranks)
    )
    channels = 1 + max((b.channel for bs in blocks for b in bs), default=0)
    return Algorithm(
        name=f"hand_{collective}",
        collective=collective,
        protocol=Protocol.SIMPLE,
        channels=channels,
        chunks_per_loop=chunks,
        in_place=in_place,
        out_of_place=out_of_place,
        programs=programs,
        root=root,
    )


def ring_all_reduce(ranks: int) -> Algorithm:
    blocks = []
    for r in range(ranks):
        steps = [step("s", i(r))]
        steps += [step("rrs", i((r - k) % ranks)) for k in range(1, ranks - 1)]
        last = (r + 1) % ranks
        steps.append(step("rrcs", i(last), o(last)))
        steps += [step("rcs", o((r - k) % ranks)) for k in range(ranks - 2)]
        steps.append(step("r", o((r + 2) % ranks)))
        blocks.append([block(0, (r + 1) % ranks, (r - 1) % ranks, *steps)])
    return algorithm(Collective.ALL_REDUCE, ranks, blocks)


def all_pairs_all_reduce(ranks: int, k: int = 1) -> Algorithm:
    """Two phases over scratch: peers' chunks are gathered and reduced, sums are sent to all."""
    blocks = []
    for r in range(ranks):
        peers = [p for p in range(ranks) if p != r]
        reducer = len(peers)
        talk = [
            block(
                b,
                p,
                p,
                step("s", i(p * k), s(b * k), k),
                step("r", s(b * k), count=k),
                step("s", o(r * k), count=k, dep=(reducer, ranks - 1)),
                step("r", o(p * k), count=k),
            )
            for b, p in enumerate(peers)
        ]
        sums = [step("re", s(b * k), o(r * k), k, dep=(b, 1)) for b in range(len(peers))]
        blocks.append([*talk, block(reducer, -1, -1, step("cpy", i(r * k), o(r * k), k), *sums)])
    return algorithm(Collective.ALL_REDUCE, ranks * k, blocks, scratch=(ranks - 1) * k)


def all_pairs_all_gather(ranks: int, k: int = 1) -> Algorithm:
    blocks = []
    for r in range(ranks):
        peers = [p for p in range(ranks) if p != r]
        talk = [
            block(b, p, p, step("s", i(0), o(r * k), k), step("r", o(p * k), count=k))
            for b, p in enumerate(peers)
        ]
        blocks.append([*talk, block(len(peers), -1, -1, step("cpy", i(0), o(r * k), k))])
    return algorithm(Collective.ALL_GATHER, ranks * k, blocks)


def ring_all_gather(ranks: int) -> Algorithm:
    """Receives and sends are in different threadblocks, ordered by dependences."""
    blocks = []
    for r in range(ranks):
        sends = [step("s", i(0), o(r))]
        sends += [step("s", o((r - k) % ranks), dep=(1, k - 1)) for k in range(1, ranks - 1)]
        takes = [step("r", o((r - k) % ranks)) for k in range(1, ranks)]
        blocks.append(
            [
                block(0, (r + 1) % ranks, -1, *sends),
                block(1, -1, (r - 1) % ranks, *takes),
                block(2, -1, -1, step("cpy", i(0), o(r))),
            ]
        )
    return algorithm(Collective.ALL_GATHER, ranks, blocks)


def ring_reduce_scatter(ranks: int, k: int = 1) -> Algorithm:
    blocks = []
    for r in range(ranks):
        steps = [step("s", i((r - 1) % ranks * k), count=k)]
        steps += [step("rrs", i((r - j) % ranks * k), count=k) for j in range(2, ranks)]
        steps.append(step("rrc", i(r * k), o(0), count=k))
        blocks.append([block(0, (r + 1) % ranks, (r - 1) % ranks, *steps)])
    return algorithm(Collective.REDUCE_SCATTER, ranks * k, blocks)


def direct_alltoall(ranks: int) -> Algorithm:
    """Out of place only: in place a chunk would be overwritten before it is sent."""
    blocks = []
    for r in range(ranks):
        peers = [p for p in range(ranks) if p != r]
        talk = [block(b, p, p, step("s", i(p), o(r)), step("r", o(p))) for b, p in enumerate(peers)]
        blocks.append([*talk, block(len(peers), -1, -1, step("cpy", i(r), o(r)))])
    return algorithm(Collective.ALLTOALL, ranks, blocks, in_place=False)


def chain_broadcast(ranks: int, root: int) -> Algorithm:
    chunks = 2
    blocks: list[list[Threadblock]] = [[] for _ in range(ranks)]
    for position in range(ranks):
        r = (root + position) % ranks
        send = (r + 1) % ranks if position < ranks - 1 else -1
        recv = (r - 1) % ranks if position else -1
        if not position:
            steps = [step("s", i(c)) for c in range(chunks)] + [step("cpy", i(0), o(0), chunks)]
        else:
            steps = [step("rcs" if send >= 0 else "r", o(c)) for c in range(chunks)]
        blocks[r] = [block(0, send, recv, *steps)]
    return algorithm(Collective.BROADCAST, chunks, blocks, root=root)


def chain_reduce(ranks: int, root: int) -> Algorithm:
    chunks = 2
    blocks: list[list[Threadblock]] = [[] for _ in range(ranks)]
    for position in range(ranks):
        r = (root + 1 + position) % ranks
        send = (r + 1) % ranks if r != root else -1
        recv = (r - 1) % ranks if position else -1
        kind = "s" if not position else "rrc" if r == root else "rrs"
        steps = [step(kind, i(c), o(c)) for c in range(chunks)]
        blocks[r] = [block(0, send, recv, *steps)]
    return algorithm(Collective.REDUCE, chunks, blocks, root=root)


def all_schedules() -> list[Algorithm]:
    """Return one or more schedules of every collective, for 2 to 4 ranks."""
    return [
        *(ring_all_reduce(n) for n in (2, 3, 4)),
        *(all_pairs_all_reduce(n, k) for n in (2, 3, 4) for k in (1, 2)),
        *(all_pairs_all_gather(n, k) for n in (2, 3, 4) for k in (1, 3)),
        *(ring_all_gather(n) for n in (2, 3, 4)),
        *(ring_reduce_scatter(n, k) for n in (2, 3, 4) for k in (1, 2)),
        *(direct_alltoall(n) for n in (2, 3, 4)),
        *(chain_broadcast(n, root) for n in (2, 4) for root in (0, 1)),
        *(chain_reduce(n, root) for n in (2, 4) for root in (0, 1)),
    ]
