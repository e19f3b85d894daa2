"""Messages of 2 GiB and more on one rank of check_executor.py.

Every operation with more than 2^31 elements of a byte for each rank, in and out of place, by every
pattern and protocol and by NCCL through the executor, compared on the device with NCCL's own
result.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from executor_session import Calls, Prepared, Session, run_and_compare
from random_calls import INTERPRETED, OPERATIONS, RandomCall, Rule, rule_by

BLOCK_BYTES = 61_000_003
"""Size of the repeated random block: a prime, so that offsets wrong by 2^31 or 2^32 are found."""
BLOCKS, THREADS = 32, 512
PROGRAM_BUFFER = 4 << 20


def huge_calls(ranks: int, count: int) -> Iterator[RandomCall]:
    """Yield each operation, out of place and in place."""
    for number, operation in enumerate(OPERATIONS):
        for in_place in (False, True):
            if in_place and not operation.has_place:
                continue
            yield RandomCall(
                number=number,
                seed=0,
                ranks=ranks,
                operation=operation,
                type="int8",
                reduction="sum",
                count=count,
                rule=None,
                send_offset=0 if in_place else 3,
                in_place=in_place,
            )


def rules_of(
    call: RandomCall, kernels: Mapping[str, Mapping[str, str]], runners: Mapping[str, Sequence[str]]
) -> Iterator[Rule | None]:
    """Rules of all kernels for a call, or of the schedules to interpret; then None for NCCL."""
    sizes = 1, 1 << 62
    for pattern, schedule in {} if runners else kernels.get(call.operation, {}).items():
        for protocol in ("LL", "LL128"):
            words = call.operation, pattern
            yield rule_by(words, schedule, sizes, protocol, (BLOCKS, THREADS))
    for schedule in runners.get(call.operation, ()):
        for protocol in ("LL128", "Simple"):
            words = call.operation, INTERPRETED
            yield rule_by(words, schedule, sizes, protocol, (1, THREADS, PROGRAM_BUFFER))
    yield None


class Huge:
    """One rank and its failures so far."""

    def __init__(self, session: Session, runners: Mapping[str, Sequence[str]]) -> None:
        session.cuda.load_compare()
        self.session = session
        self.kernels = session.kernels.get(str(session.ranks), {})
        self.runners = runners
        self.stream = session.cuda.stream()
        self.communicator = session.join(session.ranks, "all")
        random = np.random.default_rng((1, session.rank))
        self.block = random.integers(0, 256, BLOCK_BYTES, dtype=np.uint8)
        self.done = 0
        self.taken: Counter[str] = Counter()
        self.failures: list[str] = []
        self.seconds_of: dict[str, float] = {}

    def check(self, call: RandomCall) -> None:
        """Run a call once by NCCL, then by each rule."""
        session, stream = self.session, self.stream
        calls = Calls(session, [call], session.rank)
        (prepared,) = calls.prepared
        prepared.write(stream, self.block)
        prepared.reset(stream)
        prepared.put(session.real, self.communicator, stream)
        prepared.keep(stream)
        session.cuda.wait(stream)
        seen = 0
        for rule in rules_of(call, self.kernels, self.runners):
            self._run(prepared, rule)
            wrong = calls.differing()[0] - seen
            seen += wrong
            if wrong:
                what = replace(call, rule=rule).describe()
                self.failures.append(f"rank {session.rank}, {what}: {wrong} bytes differed")
        calls.free()

    def _run(self, prepared: Prepared, rule: Rule | None) -> None:
        session, call = self.session, prepared.call
        by = f"{rule.pattern} {rule.choice.config.protocol.value}" if rule else "not chosen"
        what = f"{call.operation}{' in place' if call.in_place else ''}, {by}"
        session.say(f"{self.done} calls, at {what}")
        session.executor.choose(rule.choice if rule else None)
        before, begin = session.executor.calls, time.monotonic()
        run_and_compare(prepared, session.seen, self.communicator, self.stream)
        session.cuda.wait(self.stream)
        self.seconds_of[what] = round(time.monotonic() - begin, 4)
        who = "executor" if session.executor.calls > before else "NCCL"
        self.taken[f"{call.operation} by {who}"] += 1
        self.done += 1


def run_huge(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    """Run all calls."""
    runners = job["wanted"]["runners"].get(str(session.ranks), {})
    huge = Huge(session, runners)
    for call in huge_calls(session.ranks, job["count"]):
        huge.check(call)
    session.leave(huge.communicator)
    return {
        "calls": huge.done,
        "failures": huge.failures,
        "taken": dict(huge.taken),
        "seconds_of": huge.seconds_of,
    }
