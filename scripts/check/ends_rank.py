"""One rank of check_ends.py: calls in a loop, watched as a framework watches its communicator.

A thread makes calls and waits for each; the main thread asks NCCL for the communicator's error and
aborts it where there is one, where no call has ended for `stall_s`, or where the job's folder tells
this rank to abort. The result says why and how long the abort took, and whether the thread of the
calls came back.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from ctypes import byref, c_int
from typing import Any

from device_calls import Buffer, DeviceError
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
    """A thread that makes one call after another, until one fails or no more may be made."""

    def __init__(self, session: Session, call: RandomCall) -> None:
        self.done = 0
        self.error = ""
        self.may_call = True
        """Whether the communicator may be called: not from an abort on, which frees it."""
        self._session = session
        self._call = call
        self.communicator = session.join(session.ranks, "ends")
        self._send, self._receive = Buffer(session.cuda), Buffer(session.cuda)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def came_back(self) -> bool:
        """Wait for the thread; return whether it ended."""
        self._thread.join(RETURNS_WITHIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        session, call = self._session, self._call
        try:
            session.cuda.use()
            stream = session.cuda.stream()
            buffers = self._send, self._receive
            send, receive = (buffer.reserve(call.buffer_bytes) for buffer in buffers)
            handles = self.communicator, stream
            session.executor.choose(call.choice)
            while self.may_call:
                session.seen.collective(
                    call.operation, (send, receive), call.count, call.codes, handles
                )
                session.cuda.wait(stream)
                self.done += 1
        except (DeviceError, TucclError) as error:
            self.error = str(error)


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


def trouble(session: Session, calls: Calls, since: tuple[int, float], stall_s: float) -> str:
    """The reason to abort now; empty if there is none."""
    error = c_int()
    session.seen.call("ncclCommGetAsyncError", calls.communicator, byref(error))
    if error.value not in {0, IN_PROGRESS}:
        return f"NCCL error {error.value}"
    if calls.error:
        return calls.error
    if (session.folder / f"abort{session.rank}").exists():
        return "told to"
    done, at = since
    if calls.done == done and time.monotonic() - at > stall_s:
        return "no call ended"
    return ""


def run_ends(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    """Make calls until there is trouble, abort, and return the result."""
    calls = Calls(session, call_of(session, job))
    calls.start()
    since = calls.done, time.monotonic()
    while not (why := trouble(session, calls, since, job["stall_s"])):
        if calls.done != since[0]:
            since = calls.done, time.monotonic()
            session.say(str(calls.done))
        time.sleep(POLL_S)
    calls.may_call = False
    begin = time.monotonic()
    faulthandler.dump_traceback_later(ABORTS_WITHIN_S)  # An abort that hangs says so.
    session.seen.call("ncclCommAbort", calls.communicator)
    return {
        "why": why,
        "abort_s": time.monotonic() - begin,
        "came_back": (came_back := calls.came_back()),
        "failures": [] if came_back else ["the thread of the calls did not come back"],
        "calls": calls.done,
        "by_executor": session.executor.calls,
    }
