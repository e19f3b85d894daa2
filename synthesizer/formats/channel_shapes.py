"""The ring or tree that a schedule runs on each of its channels.

In a ring every rank sends to one peer and receives from one, all in one cycle; for broadcast and
reduce the connection that closes the cycle carries nothing. In a tree partial sums go up from child
to parent, and results come down the same edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from synthesizer.ir.algorithm import Algorithm, StepType
from synthesizer.ir.collectives import Collective
from tuccl.errors import FormatError

_RINGS = frozenset(Collective) - {Collective.ALLTOALL, Collective.CUSTOM}
_PATHS = frozenset({Collective.BROADCAST, Collective.REDUCE})
_SUMS = frozenset(
    {
        StepType.RECV_REDUCE_COPY,
        StepType.RECV_REDUCE_SEND,
        StepType.RECV_REDUCE_COPY_SEND,
    }
)


@dataclass(frozen=True, slots=True)
class RingShape:
    """Ranks in sending order; the last one sends to the first."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TreeShape:
    """The parent of each rank; -1 for the root."""

    parent: tuple[int, ...]


Shape = RingShape | TreeShape
_Carried = dict[tuple[int, int], set[bool]]
"""By source and destination, whether sums (True), plain data (False) or both arrive."""


def channel_shapes(algorithm: Algorithm) -> dict[int, Shape]:
    """Return rings and trees by channel, in the order of channels.

    Raises:
        FormatError: The operation has no ring or tree, or a channel is neither.
    """
    if algorithm.collective not in _RINGS:
        raise FormatError(f"{algorithm.name}: {algorithm.collective} runs on neither ring nor tree")
    channels: dict[int, _Carried] = {}
    for program in algorithm.programs:
        for block in program.threadblocks:
            for step in block.steps:
                if step.type.receives:
                    carried = channels.setdefault(block.channel, {})
                    edge = (block.recv_peer, program.rank)
                    carried.setdefault(edge, set()).add(step.type in _SUMS)
    if not channels:
        raise FormatError(f"{algorithm.name}: no channel carries anything")
    return {channel: _shape(algorithm, channel, channels[channel]) for channel in sorted(channels)}


def _shape(algorithm: Algorithm, channel: int, carried: _Carried) -> Shape:
    if algorithm.collective is Collective.ALL_REDUCE:
        tree = _tree(algorithm.ranks, carried)
        if tree is not None:
            return tree
    where = f"{algorithm.name}, channel {channel}"
    following: dict[int, int] = {}
    for src, dst in sorted(carried):
        if src in following:
            no_tree = f"NCCL runs {algorithm.collective} on rings only"
            if algorithm.collective is Collective.ALL_REDUCE:
                no_tree = "no tree either, with sums going up and results down"
            raise FormatError(
                f"{where}: rank {src} sends to ranks {following[src]} and {dst}: no ring, and"
                f" {no_tree}"
            )
        following[src] = dst
    return RingShape(_ring(algorithm, where, following))


def _ring(algorithm: Algorithm, where: str, following: Mapping[int, int]) -> tuple[int, ...]:
    firsts = sorted(set(following) - set(following.values()))
    if firsts and algorithm.collective not in _PATHS:
        raise FormatError(f"{where}: rank {firsts[0]} receives nothing: no ring")
    rank = firsts[0] if firsts else min(following)
    order: list[int] = []
    while rank not in order:
        order.append(rank)
        rank = following.get(rank, order[0])
    if len(order) < algorithm.ranks:
        raise FormatError(
            f"{where}: {len(order)} of {algorithm.ranks} ranks are on the ring of rank {order[0]}"
        )
    return tuple(order)


def _tree(ranks: int, carried: _Carried) -> TreeShape | None:
    """Return the channel's tree, or None if it is no tree."""
    up = [(src, dst) for (src, dst), sums in carried.items() if sums == {True}]
    down = [(dst, src) for (src, dst), sums in carried.items() if sums == {False}]
    parent = dict(up)
    if sorted(up) != sorted(down) or len(up) + len(down) != len(carried):
        return None
    if len(parent) != len(up) or len(up) != ranks - 1:
        return None
    for rank in range(ranks):
        seen = {rank}
        while rank in parent:
            rank = parent[rank]  # noqa: PLW2901 - the walk to the root
            if rank in seen:
                return None
            seen.add(rank)
    return TreeShape(tuple(parent.get(rank, -1) for rank in range(ranks)))
