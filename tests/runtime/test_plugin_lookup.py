"""The plugin's answers against the Python lookup, for every version of the tuner ABI."""

import ctypes
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables import bundle_layout as layout
from lookup_tables.bundle_layout import SectionKind, bundle_crc
from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.lookup import lookup
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    EstimateLine,
    NcclAlgorithm,
    NcclProtocol,
    ScheduleConfig,
    SeenPlacement,
    Shape,
    Table,
)
from tests.lookup_tables.tables import (
    lookup_placed,
    make_entry,
    make_table,
    random_placements,
    random_table,
)
from tests.runtime.plugin_abi import (
    ALGORITHMS,
    ASKING_ABOUT_CHUNKS,
    IGNORED,
    PROTOCOLS,
    VERSIONS,
    Call,
    Communicator,
    Plugin,
)

ALGORITHM_ROWS = list(NcclAlgorithm)
PROTOCOL_COLUMNS = list(NcclProtocol)
NCCL_FUNCTIONS = COLLECTIVES[:5]
GUARD = [123.5, IGNORED, 7.0]
SHAPES = (Shape(8, 1, 8), Shape(16, 2, 8), Shape(12, 3, 4))
LOOKUPS = 10_000


def random_cost(rng: random.Random) -> list[float]:
    """Infinities and NaN do not come from NCCL, but must not hurt either."""
    values = [IGNORED, 0.0, 1.5, 99.0, float("inf")]
    return [rng.choice(values) for _ in range(ALGORITHMS * PROTOCOLS)] + GUARD


def expected_table_call(
    choice: BuiltinConfig | None, cost: list[float], nchannels: int, rows: int
) -> Call:
    """Apply the rules of the tuner ABI from v3 on, as a second implementation."""
    unchanged = Call(list(cost), nchannels)
    if choice is None or ALGORITHM_ROWS.index(choice.algorithm) >= rows:
        return unchanged
    row, column = (
        ALGORITHM_ROWS.index(choice.algorithm),
        PROTOCOL_COLUMNS.index(choice.protocol),
    )
    if cost[row * PROTOCOLS + column] == IGNORED:
        return unchanged
    forced = list(cost)
    forced[row * PROTOCOLS + column] = 0.0
    return Call(forced, choice.nchannels or nchannels)


def runs_in_v2(choice: BuiltinConfig, operation: Collective) -> bool:
    """Return whether NCCL 2.21 runs a choice on every machine: v2 tells a tuner no more."""
    if choice.protocol is NcclProtocol.LL128:
        return False
    tree = choice.algorithm is NcclAlgorithm.TREE and operation is Collective.ALL_REDUCE
    return tree or choice.algorithm is NcclAlgorithm.RING


def served(entry: Entry | None, version: int) -> BuiltinConfig | None:
    """Return the setting of an entry, if there is one and this ABI can carry out all of it."""
    choice = entry.builtin if entry else None
    knows = version >= ASKING_ABOUT_CHUNKS or choice is None or not choice.chunk_bytes
    return choice if knows else None


def random_size(rng: random.Random, table: Table) -> int:
    """Draw sizes, mostly at the borders of ranges."""
    if rng.random() < 0.1:
        return rng.choice([0, 2**40, 2**63, 2**64 - 1])
    key = rng.choice(table.entries).key
    return max(0, rng.choice([key.min_bytes, key.max_bytes]) + rng.randint(-1, 1))


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_ten_thousand_lookups_equal_the_python_lookup(
    version: int, plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(version)
    hits = 0
    for round_ in range(10):
        table = random_table(100 * version + round_, 12, SHAPES)
        bundle = tmp_path / f"{round_}.tuccl"
        bundle.write_bytes(bundle_bytes(table))
        monkeypatch.setenv("TUCCL_BUNDLE", str(bundle))
        shape = rng.choice([*SHAPES, Shape(4, 1, 4)])
        result, communicator = plugin.init(version, shape.ranks, shape.nodes)
        assert result == 0
        for _ in range(LOOKUPS // 10):
            function = rng.choice([0, 1, 2, 3, 4, 4, 3, 2, -1, 5, 8, 1000])
            size, cost = random_size(rng, table), random_cost(rng)
            nchannels, rows = rng.choice([0, 0, 17]), rng.choice([7, 6])
            collnet, nvls = rng.randint(0, 1), rng.randint(0, 1)
            got = communicator.call(
                function,
                size,
                cost,
                nchannels=nchannels,
                algorithms=rows,
                collnet=collnet,
                nvls=nvls,
            )
            choice = None
            if 0 <= function < 5:
                operation = NCCL_FUNCTIONS[function]
                entry = lookup(table.entries, operation, size, shape)
                choice = served(entry, version)
            if version > 2:
                assert got == expected_table_call(choice, cost, nchannels, rows)
                hits += got.cost != cost
            elif choice and runs_in_v2(choice, operation):
                assert got.algorithm == ALGORITHM_ROWS.index(choice.algorithm)
                assert got.protocol == PROTOCOL_COLUMNS.index(choice.protocol)
                assert got.nchannels == (choice.nchannels or nchannels)
                hits += 1
            else:
                assert (got.algorithm, got.protocol, got.nchannels) == (-1, -1, nchannels)
        communicator.end()
    assert hits > (LOOKUPS // 50 if version > 2 else LOOKUPS // 200)
    assert plugin.warnings() == []


@pytest.fixture
def ring_ll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All_reduce of 1 KB to 8 KB: Ring/LL, 3 channels up to 4 KB, then NCCL's own count."""
    low = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 3)
    high = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 0)
    schedule = ScheduleConfig("5a5a", NcclProtocol.LL, 4, 512, 1 << 20)
    table = make_table(
        [
            make_entry(Collective.ALL_REDUCE, 1024, 4095, low),
            make_entry(Collective.ALL_REDUCE, 4096, 8191, high),
            make_entry(Collective.ALL_REDUCE, 8192, 16383, None, schedule=schedule),
            make_entry(Collective.ALL_REDUCE, 64, 64, low, shape=Shape(12, 2, 0)),
            make_entry(Collective.ALL_REDUCE, 64, 64, high, shape=Shape(12, 2, 6)),
        ]
    )
    (tmp_path / "b.tuccl").write_bytes(bundle_bytes(table))
    monkeypatch.setenv("TUCCL_BUNDLE", str(tmp_path / "b.tuccl"))


COST = [float(10 + i) for i in range(ALGORITHMS * PROTOCOLS)]
RING_LL, RING_SIMPLE = 1 * PROTOCOLS + 0, 1 * PROTOCOLS + 2


@pytest.mark.usefixtures("ring_ll")
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_the_rules_one_by_one(version: int, plugin: Plugin) -> None:
    _, communicator = plugin.init(version, 8, 1)
    forced = [*COST[:RING_LL], 0.0, *COST[RING_LL + 1 :]]
    assert communicator.call(4, 1024, COST, nchannels=9) == Call(forced, 3)
    # No count in the entry: NCCL's stays.
    assert communicator.call(4, 4096, COST, nchannels=9) == Call(forced, 9)
    # Won by a schedule without a better built-in configuration: NCCL is left alone.
    assert communicator.call(4, 8192, COST, nchannels=9) == Call(COST, 9)
    # Another operation, a smaller and a larger size.
    for function, size in [(2, 1024), (4, 1023), (4, 16384)]:
        assert communicator.call(function, size, COST, nchannels=9) == Call(COST, 9)
    # NCCL says that it cannot run: nothing moves, the channel count neither.
    barred = [*COST[:RING_LL], IGNORED, *COST[RING_LL + 1 :]]
    assert communicator.call(4, 1024, barred, nchannels=9) == Call(barred, 9)
    # A table without that row.
    assert communicator.call(4, 1024, COST, nchannels=9, algorithms=1) == Call(COST, 9)
    communicator.end()


def with_channels(data: bytes, nchannels: int) -> bytes:
    """A bundle that another writer made: a channel count in every entry."""
    changed = bytearray(data)
    for index in range(len(SectionKind)):
        place = layout.HEADER.size + index * layout.SECTION.size
        kind, _, offset, _, records, size = layout.SECTION.unpack_from(data, place)
        if kind == SectionKind.ENTRIES:
            for record in range(records):
                struct.pack_into("<H", changed, offset + record * size + 18, nchannels)
    changed[12:16] = struct.pack("<I", bundle_crc(bytes(changed)))
    return bytes(changed)


@pytest.mark.parametrize(
    ("algorithm", "nodes", "expected"),
    [
        (NcclAlgorithm.RING, 2, 64),
        (NcclAlgorithm.COLLNET_DIRECT, 1, 9),
        (NcclAlgorithm.COLLNET_DIRECT, 2, 9),
        (NcclAlgorithm.COLLNET_CHAIN, 2, 9),
        (NcclAlgorithm.NVLS, 1, 64),
        (NcclAlgorithm.NVLS, 2, 9),
        (NcclAlgorithm.NVLS_TREE, 2, 64),
    ],
)
def test_channels_only_where_nccl_bounds_them(
    algorithm: NcclAlgorithm,
    nodes: int,
    expected: int,
    plugin: Plugin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = BuiltinConfig(algorithm, NcclProtocol.SIMPLE)
    shape = Shape(8 * nodes, nodes, 8)
    table = make_table([make_entry(Collective.ALL_REDUCE, 0, 2**40, config, shape=shape)])
    (tmp_path / "b.tuccl").write_bytes(with_channels(bundle_bytes(table), 64))
    monkeypatch.setenv("TUCCL_BUNDLE", str(tmp_path / "b.tuccl"))
    _, communicator = plugin.init(5, shape.ranks, shape.nodes)
    got = communicator.call(4, 4096, COST, nchannels=9)
    assert got.cost[ALGORITHM_ROWS.index(algorithm) * PROTOCOLS + 2] == 0.0
    assert got.nchannels == expected
    communicator.end()


@pytest.mark.usefixtures("ring_ll")
@pytest.mark.parametrize("version", VERSIONS)
def test_uneven_nodes_are_a_shape_of_their_own(version: int, plugin: Plugin) -> None:
    domain_ranks = (5, 7) if version >= 5 else None
    _, communicator = plugin.init(version, 12, 2, domain_ranks=domain_ranks)
    got = communicator.call(4, 64, COST)
    # Without domain information 12 ranks on 2 nodes can only be taken for 6 on each.
    assert got.nchannels == (3 if version >= 5 else 0)
    assert got.cost != COST or version == 2
    communicator.end()


@pytest.mark.usefixtures("ring_ll")
def test_null_pointers_are_tolerated(plugin: Plugin) -> None:
    for version in VERSIONS:
        result, communicator = plugin.init(version, 8, 1, with_logger=False)
        assert result == 0
        info = communicator.tuner.get_coll_info
        table = (ctypes.c_float * len(COST))(*COST)
        context = communicator.context
        if version == 2:
            assert info(context, 4, 1024, 1, 1, 1, None, None, None) == 0
            assert info(None, 4, 1024, 1, 1, 1, None, None, None) == 0
        else:
            tail = (None,) if version == 3 else (0, None)
            assert info(context, 4, 1024, 1, None, 7, 3, *tail) == 0
            assert info(None, 4, 1024, 1, table, 7, 3, *tail) == 0
            assert list(table) == COST
            assert info(context, 4, 1024, 1, table, 7, 3, *tail) == 0
            assert table[RING_LL] == 0.0
        assert communicator.tuner.end(None) == 0
        communicator.end()
        null_context = (0, 8, 1, None) if version > 4 else (8, 1, None)
        arguments = (None, *null_context, None, None) if version > 4 else (*null_context, None)
        assert communicator.tuner.init(*arguments) == 0


def test_every_version_has_the_name(plugin: Plugin) -> None:
    assert {plugin.tuner(version).name for version in VERSIONS} == {b"TuCCL"}


@pytest.mark.usefixtures("ring_ll")
@pytest.mark.parametrize("version", VERSIONS)
def test_explain_says_which_entry_applied(
    version: int, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUCCL_EXPLAIN", "1")
    _, communicator = plugin.init(version, 8, 1)
    del plugin.messages[:]
    communicator.call(4, 2048, COST)
    communicator.call(3, 2048, COST)
    communicator.call(77, 2048, COST)
    texts = [text for _, text in plugin.messages]
    assert "all_reduce of 2048 bytes: entry 1024..4095 wants Ring/LL on 3 channels" in texts[0]
    assert "tuned 8.5 us, default 10.0 us" in texts[0]
    if version == 2:
        assert texts[0].endswith("applied")
    else:
        assert "applied; costs before [Tree/LL 10.0, " in texts[0]
        before, after = texts[0].split(" after [")
        assert "Ring/LL 13.0, Ring/LL128 14.0" in before
        assert "Ring/LL 0.0, Ring/LL128 14.0" in after
    assert texts[1].endswith("reduce_scatter of 2048 bytes: no entry, NCCL decides")
    assert texts[2].endswith("function 77 of 2048 bytes: no entry, NCCL decides")
    if version > 2:
        communicator.call(4, 2048, [IGNORED] * len(COST))
        assert plugin.messages[-1][1].endswith(
            "cannot run here, NCCL decides; costs before [] after []"
        )
    communicator.end()


@pytest.mark.usefixtures("ring_ll")
@pytest.mark.parametrize("variable", ["NCCL_ALGO", "NCCL_PROTO"])
def test_v2_leaves_jobs_with_their_own_choice_alone(
    variable: str, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "^Ring")
    result, communicator = plugin.init(2, 8, 1)
    assert result == 0
    assert communicator.context.value is None
    assert communicator.call(4, 2048, COST, nchannels=9) == Call(COST, 9)
    assert f"{variable} is set" in plugin.messages[-1][1]
    communicator.end()
    # From v3 on NCCL's cost table says what the variables exclude.
    _, communicator = plugin.init(3, 8, 1)
    assert communicator.call(4, 2048, COST).cost[RING_LL] == 0.0
    communicator.end()


def estimated(table: Table, shape: Shape, operation: Collective, size: int, factor: float) -> float:
    """NCCL's estimate for the communicators of a shape's first placement, times a factor."""
    own = next(own for own in table.placements if own.shape == shape)
    return factor * dict(own.lines)[operation].at(size)


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_lookups_by_estimates_equal_the_python_lookup(
    version: int, plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(version)
    bundle = tmp_path / "b.tuccl"
    monkeypatch.setenv("TUCCL_BUNDLE", str(bundle))
    of_placements = of_shape = 0
    for round_ in range(5):
        table = replace(
            random_table(round_, 12, SHAPES[:2]), placements=random_placements(round_, SHAPES)
        )
        bundle.write_bytes(bundle_bytes(table))
        shape = rng.choice(SHAPES)
        _, communicator = plugin.init(version, shape.ranks, shape.nodes)
        for _ in range(500):
            function, size = rng.randrange(5), random_size(rng, table)
            operation = NCCL_FUNCTIONS[function]
            cost = [float(rng.randint(1, 99)) for _ in range(ALGORITHMS * PROTOCOLS)] + GUARD
            factor = rng.choice([1.0, 1.0, 0.995, 1.008, 1.02, 1.3, 2.0, 5.0])
            estimate = estimated(table, shape, operation, size, factor)
            estimate = rng.choice([estimate] * 9 + [IGNORED])
            cost[RING_SIMPLE] = ctypes.c_float(estimate).value  # As NCCL hands it over.
            own = lookup_placed(table.placements, operation, size, shape, cost[RING_SIMPLE])
            placed = served(own, version)
            choice = placed or served(lookup(table.entries, operation, size, shape), version)
            of_placements += placed is not None
            of_shape += placed is None and choice is not None
            expected = expected_table_call(choice, cost, 0, ALGORITHMS)
            assert communicator.call(function, size, cost) == expected
        communicator.end()
    assert min(of_placements, of_shape) > 100


@pytest.fixture
def two_placements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs with Ring/LL anywhere, and Tree/LL where NCCL expects 10 GB/s instead of 20."""
    anywhere = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 3)
    slow = BuiltinConfig(NcclAlgorithm.TREE, NcclProtocol.LL, 5)
    pairs, operation = Shape(2, 1, 2), Collective.ALL_REDUCE
    placements = tuple(
        SeenPlacement(pairs, number, "a and b", ((operation, EstimateLine(10.0, slope)),), entries)
        for number, slope, entries in (
            (0, 0.5e-4, ()),
            (1, 1e-4, (make_entry(operation, 1 << 20, 2 << 20, slow, shape=pairs),)),
        )
    )
    table = make_table(
        [make_entry(operation, 1 << 10, 4 << 20, anywhere, shape=pairs)], placements=placements
    )
    (tmp_path / "b.tuccl").write_bytes(bundle_bytes(table))
    monkeypatch.setenv("TUCCL_BUNDLE", str(tmp_path / "b.tuccl"))


def chosen(communicator: Communicator, size: int, ring_simple_us: float, pipelined: int = 1) -> int:
    """Channels that the plugin sets, which name the entry."""
    cost = [*COST[:RING_SIMPLE], ring_simple_us, *COST[RING_SIMPLE + 1 :]]
    return communicator.call(4, size, cost, pipelined=pipelined).nchannels


@pytest.mark.usefixtures("two_placements")
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_an_estimate_of_one_placement_alone_chooses_its_entry(version: int, plugin: Plugin) -> None:
    _, communicator = plugin.init(version, 2, 1)
    size = 1 << 20
    assert chosen(communicator, size, 10.0 + 1e-4 * size) == 5
    assert chosen(communicator, size, (10.0 + 1e-4 * size) * 1.009) == 5
    # A faster link; an estimate of neither; none at all; a range that the placement lacks.
    assert chosen(communicator, size, 10.0 + 0.5e-4 * size) == 3
    assert chosen(communicator, size, (10.0 + 1e-4 * size) * 1.02) == 3
    assert chosen(communicator, size, IGNORED) == 3
    assert chosen(communicator, 4 << 20, 10.0 + 1e-4 * (4 << 20)) == 3
    # Small messages look alike; pipelined operations have more latency.
    assert chosen(communicator, 1 << 10, 10.05) == 3
    assert chosen(communicator, size, 40.0 + 1e-4 * size, pipelined=4) == 5
    assert chosen(communicator, size, 40.0 + 1e-4 * size) == 3
    communicator.end()


@pytest.mark.parametrize(
    ("here", "operation", "applied"),
    [
        ("23007", Collective.REDUCE_SCATTER, True),
        ("23100", Collective.REDUCE_SCATTER, False),
        ("23203", Collective.REDUCE_SCATTER, False),
        ("23203", Collective.ALL_GATHER, True),
        ("", Collective.REDUCE_SCATTER, True),
    ],
)
def test_no_reduce_scatter_runs_pat_if_nccl_adds_averages_up(
    here: str,
    operation: Collective,
    applied: bool,
    plugin: Plugin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = Shape(4, 4, 1)
    pat = BuiltinConfig(NcclAlgorithm.PAT, NcclProtocol.SIMPLE, 4)
    entry = make_entry(operation, 1 << 10, 1 << 20, pat, shape=shape)
    (tmp_path / "b.tuccl").write_bytes(bundle_bytes(make_table([entry])))
    monkeypatch.setenv("TUCCL_BUNDLE", str(tmp_path / "b.tuccl"))
    monkeypatch.setenv("STAND_IN_NCCL_VERSION", here)
    _, communicator = plugin.init(6, 4, 4)
    cost = [50.0] * (ALGORITHMS * PROTOCOLS) + GUARD
    found = communicator.call(NCCL_FUNCTIONS.index(operation), 1 << 14, cost)
    assert found == expected_table_call(pat if applied else None, cost, 0, ALGORITHMS)
    communicator.end()


@pytest.mark.usefixtures("two_placements")
def test_v2_has_no_estimates_and_gets_what_is_safe_anywhere(plugin: Plugin) -> None:
    _, communicator = plugin.init(2, 2, 1)
    assert communicator.call(4, 1 << 20, COST).nchannels == 3
    communicator.end()


@pytest.mark.usefixtures("two_placements")
@pytest.mark.parametrize(("here", "channels"), [("22809", 5), ("22903", 3), ("", 5)])
def test_estimates_of_another_nccl_tell_nothing(
    here: str, channels: int, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUCCL_NCCL", "2.28.9")
    monkeypatch.setenv("STAND_IN_NCCL_VERSION", here)
    _, communicator = plugin.init(5, 2, 1)
    assert chosen(communicator, 1 << 20, 10.0 + 1e-4 * (1 << 20)) == channels
    communicator.end()
