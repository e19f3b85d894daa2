"""What a job learned becomes entries of a table.

A choice that won in the job serves its size. Within the range of an entry it also serves the sizes
that are farther from the one that was measured, on its side: each size is served by the choice of
the nearest that is known towards the measured one. Where NCCL's own choice won there is no entry.
A schedule that was replaced is a runner-up from then on, so that a later job may return to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lookup_tables.lookup import MOST_RUNNER_UP_SCHEDULES, check_table, key_order
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
    entries, runners_up = list(table.entries), list(table.runners_up)
    changes = []
    for key in keys:
        if key.races == 0 or key.choice == 0 or (table.is_invariant and key.operation.reduces):
            continue
        at = _place_of(entries, key)
        before = None if at is None else entries[at]
        arm = _as_known(key.chosen, before, [own for own in runners_up if _holds(own.key, key)])
        after = _entry_of(key, arm, before, table.fingerprint, provenance, tuned_at)
        if _runs(before) == _runs(after):
            continue
        if at is not None:
            del entries[at]
        entries += _parts(before, after, key.size_bytes)
        changes.append(LearnedChange(key, after))
        runners_up = _with_former(runners_up, before)
    made = replace(
        table,
        entries=tuple(sorted(entries, key=lambda entry: key_order(entry.key))),
        runners_up=tuple(sorted(runners_up, key=lambda own: key_order(own.key))),
    )
    used = schedules_of(made.entries, made.runners_up)
    made = replace(made, schedules=tuple(own for own in made.schedules if own.content_hash in used))
    check_table(made)
    return made, tuple(changes)


def _place_of(entries: list[Entry], key: LearnedKey) -> int | None:
    for at, entry in enumerate(entries):
        if _holds(entry.key, key):
            return at
    return None


def _holds(own: Key, key: LearnedKey) -> bool:
    same = (own.shape, own.operation) == (key.shape, key.operation)
    return same and own.min_bytes <= key.size_bytes <= own.max_bytes


def _runs(entry: Entry | None) -> tuple[BuiltinConfig | None, ScheduleConfig | None]:
    return (None, None) if entry is None else (entry.builtin, entry.schedule)


def _as_known(arm: LearnedArm, before: Entry | None, tried: Sequence[RunnersUp]) -> LearnedArm:
    """Return an arm whose schedule is as the table has it: the job does not say of windows."""
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
    if (builtin is None and arm.schedule is None) or arm.time_us is None or key.nccl_us is None:
        return None
    size = key.size_bytes
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


def _parts(before: Entry | None, after: Entry | None, size: int) -> list[Entry]:
    """Divide the range of an entry between it and the choice that was learned at a size of it."""
    if before is None:
        return [] if after is None else [after]
    least, most, tuned = before.key.min_bytes, before.key.max_bytes, before.tuned_bytes
    mine, rest = (least, most), None
    if size > tuned:
        mine, rest = (size, most), (least, size - 1)
    elif size < tuned:
        mine, rest = (least, size), (size + 1, most)
    made = []
    if rest is not None:
        own = replace(before.key, min_bytes=rest[0], max_bytes=rest[1])
        made.append(replace(before, key=own))
    if after is not None:
        own = replace(after.key, min_bytes=mine[0], max_bytes=mine[1])
        made.append(replace(after, key=own))
    return made
