"""A rank that is ended amid its calls, and watches its communicator as a framework does.

A thread makes calls and waits for each; the main thread asks NCCL for the communicator's error and
aborts it if there is one, if no call has ended for `stall_s`, or if the job's folder tells
this rank to abort. The result says why and how long that took, and whether the thread of the
calls came back.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_calls import Buffer, Cuda, DeviceError, Nccl
from executor_session import Session
from random_calls import RandomCall, rule_by

from lookup_tables.collective import Collective
from tuccl.errors import TucclError

POLL_S = 0.02
RETURNS_WITHIN_S = 10.0
"""Time that the thread of the calls has to come back after an abort."""
ABORTS_WITHIN_S = 15.0
IN_PROGRESS = 7
"""ncclInProgress, which is no error."""


class Calls:
    """A thread that makes calls, and waits for each, until one fails or no more may be made."""

    def __init__(self, cuda: Cuda, calls: Callable[[c_void_p], Iterator[None]]) -> None:
        """Prepare the thread; `calls` yields after each call that it has put on a stream."""
        self.done = 0
        self.error = ""
        self.over = False
        """Whether all calls have been made."""
        self.may_call = True
        """Whether the communicator may be called: not from an abort on, which frees it."""
        self._cuda, self._calls = cuda, calls
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def came_back(self) -> bool:
        """Wait for the thread; return whether it ended."""
        self._thread.join(RETURNS_WITHIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._cuda.use()
            stream = self._cuda.stream()
            for _ in self._calls(stream):
                self._cuda.wait(stream)
                self.done += 1
                if not self.may_call:
                    return
            self.over = True
        except (DeviceError, TucclError) as error:
            self.error = str(error)


@dataclass(frozen=True)
class Watch:
    """What a rank's main thread watches, as a framework does."""

    nccl: Nccl
    communicator: c_void_p
    calls: Calls
    folder: Path
    """The job's folder; rank N aborts once it has a file `abortN`."""
    rank: int
    stall_s: float
    """Time after which a call that has not ended counts as stuck."""

    def trouble(self, done: int, at: float) -> str:
        """The reason to abort now, if the number of calls is `done` since `at`; empty: none."""
        if self.calls.over:
            return "over"
        error = c_int()
        self.nccl.call("ncclCommGetAsyncError", self.communicator, byref(error))
        if error.value not in {0, IN_PROGRESS}:
            return f"NCCL error {error.value}"
        if self.calls.error:
            return self.calls.error
        if (self.folder / f"abort{self.rank}").exists():
            return "told to"
        if self.calls.done == done and time.monotonic() - at > self.stall_s:
            return "no call ended"
        return ""

    def until_the_end(self, tell: Callable[[str], None]) -> dict[str, Any]:
        """Start the calls; abort at the first trouble, or destroy when all are made; return how."""
        calls = self.calls
        calls.start()
        since = calls.done, time.monotonic()
        while not (why := self.trouble(*since)):
            if calls.done != since[0]:
                since = calls.done, time.monotonic()
                tell(str(calls.done))
            time.sleep(POLL_S)
        calls.may_call = False
        begin = time.monotonic()
        faulthandler.dump_traceback_later(ABORTS_WITHIN_S)  # An end that hangs says so.
        end = "ncclCommDestroy" if calls.over else "ncclCommAbort"
        self.nccl.call(end, self.communicator)
        return {
            "why": why,
            "end_s": time.monotonic() - begin,
            "came_back": (came_back := calls.came_back()),
            "failures": [] if came_back else ["the thread of the calls did not come back"],
            "calls": calls.done,
        }


def call_of(session: Session, job: dict[str, Any]) -> RandomCall:
    """The call of the job; without a pattern NCCL runs it."""
    operation, pattern = Collective.named(job["operation"]), job["pattern"]
    count = job["size_bytes"] // 2 // operation.parts(session.ranks)
    rule = None
    if pattern:
        schedule = session.kernels[str(session.ranks)][operation][pattern]
        sizes = job["size_bytes"], job["size_bytes"]
        cut = 8, 256, job["slice_bytes"]
        rule = rule_by((operation, pattern), schedule, sizes, job["protocol"], cut)
    return RandomCall(0, 0, session.ranks, operation, "float16", "sum", count, rule)


def run_ends(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    """Make calls until there is trouble, abort, and return the result."""
    call = call_of(session, job)
    communicator = session.join(session.ranks, "ends")

    def put_calls(stream: c_void_p) -> Iterator[None]:
        send, receive = (Buffer(session.cuda).reserve(call.buffer_bytes) for _ in range(2))
        session.executor.choose(call.choice)
        words = call.operation, (send, receive), call.count, call.codes, (communicator, stream)
        while True:
            session.seen.collective(*words)
            yield

    calls = Calls(session.cuda, put_calls)
    watch = Watch(session.seen, communicator, calls, session.folder, session.rank, job["stall_s"])
    return {**watch.until_the_end(session.say), "by_executor": session.executor.calls}
