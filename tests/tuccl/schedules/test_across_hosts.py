"""Rounds of schedules across hosts, as they are told."""

from __future__ import annotations

import pytest

from synthesizer.experts.halving_doubling import doubling_all_reduce
from synthesizer.experts.ring import ring_all_reduce
from synthesizer.lower.lowering import lower
from tuccl.schedules import across_hosts as module
from tuccl.schedules.across_hosts import across_hosts, on_nodes

RING = lower(ring_all_reduce([(0, 1, 2, 3)]), "ring")
DOUBLING = lower(doubling_all_reduce(((0, 1), (2, 3))), "doubling")


def test_rounds_messages_and_stages_are_counted() -> None:
    found = across_hosts(DOUBLING, (2, 2))
    assert found.as_text() == (
        "across hosts, 2 nodes of 2 ranks: 1 round on the network with 4 messages, "
        "2 stages inside nodes"
    )
    document = found.as_dict()
    assert document["rounds"] == 1
    assert document["messages"] == [4]
    assert document["why_not"] is None
    uneven = across_hosts(RING, (3, 1))
    assert uneven.as_text().startswith("across hosts, nodes of 3 + 1 ranks: 4 rounds on")


def test_what_cannot_be_cut_is_told_with_its_reason() -> None:
    found = across_hosts(RING, (2, 1))
    assert found.as_text() == (
        "across hosts, nodes of 2 + 1 ranks: cannot be cut into rounds: "
        "nodes of 2 + 1 ranks do not hold its 4 ranks"
    )
    assert found.as_dict()["rounds"] is None


def test_nodes_come_from_the_ranks_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_nodes(RING, (0, 0, 0, 0)) is None
    assert on_nodes(RING, (0, 0, 1, 1)) == across_hosts(RING, (2, 2))
    monkeypatch.setattr(module, "MOST_AT_ONCE", 5)
    large = on_nodes(RING, (0, 0, 0, 1))
    assert large is not None
    assert large.why_not == "not tried, `tuccl verify --nodes 3+1` takes longer"
    apart = on_nodes(RING, (0, 1, 0, 1))
    assert apart is not None
    assert apart.why_not == "the ranks of a node do not follow one another"
