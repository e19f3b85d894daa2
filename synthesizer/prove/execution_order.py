"""An order in which all steps finish, or the cycle of steps that wait for each other.

A threadblock runs its steps in order. A step starts when the previous step and its dependence have
finished. It then moves its message piece by piece: it receives a piece when the connection holds
one and sends a piece when the connection has a free slot. Every threadblock waits for one event at
a time and never undoes progress, so the steps that can finish do not depend on the interleaving (as
in Kahn process networks with bounded buffers): one run decides for all.

A schedule that finishes with some number of slots also finishes with more, and one that finishes
with one chunk per slot also finishes with more chunks per slot.
"""

from __future__ import annotations

from collections import deque

from synthesizer.ir.wiring import RECEIVING, SENDING, Wiring
from synthesizer.prove.defects import Defect, DefectKind

_NAMED_STEPS = 8
"""Steps of a cycle that a message names."""


class _Run:
    def __init__(self, wiring: Wiring, slots: int, chunks_per_slot: int | None) -> None:
        self.wiring = wiring
        self.slots = slots
        self.chunks_per_slot = chunks_per_slot
        blocks = len(wiring.blocks)
        self.at = wiring.first[:-1]
        self.moved = [0] * blocks
        self.sent = [0] * blocks
        self.received = [0] * blocks
        self.finished = [False] * len(wiring.steps)
        self.awaited: dict[int, list[int]] = {}
        self.order: list[int] = []
        self.ready = deque(range(blocks))
        self.queued = [True] * blocks

    def run(self) -> None:
        """Advance threadblocks until none can move."""
        while self.ready:
            block = self.ready.popleft()
            self.queued[block] = False
            while self.at[block] < self.wiring.first[block + 1] and self._step(block):
                pass

    def blocked(self) -> list[int]:
        """Return the threadblocks that have not finished."""
        return [b for b, at in enumerate(self.at) if at < self.wiring.first[b + 1]]

    def waits_on(self, block: int) -> int:
        """Return the threadblock that must move before `block` can."""
        node = self.at[block]
        awaited = self.wiring.waits_for[node]
        if awaited >= 0 and not self.finished[awaited]:
            return self.wiring.block_of[awaited]
        sender = self.wiring.sender[block]
        if self.wiring.steps[node].type in RECEIVING and self.sent[sender] == self.received[sender]:
            return sender
        return self.wiring.receiver[block]

    def _wake(self, block: int) -> None:
        if not self.queued[block]:
            self.queued[block] = True
            self.ready.append(block)

    def _step(self, block: int) -> bool:
        """Move the current step of `block` as far as possible; return whether it finished."""
        wiring, node = self.wiring, self.at[block]
        step, awaited = wiring.steps[node], wiring.waits_for[node]
        if awaited >= 0 and not self.finished[awaited]:
            self.awaited.setdefault(awaited, []).append(block)
            return False
        receives, sends = step.type in RECEIVING, step.type in SENDING
        sender, receiver = wiring.sender[block], wiring.receiver[block]
        pieces = 1 if self.chunks_per_slot is None else -(-step.count // self.chunks_per_slot)
        possible = pieces - self.moved[block]
        if receives:
            possible = min(possible, self.sent[sender] - self.received[sender])
        if sends:
            possible = min(possible, self.slots - self.sent[block] + self.received[block])
        self.moved[block] += possible
        if receives and possible:
            self.received[sender] += possible
            self._wake(sender)
        if sends and possible:
            self.sent[block] += possible
            self._wake(receiver)
        if self.moved[block] < pieces and (receives or sends):
            return False
        self.moved[block] = 0
        self.at[block] += 1
        self.finished[node] = True
        self.order.append(node)
        for waiting in self.awaited.pop(node, ()):
            self._wake(waiting)
        return True


def execution_order(wiring: Wiring, slots: int, chunks_per_slot: int | None) -> list[int] | Defect:
    """Return the steps in an order that respects every wait, or the deadlock of every execution.

    A connection holds `slots` messages, or pieces of `chunks_per_slot` chunks; None if a slot takes
    a message of any size.
    """
    run = _Run(wiring, slots, chunks_per_slot)
    run.run()
    blocked = run.blocked()
    if not blocked:
        return run.order
    return _deadlock(run, blocked[0])


def _deadlock(run: _Run, start: int) -> Defect:
    seen: dict[int, int] = {}
    block = start
    while block not in seen:
        seen[block] = len(seen)
        block = run.waits_on(block)
    cycle = [b for b, position in seen.items() if position >= seen[block]]
    waits = [
        f"{run.wiring.name(run.at[b])} waits for {_want(run, b)}" for b in cycle[:_NAMED_STEPS]
    ]
    more = f"; and {len(cycle) - _NAMED_STEPS} more" if len(cycle) > _NAMED_STEPS else ""
    rank, threadblock, step = run.wiring.place(run.at[cycle[0]])
    return Defect(
        DefectKind.DEADLOCK,
        rank,
        threadblock,
        step,
        f"cycle of {len(cycle)} with {run.slots} FIFO slots: " + "; ".join(waits) + more,
    )


def _want(run: _Run, block: int) -> str:
    node = run.at[block]
    awaited = run.wiring.waits_for[node]
    if awaited >= 0 and not run.finished[awaited]:
        _, threadblock, step = run.wiring.place(awaited)
        return f"threadblock {threadblock} step {step}"
    sender = run.wiring.sender[block]
    receiving = run.wiring.steps[node].type in RECEIVING
    if receiving and run.sent[sender] == run.received[sender]:
        rank, threadblock, _ = run.wiring.place(run.at[sender])
        return f"a message from rank {rank} threadblock {threadblock}"
    receiver = run.wiring.receiver[block]
    rank, threadblock, _ = run.wiring.place(run.at[receiver])
    return f"a free slot to rank {rank} threadblock {threadblock}"
