"""Adversarial emulation of MSCCL++ plans on numpy arrays, within the executor's rules.

Every threadblock has several threads that run through its operations at their own speeds; each
operation assigns other elements to a thread, so that a missing `nop` leads to wrong values. Only
the first threads wait and signal, as in the executor. Several calls run one after another; each
rank begins the next as soon as its own kernel ends. Unwritten memory holds noise. Packets carry the
number of the call as their flag and lie in scratch memory at twice their index, so that plain data
at the same index destroys them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from synthesizer.formats.mscclpp_plan_file import (
    BufferRange,
    ChannelType,
    Operation,
    OperationName,
    Plan,
    PlanThreadblock,
)
from synthesizer.ir.algorithm import Buffer

T = TypeVar("T", bound=Hashable)

THREADS = 3
ELEMENTS = 4
"""Elements of a chunk."""

SIGNALS = {OperationName.SIGNAL, OperationName.RELAXED_SIGNAL}
WAITS = {OperationName.WAIT, OperationName.RELAXED_WAIT}
_ON_SEMAPHORES = SIGNALS | WAITS | {OperationName.SEM_ACQUIRE, OperationName.SEM_RELEASE}
_TO_PACKETS = {OperationName.PUT_PACKETS, OperationName.COPY_PACKETS}
_FROM_PACKETS = {OperationName.UNPACK_PACKETS}
_SUMS = {OperationName.REDUCE, OperationName.REDUCE_SEND}
_PACKET_SUMS = {OperationName.REDUCE_PACKETS, OperationName.REDUCE_SEND_PACKETS}


class StuckError(Exception):
    """Raised when no thread can advance."""


@dataclass
class _Thread:
    rank: int
    block: PlanThreadblock
    number: int
    at: int = 0
    pending: list[int] = field(default_factory=list)
    """Channels or semaphores that the thread's operation still waits for."""
    started: bool = False


class _Rank:
    def __init__(self, plan: Plan, rank: int, rng: np.random.Generator) -> None:
        gpu = plan.gpus[rank]
        rows = gpu.scratch_chunks * (2 if plan.protocol == "LL" else 1)
        halves = 2 if plan.use_double_scratch_buffer else 1
        self.call = 0
        self.scratch = [_noise(rows, rng) for _ in range(halves)]
        self.flags = [np.zeros((rows, ELEMENTS), np.int64) for _ in range(halves)]
        self.input = self.output = _noise(max(gpu.input_chunks, gpu.output_chunks), rng)
        if not plan.inplace:
            self.input = _noise(gpu.input_chunks, rng)
            self.output = _noise(gpu.output_chunks, rng)
        elif gpu.input_chunks < gpu.output_chunks:
            self.input = self.output[rank * gpu.input_chunks :][: gpu.input_chunks]
        elif gpu.output_chunks < gpu.input_chunks:
            self.output = self.input[rank * gpu.output_chunks :][: gpu.output_chunks]
        self.semaphores = Counter(
            {number: semaphore.init_value for number, semaphore in enumerate(gpu.semaphores)}
        )
        self.threads: list[_Thread] = []


def _noise(rows: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(10**9, 10**10, size=(rows, ELEMENTS))


class Emulator:
    """The state of all ranks of a plan."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.rng = np.random.default_rng(seed)
        self.ranks = [_Rank(plan, rank, self.rng) for rank in range(len(plan.gpus))]
        self.signalled: Counter[tuple[int, int]] = Counter()
        self.paired = _pairs(plan)

    def run(self, calls: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the calls, given as inputs by rank; return the outputs by call and rank."""
        outputs = [[np.zeros(0)] * len(self.ranks) for _ in calls]
        for rank, state in enumerate(self.ranks):
            self._begin(rank, state, calls[0][rank])
        speeds: dict[int, float] = {}
        while any(state.call < len(calls) for state in self.ranks):
            moved = False
            for hurried in (False, True):
                for thread in self._turn():
                    if id(thread) not in speeds:
                        speeds[id(thread)] = self.rng.choice([0.05, 0.5, 1.0])
                    if hurried or self.rng.random() < speeds[id(thread)]:
                        moved = self._step(thread) or moved
                if moved:
                    break
            moved = self._finish(calls, outputs) or moved
            if not moved:
                raise StuckError(self._where())
        return outputs

    def _turn(self) -> list[_Thread]:
        threads = [thread for state in self.ranks for thread in state.threads]
        return [threads[n] for n in self.rng.permutation(len(threads))]

    def _begin(self, rank: int, state: _Rank, content: np.ndarray) -> None:
        state.input[: len(content)] = content
        state.threads = [
            _Thread(rank, block, number)
            for block in self.plan.gpus[rank].threadblocks
            for number in range(THREADS)
        ]

    def _finish(
        self, calls: Sequence[Sequence[np.ndarray]], outputs: list[list[np.ndarray]]
    ) -> bool:
        moved = False
        for rank, state in enumerate(self.ranks):
            over = all(thread.at == len(thread.block.ops) for thread in state.threads)
            if state.call < len(calls) and over:
                outputs[state.call][rank] = state.output.copy()
                state.call += 1
                state.threads = []
                moved = True
                if state.call < len(calls):
                    self._begin(rank, state, calls[state.call][rank])
        return moved

    def _step(self, thread: _Thread) -> bool:
        """Advance a thread by its next operation, or part of it; return whether it finished."""
        if thread.at == len(thread.block.ops):
            return False
        operation = thread.block.ops[thread.at]
        name = operation.name
        if name is OperationName.NOP:
            return self._synchronise(thread)
        if name in _ON_SEMAPHORES:
            done = self._signal_or_wait(thread, operation)
        else:
            done = self._move(thread, operation)
        if done:
            thread.at += 1
        return done

    def _synchronise(self, thread: _Thread) -> bool:
        state = self.ranks[thread.rank]
        siblings = [sibling for sibling in state.threads if sibling.block is thread.block]
        if any(sibling.at < thread.at for sibling in siblings):
            return False
        thread.at += 1
        return True

    def _signal_or_wait(self, thread: _Thread, operation: Operation) -> bool:
        state = self.ranks[thread.rank]
        if not thread.started:
            ids = operation.semaphore_ids or self._channels(thread, operation)
            thread.pending = [n for k, n in enumerate(ids) if k % THREADS == thread.number]
            thread.started = True
        left = []
        for number in thread.pending:
            if operation.name in SIGNALS:
                self.signalled[self.paired[thread.rank, number]] += 1
            elif operation.name is OperationName.SEM_RELEASE:
                state.semaphores[number] += 1
            elif operation.name is OperationName.SEM_ACQUIRE:
                left += [] if _take(state.semaphores, number) else [number]
            else:
                left += [] if _take(self.signalled, (thread.rank, number)) else [number]
        thread.pending = left
        thread.started = bool(left)
        return not left

    def _channels(self, thread: _Thread, operation: Operation) -> list[int]:
        ids = [
            number
            for channels in thread.block.channels
            if channels.channel_type is operation.channel_type
            for number in channels.channel_ids
        ]
        return [ids[number] for number in operation.channel_ids or ()]

    def _mine(self, thread: _Thread, operation: Operation) -> np.ndarray:
        """Return the elements that this thread handles, which differ between operations."""
        assert operation.src_buff is not None
        call = self.ranks[thread.rank].call
        size = operation.src_buff[0].size * ELEMENTS
        return _elements(thread.rank, thread.block.id, thread.at, call, size)[thread.number]

    def _move(self, thread: _Thread, operation: Operation) -> bool:
        name, mine = operation.name, self._mine(thread, operation)
        sources, targets = operation.src_buff or (), operation.dst_buff or ()
        packets = {
            OperationName.READ_PUT_PACKETS: sources,
            OperationName.UNPACK_PACKETS: sources,
            OperationName.REDUCE_PACKETS: sources[1:],
            OperationName.REDUCE_SEND_PACKETS: sources[1:],
        }.get(name, ())
        if not all(self._arrived(thread, place, mine) for place in packets):
            return False
        values = [
            self._read(thread, place, mine, packets=any(place is packet for packet in packets))
            for place in sources
        ]
        if name in {OperationName.PUT, OperationName.PUT_PACKETS}:
            results = values if len(values) == len(targets) else values * len(targets)
        else:
            total = np.sum(values, axis=0) if name in _SUMS | _PACKET_SUMS else values[0]
            results = [total] * len(targets)
        to_packets = name in _TO_PACKETS | {OperationName.READ_PUT_PACKETS}
        for number, (place, value) in enumerate(zip(targets, results, strict=True)):
            sent = name is OperationName.REDUCE_SEND_PACKETS and number > 0
            self._write(thread, place, mine, value, packets=to_packets or sent)
        return True

    def _place(
        self, thread: _Thread, place: BufferRange, *, packets: bool
    ) -> tuple[np.ndarray, np.ndarray | None, int]:
        """Return memory, flags of packets, and first row."""
        rank, buffer = thread.rank, place.type
        if place.buffer_id is not None:
            refs = [
                number
                for references in thread.block.remote_buffer_refs
                if references.access_channel_type is ChannelType.MEMORY
                for number in references.remote_buffer_ids
            ]
            remote = self.plan.gpus[rank].remote_buffers[refs[place.buffer_id]]
            rank, buffer = remote.rank, remote.type
        state = self.ranks[rank]
        if buffer is Buffer.SCRATCH:
            half = self.ranks[thread.rank].call % len(state.scratch)
            flags = state.flags[half]
            return state.scratch[half], flags, place.index * (2 if packets else 1)
        return (state.input if buffer is Buffer.INPUT else state.output), None, place.index

    def _cells(
        self, first: int, mine: np.ndarray, *, packets: bool
    ) -> tuple[NDArray[np.intp], ...]:
        row = mine // ELEMENTS
        return first + row * (2 if packets else 1), mine % ELEMENTS

    def _arrived(self, thread: _Thread, place: BufferRange, mine: np.ndarray) -> bool:
        _, flags, first = self._place(thread, place, packets=True)
        assert flags is not None
        cells = self._cells(first, mine, packets=True)
        return bool(np.all(flags[cells] == self.ranks[thread.rank].call + 1))

    def _read(
        self, thread: _Thread, place: BufferRange, mine: np.ndarray, *, packets: bool
    ) -> np.ndarray:
        memory, _, first = self._place(thread, place, packets=packets)
        return memory[self._cells(first, mine, packets=packets)].copy()

    def _write(
        self,
        thread: _Thread,
        place: BufferRange,
        mine: np.ndarray,
        value: np.ndarray,
        *,
        packets: bool,
    ) -> None:
        memory, flags, first = self._place(thread, place, packets=packets)
        cells = self._cells(first, mine, packets=packets)
        memory[cells] = value
        if flags is not None:
            flag = self.ranks[thread.rank].call + 1 if packets else -1
            flags[cells] = flag
            if packets:
                memory[cells[0] + 1, cells[1]] = 0
            else:
                flags[np.maximum(cells[0] - 1, 0), cells[1]] = -1

    def _where(self) -> str:
        return "; ".join(
            f"rank {thread.rank} threadblock {thread.block.id} at {thread.at} "
            f"({thread.block.ops[thread.at].name})"
            for state in self.ranks
            for thread in state.threads
            if thread.at < len(thread.block.ops)
        )


@cache
def _elements(rank: int, block: int, at: int, call: int, size: int) -> list[np.ndarray]:
    """Return the elements of an operation that each thread handles."""
    owner = np.random.default_rng((rank, block, at, call)).integers(0, THREADS, size)
    return [np.flatnonzero(owner == number) for number in range(THREADS)]


def _take(counter: Counter[T], key: T) -> bool:
    if counter[key] <= 0:
        return False
    counter[key] -= 1
    return True


def _pairs(plan: Plan) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the peer end of each memory channel: the k-th to a peer pairs with the k-th back."""
    ends: dict[tuple[int, int], list[int]] = {}
    for gpu in plan.gpus:
        for number, peer in enumerate(gpu.peers(ChannelType.MEMORY)):
            ends.setdefault((gpu.id, peer), []).append(number)
    return {
        (rank, number): (peer, back)
        for (rank, peer), numbers in ends.items()
        for number, back in zip(numbers, ends[peer, rank], strict=True)
    }
