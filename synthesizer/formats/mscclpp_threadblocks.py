"""The threadblocks of one rank of an MSCCL++ plan: MSCCL-IR steps as operations.

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
from dataclasses import dataclass

from synthesizer.formats.mscclpp_buffers import PlanBuffers
from synthesizer.formats.mscclpp_plan_file import OperationName
from synthesizer.formats.mscclpp_stream import Place, Stream
from synthesizer.ir.algorithm import Buffer, GpuProgram, Step, StepType, Threadblock
from synthesizer.ir.wiring import RECEIVING, SENDING


@dataclass(frozen=True, slots=True)
class _OperationNames:
    """The operations of a protocol."""

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
        if signals and any(step.type in RECEIVING for step in block.steps):
            stream.signal(from_peer, relaxed=True)
        peer_ready = False
        for number, step in enumerate(block.steps):
            stream.begin_step()
            stream.acquire(self.acquires[block.id, number])
            sends = step.type in SENDING
            if signals and sends and not peer_ready:
                stream.wait(to_peer, relaxed=True)
                peer_ready = True
            if signals and step.type in RECEIVING:
                stream.wait(from_peer)
            node = self.plan.first_node[self.rank, block.id] + number
            self._move(stream, step, node, to_peer)
            if signals and sends:
                stream.signal(to_peer)
            stream.release(self.releases[block.id, number])
        return stream

    def _move(self, stream: Stream, step: Step, node: int, channel: int) -> None:
        """Append the data movement of a step."""
        names = _PACKET_NAMES if self.plan.packets else _PUT_NAMES
        count, kind = step.count, step.type
        src = self.plan.local(self.rank, step.src)
        dst = self.plan.local(self.rank, step.dst)
        message = target = src
        if kind in RECEIVING:
            message = self.plan.landing(node, seen_from=self.rank)
        if kind in SENDING:
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
