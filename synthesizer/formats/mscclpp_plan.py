"""MSCCL-IR as an MSCCL++ execution plan: one-sided puts with signals, or packets.

With protocol Simple a send puts its data into the peer's memory and signals; the receive waits for
the signal and copies, reduces or forwards. Before the first put of a connection the sender waits
for a signal that the peer's call has begun, so no call writes into the memory of an earlier one.
With protocol LL data travels as packets with flags, without signals, in scratch memory that two
calls use alternately. Dependences between threadblocks become semaphores. `mscclpp_placement` says
where a message lands, `mscclpp_stream` how a threadblock's threads are synchronised.

Operations, limits and layouts as MSCCL++ 0.9 executes them (src/core/include/execution_kernel.hpp,
src/core/executor/execution_plan.cc).
"""

from __future__ import annotations

from collections.abc import Sequence

from synthesizer.formats.mscclpp_buffers import PlanBuffers
from synthesizer.formats.mscclpp_plan_file import (
    Channels,
    ChannelType,
    Plan,
    PlanGpu,
    RemoteBuffer,
    Semaphore,
    plan_text,
)
from synthesizer.formats.mscclpp_threadblocks import RankWriter
from synthesizer.ir.algorithm import Algorithm, GpuProgram, Protocol
from synthesizer.ir.collectives import Collective
from synthesizer.prove.verifier import verify
from tuccl.errors import FormatError, ScheduleError

MAX_THREADBLOCKS = 108
"""Most threadblocks of a rank: they wait for each other, so all must be resident (108 SMs)."""

MAX_OFFSET_BYTES = 2**32 - 1
"""Largest offset: the executor keeps offsets and sizes in 32 bits and does not check overflow."""

_NAMES = {
    Collective.ALL_REDUCE: "allreduce",
    Collective.ALL_GATHER: "allgather",
    Collective.REDUCE_SCATTER: "reducescatter",
    Collective.BROADCAST: "broadcast",
    Collective.ALLTOALL: "alltoall",
}


def write_mscclpp_plan(
    algorithm: Algorithm,
    *,
    in_place: bool | None = None,
    node_of_rank: Sequence[int] | None = None,
) -> str:
    """Write a schedule as a plan; arguments and errors as for `mscclpp_plan`."""
    return plan_text(mscclpp_plan(algorithm, in_place=in_place, node_of_rank=node_of_rank))


def mscclpp_plan(
    algorithm: Algorithm,
    *,
    in_place: bool | None = None,
    node_of_rank: Sequence[int] | None = None,
) -> Plan:
    """Return the plan of a schedule.

    Args:
        algorithm: The schedule; it is verified first, because message placement relies on it.
        in_place: Whether the plan is for in-place calls; None: in place if the schedule allows it.
        node_of_rank: NVLink domain of each rank; None if all ranks are in one.

    Raises:
        ScheduleError: The schedule is wrong.
        FormatError: A plan cannot express it.
    """
    mode = algorithm.in_place if in_place is None else in_place
    _check_expressible(algorithm, node_of_rank, in_place=mode)
    buffers = PlanBuffers(algorithm, in_place=mode)
    gpus = tuple(_gpu(algorithm, buffers, program) for program in algorithm.programs)
    largest = _largest_message(algorithm, gpus, packets=buffers.packets)
    if algorithm.min_bytes > largest:
        raise FormatError(
            f"{algorithm.name}: no MSCCL++ plan: it is for {algorithm.min_bytes} bytes and more,"
            f" and the executor's 32-bit offsets end at {largest}"
        )
    kind = f"{algorithm.protocol}_{'in' if mode else 'out_of'}_place"
    return Plan(
        # The executor caches a plan's setup by the plan's name, which must therefore be unique.
        name=f"{algorithm.name or 'tuccl'}_{algorithm.content_hash()}_{kind}",
        collective=_NAMES[algorithm.collective],
        protocol="LL" if buffers.packets else "Simple",
        inplace=mode,
        gpus=gpus,
        use_double_scratch_buffer=buffers.packets,
        min_message_size=algorithm.min_bytes,
        max_message_size=min(algorithm.max_bytes or largest, largest),
    )


def _largest_message(algorithm: Algorithm, gpus: Sequence[PlanGpu], *, packets: bool) -> int:
    """Return the largest message whose buffers the executor's offsets (`uint32_t`) reach.

    Packets take twice the size of their data, and scratch memory has two halves of them.
    """
    scratch = max(gpu.scratch_chunks for gpu in gpus) * (4 if packets else 1)
    chunks = algorithm.chunks_per_loop
    return MAX_OFFSET_BYTES * chunks // max(chunks, scratch)


def _check_expressible(
    algorithm: Algorithm, node_of_rank: Sequence[int] | None, *, in_place: bool
) -> None:
    def refuse(why: str) -> FormatError:
        return FormatError(f"{algorithm.name}: no MSCCL++ plan: {why}")

    if algorithm.collective not in _NAMES:
        raise refuse(f"MSCCL++ has no collective {algorithm.collective}")
    if algorithm.protocol is Protocol.LL128:
        raise refuse("MSCCL++ has no protocol LL128; export it with protocol Simple or LL")
    if algorithm.protocol is Protocol.LL and algorithm.collective is Collective.BROADCAST:
        raise refuse(
            "a broadcast's root waits for no peer, so with protocol LL it could overwrite packets"
            " of the previous call; export it with protocol Simple"
        )
    if not (algorithm.in_place if in_place else algorithm.out_of_place):
        raise refuse(f"the schedule does not work {'in' if in_place else 'out of'} place")
    nodes = node_of_rank or (0,) * algorithm.ranks
    if len(nodes) != algorithm.ranks:
        raise refuse(f"the schedule has {algorithm.ranks} ranks, the machine {len(nodes)}")
    for program in algorithm.programs:
        for peer in (block.send_peer for block in program.threadblocks):
            if peer >= 0 and nodes[peer] != nodes[program.rank]:
                raise refuse(
                    f"rank {program.rank} sends to rank {peer} on another node, and memory channels"
                    " reach GPUs of one NVLink domain only"
                )
    verdict = verify(algorithm)
    if not verdict.proved:
        raise ScheduleError(f"{algorithm.name}: {verdict.defects[0].describe()}")


def _gpu(algorithm: Algorithm, buffers: PlanBuffers, program: GpuProgram) -> PlanGpu:
    """Return the plan of one rank."""
    writer = RankWriter(buffers, program)
    streams = [writer.stream(block) for block in program.threadblocks]
    drafts = [draft for stream in streams for draft in stream.drafts if draft.ops]
    if len(drafts) > MAX_THREADBLOCKS:
        raise FormatError(
            f"{algorithm.name}: no MSCCL++ plan: rank {program.rank} needs {len(drafts)}"
            f" threadblocks, at most {MAX_THREADBLOCKS} run at once; use fewer channels"
        )
    share = algorithm.chunks_per_loop // algorithm.ranks
    collective = algorithm.collective
    return PlanGpu(
        id=program.rank,
        # Every rank declares both buffers: the executor divides by their chunk counts.
        input_chunks=share if collective is Collective.ALL_GATHER else algorithm.chunks_per_loop,
        output_chunks=(
            share if collective is Collective.REDUCE_SCATTER else algorithm.chunks_per_loop
        ),
        scratch_chunks=buffers.scratch_chunks(program.rank, writer.spared),
        threadblocks=tuple(draft.threadblock(number) for number, draft in enumerate(drafts)),
        channels=(
            (Channels(channel_type=ChannelType.MEMORY, connected_to=writer.peers),)
            if writer.peers
            else ()
        ),
        remote_buffers=tuple(
            RemoteBuffer(rank=peer, type=buffer, access_channel_types=(ChannelType.MEMORY,))
            for peer, buffer in writer.remote
        ),
        semaphores=(Semaphore(init_value=0),) * writer.semaphores,
    )
