"""A rank's session in check_executor.py: device, NCCL, the executor and communicators.

NCCL is loaded twice: alone, and with the executor as in a job. Ranks of a communicator meet in a
folder. Calls are prepared once and compared on the device after each run.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Mapping, Sequence
from copy import copy
from ctypes import byref, c_int, c_void_p, create_string_buffer, memmove, sizeof
from pathlib import Path
from typing import Any

import numpy as np
from device_calls import Array, Buffer, Cuda, DeviceError, Nccl, UniqueId
from random_calls import RandomCall, data_of
from rank_program import from_rank_zero

from tuccl.runtime.executor_library import ExecutorLibrary

UNTOUCHED = 0xA5
_PARENT_DEATH_SIGNAL = 1


class Session:
    """One rank in its process."""

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        self.folder = Path(job["folder"])
        self.rank = rank
        self.ranks: int = job["ranks"]
        self.kernels: Mapping[str, Mapping[str, Mapping[str, str]]] = job["wanted"]["kernels"]
        """Content hashes, as in `Wanted.kernels`."""
        self.one_by_one: bool = job["one_by_one"]
        self.cuda = Cuda(rank % job["gpus"])
        self.real = Nccl(job["nccl"], as_seen=False)
        self.seen = Nccl(job["nccl"], as_seen=True)
        self.executor = ExecutorLibrary()
        # Only a process that has chosen before gets communicators served for later choices.
        self.executor.choose(None)

    def on(self, cuda: Cuda, rank: int) -> Session:
        """This session on another device of the process, as another rank."""
        other = copy(self)
        other.cuda, other.rank = cuda, rank
        return other

    def join(self, ranks: int, name: str, *, again: bool = False) -> c_void_p:
        """Create a communicator of the first ranks; each name is used once.

        Args:
            ranks: Number of ranks.
            name: File in which the ranks meet.
            again: Have the first start fail on an argument, and start again with the same id.

        Raises:
            DeviceError: NCCL failed, or did not fail where it must.
            TimeoutError: Rank 0 did not come.
        """
        identifier = UniqueId()
        if self.rank == 0:
            self.real.call("ncclGetUniqueId", byref(identifier))
        own = bytes(identifier) if self.rank == 0 else None
        told = from_rank_zero(self.folder / f"id-{name}", own)
        memmove(byref(identifier), told, sizeof(identifier))
        communicator = c_void_p()
        start = byref(communicator), c_int(ranks), identifier, c_int(self.rank)
        if again:
            self._fail_to_start(start)
        self.seen.call("ncclCommInitRank", *start)
        return communicator

    def _fail_to_start(self, start: tuple[Any, ...]) -> None:
        config = create_string_buffer(256)  # Without what NCCL_CONFIG_INITIALIZER puts there.
        try:
            self.seen.call("ncclCommInitRankConfig", *start, config)
        except DeviceError:
            return
        raise DeviceError("ncclCommInitRankConfig took a configuration that is none")

    def leave(self, communicator: c_void_p) -> None:
        """Destroy a communicator."""
        self.seen.call("ncclCommDestroy", communicator)

    def say(self, text: str) -> None:
        """Write the progress for the parent, which reads rank 0's."""
        part = self.folder / f"progress{self.rank}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(self.folder / f"progress{self.rank}")


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, so that it never holds a GPU."""
    library = ctypes.CDLL(None)
    library.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


class Prepared:
    """A call whose result NCCL has computed once and every later run is compared with.

    Results must be equal bit for bit. `counter` is the address of 8 bytes on the device that count
    differing bytes.
    """

    def __init__(self, cuda: Cuda, call: RandomCall, rank: int, counter: int) -> None:
        self.call = call
        self._cuda = cuda
        self._rank = rank
        self._counter = counter
        self._bytes = call.buffer_bytes
        kinds = ("initial", "expected", "receive") + (() if call.in_place else ("send",))
        self._buffers = {kind: Buffer(cuda) for kind in kinds}
        for buffer in self._buffers.values():
            buffer.reserve(self._bytes)

    def write(self, stream: c_void_p, block: Array | None = None) -> None:
        """Fill the send buffer with the call's random data, or with a block repeated."""
        sent = self._buffers["initial" if self.call.in_place else "send"]
        for buffer in self._buffers.values():
            buffer.fill(UNTOUCHED, self._bytes, stream)
        self._cuda.wait(stream)
        at = self.call.send_at(self._rank)
        if block is None:
            sent.write(at, data_of(self.call, self._rank))
            return
        size_bytes = self.call.send_count * self.call.element_bytes
        done = min(block.nbytes, size_bytes)
        sent.write(at, block[:done])
        first = sent.reserve(0) + at
        while done < size_bytes:
            now = min(done, size_bytes - done)
            self._cuda.copy(first + done, first, now, stream)
            done += now
        self._cuda.wait(stream)

    def reset(self, stream: c_void_p) -> None:
        """Restore the receive buffer to its state before any call."""
        self._copy("receive", "initial", stream)

    def keep(self, stream: c_void_p) -> None:
        """Keep the receive buffer as the result that every later run must have."""
        self._copy("expected", "receive", stream)

    def put(self, nccl: Nccl, communicator: c_void_p, stream: c_void_p) -> None:
        """Submit the call."""
        receive = self._buffers["receive"].reserve(0)
        send = receive if self.call.in_place else self._buffers["send"].reserve(0)
        call = self.call
        nccl.collective(
            call.operation,
            (send + call.send_at(self._rank), receive + call.receive_at(self._rank)),
            call.count,
            call.codes,
            (communicator, stream),
        )

    def compare(self, stream: c_void_p) -> None:
        """Compare the whole receive buffer, including the bytes around the output."""
        if self.call.operation == "reduce" and self._rank != self.call.root:
            return  # NCCL leaves the receive buffer of the other ranks undefined.
        addresses = self._buffers["receive"].reserve(0), self._buffers["expected"].reserve(0)
        self._cuda.compare(addresses, self._bytes, self._counter, stream)

    def free(self) -> None:
        """Free the buffers."""
        for buffer in self._buffers.values():
            buffer.free()

    def _copy(self, to: str, source: str, stream: c_void_p) -> None:
        addresses = self._buffers[to].reserve(0), self._buffers[source].reserve(0)
        self._cuda.copy(*addresses, self._bytes, stream)


class Calls:
    """Prepared calls of one rank, each with a counter on the device of bytes that differed."""

    def __init__(self, session: Session, calls: Sequence[RandomCall], rank: int) -> None:
        self._session = session
        self._counters = Buffer(session.cuda)
        first = self._counters.reserve(8 * len(calls))
        self._counters.write(0, np.zeros(len(calls), np.uint64))
        self.prepared = [
            Prepared(session.cuda, call, rank, first + 8 * index)
            for index, call in enumerate(calls)
        ]

    def learn(self, communicator: c_void_p) -> None:
        """Write the input of all calls and have NCCL compute the expected results."""
        cuda = self._session.cuda
        stream = cuda.stream()
        for call in self.prepared:
            call.write(stream)
            call.reset(stream)
            call.put(self._session.real, communicator, stream)
            call.keep(stream)
            cuda.wait(stream)
        cuda.end(stream)

    def differing(self) -> list[int]:
        """Bytes that differed, by call; read while no call runs."""
        counted = self._counters.read(0, 8 * len(self.prepared)).view(np.uint64)
        values: list[int] = counted.tolist()
        return values

    def wrong(self, what: str) -> list[str]:
        """The calls whose results differed."""
        return [
            f"rank {self._session.rank}, {what}, {call.call.describe()}: {wrong} bytes differed"
            for call, wrong in zip(self.prepared, self.differing(), strict=True)
            if wrong
        ]

    def free(self) -> None:
        """Free the memory of the calls."""
        for call in self.prepared:
            call.free()
        self._counters.free()


def run_and_compare(call: Prepared, nccl: Nccl, communicator: c_void_p, stream: c_void_p) -> None:
    """Reset, run and compare a call on one stream."""
    call.reset(stream)
    call.put(nccl, communicator, stream)
    call.compare(stream)
