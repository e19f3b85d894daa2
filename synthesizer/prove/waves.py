"""Steps in waves: each wave waits only for earlier ones.

With messages that take one slot each, a step starts and finishes as a whole. What it waits for is
then a fixed set of other steps: the one before it in its threadblock, its dependence, for a receive
its send, and for the k-th send of a connection with s slots the (k-s)-th receive. All can finish if
and only if these waits have no cycle, whoever runs when (compare
`synthesizer.prove.execution_order`, which runs the schedule itself, also with messages that take
several slots).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthesizer.prove.step_table import Ints, StepTable, starts


@dataclass(frozen=True, slots=True)
class Waves:
    """An order that respects every wait, cut into waves."""

    order: Ints
    """Steps by wave."""
    first: Ints
    """Where each wave starts in `order`, and the number of steps at the end."""
    source: Ints
    """For a receiving step the step whose message it takes, -1 for none."""
    waits_for: Ints
    """The step named by the dependence, -1 for none."""


def in_waves(table: StepTable, slots: int) -> Waves | None:
    """The waves of a schedule of sound steps; None when connections don't fit or steps deadlock."""
    wired = connect(table)
    if wired is None:
        return None
    source, rank_on_connection, sends = wired
    waits_for = np.full(table.steps, -1)
    waiting = np.flatnonzero(table.depends)
    awaited_block = table.first_block[table.rank[waiting]] + table.awaited_block[waiting]
    waits_for[waiting] = table.first[awaited_block] + table.awaited_step[waiting]
    # The receive that takes the message `slots` before a send's on the same connection.
    frees = np.full(table.steps, -1)
    held = np.flatnonzero(rank_on_connection >= slots)
    takers = np.full(table.steps, -1)
    takers[source[source >= 0]] = np.flatnonzero(source >= 0)
    frees[takers[sends[held - slots]]] = sends[held]
    following = np.arange(1, table.steps + 1)
    following[table.first[1:][np.diff(table.first) > 0] - 1] = -1
    order, first = _levels(waits_for, (following, takers, frees))
    if len(order) < table.steps:
        return None
    return Waves(order, first, source, waits_for)


def connect(table: StepTable) -> tuple[Ints, Ints, Ints] | None:
    """Sends and receives of every connection, side by side.

    Returns:
        The source of every step, the place of each send among the sends of its connection, and the
        sends themselves, by connection. None when two threadblocks share a connection, or sends and
        receives differ in number or counts.
    """
    sending, receiving = table.send_peer >= 0, table.recv_peer >= 0
    out = np.stack((table.block_rank, table.send_peer, table.channel))
    into = np.stack((table.recv_peer, table.block_rank, table.channel))
    both = np.concatenate((out, into), axis=1)
    _, name = np.unique(both, axis=1, return_inverse=True)
    of_sender, of_receiver = np.split(name.reshape(-1), 2)
    for names in (of_sender[sending], of_receiver[receiving]):
        if len(np.unique(names)) < len(names):
            return None
    sends, receives = np.flatnonzero(table.sends), np.flatnonzero(table.receives)
    given, taken = of_sender[table.block[sends]], of_receiver[table.block[receives]]
    by_given = np.argsort(given, kind="stable")
    by_taken = np.argsort(taken, kind="stable")
    sends, given = sends[by_given], given[by_given]
    receives, taken = receives[by_taken], taken[by_taken]
    if len(sends) != len(receives) or (given != taken).any():
        return None
    if (table.count[sends] != table.count[receives]).any():
        return None
    source = np.full(table.steps, -1)
    source[receives] = sends
    new = np.ones(len(given), dtype=bool)
    new[1:] = given[1:] != given[:-1]
    place = np.arange(len(given))
    return source, place - np.maximum.accumulate(np.where(new, place, 0)), sends


def _levels(waits_for: Ints, onward: tuple[Ints, ...]) -> tuple[Ints, Ints]:
    """Steps by level, as far as they are in no cycle, and where each level starts.

    Args:
        waits_for: The step that a step waits for, with many waiting for one.
        onward: Maps to the one step that waits for a step.
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


def ranges(first: Ints, lengths: Ints) -> Ints:
    """`first[i], first[i] + 1, ...` of `lengths[i]` numbers each, one after another."""
    ends = np.cumsum(lengths)
    return np.repeat(first - ends + lengths, lengths) + np.arange(int(lengths.sum()))
