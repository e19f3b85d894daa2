"""MSCCL-IR as an MSCCL++ execution plan: one-sided puts with signals, or packets.

With protocol Simple a send puts its data into the peer's memory and signals; the receive waits for
the signal and copies, reduces or forwards. Before the first put of a connection the sender waits
for a signal that the peer's call has begun, so no call writes into the memory of an earlier one.
With protocol LL data travels as packets with flags, without signals, in scratch memory that two
calls use alternately. Dependences between threadblocks become semaphores. `mscclpp_buffers` says
where a message lands, `mscclpp_stream` how a threadblock's threads are synchronised.

Operations, limits and layouts as MSCCL++ 0.9 executes them (src/core/include/execution_kernel.hpp,
src/core/executor/execution_plan.cc).

| step | protocol Simple | protocol LL |
|---|---|---|
| s | ready?, put, signal | ppkt |
| r | wait, copy unless it was put in place | upkt |
| rcs | wait, put, signal, copy as for r | rppkt, upkt |
| rrc | wait, re | repkt |
| rrs, rrcs | wait, res, signal | respkt |
| re, cpy | re, copy | re, copy |
| dependence | sem_acquire before, sem_release after the awaited step | the same |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from synthesizer.formats.mscclpp_buffers import PlanBuffers
from synthesizer.formats.mscclpp_plan_file import (
    Channels,
    ChannelType,
    OperationName,
    Plan,
    PlanGpu,
    RemoteBuffer,
    Semaphore,
    plan_text,
)
from synthesizer.formats.mscclpp_stream import Place, Stream
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    GpuProgram,
    Protocol,
    Step,
    StepType,
    Threadblock,
)
from synthesizer.prove.verifier import verify
from tuccl.errors import FormatError, ScheduleError


@dataclass(frozen=True, slots=True)
class _OperationNames:
    put: OperationName
    forward: OperationName
    store: OperationName
    reduce: OperationName
    reduce_send: OperationName


_PUT_NAMES = _OperationNames(
    OperationName.PUT,
    OperationName.PUT,
    OperationName.COPY,
    OperationName.REDUCE,
    OperationName.REDUCE_SEND,
)
_PACKET_NAMES = _OperationNames(
    OperationName.PUT_PACKETS,
    OperationName.READ_PUT_PACKETS,
    OperationName.UNPACK_PACKETS,
    OperationName.REDUCE_PACKETS,
    OperationName.REDUCE_SEND_PACKETS,
)


def _dependences(program: GpuProgram) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return the awaited steps by (threadblock, step), without those that earlier waits imply."""
    kept: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for block in program.threadblocks:
        reached: dict[int, int] = {}
        for number, step in enumerate(block.steps):
            awaited = step.depends
            if awaited is None or awaited.threadblock == block.id:
                continue
            if reached.get(awaited.threadblock, -1) < awaited.step:
                reached[awaited.threadblock] = awaited.step
                kept.setdefault((block.id, number), []).append((awaited.threadblock, awaited.step))
    return kept


class RankWriter:
    """Numbers channels, remote buffers and semaphores of one rank and writes its threadblocks."""

    def __init__(self, plan: PlanBuffers, program: GpuProgram) -> None:
        self.plan = plan
        self.program = program
        self.rank = program.rank
        ends = sorted(
            (dst if src == self.rank else src, (src, dst, channel))
            for src, dst, channel in plan.connections
            if self.rank in {src, dst}
        )
        self.peers = tuple(peer for peer, _ in ends)
        self.channel = {connection: number for number, (_, connection) in enumerate(ends)}
        self.remote: list[tuple[int, Buffer]] = []
        self.semaphores = 0
        self.spared = 0
        self.acquires: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.releases: dict[tuple[int, int], list[int]] = defaultdict(list)
        pairs: dict[tuple[int, int], int] = {}
        for waiter, awaited_steps in _dependences(program).items():
            for awaited in awaited_steps:
                pair = (waiter[0], awaited[0])
                if pair not in pairs:
                    pairs[pair] = self.new_semaphore()
                self.acquires[waiter].append(pairs[pair])
                self.releases[awaited].append(pairs[pair])

    def new_semaphore(self) -> int:
        """Return the number of a new semaphore."""
        self.semaphores += 1
        return self.semaphores - 1

    def remote_buffer(self, peer: int, buffer: Buffer) -> int:
        """Return the number of a remote buffer."""
        if (peer, buffer) not in self.remote:
            self.remote.append((peer, buffer))
        return self.remote.index((peer, buffer))

    def stream(self, block: Threadblock) -> Stream:
        """Return the operations of a threadblock."""
        stream = Stream(
            self.remote_buffer,
            self.new_semaphore,
            nop_per_step=self.plan.packets,
        )
        signals = not self.plan.packets
        to_peer = self.channel.get((self.rank, block.send_peer, block.channel), -1)
        from_peer = self.channel.get((block.recv_peer, self.rank, block.channel), -1)
        if signals and any(step.type.receives for step in block.steps):
            stream.signal(from_peer, relaxed=True)
        peer_ready = False
        for number, step in enumerate(block.steps):
            stream.begin_step()
            stream.acquire(self.acquires[block.id, number])
            sends = step.type.sends
            if signals and sends and not peer_ready:
                stream.wait(to_peer, relaxed=True)
                peer_ready = True
            if signals and step.type.receives:
                stream.wait(from_peer)
            node = self.plan.first_step[self.rank, block.id] + number
            self._move(stream, step, node, to_peer)
            if signals and sends:
                stream.signal(to_peer)
            stream.release(self.releases[block.id, number])
        return stream

    def _move(self, stream: Stream, step: Step, node: int, channel: int) -> None:
        names = _PACKET_NAMES if self.plan.packets else _PUT_NAMES
        count, kind = step.count, step.type
        src = self.plan.local(self.rank, step.src)
        dst = self.plan.local(self.rank, step.dst)
        message = target = src
        if kind.receives:
            message = self.plan.landing(node, seen_from=self.rank)
        if kind.sends:
            target = self.plan.landing(self.plan.receive_of[node], seen_from=self.rank)
        match kind:
            case StepType.SEND:
                stream.move(names.put, [src], [target], count, channel)
            case StepType.RECV_COPY_SEND:
                stream.move(names.forward, [message], [target], count, channel)
            case StepType.RECV_REDUCE_COPY:
                stream.move(names.reduce, [src, message], [dst], count)
            case StepType.RECV_REDUCE_COPY_SEND:
                stream.move(names.reduce_send, [src, message], [dst, target], count, channel)
            case StepType.RECV_REDUCE_SEND:
                spare = self._spare(message, count)
                stream.move(names.reduce_send, [src, message], [spare, target], count, channel)
            case StepType.REDUCE:
                stream.move(OperationName.REDUCE, [dst, src], [dst], count)
            case StepType.COPY if src != dst:
                stream.move(OperationName.COPY, [src], [dst], count)
        if kind in {StepType.RECV, StepType.RECV_COPY_SEND} and message != dst:
            stream.move(names.store, [message], [dst], count)

    def _spare(self, message: Place, count: int) -> Place:
        """Return a location for a sum that is only sent, as the executor stores every sum."""
        if not self.plan.packets:
            return message
        self.spared += count
        return self.plan.spare(self.rank, self.spared - count)


MAX_THREADBLOCKS = 108
"""Most threadblocks of a rank: they wait for each other, so all must be resident (108 SMs)."""

MAX_OFFSET_BYTES = 2**32 - 1
"""Largest offset: the executor keeps offsets and sizes in 32 bits and does not check overflow."""

_KNOWN = frozenset({"allreduce", "allgather", "reducescatter", "broadcast", "alltoall"})
"""Collectives of MSCCL++."""


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
        collective=algorithm.collective.short_name,
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

    if algorithm.collective.short_name not in _KNOWN:
        raise refuse(f"MSCCL++ has no collective {algorithm.collective}")
    if algorithm.protocol is Protocol.LL128:
        raise refuse("MSCCL++ has no protocol LL128; export it with protocol Simple or LL")
    if algorithm.protocol is Protocol.LL and algorithm.collective.from_root:
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
        input_chunks=share if collective.input_is_part else algorithm.chunks_per_loop,
        output_chunks=(share if collective.output_is_part else algorithm.chunks_per_loop),
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
