"""The records of a staged program, shared by compiler and reader.

`tuccl/runtime/staged_layout.h` declares them for C, and docs/reference/bundle-format.md describes
them. All integers are little-endian; every record is a multiple of 8 bytes. The seal is that of any
program (`lookup_tables.program_header`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from lookup_tables import program_header
from lookup_tables.bundle_layout import OPERATIONS
from lookup_tables.table import Operation
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Statement
from synthesizer.programs.layout import AVERAGES as HEADER_AVERAGES
from synthesizer.programs.layout import BUFFERS, RUNS_IN_PLACE
from synthesizer.programs.staged.completion import Completion
from synthesizer.programs.staged.staged_schedule import StagedSchedule, Statements
from tuccl.errors import NoProgramError

HEADER = struct.Struct("<8sII8sIIBBBBIIIIIIIII")
"""Fields: as a program's header as far as ranks (pattern and root are 0); nodes, chunks of a part,
rounds, statements, root, most scratch chunks of any rank, two zeros."""
RANK = struct.Struct("<II")
"""Fields: node, scratch chunks."""
ITEM = struct.Struct("<II")
"""Fields of a stage or round, in the order of execution: first statement, statements."""
STATEMENT = struct.Struct("<BBBBIIIHHI")
"""Fields: flags, buffers of source, target and operand; their first chunks; ranks of source and
target; chunks."""

ADDS = 1
"""Flag of a statement: the target becomes the operand and the source added up."""
COMPLETES = 2
"""Flag of a statement: its sum holds every rank's contribution, so an average is divided here."""


def packed_staged(staged: StagedSchedule, completion: Completion) -> bytes:
    """Return the staged program of a schedule whose numbers are within the limits.

    Raises:
        NoProgramError: It takes more bytes than a program may.
    """
    items = [statements for _, statements in staged.in_order()]
    nodes = staged.node_of_rank()
    body = b"".join(
        [
            *(RANK.pack(*each) for each in zip(nodes, staged.scratch_chunks, strict=True)),
            *_packed_items(items),
            *(
                _packed(statement, (number, at), completion)
                for number, statements in enumerate(items)
                for at, statement in enumerate(statements)
            ),
        ]
    )
    total = HEADER.size + len(body)
    if total > program_header.MOST_BYTES:
        raise NoProgramError(
            f"it takes {total} bytes, at most {program_header.MOST_BYTES} are allowed"
        )
    averages = bool(completion.statements) and completion.is_whole
    flags = RUNS_IN_PLACE * staged.in_place | HEADER_AVERAGES * averages
    head = HEADER.pack(
        *(program_header.MAGIC, program_header.STAGED_VERSION, 0),
        *(bytes(program_header.HASH_BYTES), total, 0),
        *(OPERATIONS.index(Operation(staged.collective.value)), 0, flags, 0),
        *(staged.ranks, len(staged.node_sizes), staged.chunks, len(staged.rounds)),
        *(sum(map(len, items)), staged.root, max(staged.scratch_chunks), 0, 0),
    )
    return program_header.sealed(head + body)


def unpacked_staged(data: bytes) -> StagedSchedule:
    """Return the schedule of a staged program.

    Raises:
        struct.error: The records do not fill the bytes.
        ValueError: A code is unknown, or numbers of records contradict each other.
        IndexError: As ValueError.
    """
    fields = HEADER.unpack_from(data)
    ranks, nodes, chunks, rounds, statements, root = fields[10:16]
    at_items = HEADER.size + ranks * RANK.size
    at_statements = at_items + (2 * rounds + 1) * ITEM.size
    if at_statements + statements * STATEMENT.size != len(data):
        raise ValueError("its size is not that of its records")
    places = list(RANK.iter_unpack(data[HEADER.size : at_items]))
    all_statements = tuple(map(_unpacked, STATEMENT.iter_unpack(data[at_statements:])))
    items = _unpacked_items(data[at_items:at_statements], all_statements)
    sizes = [0] * nodes
    for node, _ in places:
        sizes[node] += 1
    return StagedSchedule(
        collective=Collective(OPERATIONS[fields[6]].value),
        node_sizes=tuple(sizes),
        chunks=chunks,
        root=root,
        scratch_chunks=tuple(scratch for _, scratch in places),
        stages=tuple(items[::2]),
        rounds=tuple(items[1::2]),
    )


def _packed_items(items: Sequence[Statements]) -> Iterator[bytes]:
    first = 0
    for statements in items:
        yield ITEM.pack(first, len(statements))
        first += len(statements)


def _packed(statement: Statement, place: tuple[int, int], completion: Completion) -> bytes:
    src, dst = statement.src, statement.dst
    operand = statement.operand
    flags = ADDS * (operand is not None)
    flags |= COMPLETES * (completion.is_whole and place in completion.statements)
    # Without an operand its fields are 0, so that equal statements have equal bytes.
    buffers = [BUFFERS.index(chunk.buffer) if chunk else 0 for chunk in (src, dst, operand)]
    offsets = [chunk.offset if chunk else 0 for chunk in (src, dst, operand)]
    return STATEMENT.pack(flags, *buffers, *offsets, src.rank, dst.rank, dst.count)


def _unpacked(raw: tuple[int, ...]) -> Statement:
    flags, src_buffer, dst_buffer, operand_buffer, src, dst, operand, sender, receiver, count = raw
    return Statement(
        Chunk(sender, BUFFERS[src_buffer], src, count),
        Chunk(receiver, BUFFERS[dst_buffer], dst, count),
        Chunk(receiver, BUFFERS[operand_buffer], operand, count) if flags & ADDS else None,
        0,
    )


def _unpacked_items(data: bytes, statements: Statements) -> list[Statements]:
    return [statements[first : first + count] for first, count in ITEM.iter_unpack(data)]
