"""Arrangement: the order, messages and channels of statements that an author left to the language.

Statements are taken by depth, the number of messages before them on the longest chain; of equal
depth, those with the longest chain to the end first, then as written (MSCCLang's order of
instructions). Every statement follows what it depends on, so the program means the same.

Statements over adjacent chunks become one (`synthesizer.lower.merging`), unless longer messages
would leave slots of a busier connection empty.

A connection of which messages wait for what happens elsewhere in between is divided at these
places, and each of its phases has a channel of its own. Otherwise the threadblock would wait for
the last phase of one tile before it begins the first of the next. Data that is passed on stays on
its channel where it can, so that receiving and sending fuse.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from synthesizer.ir.program import Program, Statement
from synthesizer.lower.merging import Waits, adjacent_runs, joined, waits_of

MOST_PHASES = 4
"""Most channels that a connection is divided into."""


@dataclass(frozen=True, slots=True)
class Written:
    """What an author says of a statement beside its chunks."""

    instances: int
    channel: int | None
    """None: the language chooses."""


def arranged(
    program: Program, written: Sequence[Written]
) -> tuple[tuple[Statement, ...], tuple[int, ...]]:
    """Return the statements of a program with channels, in order, and the instances of each."""
    statements = program.statements
    waits = waits_of(program)
    depth, height = _depths(statements, waits), _heights(statements, waits)
    runs = _runs(statements, waits, written)
    runs.sort(key=lambda run: (depth[run[0]], -height[run[0]], min(run)))
    order = [run[0] for run in runs]
    channel = _channels(statements, order, waits, depth, written)
    return (
        tuple(
            replace(joined([statements[n] for n in run]), channel=channel[run[0]]) for run in runs
        ),
        tuple(written[n].instances for n in order),
    )


def _runs(
    statements: Sequence[Statement], waits: Waits, written: Sequence[Written]
) -> list[list[int]]:
    """Return the statements in runs that become one each."""
    wide = adjacent_runs(statements, waits, written.__getitem__)
    largest = max((s.dst.count for s in statements if s.remote), default=0)
    narrow = [part for run in wide for part in _parts(statements, run, largest)]
    return min(wide, narrow, key=lambda runs: _room(statements, runs, written))


def _parts(statements: Sequence[Statement], run: list[int], most: int) -> list[list[int]]:
    """Return a run in parts of at most `most` chunks, if it is of messages."""
    if not statements[run[0]].remote:
        return [run]
    parts: list[list[int]] = [[]]
    for number in run:
        if sum(statements[n].dst.count for n in (*parts[-1], number)) > most:
            parts.append([])
        parts[-1].append(number)
    return parts


def _room(
    statements: Sequence[Statement], runs: Sequence[Sequence[int]], written: Sequence[Written]
) -> int:
    """Return the chunks for which the busiest connection's messages have room.

    A tile of the data is what a slot holds of the largest message, and smaller messages leave room
    in their slots.
    """
    messages = [run for run in runs if statements[run[0]].remote]
    largest = max((sum(statements[n].dst.count for n in run) for run in messages), default=0)
    sent = Counter((_ends(statements[run[0]]), written[run[0]].channel) for run in messages)
    return largest * max(sent.values(), default=0)


def _depths(statements: Sequence[Statement], waits: Waits) -> list[int]:
    """Return the messages on the longest chain to each statement; a local one counts for itself."""
    done = [0] * len(statements)
    depth = []
    for number, statement in enumerate(statements):
        ready = max((done[earlier] for earlier in waits.before[number]), default=0)
        depth.append(ready + 1)
        done[number] = ready + statement.remote
    return depth


def _heights(statements: Sequence[Statement], waits: Waits) -> list[int]:
    """Return the messages on the longest chain from each statement on."""
    height = [0] * len(statements)
    for number in reversed(range(len(statements))):
        left = max((height[later] for later in waits.after[number]), default=0)
        height[number] = left + statements[number].remote
    return height


def _channels(
    statements: Sequence[Statement],
    order: Sequence[int],
    waits: Waits,
    depth: Sequence[int],
    written: Sequence[Written],
) -> dict[int, int]:
    """Return the channel of each statement in `order`."""
    channel: dict[int, int] = {}
    used: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number in order:
        given = written[number].channel
        if given is not None:
            channel[number] = given
            used[_ends(statements[number])].add(given)
    for phase in _phases(statements, [n for n in order if n not in channel], depth):
        source = Counter(
            channel[earlier]
            for number in phase
            for earlier in sorted(waits.before[number])
            if earlier in channel and statements[earlier].dst == statements[number].src
        )
        taken = used[_ends(statements[phase[0]])]
        likely = [number for number, _ in source.most_common()]
        chosen = next(number for number in chain(likely, count()) if number not in taken)
        taken.add(chosen)
        channel.update(dict.fromkeys(phase, chosen))
    return channel


def _ends(statement: Statement) -> tuple[int, int]:
    return statement.src.rank, statement.dst.rank


def _phases(
    statements: Sequence[Statement], order: Sequence[int], depth: Sequence[int]
) -> list[list[int]]:
    """Return the statements of each connection, divided where the next ones wait."""
    phases: list[list[int]] = []
    of_connection: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    for number in order:
        found = of_connection[_ends(statements[number])]
        waits = not found or depth[number] - depth[found[-1][-1]] > 1
        if waits and len(found) < MOST_PHASES:
            found.append([])
            phases.append(found[-1])
        found[-1].append(number)
    return phases
