"""Communicators that a change leaves as they are keep the entries that they had."""

from __future__ import annotations

from dataclasses import replace

from lookup_tables.table import SeenPlacement, Shape, TimedSiblings
from probes.topology.graph import LinkKind, Topology
from tests.sketches.machines import cluster, hybrid_mesh
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry, placed_pairs
from tuccl.search.trials.placement import Placement
from tuccl.tuning.placing.kept import kept_entries

PAIRS, WHOLE = Shape(2, 1, 2), Shape(8, 1, 8)
ANY = (all_gather_entry(2),)
"""Entries of any communicators of a shape."""
MESH = hybrid_mesh()


def slower(machine: Topology, first: str, second: str) -> Topology:
    """The machine whose NVLink between these devices has a quarter of its bandwidth."""
    links = (
        replace(link, bandwidth_gb_per_s=link.bandwidth_gb_per_s / 4)
        if link.kind is LinkKind.NVLINK and {link.src, link.dst} == {first, second}
        else link
        for link in machine.links
    )
    return replace(machine, links=tuple(links))


def told_apart() -> list[SeenPlacement]:
    """Pairs of one NVLink and of two, each with its own entries."""
    siblings = ((0, 2), (1, 3))
    return [
        replace(own, timed=TimedSiblings(WHOLE, 1, numbers))
        for own, numbers in zip(placed_pairs((8,), (4,)), siblings, strict=True)
    ]


def test_pairs_whose_links_are_as_they_were_keep_their_entries() -> None:
    one_link, two_links = told_apart()
    now = slower(MESH, "n0/gpu0", "n0/gpu1")
    assert kept_entries(MESH, now, [PAIRS], [one_link, two_links], lambda _: ANY) == {
        (PAIRS, Placement(1, (1, 3))): two_links.entries,
        (PAIRS, Placement(1, (2,))): one_link.entries,
    }


def test_pairs_that_were_not_told_apart_before_are_measured() -> None:
    """The entries of any pair were timed on pairs of both kinds together."""
    now = slower(MESH, "n0/gpu0", "n0/gpu1")
    assert kept_entries(MESH, now, [PAIRS], [], lambda _: ANY) == {}
    unknown = [replace(own, timed=None) for own in told_apart()]
    assert kept_entries(MESH, now, [PAIRS], unknown, lambda _: ANY) == {}


def test_hosts_that_were_alike_keep_the_entries_of_any() -> None:
    before, node = cluster(2, 2, 2), Shape(2, 1, 2)
    now = slower(before, "n1/gpu1", "n1/nvswitch")
    untouched = {(node, Placement(1, (0,))): ANY}
    assert kept_entries(before, now, [node], [], lambda _: ANY) == untouched
    assert kept_entries(before, now, [node], [], lambda _: None) == {}, "evidence is not known"
    assert kept_entries(before, now, [], [], lambda _: ANY) == {}
    both = slower(now, "n0/gpu1", "n0/nvswitch")
    assert kept_entries(before, both, [node], [], lambda _: ANY) == {}, "alike again"
