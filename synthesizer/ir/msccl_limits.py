"""Limits of the MSCCL runtimes, which may refuse or misread a correct schedule.

The limits are those of Azure/msccl-executor-nccl (src/include/msccl/msccl_struct.h,
src/misc/msccl/msccl_parser.cc); microsoft/msccl has the same ones. Both ignore a file that exceeds
a limit and fall back to NCCL's own algorithms, often without a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from synthesizer.ir.algorithm import Algorithm, GpuProgram, Step, StepType, Threadblock

MAX_STEPS = 256
"""Most steps of a threadblock."""
MAX_THREADBLOCKS = 216
"""Most threadblocks of a rank."""
MAX_BLOCKS_PER_CHANNEL = 32
"""Most threadblocks of a rank that send, or that receive, on one channel."""
MAX_COUNT = 71
"""Most chunks of a step."""
MAX_CHANNELS = 32


def check_limits(algorithm: Algorithm) -> tuple[str, ...]:
    """Return a line for each limit that the schedule exceeds."""
    found: list[str] = []
    if algorithm.channels > MAX_CHANNELS:
        found.append(f"{algorithm.channels} channels, at most {MAX_CHANNELS}")
    for gpu in algorithm.programs:
        found.extend(_rank_limits(gpu))
    return tuple(found)


def _rank_limits(gpu: GpuProgram) -> Iterator[str]:
    if len(gpu.threadblocks) > MAX_THREADBLOCKS:
        yield f"rank {gpu.rank}: {len(gpu.threadblocks)} threadblocks, at most {MAX_THREADBLOCKS}"
    senders = Counter(block.channel for block in gpu.threadblocks if block.send_peer >= 0)
    receivers = Counter(block.channel for block in gpu.threadblocks if block.recv_peer >= 0)
    for verb, users in (("send", senders), ("receive", receivers)):
        for channel, blocks in sorted(users.items()):
            if blocks > MAX_BLOCKS_PER_CHANNEL:
                yield (
                    f"rank {gpu.rank}: {blocks} threadblocks {verb} on channel {channel}, "
                    f"at most {MAX_BLOCKS_PER_CHANNEL}"
                )
    awaited = {
        (step.depends.threadblock, step.depends.step)
        for block in gpu.threadblocks
        for step in block.steps
        if step.depends is not None
    }
    for block in gpu.threadblocks:
        for text in _threadblock_limits(block, awaited):
            yield f"rank {gpu.rank} threadblock {block.id}: {text}"


def _threadblock_limits(block: Threadblock, awaited: set[tuple[int, int]]) -> Iterator[str]:
    if len(block.steps) > MAX_STEPS:
        yield f"{len(block.steps)} steps, at most {MAX_STEPS}"
    before: Step | None = None
    carried = False
    for number, step in enumerate(block.steps):
        if step.count > MAX_COUNT:
            yield f"step {number}: {step.count} chunks, at most {MAX_COUNT}"
        if step.type is StepType.NOP:
            carried = carried or step.depends is not None
            if (block.id, number) in awaited:
                yield f"step {number}: a nop never reports that it is done, and a step waits for it"
        else:
            if carried and step.depends is None:
                yield f"step {number}: follows a nop that waits, and must itself wait for a step"
            carried = False
        fused = before is not None and _fused(before, step, (block.id, number - 1) in awaited)
        if fused and before is not None and before.count != step.count:
            yield f"step {number}: fused with the reduction before it, which has another count"
        before = step
    if carried:
        yield f"step {len(block.steps) - 1}: a nop at the end is dropped with its dependence"


def _fused(before: Step, step: Step, before_reports: bool) -> bool:
    return (
        before.type is step.type is StepType.REDUCE
        and before.dst == step.dst
        and before.src.buffer is step.src.buffer
        and step.depends is None
        and not before_reports
    )
