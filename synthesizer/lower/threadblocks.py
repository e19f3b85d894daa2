"""Assignment of steps to threadblocks (MSCCLang section 4.5)."""

from __future__ import annotations

from dataclasses import dataclass

from synthesizer.lower.instructions import Connection, InstructionDag
from synthesizer.lower.ordering import Slot


@dataclass(frozen=True, slots=True, order=True)
class ThreadblockKey:
    """A threadblock's identity: the connections that it owns."""

    rank: int
    channel: int
    send_peer: int
    recv_peer: int


def threadblocks(dag: InstructionDag, order: tuple[Slot, ...]) -> dict[int, ThreadblockKey]:
    """Return the threadblock of every step, by the step's first instruction.

    The two connections of a fused step share a threadblock; every other connection has its own, so
    that sends and receives overlap; local copies and reductions have one per channel.
    """
    onward: dict[Connection, Connection] = {}
    for slot in order:
        source = dag.instructions[slot.instruction].connection
        if slot.fused_send is not None and source:
            target = dag.instructions[slot.fused_send].connection
            if target:
                onward[source] = target
    source_of = {target: source for source, target in onward.items()}
    keys: dict[int, ThreadblockKey] = {}
    for slot in order:
        instruction = dag.instructions[slot.instruction]
        connection, rank = instruction.connection, instruction.rank
        sends = recvs = None
        if connection and connection[0] == rank:
            sends, recvs = connection, source_of.get(connection)
        elif connection:
            sends, recvs = onward.get(connection), connection
        keys[slot.instruction] = ThreadblockKey(
            rank,
            instruction.channel,
            sends[1] if sends else -1,
            recvs[0] if recvs else -1,
        )
    return keys
