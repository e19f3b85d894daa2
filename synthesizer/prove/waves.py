"""Waves of steps: each wave waits only for earlier ones, or steps wait for each other in a circle.

The k-th send of a connection (src, dst, channel) matches its k-th receive. A message takes one
FIFO slot, or one for each piece of so many chunks. A step moves its message piece by piece: a piece
waits for the piece before it, the first piece for the step before and the step's dependence, a
received piece for its send, and the k-th piece that a connection with s slots sends for the
(k-s)-th that it receives. These are fixed, so all steps can finish if and only if they have no
cycle, whatever the interleaving (as in Kahn process networks with bounded buffers). A schedule that
finishes with some number of slots also finishes with more, and one that finishes with one chunk per
slot also finishes with more chunks per slot.
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
    """What each piece of a step waits for, beside the piece before it; -1 stands for none.

    A step without a message is one piece.
    """

    step: Ints
    """The step of each piece."""
    awaited: Ints
    source: Ints
    slot: Ints
    """The piece whose receipt frees the slot that this piece is sent in."""

    def onward(self, waits: Ints) -> Ints:
        """Return the inverse: the piece that waits for each."""
        waiting = np.flatnonzero(waits >= 0)
        found = np.full(len(self.step), -1)
        found[waits[waiting]] = waiting
        return found


def in_waves(
    table: StepTable, slots: int, chunks_per_slot: int | None = None
) -> Waves | list[Defect]:
    """Return the waves of a schedule with sound steps.

    A connection holds `slots` messages, or pieces of `chunks_per_slot` chunks; None if a slot takes
    a message of any size.

    Returns:
        The defects of connections, or the deadlock of every execution, if there are any.
    """
    connections = connect(table)
    if isinstance(connections, list):
        return connections
    waits = _waits(table, connections, slots, chunks_per_slot)
    following = np.arange(1, len(waits.step) + 1)
    block = table.block[waits.step]
    following[np.append(block[1:] != block[:-1], True)[: len(block)]] = -1
    onward = (following, waits.onward(waits.source), waits.onward(waits.slot))
    order, first = _levels(waits.awaited, onward)
    if len(order) < len(waits.step):
        return [_deadlock(table, waits, order, slots)]
    source = np.full(table.steps, -1)
    source[connections.receives] = connections.sends
    waits_for = np.full(table.steps, -1)
    waiting = np.flatnonzero(table.depends)
    waits_for[waiting] = table.awaited(waiting)
    # A step has finished with its last piece.
    last = np.append(waits.step[1:] != waits.step[:-1], True)[: len(waits.step)][order]
    return Waves(waits.step[order[last]], starts(last)[first], source, waits_for)


def _waits(
    table: StepTable, connections: Connections, slots: int, chunks_per_slot: int | None
) -> _Waits:
    pieces = np.ones(table.steps, dtype=np.int64)
    if chunks_per_slot is not None:
        moved = np.concatenate((connections.sends, connections.receives))
        pieces[moved] = -(-table.count[moved] // chunks_per_slot)
    first = starts(pieces)
    step = np.repeat(np.arange(table.steps), pieces)
    each = pieces[connections.sends]
    sent = ranges(first[connections.sends], each)
    received = ranges(first[connections.receives], each)
    name = np.repeat(connections.name, each)
    awaited, source, slot = (np.full(len(step), -1) for _ in range(3))
    waiting = np.flatnonzero(table.depends)
    awaited[first[waiting]] = first[table.awaited(waiting) + 1] - 1
    source[received] = sent
    held = np.flatnonzero(name[slots:] == name[:-slots])
    slot[sent[held + slots]] = received[held]
    return _Waits(step, awaited, source, slot)


def _levels(waits_for: Ints, onward: tuple[Ints, ...]) -> tuple[Ints, Ints]:
    """Return the pieces outside cycles by level, and the start of each level.

    Several pieces may wait for one; `onward` maps from each piece to the single piece that waits
    for it.
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

    The piece at which a threadblock stops waits for another threadblock, which has stopped before
    the piece that it waits for.
    """
    stuck = np.ones(len(waits.step) + 1, dtype=bool)
    stuck[done] = False
    stuck[-1] = False
    pieces = np.flatnonzero(stuck)
    blocks, at = np.unique(table.block[waits.step[pieces]], return_index=True)
    stopped = dict(zip(blocks.tolist(), pieces[at].tolist(), strict=True))

    def wanted(piece: int) -> tuple[str, int]:
        for text, column in (
            ("threadblock {1} step {2}", waits.awaited),
            ("a message from rank {0} threadblock {1}", waits.source),
            ("a free slot to rank {0} threadblock {1}", waits.slot),
        ):
            if stuck[column[piece]]:
                step = int(waits.step[column[piece]])
                return text.format(*table.place(step)), stopped[int(table.block[step])]
        raise AssertionError(piece)

    seen: dict[int, str] = {}
    piece = int(pieces[0])
    while piece not in seen:
        seen[piece], following = wanted(piece)
        piece = following
    cycle = list(seen)[list(seen).index(piece) :]
    named = [
        f"{table.name(int(waits.step[at]))} waits for {seen[at]}" for at in cycle[:_NAMED_STEPS]
    ]
    more = f"; and {len(cycle) - _NAMED_STEPS} more" if len(cycle) > _NAMED_STEPS else ""
    return Defect(
        DefectKind.DEADLOCK,
        *table.place(int(waits.step[piece])),
        f"cycle of {len(cycle)} with {slots} FIFO slots: " + "; ".join(named) + more,
    )
