import dataclasses
import random
from typing import TypedDict, Unpack

import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.confirmation import Reference
from lookup_tables.lookup import MAX_SIZE_BYTES, check_table, lookup
from lookup_tables.provenance import Provenance
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    NcclAlgorithm,
    NcclProtocol,
    ScheduleConfig,
    Setting,
    Shape,
    StoredSchedule,
    SumOrder,
    Table,
)
from tests.lookup_tables.tables import (
    CONFIRMATION,
    SHAPES,
    invariant_table,
    make_entry,
    make_table,
    random_table,
)
from tuccl.errors import TableError

RING_LL = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 2)
TREE = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.SIMPLE)
NVLS_8_CHANNELS = BuiltinConfig(NcclAlgorithm.NVLS, NcclProtocol.SIMPLE, 8)


def small_table() -> Table:
    return make_table(
        [
            make_entry(Collective.ALL_REDUCE, 1024, 4095, RING_LL),
            make_entry(Collective.ALL_REDUCE, 4096, 8192, TREE),
            make_entry(Collective.ALL_GATHER, 0, MAX_SIZE_BYTES, TREE),
        ]
    )


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, None),
        (1023, None),
        (1024, RING_LL),
        (4095, RING_LL),
        (4096, TREE),
        (8192, TREE),
        (8193, None),
        (2**60, None),
    ],
)
def test_both_ends_of_a_range_are_inclusive(size: int, expected: BuiltinConfig | None) -> None:
    entry = lookup(small_table().entries, Collective.ALL_REDUCE, size, SHAPES[0])
    assert (entry.builtin if entry else None) == expected


def test_other_shape_or_operation_has_no_entry() -> None:
    table = small_table()
    assert lookup(table.entries, Collective.ALL_REDUCE, 4096, Shape(8, 2, 4)) is None
    assert lookup(table.entries, Collective.BROADCAST, 4096, SHAPES[0]) is None
    assert lookup(table.entries, Collective.ALLTOALL, 4096, SHAPES[0]) is None
    whole = lookup(table.entries, Collective.ALL_GATHER, MAX_SIZE_BYTES, SHAPES[0])
    assert whole is not None
    assert whole.builtin == TREE


def scan(table: Table, operation: Collective, size: int, shape: Shape) -> Entry | None:
    found = [
        entry
        for entry in table.entries
        if (entry.key.operation, entry.key.shape) == (operation, shape)
        and entry.key.min_bytes <= size <= entry.key.max_bytes
    ]
    return found[0] if found else None


@pytest.mark.parametrize("seed", range(5))
def test_lookup_equals_a_linear_scan(seed: int) -> None:
    table = random_table(seed)
    rng = random.Random(seed)
    borders = [e.key.min_bytes for e in table.entries] + [e.key.max_bytes for e in table.entries]
    hits = 0
    for _ in range(1000):
        size = max(0, rng.choice(borders) + rng.randint(-1, 1))
        operation = rng.choice(COLLECTIVES)
        shape = rng.choice([*SHAPES, Shape(3, 1, 3)])
        expected = scan(table, operation, size, shape)
        assert lookup(table.entries, operation, size, shape) == expected
        hits += expected is not None
    assert hits > 100


def test_an_empty_table_has_no_answer() -> None:
    assert lookup(make_table([]).entries, Collective.ALL_REDUCE, 1, SHAPES[0]) is None


def entry_with(**fields: object) -> Table:
    entry = make_entry(Collective.ALL_REDUCE, 10, 20, RING_LL)
    return make_table([dataclasses.replace(entry, **fields)])  # type: ignore[arg-type]


def confirmed_with(**fields: object) -> Table:
    changed = dataclasses.replace(CONFIRMATION, **fields)  # type: ignore[arg-type]
    return entry_with(confirmation=changed)


def test_a_schedule_may_have_been_held_against_a_setting_that_was_not_confirmed() -> None:
    held = dataclasses.replace(CONFIRMATION, reference=Reference.BUILTIN)
    kernel = ScheduleConfig("5a5a", NcclProtocol.LL, 1, 64, 0)
    check_table(entry_with(schedule=kernel, builtin=None, builtin_time_us=None, confirmation=held))


class KeyFields(TypedDict, total=False):
    min_bytes: int
    max_bytes: int
    shape: Shape
    fingerprint: str


def key_with(**fields: Unpack[KeyFields]) -> Table:
    entry = make_entry(Collective.ALL_REDUCE, 10, 20, RING_LL)
    return make_table([dataclasses.replace(entry, key=dataclasses.replace(entry.key, **fields))])


BROKEN = [
    (key_with(fingerprint="other"), "tuned on topology"),
    (key_with(min_bytes=21), "min_bytes <= max_bytes"),
    (key_with(min_bytes=-1), "min_bytes <= max_bytes"),
    (key_with(max_bytes=2**63), "min_bytes <= max_bytes"),
    (key_with(shape=Shape(8, 3, 4)), "ranks per node"),
    (key_with(shape=Shape(0, 0, 0)), "1 <= nodes <= ranks"),
    (entry_with(time_us=-1.0), "a time is not between"),
    (entry_with(default_time_us=float("nan")), "a time is not between"),
    (entry_with(time_us=0.0), "a time is not between"),
    (entry_with(default_time_us=1e16), "a time is not between"),
    (entry_with(spread=float("inf")), "the spread is negative or not finite"),
    (entry_with(builtin_time_us=None), "come together"),
    (entry_with(builtin=None, builtin_time_us=None), "names no winner"),
    (entry_with(builtin=dataclasses.replace(RING_LL, nchannels=65)), "65 channels"),
    (entry_with(builtin=dataclasses.replace(RING_LL, nchannels=-1)), "-1 channels"),
    *(
        (entry_with(builtin=dataclasses.replace(RING_LL, chunk_bytes=size)), f"chunks of {size} ")
        for size in (-4096, 2048, 5000, 32 << 20)
    ),
    (
        entry_with(builtin=BuiltinConfig(NcclAlgorithm.NVLS, NcclProtocol.SIMPLE, 0, 32768)),
        "chunks of 32768 bytes for nvls; ring, tree and pat have 0",
    ),
    (
        entry_with(builtin=BuiltinConfig(NcclAlgorithm.COLLNET_DIRECT, NcclProtocol.SIMPLE, 8)),
        "8 channels for collnet_direct, whose count NCCL does not bound; use 0",
    ),
    (
        entry_with(builtin=BuiltinConfig(NcclAlgorithm.COLLNET_CHAIN, NcclProtocol.SIMPLE, 1)),
        "1 channels for collnet_chain",
    ),
    (
        make_table(
            [make_entry(Collective.ALL_REDUCE, 0, 9, NVLS_8_CHANNELS, shape=Shape(16, 2, 8))]
        ),
        "8 channels for nvls on several nodes",
    ),
    (entry_with(schedule=ScheduleConfig("none", NcclProtocol.LL, 1, 64, 0)), "table lacks"),
    (entry_with(schedule=ScheduleConfig("5a5a", NcclProtocol.LL, 1, 9999, 0)), "out of range"),
    (entry_with(tuned_bytes=21), "outside its range"),
    (entry_with(samples=-1), "samples"),
    (entry_with(provenance=Provenance("nccl", details="a\nb")), "provenance"),
    (confirmed_with(low=1.2), "a ratio of 1.107 lies outside its own bounds, 1.2 to 1.13"),
    (confirmed_with(high=float("inf")), "outside its own bounds"),
    (confirmed_with(ratio=float("nan")), "outside its own bounds"),
    (confirmed_with(confidence=1.0), "a confidence of 1"),
    (confirmed_with(starts=0), "0 starts"),
    (confirmed_with(reference=Reference.BUILTIN), "a built-in setting compared with itself"),
    (make_table([], gpu_models=("10DE:2335",)), "lower-case hex"),
    (make_table([], gpu_models=("10de:2335", "10de:20b2")), "not sorted"),
    (make_table([], profile={"A B": "1"}), "cannot name a variable"),
    (make_table([], profile={"A": "1\n2"}), "process profile: A '1"),
    (make_table([], fingerprint=""), "no topology fingerprint"),
    (make_table([], topology_name="a\ntouch b"), r"topology name 'a\\ntouch b' is not printable"),
    (make_table([], topology_name="\x1b[2J"), "topology name"),
    (make_table([], fingerprint="v1\r"), "topology fingerprint"),
    (make_table([], schedules=(StoredSchedule("5a5a", "a\nb", ""),)), "schedule name"),
    (make_table([], schedules=(StoredSchedule("5a\x00", "a", ""),)), "schedule's content hash"),
    (make_table([], schedules=(StoredSchedule("../5a", "a", ""),)), "schedule's content hash"),
    (
        make_table(
            [
                make_entry(Collective.REDUCE, 0, 10, RING_LL),
                make_entry(Collective.REDUCE, 10, 20, RING_LL),
            ]
        ),
        "overlaps",
    ),
    (
        dataclasses.replace(
            make_table([]),
            entries=(
                make_entry(Collective.REDUCE, 20, 30, RING_LL),
                make_entry(Collective.REDUCE, 0, 10, RING_LL),
            ),
        ),
        "out of order",
    ),
]


@pytest.mark.parametrize(("table", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_a_broken_rule_is_named_in_one_line(table: Table, message: str) -> None:
    with pytest.raises(TableError, match=message) as caught:
        check_table(table)
    assert "\n" not in str(caught.value)


def test_good_tables_pass() -> None:
    check_table(small_table())
    check_table(random_table(1))
    check_table(entry_with(builtin=NVLS_8_CHANNELS))
    check_table(make_table([], topology_name="2 x ND A100 v4, Zürich"))
    check_table(invariant_table())


def broken_sums() -> list[tuple[Table, str]]:
    table = invariant_table()
    gather, small, large, scatter = table.entries
    of_reduce, of_scatter = table.sums
    sparse = dataclasses.replace(large, key=dataclasses.replace(large.key, min_bytes=9000))
    sparse = dataclasses.replace(sparse, tuned_bytes=9000)

    def changed(*entries: Entry, sums: tuple[SumOrder, ...] = table.sums) -> Table:
        return dataclasses.replace(table, entries=entries or table.entries, sums=sums)

    gathers = SumOrder(gather.key.shape, Collective.ALL_GATHER, "(0+1)")
    return [
        (changed(gather, small, sparse, scatter), "all_reduce on 8 ranks: sizes 8192 to 8999 have"),
        (changed(gather, large, scatter), "sizes 1 to 8191 have no entry"),
        (changed(gather, small, scatter), "sizes 8192 to 9223372036854775807 have no entry"),
        (changed(gather, small, large), "reduce_scatter on 8 ranks: sizes 1 to"),
        (changed(sums=(of_reduce,)), "reduce_scatter 1..9223372036854775807 bytes.* has no order"),
        (changed(sums=(of_scatter, of_reduce)), "not sorted"),
        (changed(sums=(of_reduce, of_reduce, of_scatter)), "not sorted"),
        (changed(sums=(gathers, *table.sums)), "the sums of all_gather on 8 ranks: there are none"),
        (
            changed(sums=(dataclasses.replace(of_reduce, order="0 1"), of_scatter)),
            "is not an order of additions",
        ),
    ]


BROKEN_SUMS = broken_sums()


@pytest.mark.parametrize(
    ("table", "message"), BROKEN_SUMS, ids=[message for _, message in BROKEN_SUMS]
)
def test_a_table_whose_sums_do_not_move_leaves_none_to_nccl(table: Table, message: str) -> None:
    with pytest.raises(TableError, match=message):
        check_table(table)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["NCCL_NTHREADS"], "is not a variable of the process profile"),
        (["NCCL_MAX_CTAS"], "is not a variable of the process profile"),
        (["NCCL_MIN_CTAS", "NCCL_CGA_CLUSTER_SIZE"], "not sorted"),
    ],
    ids=["of processes", "not of the profile", "in another order"],
)
def test_settings_are_variables_of_the_profile_for_communicators(
    names: list[str], message: str
) -> None:
    profile = {"NCCL_CGA_CLUSTER_SIZE": "2", "NCCL_MIN_CTAS": "32", "NCCL_NTHREADS": "256"}
    settings = tuple(Setting(Shape(2, 1, 2), name) for name in names)
    table = dataclasses.replace(small_table(), profile=profile, settings=settings)
    with pytest.raises(TableError, match=message):
        check_table(table)
    check_table(dataclasses.replace(table, settings=(Setting(Shape(2, 1, 2), "NCCL_MIN_CTAS"),)))
