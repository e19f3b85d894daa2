"""The rules of the form of staged schedules, which compiler and C loader check alike.

What keeps them (`tuccl/runtime/staged.c` has the same rules) cannot make an executor reach outside
a buffer, write to the caller's input, wait for ever, or receive a chunk in a round that uses it
otherwise. The rules say nothing of the result: `synthesizer.programs.staged.staged_proof` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lookup_tables.program_header import MOST_RANKS
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective, input_chunks, output_chunks
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs.layout import BUFFERS, MOST_CHUNKS
from synthesizer.programs.phase_layout import MOST_NODES
from synthesizer.programs.staged.staged_schedule import StagedSchedule, Statements
from tuccl.errors import NoProgramError

MOST_ROUNDS = 64
"""Most rounds: each waits for the network, tens of microseconds."""
MOST_CHUNKS_MOVED = 1 << 18
"""Most chunks of all statements together."""
_LEAST_NODES = 2
_REDUCING = frozenset({Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE})


def check_staged_form(staged: StagedSchedule) -> None:
    """Check a schedule against the rules of the form.

    Raises:
        NoProgramError: It breaks one; the message says which.
    """
    _check_numbers(staged)
    nodes = staged.node_of_rank()
    sizes = [_buffer_sizes(staged, rank) for rank in range(staged.ranks)]
    moved = 0
    for number, (is_round, statements) in enumerate(staged.in_order()):
        name = f"round {(number + 1) // 2}" if is_round else f"stage {number // 2}"
        for statement in statements:
            fault = _fault_of_ranks(statement, nodes, is_round=is_round) or _fault_of_operands(
                staged.collective, statement, sizes
            )
            if fault:
                raise NoProgramError(f"{name} {fault}")
        if is_round:
            _check_round(staged, statements, name)
        moved += sum(statement.dst.count for statement in statements)
    if moved > MOST_CHUNKS_MOVED:
        raise NoProgramError(f"{moved} chunks are moved, at most {MOST_CHUNKS_MOVED} are allowed")


def _check_numbers(staged: StagedSchedule) -> None:
    collective, sizes = staged.collective, staged.node_sizes
    if collective is Collective.CUSTOM:
        raise NoProgramError("a custom operation has no known result to keep")
    if not (_LEAST_NODES <= len(sizes) <= MOST_NODES and 1 <= min(sizes) <= max(sizes)):
        raise NoProgramError(f"{len(sizes)} nodes, allowed are {_LEAST_NODES} to {MOST_NODES}")
    if max(sizes) > MOST_RANKS:
        raise NoProgramError(f"a node has {max(sizes)} ranks, at most {MOST_RANKS} are allowed")
    larger = staged.chunks * (staged.ranks if collective.divides_by_ranks else 1)
    if not (staged.chunks >= 1 and larger <= MOST_CHUNKS):
        raise NoProgramError(f"{larger} chunks, allowed are 1 to {MOST_CHUNKS}")
    scratch = staged.scratch_chunks
    if len(scratch) != staged.ranks or not 0 <= min(scratch) <= max(scratch) <= MOST_CHUNKS:
        raise NoProgramError(f"a rank has more than {MOST_CHUNKS} scratch chunks, or less than 0")
    if not 0 <= staged.root < (staged.ranks if collective.has_root else 1):
        raise NoProgramError(f"root {staged.root} of {collective} on {staged.ranks} ranks")
    if not 1 <= len(staged.rounds) <= MOST_ROUNDS or len(staged.stages) != len(staged.rounds) + 1:
        raise NoProgramError(f"{len(staged.rounds)} rounds, allowed are 1 to {MOST_ROUNDS}")


def _buffer_sizes(staged: StagedSchedule, rank: int) -> dict[Buffer, int]:
    larger = staged.chunks * (staged.ranks if staged.collective.divides_by_ranks else 1)
    arguments = (staged.collective, staged.ranks, larger, rank, staged.root)
    sizes = (input_chunks(*arguments), output_chunks(*arguments), staged.scratch_chunks[rank])
    return dict(zip(BUFFERS, sizes, strict=True))


def _fault_of_ranks(statement: Statement, nodes: Sequence[int], *, is_round: bool) -> str:
    src, dst = statement.src.rank, statement.dst.rank
    if not (0 <= src < len(nodes) and 0 <= dst < len(nodes)):
        return f"has a message from rank {src} to rank {dst}"
    crosses = nodes[src] != nodes[dst]
    if is_round and (statement.operand is not None or not crosses):
        return "does more than to copy chunks to other nodes"
    return "has a message to another node" if crosses and not is_round else ""


def _fault_of_operands(
    collective: Collective, statement: Statement, sizes: Sequence[dict[Buffer, int]]
) -> str:
    src, dst, operand = statement.src, statement.dst, statement.operand
    if dst.buffer is Buffer.INPUT:
        return "writes to the input"
    if operand is not None:
        if collective not in _REDUCING:
            return f"adds, but {collective} does not"
        if operand.rank != dst.rank or (src.rank == dst.rank and operand != dst):
            return "adds to a chunk that is not its target"
    for chunk in (src, dst, *([] if operand is None else [operand])):
        size = sizes[chunk.rank][chunk.buffer]
        if chunk.count != dst.count or chunk.count < 1:
            return f"has operands of {chunk.count} and {dst.count} chunks"
        if not 0 <= chunk.offset <= size - chunk.count:
            return f"uses chunks behind the {size} of buffer {chunk.buffer} of rank {chunk.rank}"
    return ""


def _check_round(staged: StagedSchedule, sent: Statements, name: str) -> None:
    """Check that what a round writes is neither read nor written otherwise."""
    previous = (-1, -1)
    end = written_end = 0
    for rank, memory, first, after, is_written in sorted(_uses(staged, sent)):
        if (rank, memory) != previous:
            previous, end, written_end = (rank, memory), 0, 0
        if first < (end if is_written else written_end):
            raise NoProgramError(f"{name} uses a chunk of rank {rank} that it receives")
        end = max(end, after)
        written_end = max(written_end, after if is_written else 0)


def _uses(staged: StagedSchedule, sent: Statements) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield rank, memory, first chunk, end, and whether it is written, of each operand."""
    for statement in sent:
        for chunk, is_written in ((statement.src, False), (statement.dst, True)):
            memory, first = _address(staged, chunk)
            yield chunk.rank, memory, first, first + chunk.count, is_written


def _address(staged: StagedSchedule, chunk: Chunk) -> tuple[int, int]:
    """Return the memory of a chunk, and its place there; in place, input and output are one."""
    if chunk.buffer is Buffer.SCRATCH or not staged.in_place:
        return BUFFERS.index(chunk.buffer), chunk.offset
    parts = {Buffer.INPUT: Collective.ALL_GATHER, Buffer.OUTPUT: Collective.REDUCE_SCATTER}
    is_part = parts[chunk.buffer] is staged.collective
    return 0, chunk.offset + (chunk.rank * staged.chunks if is_part else 0)
