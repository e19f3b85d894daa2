"""NCCL's cost table: its text, what several have in common, the families that follow from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import ASKED_ABOUT, Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tests.kept_builds import ROOT
from tests.tuccl.search.trials.allowed_pairs import (
    A100_WITH_SHARP,
    HGX_H100,
    HGX_H100_NODES,
    MACHINES,
    NODE,
    NODES,
    PLAIN_TCP,
    Machine,
    pairs,
)
from tuccl.models.figures import Fabric, Generation, figures_of
from tuccl.models.nccl_choice import COLLNET_ON, allowed_pairs, under
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.presets import nccl_families, nccl_space
from tuccl.search.trials.space import Family

TIMES = st.none() | st.floats(0.0, 1e9)
PAIRS = st.tuples(st.sampled_from(NcclAlgorithm), st.sampled_from(NcclProtocol))
TABLES = st.builds(
    CostTable,
    st.dictionaries(PAIRS, TIMES).map(
        lambda costs: tuple((*pair, time_us) for pair, time_us in costs.items())
    ),
    st.booleans(),
)


@given(TABLES)
def test_a_text_is_read_as_what_was_written(table: CostTable) -> None:
    assert CostTable.parse(str(table)) == table


@pytest.mark.parametrize("text", ["ring", "ring/LL", "ring/LL=nan", "ring/LL=-1", "mesh/LL=1"])
def test_a_text_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"estimate|convert|valid"):
        CostTable.parse(text)


def test_siblings_have_in_common_what_all_allow_and_times_that_agree() -> None:
    first = CostTable.parse("tree/LL=1.0 ring/Simple=2.0 nvls/Simple=3.0")
    other = CostTable.parse("ring/Simple=2.0 tree/LL=5.0")
    assert str(CostTable.common([first, other])) == "tree/LL=? ring/Simple=2.0"
    assert CostTable.common([first, other]).ring_us == 2.0
    assert first.names == "tree LL, ring Simple, nvls Simple"


def test_chunks_are_to_be_had_where_all_siblings_are_asked_about_them() -> None:
    asked, other = CostTable.parse("ring/LL=1.0 chunks"), CostTable.parse("ring/LL=1.0")
    assert (asked.asks_about_chunks, other.asks_about_chunks) == (True, False)
    assert str(CostTable.common([asked, asked])) == "ring/LL=1.0 chunks"
    assert str(CostTable.common([asked, other])) == "ring/LL=1.0"


@pytest.mark.parametrize(
    ("operation", "size_bytes", "ring", "tree"),
    [
        # Four channels; eight chunks of a ring at once: 16 MB / 32 is 512 KB, which is one chunk.
        (Collective.ALL_REDUCE, 16 << 20, (32, 128, 0), (32, 128, 0)),
        (Collective.ALL_REDUCE, 17 << 20, (32, 128, 512, 0), (32, 128, 0)),
        (Collective.ALL_REDUCE, 1 << 20, (0,), (32, 128, 0)),
        (Collective.ALL_REDUCE, 128 << 10, (0,), (0,)),
        (Collective.REDUCE_SCATTER, 5 << 20, (32, 128, 0), None),
        # A ring that passes a message on has chunks of 512 KB by itself.
        (Collective.BROADCAST, 1 << 30, (32, 128, 0), None),
    ],
)
def test_chunks_are_smaller_than_nccls_own_and_than_a_channels_part(
    operation: Collective, size_bytes: int, ring: tuple[int, ...], tree: tuple[int, ...] | None
) -> None:
    families = nccl_families(operation, Shape(8, 1, 8), chunks_of_bytes=size_bytes)
    found = {(f.algorithm, f.protocol): [n >> 10 for n in f.chunk_bytes] for f in families}
    assert found.pop(("ring", "Simple")) == list(ring)
    assert found.pop(("tree", "Simple"), None) == (None if tree is None else list(tree))
    assert all(sizes == [0] for sizes in found.values())


def test_an_nccl_that_does_not_ask_and_other_algorithms_have_their_own_chunks() -> None:
    asked = nccl_families(
        *(Collective.ALL_REDUCE, NODE),
        allowed=pairs(HGX_H100, Collective.ALL_REDUCE),
        chunks_of_bytes=1 << 30,
    )
    with_chunks = {(f.algorithm, f.protocol) for f in asked if len(f.chunk_bytes) > 1}
    assert with_chunks == {("ring", "Simple"), ("tree", "Simple")}
    space = nccl_space(Collective.ALL_REDUCE, NODE)
    assert {family.chunk_bytes for family in space.families} == {(0,)}


def proposed(machine: str, shape: Shape, operation: Collective) -> dict[str, Family]:
    families = nccl_families(operation, shape, allowed=pairs(machine, operation))
    assert {(f.algorithm, f.protocol) for f in families} == set(pairs(machine, operation))
    return {family.algorithm: family for family in families if family.protocol == "Simple"}


def test_the_families_are_those_that_nccl_allows_on_the_machine() -> None:
    reduce = proposed(HGX_H100, NODE, Collective.ALL_REDUCE)
    assert set(reduce) == {"tree", "ring", "nvls"}
    assert reduce["nvls"].nchannels == (2, 4, 8, 16, 24, 32)
    assert set(proposed(HGX_H100, NODE, Collective.ALL_GATHER)) == {"ring", "nvls"}
    assert set(proposed(HGX_H100, NODE, Collective.BROADCAST)) == {"ring"}
    assert set(proposed(HGX_H100_NODES, NODES, Collective.ALL_REDUCE)) == {
        "tree",
        "ring",
        "nvls_tree",
    }
    sharp = proposed(A100_WITH_SHARP, NODES, Collective.ALL_REDUCE)
    assert set(sharp) == {"tree", "ring", "collnet_direct", "collnet_chain"}
    assert set(proposed(A100_WITH_SHARP, NODES, Collective.REDUCE_SCATTER)) == {
        "ring",
        "collnet_direct",
    }
    # NCCL takes any count there without a bound, so none is proposed.
    assert sharp["collnet_direct"].nchannels == sharp["collnet_chain"].nchannels == (0,)
    across = proposed(f"{A100_WITH_SHARP} nvls/Simple", NODES, Collective.ALL_GATHER)
    assert across["nvls"].nchannels == (0,)


def families_of(machine: Machine, operation: Collective) -> list[str]:
    found = nccl_families(operation, machine.shape, allowed=machine.pairs(operation))
    assert {(f.algorithm, f.protocol) for f in found} == set(machine.pairs(operation))
    return sorted({family.algorithm for family in found})


def test_each_machine_has_the_families_that_the_page_lists() -> None:
    page = (ROOT / "docs" / "reference" / "search.md").read_text()
    for machine in MACHINES:
        whole, half, other = (
            families_of(machine, operation)
            for operation in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE)
        )
        assert families_of(machine, Collective.REDUCE_SCATTER) == half
        assert families_of(machine, Collective.BROADCAST) == other == ["ring"]
        columns = (machine.name, machine.releases, ", ".join(whole), ", ".join(half))
        assert f"| {' | '.join(columns)} |" in page, columns


def test_the_model_of_an_hgx_h100_allows_what_nccl_does() -> None:
    """Where it needs no switches that sum, nor a release that is not read yet."""
    network = (8, 50.0, 2.0)
    for machine in MACHINES:
        if "H100" not in machine.name or machine.releases == "2.32":
            continue
        is_node = machine.shape.nodes == 1
        figures = figures_of(
            machine.shape,
            Fabric.NVLINK,
            Generation.HOPPER,
            450.0,
            *(() if is_node else network),
            multicasts=True,
        )
        for operation in ASKED_ABOUT:
            assert set(allowed_pairs(operation, figures)) == set(machine.pairs(operation))


def test_the_model_of_a100_with_sharp_allows_what_nccl_does() -> None:
    (machine,) = (each for each in MACHINES if "SHARP" in each.name)
    figures = figures_of(
        machine.shape, Fabric.NVLINK, Generation.AMPERE, 300.0, 8, 25.0, 2.0,
        sums=True, switched=True,
    )  # fmt: skip
    for operation in ASKED_ABOUT:
        assert set(allowed_pairs(operation, under(COLLNET_ON, figures))) == set(
            machine.pairs(operation)
        )


@pytest.mark.parametrize("operation", ASKED_ABOUT)
def test_nothing_is_proposed_over_plain_tcp_that_nccl_refuses(operation: Collective) -> None:
    space = nccl_space(operation, NODES, allowed=pairs(PLAIN_TCP, operation))
    names = {config.algorithm for config in space}
    assert names == {"default", "ring"} | (
        {"tree"} if operation is Collective.ALL_REDUCE else set()
    )
    assert "LL128" not in {config.protocol for config in space}
