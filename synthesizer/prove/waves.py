"""Waves of steps: each wave waits only for earlier ones, or steps wait for each other in a circle.

The k-th send of a connection (src, dst, channel) matches its k-th receive. A message takes one
FIFO slot. A step waits for the step before and for its dependence, a receive for its send, and the
k-th send of a connection with s slots for the (k-s)-th receive. These are fixed, so all steps can
finish if and only if they have no cycle, whatever the interleaving (as in Kahn process networks
with bounded buffers). A schedule that finishes with some number of slots also finishes with more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from synthesizer.prove.defects import Defect, DefectKind
from synthesizer.prove.step_table import Ints, StepTable, ranges, starts

_NAMED_STEPS = 8
"""Steps of a cycle that a message names."""


@dataclass(frozen=True, slots=True)
class Connections:
    """The messages of all connections, by connection and in order."""

    sends: Ints
    receives: Ints
    """The receiving step of each send."""
    name: Ints
    """Number of each message's connection."""


def connect(table: StepTable) -> Connections | list[Defect]:
    """Match the sends and receives of every connection, or return what does not match."""
    outgoing = np.stack((table.block_rank, table.send_peer, table.channel))
    incoming = np.stack((table.recv_peer, table.block_rank, table.channel))
    endpoints, name = np.unique(
        np.concatenate((outgoing, incoming), axis=1), axis=1, return_inverse=True
    )
    of_sender, of_receiver = np.split(name.reshape(-1), 2)
    text = [f"{src}->{dst} channel {channel}" for src, dst, channel in endpoints.T.tolist()]
    shared = [
        *_shared(table, of_sender, table.send_peer, text),
        *_shared(table, of_receiver, table.recv_peer, text),
    ]
    if shared:
        return sorted(shared, key=lambda defect: (defect.rank, defect.threadblock))
    sends, receives = np.flatnonzero(table.sends), np.flatnonzero(table.receives)
    sends = sends[np.argsort(of_sender[table.block[sends]], kind="stable")]
    receives = receives[np.argsort(of_receiver[table.block[receives]], kind="stable")]
    names, other = of_sender[table.block[sends]], of_receiver[table.block[receives]]
    if len(sends) != len(receives) or (names != other).any():
        return list(_unmatched(table, (sends, names), (receives, other), text))
    unlike = np.flatnonzero(table.count[sends] != table.count[receives])
    if len(unlike):
        return [_unlike(table, int(sends[at]), int(receives[at])) for at in unlike]
    return Connections(sends, receives, names)


def _shared(table: StepTable, names: Ints, peers: Ints, text: list[str]) -> Iterator[Defect]:
    used = np.flatnonzero(peers >= 0)
    _, owner, name = np.unique(names[used], return_index=True, return_inverse=True)
    for at in np.flatnonzero(owner[name] != np.arange(len(used))).tolist():
        block, first = int(used[at]), int(used[owner[name[at]]])
        yield Defect(
            DefectKind.CONNECTION,
            int(table.block_rank[block]),
            int(table.block_id[block]),
            None,
            f"shares connection {text[names[block]]} with threadblock {table.block_id[first]}; "
            "each direction belongs to one threadblock",
        )


def _unmatched(
    table: StepTable, sent: tuple[Ints, Ints], received: tuple[Ints, Ints], text: list[str]
) -> Iterator[Defect]:
    (sends, send_names), (receives, receive_names) = sent, received
    for name in np.union1d(send_names, receive_names).tolist():
        ends = sends[send_names == name], receives[receive_names == name]
        fewer, more = sorted(ends, key=len)
        if len(fewer) < len(more):
            counts = f"{len(ends[0])} sends and {len(ends[1])} receives"
            place = table.place(int(more[len(fewer)]))
            message = f"connection {text[name]} has {counts}"
            yield Defect(DefectKind.CONNECTION, *place, message)


def _unlike(table: StepTable, send: int, receive: int) -> Defect:
    rank, threadblock, step = table.place(send)
    return Defect(
        DefectKind.CONNECTION,
        *table.place(receive),
        f"{table.type_of(receive)} takes {table.count[receive]} chunks where rank {rank} "
        f"threadblock {threadblock} step {step} gives {table.count[send]}",
    )


@dataclass(frozen=True, slots=True)
class Waves:
    """An order that respects every wait, divided into waves."""

    order: Ints
    """Steps by wave."""
    first: Ints
    """Start of each wave in `order`, then the number of steps."""
    source: Ints
    """For a receiving step, the step that sends its message; -1 for none."""
    waits_for: Ints
    """The step that the dependence names; -1 for none."""


@dataclass(frozen=True, slots=True)
class _Waits:
    """What each step waits for, beside the step before it; -1 stands for none."""

    awaited: Ints
    """The step that its dependence names."""
    source: Ints
    """For a receiving step, the step that sends its message."""
    slot: Ints
    """The step whose receipt frees the slot that this step sends in."""


def _onward(waits: Ints) -> Ints:
    """Return the inverse: the step that waits for each."""
    waiting = np.flatnonzero(waits >= 0)
    found = np.full(len(waits), -1)
    found[waits[waiting]] = waiting
    return found


def in_waves(table: StepTable, slots: int) -> Waves | list[Defect]:
    """Return the waves of a schedule with sound steps, if a connection holds `slots` messages.

    Returns:
        The defects of connections, or the deadlock of every execution, if there are any.
    """
    connections = connect(table)
    if isinstance(connections, list):
        return connections
    waits = _waits(table, connections, slots)
    following = np.arange(1, table.steps + 1)
    following[np.append(table.block[1:] != table.block[:-1], True)[: table.steps]] = -1
    order, first = _levels(waits.awaited, (following, _onward(waits.source), _onward(waits.slot)))
    if len(order) < table.steps:
        return [_deadlock(table, waits, order, slots)]
    return Waves(order, first, waits.source, waits.awaited)


def _waits(table: StepTable, connections: Connections, slots: int) -> _Waits:
    awaited, source, slot = (np.full(table.steps, -1) for _ in range(3))
    waiting = np.flatnonzero(table.depends)
    awaited[waiting] = table.awaited(waiting)
    sends, receives, name = connections.sends, connections.receives, connections.name
    source[receives] = sends
    held = np.flatnonzero(name[slots:] == name[:-slots])
    slot[sends[held + slots]] = receives[held]
    return _Waits(awaited, source, slot)


def _levels(waits_for: Ints, onward: tuple[Ints, ...]) -> tuple[Ints, Ints]:
    """Return the steps outside cycles by level, and the start of each level.

    Several steps may wait for one; `onward` maps from each step to the single step that waits for
    it.
    """
    waiting = np.flatnonzero(waits_for >= 0)
    waiting = waiting[np.argsort(waits_for[waiting], kind="stable")]
    pending = (waits_for >= 0).astype(np.int64)
    waiters = np.bincount(waits_for[waiting], minlength=len(waits_for))
    first_waiter = starts(waiters)
    for follower in onward:
        pending[follower[follower >= 0]] += 1
    ready = np.flatnonzero(pending == 0)
    levels: list[Ints] = []
    while len(ready):
        levels.append(ready)
        woken = [follower[ready] for follower in onward]
        woken = [steps[steps >= 0] for steps in woken]
        woken.append(waiting[ranges(first_waiter[ready], waiters[ready])])
        for steps in woken:
            pending[steps] -= 1
        touched = np.concatenate(woken)
        ready = np.unique(touched[pending[touched] == 0])
    empty = np.zeros(0, dtype=np.int64)
    sizes = np.array([len(level) for level in levels], dtype=np.int64)
    return np.concatenate((empty, *levels)), starts(sizes)


def _deadlock(table: StepTable, waits: _Waits, done: Ints, slots: int) -> Defect:
    """Return the cycle of steps that wait for each other, found from the first that cannot go on.

    The step at which a threadblock stops waits for another threadblock, which has stopped before
    the step that it waits for.
    """
    stuck = np.ones(table.steps + 1, dtype=bool)
    stuck[done] = False
    stuck[-1] = False
    steps = np.flatnonzero(stuck)
    blocks, at = np.unique(table.block[steps], return_index=True)
    stopped = dict(zip(blocks.tolist(), steps[at].tolist(), strict=True))

    def wanted(step: int) -> tuple[str, int]:
        for text, column in (
            ("threadblock {1} step {2}", waits.awaited),
            ("a message from rank {0} threadblock {1}", waits.source),
            ("a free slot to rank {0} threadblock {1}", waits.slot),
        ):
            if stuck[column[step]]:
                other = int(column[step])
                return text.format(*table.place(other)), stopped[int(table.block[other])]
        raise AssertionError(step)

    seen: dict[int, str] = {}
    step = int(steps[0])
    while step not in seen:
        seen[step], following = wanted(step)
        step = following
    cycle = list(seen)[list(seen).index(step) :]
    named = [f"{table.name(at)} waits for {seen[at]}" for at in cycle[:_NAMED_STEPS]]
    more = f"; and {len(cycle) - _NAMED_STEPS} more" if len(cycle) > _NAMED_STEPS else ""
    return Defect(
        DefectKind.DEADLOCK,
        *table.place(step),
        f"cycle of {len(cycle)} with {slots} FIFO slots: " + "; ".join(named) + more,
    )
