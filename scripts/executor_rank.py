"""One rank of scripts/check_executor.py: random calls through the executor and through NCCL itself.

    executor_rank.py JOB.json RANK

Calls go in batches over several streams, all of a batch by the executor, then all by NCCL, on the
same communicators and the same data; what both left behind is compared, with the bytes around it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p, memmove, sizeof
from pathlib import Path
from typing import Any

import numpy as np
from device_calls import Array, Buffer, Cuda, DeviceError, Nccl, UniqueId
from random_calls import (
    REDUCTIONS,
    TYPES,
    RandomCall,
    Wanted,
    data_of,
    draw,
    first_difference,
    storage,
)

from tuccl.errors import TucclError
from tuccl.measuring.executor_library import ExecutorLibrary

ID_WAIT_S = 60.0
STREAMS, BATCH = 3, 4
GUARD_BYTES = 512
UNTOUCHED = 0xA5
MOST_FAILURES = 5


class Slot:
    """Buffers of one call of a batch, for the executor and for NCCL."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.send = [Buffer(cuda), Buffer(cuda)]
        self.receive = [Buffer(cuda), Buffer(cuda)]

    def prepare(self, call: RandomCall, rank: int, stream: c_void_p) -> None:
        """Both with the same data in and the same nothing out."""
        data = data_of(call, rank)
        for send, receive in zip(self.send, self.receive, strict=True):
            for buffer in (send, receive):
                size_bytes = buffer_bytes(call)
                buffer.reserve(size_bytes)
                buffer.fill(UNTOUCHED, size_bytes, stream)
        self.cuda.wait(stream)
        for send, receive in zip(self.send, self.receive, strict=True):
            into = receive if call.in_place else send
            into.write(send_at(call, rank), data)

    def addresses(self, call: RandomCall, rank: int, which: int) -> tuple[int, int]:
        """Where the call reads and writes."""
        receive = self.receive[which].reserve(0)
        send = receive if call.in_place else self.send[which].reserve(0)
        return send + send_at(call, rank), receive + receive_at(call, rank)

    def finding(self, call: RandomCall, rank: int) -> str:
        """What the executor did otherwise than NCCL."""
        size_bytes = buffer_bytes(call)
        own, real = (buffer.read(0, size_bytes) for buffer in self.receive)
        begin = receive_at(call, rank)
        end = begin + call.receive_count * call.element_bytes
        if call.operation == "reduce" and rank != call.root:
            # NCCL leaves open what others than the root find there.
            own[begin:end] = real[begin:end]
        for name, part in (("before", slice(0, begin)), ("behind", slice(end, None))):
            if not np.array_equal(own[part], real[part]):
                return f"bytes {name} the output were written"
        found, wanted = (as_numbers(each[begin:end], call) for each in (own, real))
        if difference := first_difference(call, found, wanted):
            return difference
        if not call.in_place:
            sent = self.send[0].read(0, size_bytes)
            if not np.array_equal(sent, self.send[1].read(0, size_bytes)):
                return "the input was written"
        return ""


def as_numbers(data: Array, call: RandomCall) -> Array:
    """Bytes as the call's type."""
    return data.copy().view(storage(call.type))


def buffer_bytes(call: RandomCall) -> int:
    """Of a buffer that holds the larger of both, its offset and what must stay as it is."""
    elements = max(call.send_count, call.receive_count) + call.send_offset + call.receive_offset
    return elements * call.element_bytes + GUARD_BYTES


def send_at(call: RandomCall, rank: int) -> int:
    """Byte where the send buffer begins; within the receive buffer in place."""
    if not call.in_place:
        return call.send_offset * call.element_bytes
    inside = rank * call.count if call.operation == "all_gather" else 0
    return (call.receive_offset + inside) * call.element_bytes


def receive_at(call: RandomCall, rank: int) -> int:
    """Byte where the receive buffer begins."""
    inside = rank * call.count if call.operation == "reduce_scatter" and call.in_place else 0
    return (call.receive_offset + inside) * call.element_bytes


class Checker:
    """Communicators of every size on one rank, and what was found so far."""

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        self._folder = Path(job["folder"])
        self._rank = rank
        self._cuda = Cuda(rank)
        self._real = Nccl(job["nccl"], as_seen=False)
        self._seen = Nccl(job["nccl"], as_seen=True)
        self._executor = ExecutorLibrary()
        self._streams = [self._cuda.stream() for _ in range(STREAMS)]
        self._slots = [Slot(self._cuda) for _ in range(BATCH)]
        self._communicators = {
            ranks: self._join(ranks) for ranks in range(2, job["ranks"] + 1) if rank < ranks
        }
        self.failures: list[str] = []
        self.taken: dict[str, int] = {}
        self.left = 0

    def _join(self, ranks: int) -> c_void_p:
        path = self._folder / f"id{ranks}"
        identifier = UniqueId()
        if self._rank == 0:
            self._real.call("ncclGetUniqueId", byref(identifier))
            part = path.with_suffix(".part")
            part.write_bytes(bytes(identifier))
            part.replace(path)
        deadline = time.monotonic() + ID_WAIT_S
        while not path.exists():
            if time.monotonic() > deadline:
                raise DeviceError(f"rank 0 did not write {path} within {ID_WAIT_S:.0f} s")
            time.sleep(0.01)
        memmove(byref(identifier), path.read_bytes(), sizeof(identifier))
        communicator = c_void_p()
        self._seen.call(
            "ncclCommInitRank", byref(communicator), c_int(ranks), identifier, c_int(self._rank)
        )
        return communicator

    def check(self, calls: Sequence[RandomCall]) -> None:
        """Run a batch; ranks that are in none of a call's communicators skip it."""
        mine = [
            (call, slot)
            for call, slot in zip(calls, self._slots, strict=False)
            if self._rank < call.ranks
        ]
        for call, slot in mine:
            slot.prepare(call, self._rank, self._streams[call.stream])
        for call, slot in mine:
            before = self._executor.calls
            self._executor.choose(call.rule)
            self._submit(self._seen, call, slot, which=0)
            if self._executor.calls > before:
                key = f"{call.operation} {call.rule.runner} {call.rule.protocol}"
                self.taken[key] = self.taken.get(key, 0) + 1
            else:
                self.left += 1
        for call, slot in mine:
            self._submit(self._real, call, slot, which=1)
        for stream in self._streams:
            self._cuda.wait(stream)
        for call, slot in mine:
            if finding := slot.finding(call, self._rank):
                self.failures.append(f"rank {self._rank}, {call.describe()}: {finding}")

    def _submit(self, nccl: Nccl, call: RandomCall, slot: Slot, *, which: int) -> None:
        stream = self._streams[call.stream]
        addresses = slot.addresses(call, self._rank, which)
        codes = TYPES.index(call.type), REDUCTIONS.index(call.reduction), call.root
        handles = self._communicators[call.ranks], stream

        def put() -> None:
            nccl.collective(call.operation, addresses, call.count, codes, handles)

        if call.in_graph and which == 0 and call.count:
            # The order of a graph and of what is on other streams is the job's business.
            for other in self._streams:
                self._cuda.wait(other)
            self._cuda.run_as_graph(stream, put)
        else:
            put()

    def close(self) -> None:
        """Leave all communicators."""
        for communicator in self._communicators.values():
            self._seen.call("ncclCommDestroy", communicator)


def run_job(job: dict[str, Any], rank: int) -> dict[str, Any]:
    """All calls of the job; ends early after some failures, and the others are killed."""
    wanted = Wanted(**job["wanted"])
    checker = Checker(job, rank)
    numbers = range(job["first"], job["first"] + job["calls"])
    done = 0
    for begin in range(0, len(numbers), BATCH):
        calls = [draw(wanted, job["seed"], number) for number in numbers[begin : begin + BATCH]]
        checker.check(calls)
        done += len(calls)
        if len(checker.failures) >= MOST_FAILURES:
            break
    if done == len(numbers):
        checker.close()
    return {
        "calls": done,
        "failures": checker.failures,
        "taken": checker.taken,
        "left": checker.left,
    }


def main() -> int:
    """Exit code 0, or 1 with the error in the result file."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rank = int(sys.argv[2])
    try:
        result = run_job(job, rank)
    except (DeviceError, TucclError, OSError) as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    path = Path(job["folder"]) / f"result{rank}.json"
    path.write_text(json.dumps(result), encoding="utf-8")
    return 1 if "error" in result or result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
