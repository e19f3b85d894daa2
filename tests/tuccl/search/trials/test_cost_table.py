"""NCCL's cost table: its text, what several have in common, the families that follow from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import ASKED_ABOUT, Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tests.tuccl.search.trials.allowed_pairs import (
    A100_WITH_SHARP,
    HGX_H100,
    HGX_H100_NODES,
    PLAIN_TCP,
    pairs,
)
from tuccl.search.trials.cost_table import CostTable
from tuccl.search.trials.presets import nccl_families, nccl_space
from tuccl.search.trials.space import Family

NODE, NODES = Shape(8, 1, 8), Shape(16, 2, 8)
TIMES = st.none() | st.floats(0.0, 1e9)
PAIRS = st.tuples(st.sampled_from(NcclAlgorithm), st.sampled_from(NcclProtocol))
TABLES = st.dictionaries(PAIRS, TIMES).map(
    lambda costs: CostTable(tuple((*pair, time_us) for pair, time_us in costs.items()))
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


@pytest.mark.parametrize("operation", ASKED_ABOUT)
def test_nothing_is_proposed_over_plain_tcp_that_nccl_refuses(operation: Collective) -> None:
    space = nccl_space(operation, NODES, allowed=pairs(PLAIN_TCP, operation))
    names = {config.algorithm for config in space}
    assert names == {"default", "ring"} | (
        {"tree"} if operation is Collective.ALL_REDUCE else set()
    )
    assert "LL128" not in {config.protocol for config in space}
