"""Compiler from schedules to the bytes that an executor runs.

There is no intermediate format between the synthesizer and the kernel's loader: tables and bundles
carry these bytes, and `tuccl/runtime/program.c` checks them. A schedule is compiled only after a
symbolic run has shown that it computes its operation.
"""

from __future__ import annotations

from lookup_tables import program_header as header
from lookup_tables.bundle_layout import OPERATIONS
from lookup_tables.table import Operation
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Step,
    StepRef,
    StepType,
)
from synthesizer.ir.wiring import READS_SRC, SENDING, WRITES_DST
from synthesizer.programs import layout
from synthesizer.programs.flow import Flow, StepPlace, run_on_symbols
from synthesizer.programs.layout import Pattern
from synthesizer.programs.order import with_explicit_order
from synthesizer.programs.pattern import pattern_of
from tuccl.errors import NoProgramError

_NOWHERE = ChunkRef(Buffer.INPUT, 0)


def program_of(algorithm: Algorithm) -> bytes:
    """Return the program of a schedule; empty if no executor can run it."""
    try:
        return compile_program(algorithm)
    except NoProgramError:
        return b""


def compile_program(algorithm: Algorithm) -> bytes:
    """Return the program of a schedule.

    Raises:
        NoProgramError: No executor can run the schedule; the message says why.
    """
    flow = run_on_symbols(algorithm)
    ordered = with_explicit_order(algorithm, flow.order)
    return _pack(algorithm, flow) if ordered is algorithm else packed(ordered)


def packed(algorithm: Algorithm) -> bytes:
    """Return the program of exactly these steps, without added dependences.

    Raises:
        NoProgramError: As in `compile_program`.
    """
    return _pack(algorithm, run_on_symbols(algorithm))


def pattern_in(program: bytes) -> Pattern:
    """Return the pattern whose kernel runs a program; `Pattern.NONE`: it is interpreted."""
    return Pattern(header.HEADER.unpack_from(program)[7])


def arriving(gpu: GpuProgram) -> list[tuple[int, int]]:
    """Return sender and channel of the connections that arrive at a rank, by number."""
    return [
        (block.recv_peer, block.channel)
        for block in gpu.threadblocks
        if block.recv_peer != layout.NO_PEER
    ]


def _pack(algorithm: Algorithm, flow: Flow) -> bytes:
    gpus = algorithm.programs
    blocks = [block for gpu in gpus for block in gpu.threadblocks]
    steps = (_pack_steps(gpu, flow) for gpu in gpus)
    body = b"".join([_pack_ranks(algorithm), _pack_blocks(algorithm), *steps])
    total = header.HEADER.size + len(body)
    if total > header.MOST_BYTES:
        raise NoProgramError(f"it takes {total} bytes, at most {header.MOST_BYTES} are allowed")
    operation = OPERATIONS.index(Operation(algorithm.collective.value))
    messages = [step.count for block in blocks for step in block.steps if step.type in SENDING]
    root = algorithm.root if algorithm.collective.has_root else 0
    flags = layout.RUNS_IN_PLACE * algorithm.in_place | layout.AVERAGES * flow.divisible
    fields = (
        *(operation, pattern_of(algorithm, flow), flags, root),
        *(algorithm.ranks, algorithm.chunks_per_loop, len(blocks), algorithm.step_count),
        *(max(len(gpu.threadblocks) for gpu in gpus), max(len(arriving(gpu)) for gpu in gpus)),
        *(max(messages, default=0), max((len(block.steps) for block in blocks), default=0)),
        *(max(gpu.scratch_chunks for gpu in gpus), 0),
    )
    head = (header.MAGIC, header.VERSION, 0, bytes(header.HASH_BYTES), total, 0)
    return header.sealed(header.HEADER.pack(*head, *fields) + body)


def _pack_ranks(algorithm: Algorithm) -> bytes:
    records, first = [], 0
    for gpu in algorithm.programs:
        numbers = (first, len(gpu.threadblocks), len(arriving(gpu)), gpu.scratch_chunks)
        records.append(layout.RANK.pack(*numbers))
        first += len(gpu.threadblocks)
    return b"".join(records)


def _pack_blocks(algorithm: Algorithm) -> bytes:
    records, first = [], 0
    for gpu in algorithm.programs:
        for block in gpu.threadblocks:
            outgoing = incoming = layout.NO_CONNECTION
            if block.send_peer != layout.NO_PEER:
                at_peer = arriving(algorithm.programs[block.send_peer])
                outgoing = at_peer.index((gpu.rank, block.channel))
            if block.recv_peer != layout.NO_PEER:
                incoming = arriving(gpu).index((block.recv_peer, block.channel))
            peers = (block.send_peer, block.recv_peer, block.channel, 0)
            steps = (first, len(block.steps), 0)
            records.append(layout.THREADBLOCK.pack(*peers, outgoing, incoming, *steps))
            first += len(block.steps)
    return b"".join(records)


def _pack_steps(gpu: GpuProgram, flow: Flow) -> bytes:
    awaited = {step.depends for block in gpu.threadblocks for step in block.steps}
    return b"".join(
        _pack_step(step, (gpu.rank, block.id, at), awaited, flow)
        for block in gpu.threadblocks
        for at, step in enumerate(block.steps)
    )


def _pack_step(step: Step, place: StepPlace, awaited: set[StepRef | None], flow: Flow) -> bytes:
    flags = layout.HAS_DEPENDENT * (StepRef(*place[1:]) in awaited)
    flags |= layout.COMPLETES * (flow.divisible and place in flow.completing)
    # Unused operands are not packed, so that equal steps have equal bytes.
    src = step.src if step.type in READS_SRC else _NOWHERE
    dst = step.dst if step.type in WRITES_DST else _NOWHERE
    count = 1 if step.type is StepType.NOP else step.count
    buffers = (layout.BUFFERS.index(src.buffer), layout.BUFFERS.index(dst.buffer))
    depends = (layout.NO_DEPENDENCE, 0)
    if step.depends is not None:
        depends = (step.depends.threadblock, step.depends.step)
    codes = (layout.STEP_TYPES.index(step.type), *buffers, flags)
    return layout.STEP.pack(*codes, src.offset, dst.offset, count, *depends)
