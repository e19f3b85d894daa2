"""A reader of MSCCL++ execution plans, with the check of their references."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from probes.inputs.messages import first_fault
from synthesizer.formats.mscclpp_plan_file import (
    ChannelType,
    Operation,
    Plan,
    PlanGpu,
    PlanThreadblock,
)
from synthesizer.ir.algorithm import Buffer
from tuccl.errors import FormatError


def read_mscclpp_plan(text: str, source: str = "plan") -> Plan:
    """Read a plan.

    Args:
        text: The JSON.
        source: Name of the file, for messages.

    Raises:
        FormatError: The text is no such plan, or refers to an object that it lacks.
    """
    try:
        plan = Plan.model_validate_json(text)
    except ValidationError as error:
        raise FormatError(
            f"{source}: not an MSCCL++ execution plan: {first_fault(error)}"
        ) from None
    broken = next(_broken_references(plan), None)
    if broken is not None:
        raise FormatError(f"{source}: not a runnable MSCCL++ execution plan: {broken}")
    return plan


def _broken_references(plan: Plan) -> Iterator[str]:
    """Yield a line for each reference to an object that the plan does not define."""
    ranks = len(plan.gpus)
    for rank, gpu in enumerate(plan.gpus):
        if gpu.id != rank:
            yield f"gpus[{rank}] has the id {gpu.id}"
        peers = [peer for kind in ChannelType for peer in gpu.peers(kind)]
        peers += [buffer.rank for buffer in gpu.remote_buffers]
        for peer in peers:
            if not 0 <= peer < ranks or peer == rank:
                yield f"rank {rank} is connected to rank {peer}, which is no other rank"
        for number, block in enumerate(gpu.threadblocks):
            where = f"rank {rank} threadblock {number}"
            if block.id != number:
                yield f"{where} has the id {block.id}"
            yield from (f"{where}: {text}" for text in _broken_in_threadblock(plan, gpu, block))


def _broken_in_threadblock(plan: Plan, gpu: PlanGpu, block: PlanThreadblock) -> Iterator[str]:
    for channels in block.channels:
        if channels.channel_type is not ChannelType.SWITCH:
            known = len(gpu.peers(channels.channel_type))
            yield from _beyond(channels.channel_ids, known, f"{channels.channel_type} channel")
    for refs in block.remote_buffer_refs:
        yield from _beyond(refs.remote_buffer_ids, len(gpu.remote_buffers), "remote buffer")
    for number, operation in enumerate(block.ops):
        for inner in (operation, *(operation.ops or ())):
            for text in _broken_in_operation(plan, gpu, block, inner):
                yield f"operation {number} ({inner.name}): {text}"


def _broken_in_operation(
    plan: Plan, gpu: PlanGpu, block: PlanThreadblock, operation: Operation
) -> Iterator[str]:
    kind = operation.channel_type
    channels = sum(len(c.channel_ids) for c in block.channels if c.channel_type is kind)
    buffers = {
        number: gpu.remote_buffers[buffer]
        for refs in block.remote_buffer_refs
        if refs.access_channel_type is kind
        for number, buffer in enumerate(refs.remote_buffer_ids)
        if buffer < len(gpu.remote_buffers)
    }
    yield from _beyond(operation.channel_ids or (), channels, "channel", " of the threadblock")
    yield from _beyond(operation.semaphore_ids or (), len(gpu.semaphores), "semaphore")
    for place in (*(operation.src_buff or ()), *(operation.dst_buff or ())):
        owner, buffer = gpu, place.type
        if place.buffer_id is not None:
            remote = buffers.get(place.buffer_id)
            if remote is None or remote.rank >= len(plan.gpus):
                yield f"no remote buffer {place.buffer_id} of the threadblock"
                continue
            owner, buffer = plan.gpus[remote.rank], remote.type
        if buffer is not None and place.index + place.size > buffer_chunks(owner, buffer):
            yield (
                f"chunks {place.index} to {place.index + place.size - 1} of buffer {buffer} of "
                f"rank {owner.id}, which has {buffer_chunks(owner, buffer)}"
            )


def _beyond(ids: tuple[int, ...], known: int, what: str, owner: str = "") -> Iterator[str]:
    return (
        f"no {what} {number}{owner}, there are {known}" for number in ids if not 0 <= number < known
    )


def buffer_chunks(gpu: PlanGpu, buffer: Buffer) -> int:
    """Return the number of chunks of a rank's buffer."""
    if buffer is Buffer.INPUT:
        return gpu.input_chunks
    return gpu.output_chunks if buffer is Buffer.OUTPUT else gpu.scratch_chunks
