"""Cases of lifecycle_rank.py with all ranks in one process by ncclCommInitAll."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import byref, c_int, c_void_p

from device_calls import Cuda, DeviceError, Nccl
from executor_session import Session, run_and_compare
from lifecycle_case import CALLS, Case, calls_of

CHILDREN = 60
HANGS_AFTER_S = 30.0


class OneProcess:
    """All ranks in this process, made by one ncclCommInitAll."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._nccl = session.seen
        self.ranks = session.ranks
        self.devices = [Cuda(rank) for rank in range(self.ranks)]
        self.streams = [self.devices[rank].stream() for rank in self.turns()]
        for rank in self.turns():
            self.devices[rank].load_compare()
        handles = (c_void_p * self.ranks)()
        numbers = (c_int * self.ranks)(*range(self.ranks))
        self._nccl.call("ncclCommInitAll", handles, c_int(self.ranks), numbers)
        self.communicators = [c_void_p(handle) for handle in handles]
        self.cases = [self._case(rank) for rank in self.turns()]
        self._learn()

    def turns(self) -> Iterator[int]:
        """Yield each rank with its device current."""
        for rank, device in enumerate(self.devices):
            device.use()
            yield rank

    def _case(self, rank: int) -> Case:
        own = self._session.on(self.devices[rank], rank)
        return Case(own, self.communicators[rank], self.ranks, rank, knows=False)

    @contextmanager
    def group(self, nccl: Nccl) -> Iterator[None]:
        """Open a group of NCCL."""
        nccl.call("ncclGroupStart")
        yield
        nccl.call("ncclGroupEnd")

    def _learn(self) -> None:
        for index in range(CALLS):
            for rank in self.turns():
                self.cases[rank].calls[index].write(self.streams[rank])
                self.cases[rank].calls[index].reset(self.streams[rank])
            with self.group(self._session.real):
                self._put(self._session.real, index)
            for rank in self.turns():
                self.cases[rank].calls[index].keep(self.streams[rank])
        self.wait()

    def _put(self, nccl: Nccl, index: int) -> None:
        for rank in self.turns():
            self.put(nccl, index, rank)

    def put(self, nccl: Nccl, index: int, rank: int) -> None:
        """Submit a call on one rank."""
        self.cases[rank].calls[index].put(nccl, self.communicators[rank], self.streams[rank])

    def wait(self) -> None:
        """Wait for all streams."""
        for rank in self.turns():
            self.devices[rank].wait(self.streams[rank])

    def grouped(self, indices: Sequence[int]) -> None:
        """Run and compare calls of all ranks as one group."""
        seen = self._session.seen
        self._session.executor.choose(calls_of(self._session, self.ranks)[indices[0]].choice)
        for rank in self.turns():
            for index in indices:
                self.cases[rank].calls[index].reset(self.streams[rank])
        with self.group(seen):
            for index in indices:
                self._put(seen, index)
        for rank in self.turns():
            for index in indices:
                self.cases[rank].calls[index].compare(self.streams[rank])

    def threaded(self, rank: int) -> None:
        """Run and compare a call ten times on one rank, in a thread of that rank."""
        self.devices[rank].use()
        stream = self.streams[rank]
        for _ in range(10):
            call = self.cases[rank].calls[0]
            run_and_compare(call, self._session.seen, self.communicators[rank], stream)
        self.devices[rank].wait(stream)

    def wrong(self, what: str) -> list[str]:
        """Calls whose results differed."""
        return [text for rank in self.turns() for text in self.cases[rank].wrong(what)]

    def leave(self, order: Sequence[int]) -> None:
        """Destroy communicators in an order of ranks."""
        for rank in order:
            self.devices[rank].use()
            self._nccl.call("ncclCommDestroy", self.communicators[rank])

    def child_ends(self, rank: int, child: c_void_p, called: threading.Barrier | None) -> None:
        """Run a call on a child, destroy it, and at once run the parent's next call.

        A rank with a barrier destroys its child late, after the other ranks' calls.
        """
        stream = self.streams[rank]
        run_and_compare(self.cases[rank].calls[0], self._nccl, child, stream)
        self.devices[rank].wait(stream)
        if called is not None:
            called.wait(HANGS_AFTER_S)
        self._nccl.call("ncclCommDestroy", child)
        run_and_compare(self.cases[rank].calls[0], self._nccl, self.communicators[rank], stream)

    def split(self, rank: int) -> c_void_p:
        """Split off a child with all ranks; all ranks must call this."""
        child = c_void_p()
        words = self.communicators[rank], c_int(0), c_int(rank), byref(child), c_void_p()
        self._nccl.call("ncclCommSplit", *words)
        return child


def init_all(session: Session) -> list[str]:
    """Run one process: groups of one thread, then a thread per GPU.

    Runs twice, because communicators come back at the same addresses.
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
        # A process has one rule, so all threads call by it.
        session.executor.choose(calls_of(session, session.ranks)[0].choice)
        with ThreadPoolExecutor(session.ranks) as pool:
            list(pool.map(process.threaded, range(session.ranks)))
        failures += process.wrong("ncclCommInitAll, a thread per GPU")
        order = list(range(session.ranks))
        process.leave(order[::-1] if number else order)
    return failures


class _Threads:
    """Run each rank's work in a daemon thread."""

    def __init__(self, process: OneProcess) -> None:
        self._process = process
        self._called = threading.Barrier(process.ranks)
        self.doing = ["begins"] * process.ranks
        self.errors: list[str] = []
        self.threads = [
            threading.Thread(target=self._run, args=(rank,), daemon=True)
            for rank in range(process.ranks)
        ]

    def _run(self, rank: int) -> None:
        try:
            self._process.devices[rank].use()
            for number in range(CHILDREN):
                self._round(rank, number)
        except (DeviceError, threading.BrokenBarrierError) as error:
            self.errors.append(f"rank {rank}, {self.doing[rank]}: {error!r}")
            return
        self.doing[rank] = "done"

    def _round(self, rank: int, number: int) -> None:
        process = self._process
        late = rank == number % process.ranks
        self.doing[rank] = f"child {number}: splits"
        child = process.split(rank)
        self.doing[rank] = f"child {number}: leaves {'last' if late else 'first'}, calls the parent"
        process.child_ends(rank, child, self._called if late else None)
        if not late:
            self._called.wait(HANGS_AFTER_S)
        self.doing[rank] = f"child {number}: waits for the parent's call"
        process.devices[rank].wait(process.streams[rank])


def child_ends(session: Session) -> list[str]:
    """Destroy a child's last rank during the parent's next call on other GPUs."""
    process = OneProcess(session)
    session.executor.choose(calls_of(session, session.ranks)[0].choice)
    ranks = _Threads(process)
    for thread in ranks.threads:
        thread.start()
    while any(thread.is_alive() for thread in ranks.threads):
        before = list(ranks.doing)
        end = time.monotonic() + HANGS_AFTER_S
        while before == ranks.doing and time.monotonic() < end:
            if not any(thread.is_alive() for thread in ranks.threads):
                break
            time.sleep(0.05)
        else:
            if before == ranks.doing:
                where = "; ".join(f"rank {rank} {what}" for rank, what in enumerate(before))
                raise DeviceError(f"hangs: {where}")
    process.leave(range(process.ranks))
    return ranks.errors + process.wrong("children that end beside the parent's calls")
