"""Recognition of a schedule's data flow from its messages.

If every rank sends each chunk directly to the ranks that need it, a kernel for that pattern
computes the same result faster than the interpreter.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations

from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.collectives import Collective, Sum
from synthesizer.programs.flow import Flow, Message, part_chunks
from synthesizer.programs.layout import Pattern


def pattern_of(algorithm: Algorithm, flow: Flow) -> Pattern:
    """Return the pattern of a schedule, from the messages of its symbolic run."""
    if algorithm.collective is not Collective.ALL_REDUCE:
        direct = flow.messages == Counter(_direct(algorithm))
        return Pattern.DIRECT if direct else Pattern.NONE
    if flow.messages == Counter(_one_phase(algorithm)):
        return Pattern.ONE_PHASE
    return Pattern.TWO_PHASE if _is_two_phase(algorithm, flow) else Pattern.NONE


def _own(rank: int, receiver: int, chunk: int) -> Message:
    return Message(rank, receiver, Sum(chunk, 1 << rank))


def _one_phase(algorithm: Algorithm) -> list[Message]:
    return [
        _own(rank, peer, chunk)
        for rank, peer in permutations(range(algorithm.ranks), 2)
        for chunk in range(algorithm.chunks_per_loop)
    ]


def _direct(algorithm: Algorithm) -> list[Message]:
    """Return every rank's own chunks as messages to the ranks that need them."""
    part, messages = part_chunks(algorithm), []
    for rank, peer in permutations(range(algorithm.ranks), 2):
        match algorithm.collective:
            case Collective.ALL_GATHER:
                chunks = range(part)
            case Collective.REDUCE_SCATTER | Collective.ALLTOALL:
                chunks = range(peer * part, (peer + 1) * part)
            case Collective.BROADCAST:
                chunks = range(part if rank == algorithm.root else 0)
            case _:
                chunks = range(part if peer == algorithm.root else 0)
        messages += [_own(rank, peer, chunk) for chunk in chunks]
    return messages


def _is_two_phase(algorithm: Algorithm, flow: Flow) -> bool:
    """Return whether each chunk has an owner that sums all contributions and sends out the sum."""
    ranks = range(algorithm.ranks)
    all_ranks = (1 << algorithm.ranks) - 1
    owner = {m.value.chunk: m.sender for m in flow.messages if m.value.ranks == all_ranks}
    owned = Counter(owner.values())
    if len(owner) != algorithm.chunks_per_loop or len({owned[rank] for rank in ranks}) != 1:
        return False
    expected = [
        message
        for chunk, holder in owner.items()
        for rank in ranks
        if rank != holder
        for message in (
            _own(rank, holder, chunk),
            Message(holder, rank, Sum(chunk, all_ranks)),
        )
    ]
    return flow.messages == Counter(expected)
