"""Sizes of chunks, which NCCL asks about part by part after it has asked about all of a group."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.lookup import lookup
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Shape, Table
from tests.lookup_tables.tables import make_entry, make_table
from tests.runtime.plugin_abi import ALGORITHMS, IGNORED, PROTOCOLS, Communicator, Plugin

ALGORITHM_ROWS, PROTOCOL_COLUMNS = list(NcclAlgorithm), list(NcclProtocol)
RING, TREE, PAT = NcclAlgorithm.RING, NcclAlgorithm.TREE, NcclAlgorithm.PAT
LL, LL128, SIMPLE = NcclProtocol
GRAINS = {LL: 16, LL128: 1920, SIMPLE: 512}
COST = [float(10 + i) for i in range(ALGORITHMS * PROTOCOLS)]
WHOLE, PAIR = Shape(8, 1, 8), Shape(2, 1, 2)
KIB = 1024
RING_SIMPLE = RING, SIMPLE
ALL_GATHER, ALL_REDUCE = (
    COLLECTIVES.index(Collective.named(name)) for name in ("all_gather", "all_reduce")
)


def chunked_table() -> Table:
    """Ranges of all_reduce with chunks and without, all_gather with others, and pairs of ranks."""
    settings = [
        BuiltinConfig(TREE, LL, 2),
        BuiltinConfig(TREE, SIMPLE, 0, 32 * KIB),
        BuiltinConfig(RING, SIMPLE, 8),
        BuiltinConfig(RING, SIMPLE, 8, 128 * KIB),
        BuiltinConfig(RING, LL128, 4, 64 * KIB),
        BuiltinConfig(RING, LL, 4, 4 * KIB),
        BuiltinConfig(RING, SIMPLE, 0, 16 * KIB * KIB),
    ]
    reduced = [
        make_entry(
            Collective.ALL_REDUCE, KIB << 2 * i, (KIB << 2 * i + 2) - 1, setting, shape=WHOLE
        )
        for i, setting in enumerate(settings)
    ]
    gathered = BuiltinConfig(PAT, SIMPLE, 0, 64 * KIB)
    paired = BuiltinConfig(RING, SIMPLE, 1, 512 * KIB)
    return make_table(
        [
            make_entry(Collective.ALL_REDUCE, 1, 2**40, paired, shape=PAIR),
            make_entry(Collective.ALL_GATHER, 64 * KIB, 2**40, gathered, shape=WHOLE),
            *reduced,
        ]
    )  # fmt: skip


TABLE = chunked_table()


def own_choice(pair: tuple[int, int]) -> tuple[NcclAlgorithm, NcclProtocol]:
    return ALGORITHM_ROWS[pair[0]], PROTOCOL_COLUMNS[pair[1]]


def expected_chunk(answered: BuiltinConfig | None, pair: tuple[int, int], own: int) -> int:
    """NCCL's own size, or the answered one in whole grains if that is smaller."""
    if answered is None or (answered.algorithm, answered.protocol) != own_choice(pair):
        return own
    grain = GRAINS[answered.protocol]
    wanted = answered.chunk_bytes // grain * grain
    return wanted if 0 < wanted < own else own


@pytest.fixture(scope="module")
def module_plugin(plugin_file: Path, logger_library: Path) -> Plugin:
    """The plugin of all tests here, since loggers call the last one that was loaded."""
    return Plugin(plugin_file, logger_library)


@pytest.fixture(autouse=True)
def bundle(bare_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.tuccl").write_bytes(bundle_bytes(TABLE))
    monkeypatch.setenv("TUCCL_BUNDLE", str(tmp_path / "b.tuccl"))


SIZES = st.integers(0, 2**25) | st.sampled_from([KIB << i for i in range(16)])
PAIRS = st.tuples(st.integers(0, ALGORITHMS - 1), st.integers(0, PROTOCOLS - 1))
CALLS = st.tuples(st.integers(0, 2), st.integers(-1, 9) | st.just(ALL_REDUCE), SIZES, PAIRS)
"""Communicator, function, bytes, and the pair that NCCL takes by itself."""
PARTS = st.tuples(st.integers(0, 5), st.integers(0, 2**25), st.integers(0, 5 << 20))
"""Number of a call of the group, the part's bytes, and NCCL's own size of chunks."""
GROUPS = st.lists(
    st.tuples(st.lists(CALLS, min_size=1, max_size=6), st.lists(PARTS, max_size=9)), max_size=6
)


def put(
    communicator: Communicator, function: int, size: int, *, barred: bool
) -> tuple[int, int] | None:
    """Ask about a call; return the pair that the tuner forces, if it does."""
    cost = [IGNORED if barred and i != 1 * PROTOCOLS + 2 else us for i, us in enumerate(COST)]
    got = communicator.call(function, size, cost).cost
    return divmod(got.index(0.0), PROTOCOLS) if 0.0 in got else None


@pytest.mark.long
@given(GROUPS, st.sampled_from([6, 7]))
def test_a_part_has_the_answer_of_its_communicators_last_call_of_the_function(
    module_plugin: Plugin,
    groups: Sequence[
        tuple[Sequence[tuple[int, int, int, tuple[int, int]]], Sequence[tuple[int, int, int]]]
    ],
    version: int,
) -> None:
    shapes = (WHOLE, WHOLE, PAIR)
    communicators = [module_plugin.init(version, s.ranks, s.nodes)[1] for s in shapes]
    last: dict[tuple[int, int], BuiltinConfig | None] = {}
    for calls, parts in groups:
        runs = []
        for number, function, size, own_pair in calls:
            found = None
            if 0 <= function < 5:
                entry = lookup(TABLE.entries, COLLECTIVES[function], size, shapes[number])
                found = None if entry is None else entry.builtin
            barred = size % 7 == 0
            if barred and found is not None and (found.algorithm, found.protocol) != RING_SIMPLE:
                found = None
            forced = put(communicators[number], function, size, barred=barred)
            assert (forced is None) == (found is None)
            last[number, function] = found
            runs.append((number, function, forced or own_pair))
        for index, part_bytes, own in parts:
            number, function, pair = runs[index % len(runs)]
            answer = communicators[number].chunk(function, part_bytes, pair, own)
            assert answer == expected_chunk(last[number, function], pair, own)
            # Whatever was asked: NCCL's own size, or a smaller one in whole grains, never none.
            grain = GRAINS[PROTOCOL_COLUMNS[pair[1]]]
            assert answer == own or (0 < answer < own and answer % grain == 0)
    for communicator in communicators:
        communicator.end()


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("exponent", range(7))
def test_every_size_of_nccls_own_chunks(module_plugin: Plugin, version: int, exponent: int) -> None:
    _, communicator = module_plugin.init(version, 8, 1)
    size = KIB << 2 * exponent
    entry = lookup(TABLE.entries, Collective.ALL_REDUCE, size, WHOLE)
    assert entry is not None
    assert entry.builtin is not None
    pair = put(communicator, ALL_REDUCE, size, barred=False)
    assert pair is not None
    for own in {*range(0, 4 << 20, 509), *(1 << n for n in range(24)), *range(2000)}:
        got = communicator.chunk(ALL_REDUCE, size, pair, own)
        assert got == expected_chunk(entry.builtin, pair, own)
    communicator.end()


def test_a_call_that_is_left_to_nccl_takes_the_answer_away(module_plugin: Plugin) -> None:
    _, communicator = module_plugin.init(6, 8, 1)
    ring = put(communicator, ALL_REDUCE, KIB << 6, barred=False)
    assert ring == (1, 2)
    assert communicator.chunk(ALL_REDUCE, KIB << 3, ring, 2 << 20) == 128 * KIB
    # NCCL runs something else than it was told to, or another operation: the answer is not theirs.
    for other in ((0, 2), (6, 2), (1, 0), (1, 1)):
        assert communicator.chunk(ALL_REDUCE, KIB << 3, other, 2 << 20) == 2 << 20
    assert communicator.chunk(ALL_GATHER, KIB << 3, ring, 2 << 20) == 2 << 20
    assert put(communicator, ALL_REDUCE, 1, barred=False) is None
    assert communicator.chunk(ALL_REDUCE, 1, ring, 2 << 20) == 2 << 20
    communicator.end()


def test_an_nccl_that_does_not_ask_is_left_alone_where_chunks_won(
    module_plugin: Plugin,
) -> None:
    del module_plugin.messages[:]
    _, older = module_plugin.init(5, 8, 1)
    said = [text for _, text in module_plugin.messages]
    assert any("2 entries for 8 ranks" in text for text in said)
    assert said[-1].startswith("TuCCL: left to NCCL: 6 entries with a chunk size")
    assert put(older, ALL_REDUCE, KIB << 6, barred=False) is None
    assert put(older, ALL_REDUCE, KIB << 4, barred=False) == (1, 2)
    older.end()


def test_no_context_and_no_size_are_tolerated(module_plugin: Plugin) -> None:
    for version in (6, 7):
        _, communicator = module_plugin.init(version, 8, 1)
        ask = communicator.tuner.get_chunk_size
        assert ask(communicator.context, ALL_REDUCE, 1024, 1, 2, 1, None) == 0
        assert ask(None, ALL_REDUCE, 1024, 1, 2, 1, None) == 0
        communicator.end()
