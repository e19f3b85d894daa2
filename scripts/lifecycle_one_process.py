"""All ranks in one process by ncclCommInitAll, for scripts/lifecycle_rank.py, and its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import c_int, c_void_p
from functools import partial
from typing import Any

from device_calls import Cuda, Nccl
from executor_session import Counters, Prepared, Session, run_and_compare
from load_rank import LEFT
from random_calls import RandomCall

from tuccl.measuring.executor_library import Rule

CALLS = 6


def calls_of(ranks: int) -> list[RandomCall]:
    """A few of every kind, small and middle, by rules that differ."""
    kinds = (
        ("all_reduce", "one_phase", "LL", 4099),
        ("all_gather", "direct", "LL128", 30011),
        ("all_reduce", "two_phase", "LL128", 262147),
        ("reduce_scatter", "direct", "LL", 1021),
        ("alltoall", "direct", "LL128", 65537),
        ("all_reduce", "", "", 8191),
    )
    return [
        RandomCall(
            number=number,
            seed=7,
            ranks=ranks,
            operation=operation,
            type="int32",
            reduction="sum",
            count=count,
            rule=Rule(operation, 1, 1 << 30, pattern, protocol, 8, 256) if pattern else LEFT,
            send_offset=number % 3,
        )
        for number, (operation, pattern, protocol, count) in enumerate(kinds)
    ]


class OneProcess:
    """All ranks in this process, made by one ncclCommInitAll."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.ranks = session.ranks
        self.devices = [Cuda(rank) for rank in range(self.ranks)]
        self.streams = list(self.each(lambda rank: self.devices[rank].stream()))
        for device in self.devices:
            device.use()
            device.load_compare()
        handles = (c_void_p * self.ranks)()
        numbers = (c_int * self.ranks)(*range(self.ranks))
        session.seen.call("ncclCommInitAll", handles, c_int(self.ranks), numbers)
        self.communicators = [c_void_p(handle) for handle in handles]
        self.counters = list(self.each(lambda rank: Counters(self.devices[rank], CALLS)))
        self.calls = list(self.each(self._calls))
        self._learn()

    def each(self, act: Callable[[int], Any]) -> Iterator[Any]:
        """What it does on every rank, with that rank's device."""
        for rank, device in enumerate(self.devices):
            device.use()
            yield act(rank)

    def _calls(self, rank: int) -> list[Prepared]:
        return [
            Prepared(self.devices[rank], call, rank, self.counters[rank].address(index))
            for index, call in enumerate(calls_of(self.ranks))
        ]

    @contextmanager
    def group(self, nccl: Nccl) -> Iterator[None]:
        """NCCL's group."""
        nccl.call("ncclGroupStart")
        yield
        nccl.call("ncclGroupEnd")

    def _learn(self) -> None:
        for index in range(CALLS):
            list(self.each(partial(self._begin, index)))
            with self.group(self._session.real):
                self._put(self._session.real, index)
            for rank in self.each(lambda rank: rank):
                self.calls[rank][index].keep(self.streams[rank])
        self.wait()

    def _begin(self, index: int, rank: int) -> None:
        self.calls[rank][index].write(self.streams[rank])
        self.calls[rank][index].reset(self.streams[rank])

    def _put(self, nccl: Nccl, index: int) -> None:
        for rank in self.each(lambda rank: rank):
            self.put(nccl, index, rank)

    def put(self, nccl: Nccl, index: int, rank: int) -> None:
        """A call on one rank."""
        self.calls[rank][index].put(nccl, self.communicators[rank], self.streams[rank])

    def wait(self) -> None:
        """For all streams."""
        for rank in self.each(lambda rank: rank):
            self.devices[rank].wait(self.streams[rank])

    def grouped(self, indices: Sequence[int]) -> None:
        """Calls of all ranks in one group; several calls are one group too."""
        seen = self._session.seen
        self._session.executor.choose(calls_of(self.ranks)[indices[0]].rule)
        for rank in self.each(lambda rank: rank):
            for index in indices:
                self.calls[rank][index].reset(self.streams[rank])
        with self.group(seen):
            for index in indices:
                self._put(seen, index)
        for rank in self.each(lambda rank: rank):
            for index in indices:
                self.calls[rank][index].compare(self.streams[rank])

    def threaded(self, rank: int) -> None:
        """All calls of one rank, from a thread of its own."""
        self.devices[rank].use()
        stream = self.streams[rank]
        for _ in range(10):
            call = self.calls[rank][0]
            run_and_compare(call, self._session.seen, self.communicators[rank], stream)
        self.devices[rank].wait(stream)

    def wrong(self, what: str) -> list[str]:
        """Calls whose results differed."""
        return [
            f"{what}, rank {rank}, {call.call.describe()}: {wrong} bytes differed"
            for rank in self.each(lambda rank: rank)
            for call, wrong in zip(self.calls[rank], self.counters[rank].read(), strict=True)
            if wrong
        ]

    def leave(self, order: Sequence[int]) -> None:
        """In an order of ranks."""
        for rank in order:
            self.devices[rank].use()
            self._session.leave(self.communicators[rank])


def init_all(session: Session) -> list[str]:
    """One process: groups of one thread, then a thread per GPU.

    Twice, as communicators come back at the same addresses.
    """
    failures = []
    for number in range(2):
        process = OneProcess(session)
        for index in range(CALLS):
            process.grouped([index])
        process.grouped([0, 2])
        process.grouped([1, 3])
        process.wait()
        failures += process.wrong("ncclCommInitAll, groups")
        # All threads call by one rule, which is the process's.
        session.executor.choose(calls_of(session.ranks)[0].rule)
        with ThreadPoolExecutor(session.ranks) as pool:
            list(pool.map(process.threaded, range(session.ranks)))
        failures += process.wrong("ncclCommInitAll, a thread per GPU")
        order = list(range(session.ranks))
        process.leave(order[::-1] if number else order)
    return failures
