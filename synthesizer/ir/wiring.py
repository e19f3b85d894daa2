"""A schedule as one flat list of steps, with the steps that each waits for.

Step numbers run over all threadblocks of all ranks. The k-th send of a connection (src, dst,
channel) matches its k-th receive: connections are first in, first out. Only schedules that passed
the structure check can be wired.
"""

from __future__ import annotations

from dataclasses import dataclass

from synthesizer.ir.algorithm import Algorithm, Step, StepType, Threadblock

RECEIVING = frozenset(kind for kind in StepType if kind.receives)
SENDING = frozenset(kind for kind in StepType if kind.sends)
READS_SRC = frozenset(
    {
        StepType.SEND,
        StepType.COPY,
        StepType.REDUCE,
        StepType.RECV_REDUCE_COPY,
        StepType.RECV_REDUCE_SEND,
        StepType.RECV_REDUCE_COPY_SEND,
    }
)
WRITES_DST = frozenset(
    {
        StepType.RECV,
        StepType.COPY,
        StepType.REDUCE,
        StepType.RECV_COPY_SEND,
        StepType.RECV_REDUCE_COPY,
        StepType.RECV_REDUCE_COPY_SEND,
    }
)

Connection = tuple[int, int, int]
"""Source rank, destination rank, channel."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """Parallel lists; -1 stands for none."""

    steps: list[Step]
    block_of: list[int]
    """Threadblock of each step, threadblocks numbered over all ranks."""
    source: list[int]
    """For a receiving step, the step that sends its message."""
    waits_for: list[int]
    """The step that the dependence names."""
    first: list[int]
    """First step of each threadblock, then the number of steps."""
    blocks: list[tuple[int, Threadblock]]
    """Rank and threadblock of each threadblock number."""
    sender: list[int]
    """For each threadblock, the threadblock that sends to it."""
    receiver: list[int]
    """For each threadblock, the threadblock that it sends to."""

    def place(self, node: int) -> tuple[int, int, int]:
        """Return rank, threadblock and step of a step number."""
        block = self.block_of[node]
        rank, threadblock = self.blocks[block]
        return rank, threadblock.id, node - self.first[block]

    def name(self, node: int) -> str:
        """Return a step's name for messages."""
        rank, threadblock, step = self.place(node)
        return f"rank {rank} threadblock {threadblock} step {step} ({self.steps[node].type})"


def wire(algorithm: Algorithm) -> Wiring:
    """Number the steps and connect them."""
    blocks = [(gpu.rank, tb) for gpu in algorithm.programs for tb in gpu.threadblocks]
    first = [0]
    for _, block in blocks:
        first.append(first[-1] + len(block.steps))
    steps = [step for _, block in blocks for step in block.steps]
    block_of = [index for index, (_, tb) in enumerate(blocks) for _ in tb.steps]
    number = {(rank, block.id): index for index, (rank, block) in enumerate(blocks)}
    waits_for = [-1] * len(steps)
    sends: dict[Connection, list[int]] = {}
    receives: dict[Connection, list[int]] = {}
    for node, step in enumerate(steps):
        rank, block = blocks[block_of[node]]
        if step.depends is not None:
            waits_for[node] = first[number[rank, step.depends.threadblock]] + step.depends.step
        if step.type in SENDING:
            sends.setdefault((rank, block.send_peer, block.channel), []).append(node)
        if step.type in RECEIVING:
            receives.setdefault((block.recv_peer, rank, block.channel), []).append(node)
    source = [-1] * len(steps)
    sender = [-1] * len(blocks)
    receiver = [-1] * len(blocks)
    for connection, receiving in receives.items():
        sending = sends[connection]
        for send, receive in zip(sending, receiving, strict=True):
            source[receive] = send
        sender[block_of[receiving[0]]] = block_of[sending[0]]
        receiver[block_of[sending[0]]] = block_of[receiving[0]]
    return Wiring(steps, block_of, source, waits_for, first, blocks, sender, receiver)
