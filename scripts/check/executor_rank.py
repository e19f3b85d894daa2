"""One rank of check_executor.py or check_ends.py: random calls through the executor and NCCL.

    executor_rank.py JOB.json RANK

Calls run in batches over several streams, first all by the executor, then all by NCCL, on the same
communicators and data; the results are compared, with the bytes around them.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np
from device_calls import Array, Buffer, Cuda, DeviceError, Nccl
from ends_rank import run_ends
from executor_session import UNTOUCHED, Session, end_with_parent
from huge_rank import run_huge
from lifecycle_rank import run_lifecycle
from load_rank import run_load
from random_calls import (
    RandomCall,
    Wanted,
    data_of,
    draw,
    first_difference,
    storage,
)
from rank_program import run_rank

from tuccl.errors import TucclError

STREAMS, BATCH = 3, 4
MOST_FAILURES = 5


class Slot:
    """Buffers of one call of a batch, for the executor and for NCCL."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.send = [Buffer(cuda), Buffer(cuda)]
        self.receive = [Buffer(cuda), Buffer(cuda)]

    def prepare(self, call: RandomCall, rank: int, stream: c_void_p) -> None:
        """Write the same input and the same empty output for both."""
        data = data_of(call, rank)
        for send, receive in zip(self.send, self.receive, strict=True):
            for buffer in (send, receive):
                buffer.reserve(call.buffer_bytes)
                buffer.fill(UNTOUCHED, call.buffer_bytes, stream)
        self.cuda.wait(stream)
        for send, receive in zip(self.send, self.receive, strict=True):
            into = receive if call.in_place else send
            into.write(call.send_at(rank), data)

    def addresses(self, call: RandomCall, rank: int, which: int) -> tuple[int, int]:
        """Addresses of the call's send and receive buffer."""
        receive = self.receive[which].reserve(0)
        send = receive if call.in_place else self.send[which].reserve(0)
        return send + call.send_at(rank), receive + call.receive_at(rank)

    def finding(self, call: RandomCall, rank: int) -> str:
        """How the executor's result differs from NCCL's; empty if it does not."""
        size_bytes = call.buffer_bytes
        own, real = (buffer.read(0, size_bytes) for buffer in self.receive)
        begin = call.receive_at(rank)
        end = begin + call.receive_count * call.element_bytes
        if call.operation == "reduce" and rank != call.root:
            # NCCL leaves the receive buffer of the other ranks undefined.
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
    """View bytes as the call's type."""
    return data.copy().view(storage(call.type))


class Checker:
    """Communicators of every size on one rank, and the failures so far."""

    def __init__(self, session: Session) -> None:
        rank, cuda = session.rank, session.cuda
        self._session = session
        self._rank = rank
        self._cuda = cuda
        self._real = session.real
        self._seen = session.seen
        self._executor = session.executor
        self._streams = [cuda.stream() for _ in range(STREAMS)]
        # Ranks that share a GPU may each have other calls on it, none of which can go on.
        self._one_by_one: bool = session.one_by_one
        self._slots = [Slot(cuda) for _ in range(BATCH)]
        self._communicators = {
            ranks: session.join(ranks, str(ranks))
            for ranks in range(1, session.ranks + 1)
            if rank < ranks
        }
        self.failures: list[str] = []
        self.taken: Counter[str] = Counter()
        self.by_ranks: Counter[int] = Counter()
        self.programs: set[str] = set()
        self.left = self.programs_left = 0

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
            self._executor.choose(call.choice)
            self._submit(self._seen, call, slot, which=0)
            self._count(call, by_executor=self._executor.calls > before)
        for call, slot in mine:
            self._submit(self._real, call, slot, which=1)
        for stream in self._streams:
            self._cuda.wait(stream)
        for call, slot in mine:
            if finding := slot.finding(call, self._rank):
                self.failures.append(f"rank {self._rank}, {call.describe()}: {finding}")

    def _count(self, call: RandomCall, *, by_executor: bool) -> None:
        self.by_ranks[call.ranks] += 1
        if not by_executor or call.rule is None:
            self.left += 1
            self.programs_left += bool(call.program and call.count)
            return
        protocol = call.rule.choice.config.protocol
        self.taken[f"{call.operation} {call.rule.pattern} {protocol.value}"] += 1
        if call.program:
            self.programs.add(call.program)

    def _submit(self, nccl: Nccl, call: RandomCall, slot: Slot, *, which: int) -> None:
        stream = self._streams[call.stream]
        addresses = slot.addresses(call, self._rank, which)
        handles = self._communicators[call.ranks], stream

        def put() -> None:
            nccl.collective(call.operation, addresses, call.count, call.codes, handles)

        if call.in_graph and which == 0 and call.count:
            # The job has to order a graph after the work of other streams.
            for each in self._streams:
                self._cuda.wait(each)
            self._cuda.run_as_graph(stream, put)
        else:
            put()
        if self._one_by_one:
            self._cuda.wait(stream)

    def close(self) -> None:
        """Leave all communicators."""
        for communicator in self._communicators.values():
            self._session.leave(communicator)


def run_calls(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    """Run all calls of the job, or end early after some failures; the job kills the other ranks."""
    wanted = Wanted(**job["wanted"])
    checker = Checker(session)
    numbers = range(job["first"], job["first"] + job["calls"])
    done = 0
    for begin in range(0, len(numbers), BATCH):
        calls = [draw(wanted, job["seed"], number) for number in numbers[begin : begin + BATCH]]
        checker.check(calls)
        done += len(calls)
        session.say(f"{done} calls of this job")
        if len(checker.failures) >= MOST_FAILURES:
            break
    if done == len(numbers):
        checker.close()
    return {
        "calls": done,
        "failures": checker.failures,
        "taken": checker.taken,
        "by_ranks": checker.by_ranks,
        "programs": sorted(checker.programs),
        "left": checker.left,
        "programs_left": checker.programs_left,
    }


PARTS: dict[str, Callable[[Session, dict[str, Any]], dict[str, Any]]] = {
    "calls": run_calls,
    "load": run_load,
    "huge": run_huge,
    "lifecycle": run_lifecycle,
    "ends": run_ends,
}


def main() -> None:
    """Run the rank; the exit code is 0 if it found nothing wrong, else 1."""
    end_with_parent()
    result = run_rank(
        lambda job, rank: PARTS[job["part"]](Session(job, rank), job),
        *(DeviceError, TucclError, OSError),
    )
    sys.stdout.flush()
    # Exit handlers of a library would wait for a rank that hangs in it, and those of a context with
    # lost peers for these.
    os._exit(1 if result.get("error") or result["failures"] else 0)


if __name__ == "__main__":
    main()
