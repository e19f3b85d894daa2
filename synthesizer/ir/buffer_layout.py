"""Layouts of a rank's memory: one address for each chunk of its buffers.

In place, input and output share memory (see `collectives`).
"""

from __future__ import annotations

from dataclasses import dataclass

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef
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
