from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketches.binding import nic_gb_per_s
from sketches.grouping import MATCHED_RATIO, group_nics
from tests.sketches.machines import cluster


def _groups(topology) -> list[tuple[str, ...]]:  # type: ignore[no-untyped-def]
    return [group.nics for group in group_nics(topology, (nic.name for nic in topology.nics))]


def test_equal_nics_group_by_rail() -> None:
    assert _groups(cluster(3, 2, 2)) == [
        ("n0/nic0", "n1/nic0", "n2/nic0"),
        ("n0/nic1", "n1/nic1", "n2/nic1"),
    ]


def test_bandwidth_goes_before_the_rail() -> None:
    crossed = cluster(2, 2, 2, nic_gb_per_s={(0, 0): 50.0, (1, 1): 50.0})
    assert sorted(_groups(crossed)) == [("n0/nic0", "n1/nic1"), ("n0/nic1", "n1/nic0")]


def test_a_missing_nic_leaves_the_other_rails_alone() -> None:
    topology = cluster(2, 3, 3, absent=frozenset({"n1/nic0"}))
    assert sorted(_groups(topology)) == [
        ("n0/nic0",),
        ("n0/nic1", "n1/nic1"),
        ("n0/nic2", "n1/nic2"),
    ]


def test_nodes_without_matching_nics_get_a_fallback_that_says_so() -> None:
    topology = cluster(2, 1, 1, nic_gb_per_s={(0, 0): 25.0, (1, 0): 100.0})
    *own, last = group_nics(topology, ("n0/nic0", "n1/nic0"))
    assert [group.nics for group in own] == [("n0/nic0",), ("n1/nic0",)]
    assert last.nics == ("n0/nic0", "n1/nic0")
    assert last.reason.startswith("fallback")


def test_nics_that_do_not_reach_each_other_are_no_group() -> None:
    topology = cluster(2, 2, 2, rails_only=True, absent=frozenset({"n0/nic1", "n1/nic0"}))
    assert _groups(topology) == [("n0/nic0",), ("n1/nic1",)]


@pytest.mark.long
@given(
    speeds=st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 2)),
        st.sampled_from([12.5, 24.0, 25.0, 50.0]),
    ),
    missing=st.sets(st.sampled_from([f"n{i}/nic{j}" for i in range(1, 4) for j in range(3)])),
)
def test_groups_partition_the_nics_match_in_bandwidth_and_join_all_nodes(
    speeds: dict[tuple[int, int], float], missing: set[str]
) -> None:
    topology = cluster(4, 3, 3, nic_gb_per_s=speeds, absent=frozenset(missing))
    groups = group_nics(topology, (nic.name for nic in topology.nics))
    own = [group for group in groups if not group.reason.startswith("fallback")]
    assert sorted(nic for group in own for nic in group.nics) == sorted(
        nic.name for nic in topology.nics
    )
    joined = {0}
    for _ in range(4):
        for group in groups:
            nodes = {topology.device[nic].node for nic in group.nics}
            assert len(nodes) == len(group.nics)
            if nodes & joined:
                joined |= nodes
    assert joined == {nic.node for nic in topology.nics}
    for group in own:
        bandwidths = [nic_gb_per_s(topology, nic) for nic in group.nics]
        assert max(bandwidths) <= MATCHED_RATIO * min(bandwidths)
