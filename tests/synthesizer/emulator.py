"""Emulation of a schedule on numpy arrays, with threadblocks in random order.

The emulator shares no code with the verifier beyond the operations' buffer sizes, so each can be
tested against the other. Threadblocks have random speeds, messages pass bounded FIFOs, and
unwritten memory holds noise, so that a schedule that is correct only by chance fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Step, StepType, Threadblock
from synthesizer.ir.contents import input_chunks, output_chunks
from tuccl.errors import ScheduleError

Array = NDArray[np.generic]
_SPEEDS = (0.05, 0.5, 1.0)
"""Probabilities that a threadblock acts in a round; unequal speeds lead to different orders."""


@dataclass(slots=True)
class _Worker:
    """A threadblock's progress: its current step and the finished chunks of that step."""

    rank: int
    block: Threadblock
    at: int = 0
    chunks: int = 0

    @property
    def running(self) -> bool:
        return self.at < len(self.block.steps)


def run(
    algorithm: Algorithm,
    inputs: Sequence[Array],
    *,
    in_place: bool | None = None,
    slots: int = 2,
    chunks_per_slot: int | None = None,
    seed: int = 0,
) -> list[Array]:
    """Run a schedule and return the output buffer of every rank.

    Args:
        algorithm: The schedule.
        inputs: Input buffer of each rank, with a whole number of elements per chunk; never written.
            Ranks without an input (broadcast, not the root) have an empty array.
        in_place: Buffer layout of the call; None: in place if the schedule allows it.
        slots: FIFO slots per connection.
        chunks_per_slot: Chunks that move at a time; None to move a step's chunks together.
        seed: Seed of the interleaving.

    Raises:
        ScheduleError: The schedule deadlocks, or accesses memory outside its buffers.
    """
    rng = np.random.default_rng(seed)
    mode = algorithm.in_place if in_place is None else in_place
    elements = _elements_per_chunk(algorithm, inputs)
    memory = [
        _buffers(algorithm, rank, inputs[rank], elements, rng, in_place=mode)
        for rank in range(algorithm.ranks)
    ]
    workers = [_Worker(gpu.rank, block) for gpu in algorithm.programs for block in gpu.threadblocks]
    _Machine(memory, workers, slots, chunks_per_slot).run(rng)
    return [
        buffers[Buffer.OUTPUT][: _sizes(algorithm, rank)[1]].reshape(-1).copy()
        for rank, buffers in enumerate(memory)
    ]


def expected_outputs(collective: Collective, inputs: Sequence[Array], root: int = 0) -> list[Array]:
    """Return the operation's outputs (sum for reductions) by its definition.

    Raises:
        ValueError: The operation is `custom`.
    """
    ranks = len(inputs)
    match collective:
        case Collective.ALL_REDUCE:
            return [_total(inputs)] * ranks
        case Collective.REDUCE:
            total = _total(inputs)
            return [total if rank == root else total[:0] for rank in range(ranks)]
        case Collective.REDUCE_SCATTER:
            return list(np.split(_total(inputs), ranks))
        case Collective.ALL_GATHER:
            return [np.concatenate(inputs)] * ranks
        case Collective.BROADCAST:
            return [inputs[root]] * ranks
        case Collective.ALLTOALL:
            blocks = [np.split(array, ranks) for array in inputs]
            return [np.concatenate([row[rank] for row in blocks]) for rank in range(ranks)]
        case Collective.CUSTOM:
            msg = "custom: nothing says what this operation computes"
            raise ValueError(msg)


def _total(inputs: Sequence[Array]) -> Array:
    return np.asarray(np.sum(np.stack(inputs), axis=0), dtype=inputs[0].dtype)


class _Machine:
    """Memory, FIFOs and the threadblocks' progress."""

    def __init__(
        self,
        memory: list[dict[Buffer, Array]],
        workers: list[_Worker],
        slots: int,
        chunks_per_slot: int | None,
    ) -> None:
        self.memory = memory
        self.workers = workers
        self.number_of = {(w.rank, w.block.id): number for number, w in enumerate(workers)}
        self.slots = slots
        self.chunks_per_slot = chunks_per_slot
        self.fifos: dict[tuple[int, int, int], deque[Array]] = {}
        self.idle = np.array([not worker.running for worker in workers], dtype=bool)
        """Whether each worker has finished or waits for another worker."""
        self.waiting: dict[int, list[int]] = {}
        """Workers that wait for a step of another worker, by that worker."""
        self.ends: dict[tuple[int, int, int], list[int]] = {}
        """Workers at both ends of a connection."""
        for number, worker in enumerate(workers):
            for connection in _connections(worker):
                self.ends.setdefault(connection, []).append(number)

    def run(self, rng: np.random.Generator) -> None:
        """Advance threadblocks in random order, each at its own speed, until all are done."""
        speeds = rng.choice(_SPEEDS, size=len(self.workers))
        while not self.idle.all():
            able = np.flatnonzero(~self.idle)
            turn = able[rng.random(able.size) < speeds[able]]
            for number in rng.permutation(turn).tolist():
                worker = self.workers[number]
                self.idle[number] = not (self._advance(number, worker) and worker.running)
        if any(worker.running for worker in self.workers):
            raise ScheduleError(self._blocked())

    def _wake(self, numbers: Sequence[int]) -> None:
        """Mark workers as able to act, unless they have finished."""
        for number in numbers:
            self.idle[number] = not self.workers[number].running

    def _advance(self, number: int, worker: _Worker) -> bool:
        """Move the next piece of the worker's current step; return whether it could move."""
        step = worker.block.steps[worker.at]
        if step.depends is not None:
            awaited = self.number_of[worker.rank, step.depends.threadblock]
            if self.workers[awaited].at <= step.depends.step:
                self.waiting.setdefault(awaited, []).append(number)
                return False
        incoming, outgoing = _connections(worker)
        source = self.fifos.setdefault(incoming, deque())
        target = self.fifos.setdefault(outgoing, deque())
        if (step.type.receives and not source) or (step.type.sends and len(target) >= self.slots):
            return False
        count = min(self.chunks_per_slot or step.count, step.count - worker.chunks)
        if step.type is not StepType.NOP:
            message = source.popleft() if step.type.receives else None
            result = self._compute(worker, step, count, message)
            if step.type.sends:
                target.append(result)
                self._wake(self.ends[outgoing])
            if message is not None:
                self._wake(self.ends[incoming])
        worker.chunks += count
        if worker.chunks >= step.count:
            worker.at += 1
            worker.chunks = 0
            self._wake(self.waiting.pop(number, ()))
        return True

    def _compute(self, worker: _Worker, step: Step, count: int, message: Array | None) -> Array:
        """Compute the value of a piece, and write it unless the step only sends."""
        kind = step.type
        if message is not None and len(message) != count:
            raise ScheduleError(f"{_name(worker)}: {count} chunks of a message of {len(message)}")
        if message is None:
            value = self._at(worker, step.src, count).copy()
        elif _reduces(kind):
            value = np.add(self._at(worker, step.src, count), message)
        else:
            value = message
        if kind is StepType.REDUCE:
            value = np.add(self._at(worker, step.dst, count), value)
        if kind not in {StepType.SEND, StepType.RECV_REDUCE_SEND}:
            self._at(worker, step.dst, count)[...] = value
        return value

    def _at(self, worker: _Worker, ref: ChunkRef, count: int) -> Array:
        buffer = self.memory[worker.rank][ref.buffer]
        first = ref.offset + worker.chunks
        if ref.offset < 0 or first + count > len(buffer):
            raise ScheduleError(
                f"{_name(worker)}: chunks {first} to {first + count - 1} of buffer {ref.buffer}, "
                f"which has {len(buffer)}"
            )
        return buffer[first : first + count]

    def _blocked(self) -> str:
        """Return the message for a deadlock."""
        names = [_name(worker) for worker in self.workers if worker.running]
        return f"deadlock: {len(names)} threadblocks wait, first {names[0]}"


def _connections(worker: _Worker) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the connections from which a worker receives and on which it sends."""
    rank, block = worker.rank, worker.block
    return (block.recv_peer, rank, block.channel), (rank, block.send_peer, block.channel)


def _reduces(kind: StepType) -> bool:
    return kind in {
        StepType.RECV_REDUCE_COPY,
        StepType.RECV_REDUCE_SEND,
        StepType.RECV_REDUCE_COPY_SEND,
    }


def _name(worker: _Worker) -> str:
    kind = worker.block.steps[worker.at].type
    return f"rank {worker.rank} threadblock {worker.block.id} step {worker.at} ({kind})"


def _sizes(algorithm: Algorithm, rank: int) -> tuple[int, int]:
    """Return the chunks of a rank's input and output buffer, out of place."""
    if algorithm.collective is Collective.CUSTOM:
        program = algorithm.programs[rank]
        return program.input_chunks, program.output_chunks
    shape = (algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root)
    return input_chunks(*shape), output_chunks(*shape)


def _elements_per_chunk(algorithm: Algorithm, inputs: Sequence[Array]) -> int:
    if len(inputs) != algorithm.ranks:
        msg = f"{len(inputs)} inputs for a schedule of {algorithm.ranks} ranks"
        raise ValueError(msg)
    found = set()
    for rank, array in enumerate(inputs):
        chunks = _sizes(algorithm, rank)[0]
        if chunks and array.size % chunks:
            msg = f"input of rank {rank}: {array.size} elements do not divide into {chunks} chunks"
            raise ValueError(msg)
        if chunks:
            found.add(array.size // chunks)
    if len(found) != 1:
        msg = f"inputs differ in elements per chunk: {sorted(found)}"
        raise ValueError(msg)
    return found.pop()


def _buffers(
    algorithm: Algorithm,
    rank: int,
    content: Array,
    elements: int,
    rng: np.random.Generator,
    *,
    in_place: bool,
) -> dict[Buffer, Array]:
    """Return a rank's buffers; in place the smaller of input and output is a view of the larger."""
    inputs, outputs = _sizes(algorithm, rank)

    def noise(chunks: int) -> Array:
        return rng.integers(1, 100, size=(chunks, elements)).astype(content.dtype)

    scratch = noise(algorithm.programs[rank].scratch_chunks)
    rooted = algorithm.collective in {Collective.BROADCAST, Collective.REDUCE}
    if rooted:
        # Only the root has both buffers; other ranks may pass a null pointer for one.
        in_place = in_place and rank == algorithm.root
    if not in_place or algorithm.collective is Collective.CUSTOM:
        source, result = noise(inputs), noise(outputs)
    elif algorithm.collective is Collective.REDUCE_SCATTER:
        source = noise(inputs)
        result = source[rank * outputs : (rank + 1) * outputs]
    elif algorithm.collective is Collective.ALL_GATHER:
        result = noise(outputs)
        source = result[rank * inputs : (rank + 1) * inputs]
    else:
        source = noise(max(inputs, outputs))
        result = source
    if inputs:
        source[:inputs] = content.reshape(inputs, elements)
    return {Buffer.INPUT: source, Buffer.OUTPUT: result, Buffer.SCRATCH: scratch}
