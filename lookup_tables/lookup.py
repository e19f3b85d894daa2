"""Lookup of a call's entry, and the rules that make a table's answer unambiguous.

A call is described by operation, size and communicator shape. Its entry is that of exactly this
shape and operation whose byte range (both ends inclusive) contains the size; without one, NCCL
decides as it always would. Nothing is interpolated. The
plugin's C lookup (`tuccl/runtime/selection.c`) has the same semantics.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

from lookup_tables.collective import ASKED_ABOUT, COLLECTIVES, Collective
from lookup_tables.confirmation import NoStarts, Reference
from lookup_tables.program_header import check_seal
from lookup_tables.table import (
    COMMUNICATOR_VARIABLES,
    BuiltinConfig,
    Entry,
    EstimateLine,
    Key,
    NcclAlgorithm,
    RunnersUp,
    ScheduleConfig,
    SeenPlacement,
    Setting,
    Shape,
    StoredSchedule,
    SumOrder,
    Table,
    TimedSiblings,
)
from tuccl.errors import TableError

MAX_SIZE_BYTES = 2**63 - 1
"""Largest end of a range; means "this size and everything above"."""
MAX_CHANNELS = 64
"""NCCL's MAXCHANNELS since 2.27 (32 before)."""
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4 << 10, 16 << 20
"""Above the grain of every protocol; NCCL's buffers hold no larger chunk by default."""
WITH_CHUNKS = frozenset({NcclAlgorithm.RING, NcclAlgorithm.TREE, NcclAlgorithm.PAT})
"""Algorithms whose chunks a tuner may choose; others have bounds of their own, which NCCL keeps for
its own size alone (NCCL 2.30 `src/enqueue.cc`)."""
LEAST_TIME_US, MOST_TIME_US = 1e-6, 1e15
"""A picosecond and thirty years: ratios of times between them are finite."""
MAX_THREADS = 1024
MOST_RUNNERS_UP = 7
"""Most settings of a key: with the table's choice and NCCL's own nine, the most that race."""
MOST_RUNNER_UP_SCHEDULES = 3
"""Most schedules of a key, in the place of its last settings."""
MOST_PLACEMENTS = 16
"""Most placements of a shape: a job's call is compared with each."""
_FEWEST_PLACEMENTS = 2
PLACEMENT_TOLERANCE = 0.01
"""Relative distance from its line up to which an estimate is of a placement."""

_GPU_MODEL = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_CONTENT_HASH = re.compile(r"[0-9A-Za-z]+")
_SUM_ORDER = re.compile(r"[0-9+()]{1,65536}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Keyed(Protocol):
    """An object with the key of a table entry."""

    @property
    def key(self) -> Key:
        """The calls it applies to."""


KeyedT = TypeVar("KeyedT", bound=Keyed)


def key_order(key: Key) -> tuple[Shape, str, int]:
    """Return the sort key of a table's entries: shape, operation name, start of the range."""
    return (key.shape, key.operation.value, key.min_bytes)


def lookup(
    entries: Sequence[KeyedT], operation: Collective, size_bytes: int, shape: Shape
) -> KeyedT | None:
    """Return which of a table's sorted entries applies to a call, None where NCCL decides."""
    wanted = (shape, operation.value, size_bytes)
    position = bisect_right(entries, wanted, key=lambda entry: key_order(entry.key)) - 1
    if position < 0:
        return None
    key = entries[position].key
    applies = (key.shape, key.operation) == (shape, operation) and size_bytes <= key.max_bytes
    return entries[position] if applies else None


def check_table(table: Table) -> None:
    """Check every rule that lookup, Parquet record and bundle rely on.

    Raises:
        TableError: The first broken rule and its entry.
    """
    _check_machine(table)
    _check_schedules(table)
    known = {schedule.content_hash for schedule in table.schedules}
    for entry in table.all_entries:
        if entry.key.fingerprint != table.fingerprint:
            raise TableError(
                f"{_name(entry.key)}: tuned on topology {entry.key.fingerprint!r} but the table is "
                f"for {table.fingerprint!r}; keep one table per topology"
            )
        _check_key(entry.key)
        _check_config(entry, known)
        _check_figures(entry)
        _check_origin(entry)
    _check_order(table.entries)
    _check_placements(table.placements)
    placed = [entry for own in table.placements for entry in own.entries]
    check_sums(table.sums, table.entries, placed)
    check_settings(table.settings, table.profile)
    check_runners_up(table.runners_up, known, is_invariant=table.is_invariant)


def check_runners_up(
    runners_up: Sequence[RunnersUp], known_schedules: Collection[str], *, is_invariant: bool
) -> None:
    """Check the settings and schedules that a job may try.

    Args:
        runners_up: Those of a table.
        known_schedules: Content hashes of its schedules.
        is_invariant: Whether its sums do not move.

    Raises:
        TableError: The first broken rule and its key.
    """
    for own in runners_up:
        _check_key(own.key)
        if is_invariant and own.key.operation.reduces:
            raise TableError(f"{_name(own.key)}: nothing is tried for it, as its sums do not move")
        if own.settings and own.key.operation not in ASKED_ABOUT:
            raise TableError(f"{_name(own.key)}: NCCL's settings are not tried for it")
        counts = ((own.settings, MOST_RUNNERS_UP), (own.schedules, MOST_RUNNER_UP_SCHEDULES))
        if not (own.settings or own.schedules) or any(
            not len(set(tried)) == len(tried) <= most for tried, most in counts
        ):
            raise TableError(
                f"{_name(own.key)}: has {len(own.settings)} settings and {len(own.schedules)} "
                f"schedules as runners-up; {MOST_RUNNERS_UP} and {MOST_RUNNER_UP_SCHEDULES} "
                "different ones are taken at most, and one at least"
            )
        for schedule in own.schedules:
            _check_schedule(own.key, schedule, known_schedules)
        for setting in own.settings:
            if not 0 <= setting.nchannels <= MAX_CHANNELS or not has_sound_chunks(setting):
                raise TableError(f"{_name(own.key)}: NCCL takes no such runner-up: {setting}")
            if setting.nchannels > 0:
                _check_channels_are_bounded(own.key, setting)
    _check_order(runners_up)


def check_settings(settings: Sequence[Setting], profile: Mapping[str, str]) -> None:
    """Check the variables that the executor sets on communicators.

    Args:
        settings: Those of a table.
        profile: Its process profile.

    Raises:
        TableError: One is not of the profile, or a communicator cannot have it; or they are not
            sorted.
    """
    if list(settings) != sorted(set(settings)):
        raise TableError("settings of communicators are not sorted by shape and name, each once")
    for own in settings:
        if own.name not in profile or own.name not in COMMUNICATOR_VARIABLES:
            raise TableError(
                f"{own.name} is not a variable of the process profile that communicators can have"
            )
        if own.shape.fault or own.shape.ranks < 2:
            fault = own.shape.fault or "a communicator of one rank has no settings"
            raise TableError(f"setting {own.name}: {fault}")


def _name(key: Key) -> str:
    shape = f"{key.shape.ranks} ranks on {key.shape.nodes} nodes"
    return f"entry {key.operation.value} {key.min_bytes}..{key.max_bytes} bytes, {shape}"


def _check_machine(table: Table) -> None:
    if not table.fingerprint:
        raise TableError("the table has no topology fingerprint; tune it on a topology")
    _check_printable("topology name", table.topology_name)
    _check_printable("topology fingerprint", table.fingerprint)
    for model in table.gpu_models:
        if not _GPU_MODEL.fullmatch(model):
            raise TableError(
                f"GPU model {model!r} is not PCI vendor:device in lower-case hex, like 10de:2335"
            )
    if list(table.gpu_models) != sorted(set(table.gpu_models)):
        raise TableError(f"GPU models {table.gpu_models} are not sorted and distinct")
    for variable, value in table.profile.items():
        if not _VARIABLE.fullmatch(variable):
            raise TableError(f"process profile: {variable!r} cannot name a variable")
        _check_printable(f"process profile: {variable}", value)


def _check_printable(what: str, text: str) -> None:
    """Check a text that goes into a shell file and into one-line messages."""
    if not text.isprintable():
        raise TableError(
            f"{what} {text!r} is not printable on one line; leave out control characters"
        )


def _check_schedules(table: Table) -> None:
    hashes = [schedule.content_hash for schedule in table.schedules]
    if hashes != sorted(set(hashes)):
        raise TableError("schedules are not sorted by content hash, each once")
    for schedule in table.schedules:
        if not _CONTENT_HASH.fullmatch(schedule.content_hash):
            raise TableError(
                f"a schedule's content hash {schedule.content_hash!r} cannot name a file; use "
                "letters and digits"
            )
        _check_printable("schedule name", schedule.name)
        if schedule.program:
            _check_program(schedule)


def _check_program(schedule: StoredSchedule) -> None:
    try:
        check_seal(schedule.program)
    except ValueError as error:
        raise TableError(
            f"the program of schedule {schedule.content_hash} is damaged: {error}"
        ) from error


def _check_key(key: Key) -> None:
    if not 0 <= key.min_bytes <= key.max_bytes <= MAX_SIZE_BYTES:
        raise TableError(
            f"{_name(key)}: a range needs 0 <= min_bytes <= max_bytes <= {MAX_SIZE_BYTES}"
        )
    if key.shape.fault:
        raise TableError(f"{_name(key)}: {key.shape.fault}")


def _check_config(entry: Entry, known_schedules: Collection[str]) -> None:
    builtin, schedule = entry.builtin, entry.schedule
    if builtin is None and schedule is None:
        raise TableError(
            f"{_name(entry.key)}: names no winner; leave out entries where NCCL's default is best"
        )
    if builtin is not None and not 0 <= builtin.nchannels <= MAX_CHANNELS:
        raise TableError(
            f"{_name(entry.key)}: {builtin.nchannels} channels, NCCL has 0 (its own) "
            f"to {MAX_CHANNELS}"
        )
    if builtin is not None and builtin.nchannels > 0:
        _check_channels_are_bounded(entry.key, builtin)
    if builtin is not None and not has_sound_chunks(builtin):
        raise TableError(
            f"{_name(entry.key)}: chunks of {builtin.chunk_bytes} bytes for "
            f"{builtin.algorithm.value}; ring, tree and pat have 0 (NCCL's own) or a power of two "
            f"from {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES}"
        )
    if schedule is not None:
        _check_schedule(entry.key, schedule, known_schedules)


def _check_schedule(key: Key, schedule: ScheduleConfig, known_schedules: Collection[str]) -> None:
    if schedule.schedule not in known_schedules:
        raise TableError(
            f"{_name(key)}: refers to schedule {schedule.schedule}, which the table lacks"
        )
    if not (
        0 <= schedule.nchannels <= MAX_CHANNELS
        and 0 <= schedule.nthreads <= MAX_THREADS
        and 0 <= schedule.buffer_bytes <= MAX_SIZE_BYTES
    ):
        raise TableError(f"{_name(key)}: executor parameters out of range: {schedule}")


def bounds_channels(algorithm: NcclAlgorithm, nodes: int) -> bool:
    """Whether NCCL bounds the number of channels that a tuner asks for by those that it opened."""
    unbounded = {NcclAlgorithm.COLLNET_DIRECT, NcclAlgorithm.COLLNET_CHAIN}
    return algorithm not in unbounded and (algorithm is not NcclAlgorithm.NVLS or nodes == 1)


def has_sound_chunks(builtin: BuiltinConfig) -> bool:
    """Whether a tuner may ask for chunks of this size, or asks for none."""
    size = builtin.chunk_bytes
    if size == 0:
        return True
    is_power = size > 0 and size & (size - 1) == 0
    in_bounds = is_power and MIN_CHUNK_BYTES <= size <= MAX_CHUNK_BYTES
    return in_bounds and builtin.algorithm in WITH_CHUNKS


def _check_channels_are_bounded(key: Key, builtin: BuiltinConfig) -> None:
    """Refuse a channel count where NCCL takes a tuner's count without a bound."""
    if not bounds_channels(builtin.algorithm, key.shape.nodes):
        where = " on several nodes" if builtin.algorithm is NcclAlgorithm.NVLS else ""
        raise TableError(
            f"{_name(key)}: {builtin.nchannels} channels for {builtin.algorithm.value}{where}, "
            "whose count NCCL does not bound; use 0, NCCL's own"
        )


def _check_figures(entry: Entry) -> None:
    times = [entry.time_us, entry.default_time_us]
    if entry.builtin_time_us is not None:
        times.append(entry.builtin_time_us)
    if not all(LEAST_TIME_US <= time <= MOST_TIME_US for time in times):
        raise TableError(
            f"{_name(entry.key)}: a time is not between {LEAST_TIME_US:g} and {MOST_TIME_US:g} us"
        )
    if not (math.isfinite(entry.spread) and entry.spread >= 0):
        raise TableError(f"{_name(entry.key)}: the spread is negative or not finite")
    if (entry.builtin is None) != (entry.builtin_time_us is None):
        raise TableError(
            f"{_name(entry.key)}: a built-in configuration and its time come together or not at all"
        )
    if not 0 <= entry.samples <= MAX_SIZE_BYTES:
        raise TableError(f"{_name(entry.key)}: {entry.samples} samples")
    if not entry.key.min_bytes <= entry.tuned_bytes <= entry.key.max_bytes:
        raise TableError(
            f"{_name(entry.key)}: was measured at {entry.tuned_bytes} bytes, outside its range"
        )


def _check_origin(entry: Entry) -> None:
    """Check the provenance of the times and the winner's confirmation."""
    if (provenance := entry.provenance) is not None:
        for text in (provenance.tuccl_version, provenance.machine, provenance.details):
            _check_printable(f"{_name(entry.key)}: provenance", text or "")
    shown = entry.confirmation
    if shown is None:
        return
    if not 0.0 < shown.low <= shown.ratio <= shown.high < math.inf:
        raise TableError(
            f"{_name(entry.key)}: a ratio of {shown.ratio:g} lies outside its own bounds, "
            f"{shown.low:g} to {shown.high:g}"
        )
    if not 0.0 < shown.confidence < 1.0:
        raise TableError(f"{_name(entry.key)}: a confidence of {shown.confidence:g}")
    if not isinstance(shown.starts, NoStarts) and not 1 <= shown.starts <= MAX_SIZE_BYTES:
        raise TableError(f"{_name(entry.key)}: {shown.starts} starts")
    if shown.reference is Reference.BUILTIN and entry.schedule is None:
        raise TableError(f"{_name(entry.key)}: a built-in setting compared with itself")


def _check_placements(placements: Sequence[SeenPlacement]) -> None:
    """Check communicators with entries of their own."""
    places = [(own.shape, own.number) for own in placements]
    counts = Counter(shape for shape, _ in places)
    if places != [(shape, number) for shape in sorted(counts) for number in range(counts[shape])]:
        raise TableError("placements are not sorted by shape and numbered from 0")
    if any(count < _FEWEST_PLACEMENTS for count in counts.values()):
        raise TableError("a shape has one placement alone, which distinguishes nothing")
    if any(count > MOST_PLACEMENTS for count in counts.values()):
        raise TableError(f"a shape has more than {MOST_PLACEMENTS} placements")
    operations = {own.shape: [operation for operation, _ in own.lines] for own in placements}
    for own in placements:
        if own.shape.fault:
            raise TableError(f"a placement: {own.shape.fault}")
        _check_printable("example of a placement", own.example)
        if own.timed is not None and not _is_division(own.timed, own.shape):
            raise TableError(f"a placement of {own.example}: no machine has its siblings")
        lines = dict(own.lines)
        in_order = [each for each in COLLECTIVES if each in lines]
        if operations[own.shape] != in_order or [*lines] != in_order:
            raise TableError("a shape's placements have estimates of different operations")
        is_estimated = all(operation.asks_tuner for operation in lines)
        if not is_estimated or not all(map(_is_line, lines.values())):
            raise TableError("a placement has an estimate that NCCL does not make")
        for entry in own.entries:
            if entry.key.shape != own.shape or entry.key.operation not in lines:
                raise TableError(f"{_name(entry.key)}: is in another shape's placement")
            if entry.schedule is not None:
                raise TableError(f"{_name(entry.key)}: the executor cannot distinguish placements")
        _check_order(own.entries)


def _is_division(timed: TimedSiblings, shape: Shape) -> bool:
    siblings, count = timed.siblings, timed.machine.ranks // shape.ranks
    in_order = bool(siblings) and list(siblings) == sorted(set(siblings))
    fits = in_order and siblings[0] >= 0 and siblings[-1] < count
    return fits and timed.stride >= 1 and not timed.machine.fault


def _is_line(line: EstimateLine) -> bool:
    figures = (line.latency_us, line.us_per_byte)
    return all(math.isfinite(figure) and figure > 0.0 for figure in figures)


def check_sums(
    sums: Sequence[SumOrder], entries: Sequence[Keyed], placed: Sequence[Keyed] = ()
) -> None:
    """Check that a table whose sums do not move leaves no size of a call that reduces to NCCL.

    Args:
        sums: Its orders; none of another table.
        entries: Its entries, sorted.
        placed: Entries of single communicators.

    Raises:
        TableError: It does.
    """
    places = [(own.shape, own.operation.value) for own in sums]
    if places != sorted(set(places)):
        raise TableError("orders of sums are not sorted by shape and operation name, each once")
    for own in sums:
        _check_sums_of(own, [e.key for e in entries if _is_of(e.key, own)])
    for entry in (*entries, *placed) if sums else ():
        if entry.key.operation.reduces and not any(_is_of(entry.key, own) for own in sums):
            raise TableError(f"{_name(entry.key)}: has no order of sums, as other entries have")
    if sums and any(entry.key.operation.reduces for entry in placed):
        raise TableError("the sums of a placement's entries are not those of the table")


def _is_of(key: Key, own: SumOrder) -> bool:
    return (key.shape, key.operation) == (own.shape, own.operation)


def _check_sums_of(own: SumOrder, keys: Sequence[Key]) -> None:
    what = f"the sums of {own.operation.value} on {own.shape.ranks} ranks"
    if not own.operation.reduces:
        raise TableError(f"{what}: there are none")
    if not _SUM_ORDER.fullmatch(own.order):
        raise TableError(f"{what}: {own.order!a:.40} is not an order of additions, as (0+1+2)")
    ends = [0, *(key.max_bytes for key in keys)]
    starts = [*(key.min_bytes for key in keys), MAX_SIZE_BYTES + 1]
    for end, start in zip(ends, starts, strict=True):
        if start != end + 1:
            raise TableError(f"{what}: sizes {end + 1} to {start - 1} have no entry")


def _check_order(entries: Sequence[Keyed]) -> None:
    for before, after in pairwise(entries):
        if key_order(before.key) > key_order(after.key):
            raise TableError(
                f"{_name(after.key)}: out of order; entries are sorted by shape, operation name "
                "and min_bytes"
            )
        same = (before.key.shape, before.key.operation) == (after.key.shape, after.key.operation)
        if same and after.key.min_bytes <= before.key.max_bytes:
            raise TableError(f"{_name(after.key)}: overlaps with {_name(before.key)}")
