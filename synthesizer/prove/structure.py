"""Static checks of ids, peers, connections, offsets, counts and dependences."""

from __future__ import annotations

from collections.abc import Iterator

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Step,
    StepType,
    Threadblock,
)
from synthesizer.ir.msccl_limits import MAX_CHANNELS
from synthesizer.ir.wiring import (
    READS_SRC,
    RECEIVING,
    SENDING,
    WRITES_DST,
    Connection,
    Layout,
    layout,
    shares_buffers,
)
from synthesizer.prove.defects import Defect, DefectKind

MAX_CHUNKS = 1 << 20
"""Most chunks of a buffer: far beyond every runtime, small enough for the verifier's memory."""
MAX_CONTENTS = 1 << 22
"""Most chunks of all ranks together, as the verifier tracks the contents of each."""
MAX_MOVES = 1 << 23
"""Most chunks moved by all steps together, which bounds the verifier's time."""


def algorithm_defects(algorithm: Algorithm) -> list[Defect]:
    """Return the defects of the header, of ranks, threadblocks and dependences."""
    return [*header_defects(algorithm), *_program_defects(algorithm)]


def header_defects(algorithm: Algorithm) -> Iterator[Defect]:
    """Yield the defects of the attributes of the whole schedule."""
    chunks, ranks = algorithm.chunks_per_loop, algorithm.ranks
    if not ranks:
        yield _structure("the schedule has no ranks")
        return
    if not 1 <= chunks <= MAX_CHUNKS:
        yield _structure(f"{chunks} chunks per loop, must be 1 to {MAX_CHUNKS}")
    elif (contents := _contents(algorithm)) > MAX_CONTENTS:
        yield _structure(
            f"{contents} chunks in the buffers of {ranks} ranks, at most {MAX_CONTENTS} "
            "are verified"
        )
    elif algorithm.collective.divides and chunks % ranks:
        yield _structure(
            f"{chunks} chunks per loop cannot be divided among the {ranks} ranks of "
            f"{algorithm.collective}"
        )
    if not 1 <= algorithm.channels <= MAX_CHANNELS:
        yield _structure(f"{algorithm.channels} channels, must be 1 to {MAX_CHANNELS}")
    smallest, largest = algorithm.min_bytes, algorithm.max_bytes
    if smallest < 0 or (largest and largest < smallest):
        yield _structure(
            f"for {smallest} to {largest} bytes, must be from 0 or more to no less than that, "
            "or to 0 for no end"
        )
    if algorithm.collective.has_root and not 0 <= algorithm.root < ranks:
        yield _structure(f"root {algorithm.root} is not one of the {ranks} ranks")
    if not (algorithm.in_place or algorithm.out_of_place):
        yield _structure("usable neither in place nor out of place")


def _contents(algorithm: Algorithm) -> int:
    """Return the chunks of all ranks, with input and output counted as one buffer."""
    return sum(
        max(algorithm.chunks_per_loop, gpu.input_chunks, gpu.output_chunks)
        + max(0, gpu.scratch_chunks)
        for gpu in algorithm.programs
    )


def _program_defects(algorithm: Algorithm) -> Iterator[Defect]:
    for position, gpu in enumerate(algorithm.programs):
        if gpu.rank != position:
            yield _structure(f"program {position} is of rank {gpu.rank}")
            return
    for gpu in algorithm.programs:
        sizes = (gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks)
        if not all(0 <= size <= MAX_CHUNKS for size in sizes):
            yield _structure(
                f"buffers of {sizes} chunks (input, output, scratch), each must be 0 to "
                f"{MAX_CHUNKS}",
                gpu.rank,
            )
        for position, block in enumerate(gpu.threadblocks):
            if block.id != position:
                yield _structure(
                    f"threadblock ids must run from 0, found {block.id} at position {position}",
                    gpu.rank,
                )
                return
            yield from _threadblock_defects(algorithm, gpu, block)
    moves = sum(
        step.count
        for gpu in algorithm.programs
        for block in gpu.threadblocks
        for step in block.steps
        if step.count > 0
    )
    if moves > MAX_MOVES:
        yield _structure(f"{moves} chunks moved in all, at most {MAX_MOVES} are verified")


def _threadblock_defects(
    algorithm: Algorithm, gpu: GpuProgram, block: Threadblock
) -> Iterator[Defect]:
    if not 0 <= block.channel < algorithm.channels:
        yield _structure(
            f"channel {block.channel} is not one of {algorithm.channels}", gpu.rank, block.id
        )
    for side, peer in (("send", block.send_peer), ("receive", block.recv_peer)):
        if peer == gpu.rank or not -1 <= peer < algorithm.ranks:
            yield _structure(f"{side} peer {peer} is not another rank", gpu.rank, block.id)
    for number, step in enumerate(block.steps):
        place = (gpu.rank, block.id, number)
        if step.type in SENDING and block.send_peer < 0:
            yield _structure(f"{step.type} in a threadblock without send peer", *place)
        if step.type in RECEIVING and block.recv_peer < 0:
            yield _structure(f"{step.type} in a threadblock without receive peer", *place)
        if step.count < (0 if step.type is StepType.NOP else 1):
            yield _structure(f"count {step.count} must be at least 1", *place)
        if step.depends is not None:
            threadblock, awaited = step.depends.threadblock, step.depends.step
            known = 0 <= threadblock < len(gpu.threadblocks)
            if not known or not 0 <= awaited < len(gpu.threadblocks[threadblock].steps):
                yield _structure(
                    f"waits for threadblock {threadblock} step {awaited}, which does not exist",
                    *place,
                )
            elif gpu.threadblocks[threadblock].steps[awaited].type is StepType.NOP:
                yield _structure(
                    f"waits for threadblock {threadblock} step {awaited}, a nop, which never "
                    "reports that it is done",
                    *place,
                )


def connection_defects(algorithm: Algorithm) -> list[Defect]:
    """Return shared connections, and sends and receives that differ in number or chunk count."""
    found: list[Defect] = []
    sends: dict[Connection, tuple[Threadblock, list[tuple[int, Step]]]] = {}
    receives: dict[Connection, tuple[Threadblock, list[tuple[int, Step]]]] = {}
    for gpu in algorithm.programs:
        for block in gpu.threadblocks:
            for peer, kinds, table in (
                (block.send_peer, SENDING, sends),
                (block.recv_peer, RECEIVING, receives),
            ):
                if peer < 0:
                    continue
                ends = (gpu.rank, peer) if table is sends else (peer, gpu.rank)
                key = (*ends, block.channel)
                if key in table:
                    found.append(_shared_connection(gpu.rank, block, table[key][0], key))
                    continue
                chosen = [(n, step) for n, step in enumerate(block.steps) if step.type in kinds]
                table[key] = (block, chosen)
    for key in sorted(sends.keys() | receives.keys()):
        found.extend(_message_defects(key, sends.get(key), receives.get(key)))
    return found


def _shared_connection(
    rank: int, block: Threadblock, owner: Threadblock, key: Connection
) -> Defect:
    return Defect(
        DefectKind.CONNECTION,
        rank,
        block.id,
        None,
        f"shares connection {_connection(key)} with threadblock {owner.id}; "
        "each direction belongs to one threadblock",
    )


def _message_defects(
    key: Connection,
    sending: tuple[Threadblock, list[tuple[int, Step]]] | None,
    receiving: tuple[Threadblock, list[tuple[int, Step]]] | None,
) -> Iterator[Defect]:
    sends = sending[1] if sending else []
    receives = receiving[1] if receiving else []
    if len(sends) != len(receives):
        rank, side = (key[0], sending) if len(sends) > len(receives) else (key[1], receiving)
        number = (sends if len(sends) > len(receives) else receives)[
            min(len(sends), len(receives))
        ][0]
        yield Defect(
            DefectKind.CONNECTION,
            rank,
            side[0].id if side else None,
            number,
            f"connection {_connection(key)} has {len(sends)} sends and {len(receives)} receives",
        )
        return
    for (send_step, send), (recv_step, recv) in zip(sends, receives, strict=True):
        if send.count != recv.count and sending and receiving:
            yield Defect(
                DefectKind.CONNECTION,
                key[1],
                receiving[0].id,
                recv_step,
                f"{recv.type} takes {recv.count} chunks where rank {key[0]} threadblock "
                f"{sending[0].id} step {send_step} gives {send.count}",
            )


def access_defects(algorithm: Algorithm, *, in_place: bool) -> list[Defect]:
    """Return operands outside buffers, writes to a send buffer, operands that overlap in part."""
    found: list[Defect] = []
    for gpu in algorithm.programs:
        lay = layout(algorithm, gpu.rank, in_place=in_place)
        shared = shares_buffers(algorithm, gpu.rank, in_place=in_place)
        for block in gpu.threadblocks:
            for number, step in enumerate(block.steps):
                for kind, text in _operand_faults(algorithm, lay, step, shared=shared):
                    found.append(Defect(kind, gpu.rank, block.id, number, text))
    return found


def _operand_faults(
    algorithm: Algorithm, lay: Layout, step: Step, *, shared: bool
) -> Iterator[tuple[DefectKind, str]]:
    reads, writes = step.type in READS_SRC, step.type in WRITES_DST
    source, target = _chunks(step.src, step.count), _chunks(step.dst, step.count)
    for used, ref, chunks in ((reads, step.src, source), (writes, step.dst, target)):
        size = lay.size(ref.buffer)
        if used and not 0 <= ref.offset <= size - step.count:
            text = f"{step.type} of {chunks} outside the {size} chunks of that buffer"
            yield DefectKind.STRUCTURE, text
            return
    if reads and writes:
        distance = abs(lay.address(step.src) - lay.address(step.dst))
        if 0 < distance < step.count:
            text = f"source {source} and destination {target} of one {step.type} overlap"
            yield DefectKind.RACE, text
    custom = algorithm.collective is Collective.CUSTOM
    if writes and step.dst.buffer is Buffer.INPUT and not (shared or custom):
        text = f"input and output apart, {step.type} writes {target} of the caller's send buffer"
        yield DefectKind.INPUT_OVERWRITTEN, text


def _structure(
    message: str, rank: int | None = None, threadblock: int | None = None, step: int | None = None
) -> Defect:
    return Defect(DefectKind.STRUCTURE, rank, threadblock, step, message)


def _connection(key: Connection) -> str:
    return f"{key[0]}->{key[1]} channel {key[2]}"


def _chunks(ref: ChunkRef, count: int) -> str:
    last = f"..{ref.offset + count - 1}" if count > 1 else ""
    return f"{ref.buffer}[{ref.offset}{last}]"
