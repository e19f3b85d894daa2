"""Waves of steps: each wave waits only for earlier ones.

With messages of one slot each, a step starts and finishes as a whole. It then waits for a fixed set
of steps: the previous one in its threadblock, its dependence, for a receive its send, and for the
k-th send of a connection with s slots the (k-s)-th receive. All steps can finish if and only if
these waits have no cycle, whatever the interleaving (compare
`synthesizer.prove.execution_order`, which runs the schedule itself, also with messages of
several slots).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthesizer.prove.step_table import Ints, StepTable, starts


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


def in_waves(table: StepTable, slots: int) -> Waves | None:
    """Return the waves of a schedule with sound steps; None on a bad connection or a deadlock."""
    wired = connect(table)
    if wired is None:
        return None
    source, rank_on_connection, sends = wired
    waits_for = np.full(table.steps, -1)
    waiting = np.flatnonzero(table.depends)
    awaited_block = table.first_block[table.rank[waiting]] + table.awaited_block[waiting]
    waits_for[waiting] = table.first[awaited_block] + table.awaited_step[waiting]
    # A receive frees the slot of the send that is `slots` messages later on its connection.
    frees = np.full(table.steps, -1)
    held = np.flatnonzero(rank_on_connection >= slots)
    receive_of = np.full(table.steps, -1)
    receive_of[source[source >= 0]] = np.flatnonzero(source >= 0)
    frees[receive_of[sends[held - slots]]] = sends[held]
    following = np.arange(1, table.steps + 1)
    following[table.first[1:][np.diff(table.first) > 0] - 1] = -1
    order, first = _levels(waits_for, (following, receive_of, frees))
    if len(order) < table.steps:
        return None
    return Waves(order, first, source, waits_for)


def connect(table: StepTable) -> tuple[Ints, Ints, Ints] | None:
    """Match the sends and receives of every connection.

    Returns:
        The source of every step, the place of each send among the sends of its connection, and the
        sends themselves, by connection. None if two threadblocks share a connection, or sends and
        receives differ in number or chunk count.
    """
    sending, receiving = table.send_peer >= 0, table.recv_peer >= 0
    outgoing = np.stack((table.block_rank, table.send_peer, table.channel))
    incoming = np.stack((table.recv_peer, table.block_rank, table.channel))
    endpoints = np.concatenate((outgoing, incoming), axis=1)
    _, name = np.unique(endpoints, axis=1, return_inverse=True)
    of_sender, of_receiver = np.split(name.reshape(-1), 2)
    for names in (of_sender[sending], of_receiver[receiving]):
        if len(np.unique(names)) < len(names):
            return None
    sends, receives = np.flatnonzero(table.sends), np.flatnonzero(table.receives)
    send_names, receive_names = of_sender[table.block[sends]], of_receiver[table.block[receives]]
    send_order = np.argsort(send_names, kind="stable")
    receive_order = np.argsort(receive_names, kind="stable")
    sends, send_names = sends[send_order], send_names[send_order]
    receives, receive_names = receives[receive_order], receive_names[receive_order]
    if len(sends) != len(receives) or (send_names != receive_names).any():
        return None
    if (table.count[sends] != table.count[receives]).any():
        return None
    source = np.full(table.steps, -1)
    source[receives] = sends
    new = np.ones(len(send_names), dtype=bool)
    new[1:] = send_names[1:] != send_names[:-1]
    place = np.arange(len(send_names))
    return source, place - np.maximum.accumulate(np.where(new, place, 0)), sends


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


def ranges(first: Ints, lengths: Ints) -> Ints:
    """Return the ranges of `lengths[i]` numbers from `first[i]`, concatenated."""
    ends = np.cumsum(lengths)
    return np.repeat(first - ends + lengths, lengths) + np.arange(int(lengths.sum()))
