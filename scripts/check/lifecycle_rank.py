"""Create and destroy communicators on one rank of check_executor.py or all in one process.

Calls in between are compared on the device with NCCL's results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from ctypes import byref, c_int, c_void_p
from typing import Any

from device_calls import DeviceError
from executor_session import Session
from lifecycle_case import CALLS, Case
from lifecycle_one_process import child_ends, init_all

LATE_S = 0.5
LATE_CALLS = (0, 1, 5)
"""One phase, blocks, and one that is NCCL's; the rank of the same number is late."""
ABORT_WITHIN_S = 10.0


def split(session: Session) -> list[str]:
    """Split even and odd ranks, then all; destroy children before and after the parent."""
    cuda, stream = session.cuda, session.cuda.stream()
    parent = session.join(session.ranks, "parent")
    failures: list[str] = []
    colours = [(0, session.ranks, session.rank)]
    if session.ranks % 2 == 0 and session.ranks >= 4:
        colours.append((session.rank % 2, session.ranks // 2, session.rank // 2))
    for number, parent_first in enumerate((False, True)):
        children = []
        for colour, ranks, rank in colours:
            child = c_void_p()
            words = parent, c_int(colour), c_int(session.rank), byref(child), c_void_p()
            session.seen.call("ncclCommSplit", *words)
            children.append(Case(session, child, ranks, rank))
        own = Case(session, parent, session.ranks, session.rank)
        for case in (own, *children, own):
            case.run_all(stream)
        cuda.wait(stream)
        if parent_first:
            session.leave(parent)
        for case in children:
            case.run_all(stream)
            cuda.wait(stream)
            session.leave(case.communicator)
        if not parent_first:
            own.run_all(stream)
            cuda.wait(stream)
        for case in (own, *children):
            failures += case.wrong(f"round {number} of splits")
    return failures


def start_again(session: Session) -> list[str]:
    """Repeat a rank's failed start: the executor must serve the communicator on all ranks."""
    cuda, stream = session.cuda, session.cuda.stream()
    failures: list[str] = []
    for number in range(session.ranks):
        before = session.executor.calls
        case = Case.joined(session, f"all{number}", again=session.rank == number)
        case.run_all(stream)
        cuda.wait(stream)
        session.leave(case.communicator)
        what = f"after rank {number} started again"
        failures += case.wrong(what)
        if session.executor.calls == before:
            failures.append(f"rank {session.rank}, {what}: the executor ran none of the calls")
    return failures


def destroyed_streams(session: Session) -> list[str]:
    """Destroy streams between calls, after their work."""
    return _on_short_streams(session, busy=False)


def busy_streams(session: Session) -> list[str]:
    """Destroy streams between calls, during their work."""
    return _on_short_streams(session, busy=True)


def _on_short_streams(session: Session, *, busy: bool) -> list[str]:
    cuda = session.cuda
    case = Case.joined(session, "all")
    for number in range(60):
        stream = cuda.stream()
        case.run(number % CALLS, stream)
        if not busy:
            cuda.wait(stream)
        cuda.end(stream)
        if number % CALLS == CALLS - 1:
            cuda.call("cuCtxSynchronize")
    last = cuda.stream()
    case.run_all(last)
    cuda.call("cuCtxSynchronize")
    session.leave(case.communicator)
    return case.wrong("streams destroyed between calls")


def early_leave(session: Session) -> list[str]:
    """Delay a rank's last call while the others destroy the communicator."""
    cuda, stream = session.cuda, session.cuda.stream()
    failures = []
    for number in LATE_CALLS:
        case = Case.joined(session, f"all{number}")
        if session.rank == number % session.ranks:
            time.sleep(LATE_S)
        case.run(number, stream)
        session.leave(case.communicator)
        cuda.wait(stream)
        failures += case.wrong("left while others were late")
    return failures


def graphs(session: Session) -> list[str]:
    """Replay graphs beside eager calls, also after another communicator is destroyed.

    A graph of another communicator runs concurrently; one of the same communicator is ordered by
    the job.
    """
    cuda = session.cuda
    eager, graphed = cuda.stream(), cuda.stream()
    eager_case = Case.joined(session, "one")
    graph_case = Case.joined(session, "other")
    own = Case(session, eager_case.communicator, session.ranks, session.rank)
    beside = cuda.captured(graphed, lambda: graph_case.run_all(graphed))
    ordered = cuda.captured(graphed, lambda: own.run_all(graphed))
    for number in range(30):
        cuda.launch(beside, graphed)
        eager_case.run(number % CALLS, eager)
        eager_case.run((number + 1) % CALLS, eager)
        cuda.after(eager, graphed)
        cuda.launch(ordered, graphed)
        cuda.after(graphed, eager)
        eager_case.run((number + 2) % CALLS, eager)
        cuda.after(eager, graphed)
    cuda.wait(eager)
    cuda.wait(graphed)
    cuda.end_graph(beside)
    session.leave(graph_case.communicator)
    cuda.launch(ordered, graphed)
    cuda.wait(graphed)
    cuda.end_graph(ordered)
    session.leave(eager_case.communicator)
    return [
        text
        for case in (eager_case, graph_case, own)
        for text in case.wrong("a graph beside eager calls")
    ]


def abort(session: Session) -> list[str]:
    """Leave a call out on the last rank, abort on the others, and use a new communicator."""
    cuda, stream = session.cuda, session.cuda.stream()
    case = Case.joined(session, "aborted")
    missing = session.rank == session.ranks - 1
    if not missing:
        case.run(0, stream)
    time.sleep(LATE_S)
    begin = time.monotonic()
    session.seen.call("ncclCommAbort", case.communicator)
    cuda.wait(stream)
    seconds = time.monotonic() - begin
    failures = []
    if seconds > ABORT_WITHIN_S:
        failures.append(f"rank {session.rank}: aborting took {seconds:.1f} s")
    after = Case.joined(session, "after")
    after.run_all(stream)
    cuda.wait(stream)
    session.leave(after.communicator)
    return failures + after.wrong("after an abort")


CASES: dict[str, Callable[[Session], list[str]]] = {
    "init_all": init_all,
    "child_ends": child_ends,
    "split": split,
    "start_again": start_again,
    "destroyed_streams": destroyed_streams,
    "early_leave": early_leave,
    "graphs": graphs,
    "abort": abort,
    "busy_streams": busy_streams,
}
IN_ONE_PROCESS = ("init_all", "child_ends")


def run_lifecycle(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    """Run the job's case."""
    session.cuda.load_compare()
    before = session.executor.calls
    failures = CASES[job["case"]](session)
    calls = session.executor.calls - before
    if not calls:
        raise DeviceError("the executor ran none of the calls")
    return {"calls": calls, "failures": failures, "taken": {f"{job['case']}": calls}}
