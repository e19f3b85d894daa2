"""Run a mixed load for minutes on one rank of check_executor.py.

A round submits a dozen prepared calls of one communicator to two streams and a graph of a second
communicator to a third, by the executor and NCCL in turn, and resets and compares on the device
around each. The second communicator, its graphs and its calls' memory are created again at
intervals; device memory, host memory and descriptors are recorded each time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from device_calls import Buffer
from executor_session import Calls, Prepared, Session, run_and_compare
from random_calls import RandomCall, Wanted, draw, tolerance

EAGER, IN_GRAPH, PER_ROUND, GRAPHS = 48, 24, 12, 2
ROUNDS_BETWEEN_WORDS = 20
MOST_BLOCKS_BESIDE = 16
"""Most blocks of a call that runs beside another communicator's: blocks that wait for other ranks
must all be resident, as NCCL's must."""
MOST_GROWTH = {"device_bytes": 32 << 20, "host_bytes": 256 << 20, "descriptors": 16}
"""Most growth over all communicators that are created and destroyed."""


def drawn(wanted: Wanted, seed: int, first: int, number: int) -> list[RandomCall]:
    """Calls of all ranks whose result does not depend on the order of summation."""
    calls: list[RandomCall] = []
    at = first
    while len(calls) < number:
        call = draw(wanted, seed, at)
        at += 1
        if call.ranks == wanted.ranks and call.count and tolerance(call) == 0.0:
            calls.append(call)
    return calls


def beside(call: RandomCall) -> RandomCall:
    """The call with fewer blocks."""
    if call.rule is None:
        return call
    choice = call.rule.choice
    blocks = min(choice.config.nchannels, MOST_BLOCKS_BESIDE)
    fewer = replace(choice, config=replace(choice.config, nchannels=blocks))
    return replace(call, rule=replace(call.rule, choice=fewer))


class Load:
    """Communicators, calls and graphs of a round."""

    def __init__(self, session: Session, job: dict[str, Any]) -> None:
        self.session = session
        wanted = Wanted(**job["wanted"])
        seed: int = job["seed"]
        cuda = session.cuda
        cuda.load_compare()
        self._random = np.random.default_rng(seed)
        self._streams = [cuda.stream() for _ in range(3)]
        self._in_graph = [beside(call) for call in drawn(wanted, seed, 1 << 20, IN_GRAPH)]
        self._eager = Calls(session, drawn(wanted, seed, 0, EAGER), session.rank)
        self._communicator = session.join(session.ranks, "all")
        self._eager.learn(self._communicator)
        self._agreement = Buffer(cuda)
        self._agreement.reserve(8)
        self._made = 0
        self.rounds = self.calls = 0
        self.taken: Counter[str] = Counter()
        self.statistics: list[dict[str, float]] = []
        self._begin = time.monotonic()
        self._make()

    def _make(self) -> None:
        """Create the second communicator, and graphs of its calls."""
        session = self.session
        self._second = session.join(session.ranks, f"second{self._made}")
        self._made += 1
        self._graphed = Calls(session, self._in_graph, session.rank)
        self._graphed.learn(self._second)
        share = IN_GRAPH // GRAPHS
        self._graphs = [
            session.cuda.captured(
                self._streams[2], partial(self._run_all, self._graphed.prepared[i : i + share])
            )
            for i in range(0, IN_GRAPH, share)
        ]

    def _run_all(self, calls: Sequence[Prepared]) -> None:
        for call in calls:
            self._run(call, self._second, 2)

    def remake(self) -> None:
        """Destroy what `_make` created, record the resources, and call it again."""
        session = self.session
        for graph in self._graphs:
            session.cuda.end_graph(graph)
        session.leave(self._second)
        self._graphed.free()
        self.sum_of(0)  # By now other ranks have closed this rank's memory.
        self.statistics.append(
            {
                "seconds": round(time.monotonic() - self._begin, 1),
                "device_bytes": session.cuda.used_bytes(),
                "host_bytes": resident_bytes(),
                "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            }
        )
        self._make()

    def _run(self, prepared: Prepared, communicator: c_void_p, stream: int) -> None:
        """Run a call by its rule or by NCCL, drawn alike on every rank."""
        session, handle = self.session, self._streams[stream]
        by_nccl = self._random.random() < 0.2
        session.executor.choose(None if by_nccl else prepared.call.choice)
        before = session.executor.calls
        run_and_compare(prepared, session.seen, communicator, handle)
        own = session.executor.calls > before
        mode = "in graphs" if stream == 2 else "one by one"
        self.taken[f"{prepared.call.operation} by {'executor' if own else 'NCCL'} {mode}"] += 1
        self.calls += 1

    def round(self) -> None:
        """Run two streams of one communicator and a graph of the other on a third concurrently."""
        cuda = self.session.cuda
        graph = self._graphs[self.rounds % GRAPHS]
        chosen = self._random.permutation(EAGER)[:PER_ROUND]
        for number, index in enumerate(chosen):
            if number == PER_ROUND // 3:
                cuda.launch(graph, self._streams[2])
                self.calls += IN_GRAPH // GRAPHS
            place = int(self._random.integers(2))
            self._run(self._eager.prepared[index], self._communicator, place)
        for stream in self._streams:
            cuda.wait(stream)
        self.rounds += 1

    def sum_of(self, number: int) -> int:
        """Sum over all ranks, by NCCL."""
        session, stream = self.session, self._streams[0]
        self._agreement.write(0, np.array([number], np.int64))
        address = self._agreement.reserve(0)
        pair, handles = (address, address), (self._communicator, stream)
        session.real.collective("all_reduce", pair, 1, (4, 0, 0), handles)
        session.cuda.wait(stream)
        return int(self._agreement.read(0, 8).view(np.int64)[0])

    def failures(self) -> list[str]:
        """Calls whose results differed."""
        what = f"after {self.rounds} rounds"
        return self._eager.wrong(what) + self._graphed.wrong(what)

    def say(self) -> None:
        """Report the progress of the load."""
        last = self.statistics[-1] if self.statistics else {}
        held = ", ".join(f"{name} {value:.0f}" for name, value in last.items() if name != "seconds")
        self.session.say(f"{self.rounds} rounds, {self.calls} calls; {held}")

    def close(self) -> None:
        """Destroy the communicators."""
        for graph in self._graphs:
            self.session.cuda.end_graph(graph)
        self.session.leave(self._second)
        self.session.leave(self._communicator)


def resident_bytes() -> int:
    """Bytes of host memory of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def growth(statistics: list[dict[str, float]]) -> dict[str, float]:
    """Growth of the minimum from the first third of the samples to the last third.

    A leak before the last third raises all of its samples and so their minimum; temporary
    allocations do not. The first sample is a warm-up and left out.
    """
    if len(statistics) < 3:
        return {}
    third = (len(statistics) - 1 + 2) // 3
    first, last = (
        {name: min(figures[name] for figures in part) for name in MOST_GROWTH}
        for part in (statistics[1 : 1 + third], statistics[-third:])
    )
    return {name: last[name] - first[name] for name in MOST_GROWTH}


def run_load(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    """Run rounds until the job's seconds are over or a check fails."""
    load = Load(session, job)
    begin = time.monotonic()
    between: float = job["seconds_between"]
    next_time = begin + between
    failures: list[str] = []
    while not failures:
        for _ in range(ROUNDS_BETWEEN_WORDS):
            load.round()
        failures = load.failures()
        now = time.monotonic()
        load.say()
        # Rank 0's clock decides for all ranks, so that all end after the same round.
        over = session.rank == 0 and now - begin >= job["seconds"]
        due = session.rank == 0 and now >= next_time
        word = load.sum_of((1 << 20) * over + (1 << 10) * due + bool(failures))
        if word >= 1 << 20 or word % (1 << 10):
            break
        if word >= 1 << 10:
            load.remake()
            next_time = now + between
    grown = growth(load.statistics)
    failures += [
        f"rank {session.rank}: {name} grew by {value:.0f}"
        for name, value in grown.items()
        if value > MOST_GROWTH[name]
    ]
    load.close()
    return {
        "calls": load.calls,
        "rounds": load.rounds,
        "failures": failures,
        "taken": dict(load.taken),
        "statistics": load.statistics,
        "growth": grown,
    }
