"""Schedules written by hand, as MSCCL XML, that the tests of programs share."""

from collections.abc import Sequence

Step = tuple[str, str, int, str, int, int, tuple[int, int]]
"""Type, source buffer and offset, destination buffer and offset, count, what it waits for."""
Block = tuple[int, int, Sequence[Step]]
"""Send peer, receive peer, steps."""
ALONE = (-1, -1)


def msccl_xml(
    operation: str,
    chunks: int,
    ranks: Sequence[Sequence[Block]],
    *,
    scratch: int = 0,
    name: str = "by_hand",
    root: int = 0,
) -> str:
    head = (
        f'<algo name="{name}" proto="LL" nchannels="1" nchunksperloop="{chunks}"'
        f' ngpus="{len(ranks)}" coll="{operation}" inplace="1" outofplace="1" minBytes="0"'
        f' maxBytes="0" root="{root}">'
    )
    lines = [head]
    for rank, blocks in enumerate(ranks):
        lines.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="1" s_chunks="{scratch}">')
        awaited = {step[6] for _, _, steps in blocks for step in steps}
        for number, (send, receive, steps) in enumerate(blocks):
            lines.append(f'<tb id="{number}" send="{send}" recv="{receive}" chan="0">')
            for at, (kind, source, src, target, dst, count, waits) in enumerate(steps):
                lines.append(
                    f'<step s="{at}" type="{kind}" srcbuf="{source}" srcoff="{src}"'
                    f' dstbuf="{target}" dstoff="{dst}" cnt="{count}" depid="{waits[0]}"'
                    f' deps="{waits[1]}" hasdep="{(number, at) in awaited:d}"/>'
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def exchange(name: str = "exchange") -> str:
    """all_reduce of two ranks: each sends all it has, then adds the other's to its own."""
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
    return msccl_xml("allreduce", 1, [[block, adds] for block in blocks], scratch=1, name=name)


def halves() -> str:
    """all_reduce of two ranks: each adds up one half and sends it back."""
    ranks = []
    for rank in range(2):
        peer = 1 - rank
        gives = ("s", "i", peer, "o", peer, 1, ALONE)
        adds = ("rrcs", "i", rank, "o", rank, 1, ALONE)
        takes = ("r", "o", peer, "o", peer, 1, ALONE)
        ranks.append([(peer, peer, [gives, adds, takes])])
    return msccl_xml("allreduce", 2, ranks)


def chain() -> str:
    """broadcast of three ranks in a row, two chunks."""
    moves = [("i", "s", 1, -1), ("o", "rcs", 2, 0), ("o", "r", -1, 1)]
    ranks = [
        [(send, receive, [(kind, buffer, c, "o", c, 1, ALONE) for c in range(2)])]
        for buffer, kind, send, receive in moves
    ]
    ranks[0].append((-1, -1, [("cpy", "i", 0, "o", 0, 2, ALONE)]))
    return msccl_xml("broadcast", 2, ranks)
