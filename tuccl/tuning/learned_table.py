"""What a job learned becomes entries of a table.

A choice that won in the job serves its size. Within the range of an entry it also serves the sizes
that are farther from the one that was measured, on its side: each size is served by the choice of
the nearest that is known towards the measured one. Sizes at which the table's choice won count as
known, too: a range is divided once, among all of its sizes. Where NCCL's own choice won there is no
entry.
A schedule that was replaced is a runner-up from then on, so that a later job may return to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lookup_tables.lookup import MOST_RUNNER_UP_SCHEDULES, check_table, key_order, lookup
from lookup_tables.provenance import Provenance
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    Key,
    RunnersUp,
    ScheduleConfig,
    Table,
    schedules_of,
)
from tuccl.reports.learned import ArmKind, LearnedArm, LearnedKey

_SAMPLES = 15
"""Calls of each choice in the trial that decides."""


@dataclass(frozen=True, slots=True)
class LearnedChange:
    """A size whose choice in the table is another one from now on."""

    key: LearnedKey
    entry: Entry | None
    """The new entry; None: NCCL's own choice."""


def with_learned(
    table: Table, keys: Iterable[LearnedKey], provenance: Provenance, tuned_at: str
) -> tuple[Table, tuple[LearnedChange, ...]]:
    """Return a table with what was learned, and what has changed.

    Args:
        table: The table before.
        keys: What was learned; races that have not ended say nothing.
        provenance: The job.
        tuned_at: When it ended: ISO 8601, UTC.

    Raises:
        TableError: The table would break a rule.
    """
    found: dict[Key, dict[int, Entry | None]] = {own.key: {} for own in table.entries}
    entries, runners_up = [], list(table.runners_up)
    changes = []
    for key in sorted(keys, key=lambda key: (key.shape, key.operation.value, key.size_bytes)):
        before = lookup(table.entries, key.operation, key.size_bytes, key.shape)
        if key.races == 0 or (table.is_invariant and key.operation.reduces):
            continue
        if key.choice == 0 and before is None:
            continue
        arm = _as_known(key, before, [own for own in table.runners_up if _holds(own.key, key)])
        after = _entry_of(key, arm, before, table.fingerprint, provenance, tuned_at)
        if before is not None:
            found[before.key][key.size_bytes] = after
        elif after is not None:
            entries.append(after)
        if _runs(before) != _runs(after):
            changes.append(LearnedChange(key, after))
            runners_up = _with_former(runners_up, before)
    for before in table.entries:
        entries += _parts(before, found[before.key])
    made = replace(
        table,
        entries=tuple(sorted(entries, key=lambda entry: key_order(entry.key))),
        runners_up=tuple(sorted(runners_up, key=lambda own: key_order(own.key))),
    )
    used = schedules_of(made.entries, made.runners_up)
    made = replace(made, schedules=tuple(own for own in made.schedules if own.content_hash in used))
    check_table(made)
    return made, tuple(changes)


def _holds(own: Key, key: LearnedKey) -> bool:
    same = (own.shape, own.operation) == (key.shape, key.operation)
    return same and own.min_bytes <= key.size_bytes <= own.max_bytes


def _runs(entry: Entry | None) -> tuple[BuiltinConfig | None, ScheduleConfig | None]:
    return (None, None) if entry is None else (entry.builtin, entry.schedule)


def _as_known(key: LearnedKey, before: Entry | None, tried: Sequence[RunnersUp]) -> LearnedArm:
    """Return the choice with its schedule as the table has it: the job does not say of windows."""
    arm = key.chosen
    if key.choice == 0 and before is not None:
        kind = ArmKind.TABLE if before.schedule is None else ArmKind.SCHEDULE
        return replace(arm, kind=kind, setting=None, schedule=before.schedule)
    if arm.schedule is None:
        return arm
    known = [schedule for own in tried for schedule in own.schedules]
    known += [] if before is None or before.schedule is None else [before.schedule]
    same = (own for own in known if replace(own, in_windows=False) == arm.schedule)
    return replace(arm, schedule=next(same, arm.schedule))


def _with_former(runners_up: Sequence[RunnersUp], former: Entry | None) -> list[RunnersUp]:
    """Return runners-up with the schedule of an entry that was replaced."""
    if former is None or former.schedule is None:
        return [*runners_up]
    beside = [own for own in runners_up if _overlap(own.key, former.key)]
    others = [own for own in runners_up if own not in beside]
    for own in beside or [RunnersUp(former.key)]:
        alike = replace(former.schedule, in_windows=False)
        rest = (each for each in own.schedules if replace(each, in_windows=False) != alike)
        tried = (former.schedule, *rest)[:MOST_RUNNER_UP_SCHEDULES]
        others.append(replace(own, schedules=tried))
    return others


def _overlap(one: Key, other: Key) -> bool:
    same = (one.shape, one.operation) == (other.shape, other.operation)
    return same and one.min_bytes <= other.max_bytes and other.min_bytes <= one.max_bytes


def _entry_of(
    key: LearnedKey,
    arm: LearnedArm,
    before: Entry | None,
    fingerprint: str,
    provenance: Provenance,
    tuned_at: str,
) -> Entry | None:
    """Return the entry of the choice; None: it is NCCL's own."""
    builtin, builtin_us = arm.setting, arm.time_us
    if arm.kind in {ArmKind.TABLE, ArmKind.SCHEDULE}:
        builtin = None if before is None else before.builtin
    if arm.kind is ArmKind.SCHEDULE:
        builtin_us = None if before is None else before.builtin_time_us
    size = key.size_bytes
    if (builtin is None and arm.schedule is None) or arm.time_us is None or key.nccl_us is None:
        # The table's choice stays; without times in the job it has those that were measured.
        return before and replace(before, tuned_bytes=size) if key.choice == 0 else None
    return Entry(
        key=Key(key.operation, size, size, key.shape, fingerprint),
        tuned_bytes=size,
        builtin=builtin,
        schedule=arm.schedule,
        time_us=arm.time_us,
        builtin_time_us=builtin_us,
        default_time_us=key.nccl_us,
        samples=_SAMPLES,
        spread=0.0,
        tuned_at=tuned_at,
        provenance=provenance,
    )


def _parts(before: Entry, found: Mapping[int, Entry | None]) -> list[Entry]:
    """Divide the range of an entry among it and the choices that were learned at sizes of it."""
    tuned = before.tuned_bytes
    known = dict(found)
    if _runs(known.get(tuned, before)) == _runs(before):
        known[tuned] = before
    sizes = sorted(known)

    def is_new(at: int) -> bool:
        """Whether the neighbour towards the measured size runs another choice."""
        towards = sizes[at - 1 if sizes[at] > tuned else at + 1]
        return _runs(known[sizes[at]]) != _runs(known[towards])

    kept = [size for at, size in enumerate(sizes) if size == tuned or is_new(at)]
    borders = [low if high <= tuned else high - 1 for low, high in pairwise(kept)]
    starts = [before.key.min_bytes, *(border + 1 for border in borders)]
    ends = [*borders, before.key.max_bytes]
    return [
        replace(entry, key=replace(before.key, min_bytes=start, max_bytes=end))
        for size, start, end in zip(kept, starts, ends, strict=True)
        if (entry := known[size]) is not None
    ]
