"""Recognises a program's data flow: which messages cross, whatever the schedule is called.

Where every rank sends each chunk straight to those who need it, a kernel written for that pattern
computes the same and is faster than interpreting.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations

from lookup_tables.programs.program_flow import Flow, Message, Value
from lookup_tables.programs.program_layout import Pattern
from lookup_tables.programs.program_model import Program
from lookup_tables.table import Operation


def pattern_of(program: Program, flow: Flow) -> Pattern:
    """The pattern of a program, from the messages of its run."""
    if program.operation is not Operation.ALL_REDUCE:
        direct = flow.messages == Counter(_direct(program))
        return Pattern.DIRECT if direct else Pattern.NONE
    if flow.messages == Counter(_one_phase(program)):
        return Pattern.ONE_PHASE
    return Pattern.TWO_PHASE if _is_two_phase(program, flow) else Pattern.NONE


def _own(rank: int, receiver: int, chunk: int) -> Message:
    return Message(rank, receiver, Value(chunk, 1 << rank))


def _one_phase(program: Program) -> list[Message]:
    return [
        _own(rank, peer, chunk)
        for rank, peer in permutations(range(len(program.ranks)), 2)
        for chunk in range(program.chunks_per_loop)
    ]


def _direct(program: Program) -> list[Message]:
    """Every rank's own chunks, each to those that need it."""
    part, messages = program.part_chunks, []
    for rank, peer in permutations(range(len(program.ranks)), 2):
        match program.operation:
            case Operation.ALL_GATHER:
                chunks = range(part)
            case Operation.REDUCE_SCATTER | Operation.ALLTOALL:
                chunks = range(peer * part, (peer + 1) * part)
            case Operation.BROADCAST:
                chunks = range(part if rank == program.root else 0)
            case _:
                chunks = range(part if peer == program.root else 0)
        messages += [_own(rank, peer, chunk) for chunk in chunks]
    return messages


def _is_two_phase(program: Program, flow: Flow) -> bool:
    """Each chunk has an owner, who gets everybody's part and sends everybody the sum."""
    ranks = range(len(program.ranks))
    everyone = (1 << len(ranks)) - 1
    owner = {m.value.chunk: m.sender for m in flow.messages if m.value.parts == everyone}
    owned = Counter(owner.values())
    if len(owner) != program.chunks_per_loop or len({owned[rank] for rank in ranks}) != 1:
        return False
    expected = [
        message
        for chunk, holder in owner.items()
        for rank in ranks
        if rank != holder
        for message in (
            _own(rank, holder, chunk),
            Message(holder, rank, Value(chunk, everyone)),
        )
    ]
    return flow.messages == Counter(expected)
