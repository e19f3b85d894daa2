"""Layouts of a rank's memory: one address for each chunk of its buffers.

In place, input and output share memory (see `contents`); two operands conflict if their addresses
overlap, whichever buffers they name.
"""

from __future__ import annotations

from dataclasses import dataclass

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef
from synthesizer.ir.contents import input_chunks, output_chunks


def first_addresses(
    collective: Collective, rank: int, inputs: int, outputs: int, *, in_place: bool
) -> dict[Buffer, int]:
    """Return the first address of each buffer of a rank, whose input and output have such sizes."""
    if not (in_place and inputs and outputs):
        return {Buffer.INPUT: 0, Buffer.OUTPUT: inputs, Buffer.SCRATCH: inputs + outputs}
    return {
        Buffer.INPUT: rank * inputs if collective.input_is_part else 0,
        Buffer.OUTPUT: rank * outputs if collective.output_is_part else 0,
        Buffer.SCRATCH: max(inputs, outputs),
    }


@dataclass(frozen=True, slots=True)
class Layout:
    """First addresses of one rank's buffers, and the chunks of each that a step may touch."""

    first: dict[Buffer, int]
    chunks: dict[Buffer, int]

    def address(self, ref: ChunkRef) -> int:
        """Return the address of a chunk."""
        return self.first[ref.buffer] + ref.offset


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
    collective = algorithm.collective
    declared = (program.input_chunks, program.output_chunks)
    sizes = (collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root)
    in_place = shares_buffers(algorithm, rank, in_place=in_place)
    inputs, outputs = input_chunks(*sizes), output_chunks(*sizes)
    if collective is Collective.CUSTOM:
        in_place, (inputs, outputs) = False, declared
    usable = (min(inputs, declared[0]), min(outputs, declared[1]), program.scratch_chunks)
    return Layout(
        first_addresses(collective, rank, inputs, outputs, in_place=in_place),
        dict(zip(Buffer, usable, strict=True)),
    )
