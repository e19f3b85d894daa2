"""A schedule as one flat list of steps, with the steps that each waits for.

Step numbers run over all threadblocks of all ranks. The k-th send of a connection (src, dst,
channel) matches its k-th receive: connections are first in, first out. Only schedules that passed
the structure check can be wired.

A layout gives each chunk of a rank's memory one address. In place, input and output share memory
(see `collectives`); two operands conflict if their addresses overlap, whichever buffers they name.
"""

from __future__ import annotations

from dataclasses import dataclass

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Step, StepType, Threadblock
from synthesizer.ir.contents import input_chunks, output_chunks


@dataclass(frozen=True, slots=True)
class Layout:
    """Addresses of one rank's buffers, and the chunks of each that a step may touch."""

    input_base: int
    output_base: int
    scratch_base: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int

    def address(self, ref: ChunkRef) -> int:
        """Return the address of a chunk."""
        if ref.buffer is Buffer.INPUT:
            return self.input_base + ref.offset
        if ref.buffer is Buffer.OUTPUT:
            return self.output_base + ref.offset
        return self.scratch_base + ref.offset

    def size(self, buffer: Buffer) -> int:
        """Return the number of chunks of `buffer` that a step may touch."""
        if buffer is Buffer.INPUT:
            return self.input_chunks
        return self.output_chunks if buffer is Buffer.OUTPUT else self.scratch_chunks


def shares_buffers(algorithm: Algorithm, rank: int, *, in_place: bool) -> bool:
    """Return whether input and output of `rank` share memory.

    For an operation with a root only the root has both: other ranks may pass a null pointer.
    """
    return in_place and (not algorithm.collective.has_root or rank == algorithm.root)


def layout(algorithm: Algorithm, rank: int, *, in_place: bool) -> Layout:
    """Return the layout of `rank` in place or out of place.

    A buffer has the smaller of the operation's size and the program's declared size: the caller's
    memory ends at the first, and the runtime refuses steps beyond the second. Buffers of a custom
    operation have their declared sizes and share nothing.
    """
    program = algorithm.programs[rank]
    declared = (program.input_chunks, program.output_chunks)
    if algorithm.collective is Collective.CUSTOM:
        return Layout(0, declared[0], sum(declared), *declared, program.scratch_chunks)
    sizes = (algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root)
    inputs, outputs = input_chunks(*sizes), output_chunks(*sizes)
    input_base, output_base, scratch_base = 0, inputs, inputs + outputs
    if shares_buffers(algorithm, rank, in_place=in_place):
        input_base = rank * inputs if algorithm.collective.input_is_part else 0
        output_base = rank * outputs if algorithm.collective.output_is_part else 0
        scratch_base = max(inputs, outputs)
    return Layout(
        input_base,
        output_base,
        scratch_base,
        min(inputs, declared[0]),
        min(outputs, declared[1]),
        program.scratch_chunks,
    )


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
