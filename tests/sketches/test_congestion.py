"""Pruning by congestion scores, worked by hand for racks of NICs of 25 GB/s."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    Link,
    LinkKind,
    Provenance,
    Topology,
)
from probes.topology.replicate import Network, NetworkLayout, replicate
from sketches.binding import bind_gpus
from sketches.candidates import sketch_candidates
from sketches.congestion import prune_congested
from sketches.grouping import group_nics
from sketches.sketch import PruningStage
from sketches.symmetry import is_symmetry
from sketches.transformation import group_connections
from synthesizer.bounds.time_bounds import time_bound
from tests.sketches.machines import cluster


def host(nics: int) -> Topology:
    """One host of so many GPUs and NICs of 25 GB/s."""
    both = cluster(2, nics, nics)
    kept = [d for d in both.devices if d.node == 0]
    names = {device.name for device in kept}
    links = tuple(link for link in both.links if {link.src, link.dst} <= names)
    return Topology(
        "host",
        tuple(replace(d, line_rate_gb_per_s=25.0) if d.kind is DeviceKind.NIC else d for d in kept),
        links,
    )


def racks(
    sizes: tuple[int, ...],
    oversubscription: float,
    nics: int = 1,
    layout: NetworkLayout = NetworkLayout.RAILS,
) -> Topology:
    network = Network(2.0, layout, racks=sizes, oversubscription=oversubscription)
    return replicate(host(nics), sum(sizes), network)


def connections(topology: Topology) -> tuple[tuple[str, str], ...]:
    bindings, _ = bind_gpus(topology)
    return group_connections(group_nics(topology, [binding.nic for binding in bindings]))


def test_as_many_gateways_stay_as_fill_the_link_between_racks() -> None:
    machine = racks((4, 4), 2.0)
    kept, removed = prune_congested(machine, connections(machine))
    # Two of four NICs fill 50 GB/s: the first two of a rack send, the last two receive.
    crossing = {
        (int(src[1]), int(dst[1])) for src, dst in kept if (int(src[1]) < 4) != (int(dst[1]) < 4)
    }
    assert crossing == {(src, dst) for src in (0, 1) for dst in (6, 7)} | {
        (src, dst) for src in (4, 5) for dst in (2, 3)
    }
    assert len(removed) == 2 * (16 - 4)
    assert removed["n3/nic0", "n4/nic0"] == (
        "congestion score 0.50: rail0-leaf0 to rail0-spine carries 50 of the 100 GB/s of 4 NICs"
    )
    assert removed["n2/nic0", "n7/nic0"] == (
        "congestion score 0.33: rail0-leaf0 to rail0-spine carries 50 of the 75 GB/s of 3 NICs"
    )


def test_nothing_is_removed_where_nothing_is_congested() -> None:
    for machine in (
        cluster(4, 2, 2),
        racks((2, 2), 1.0),
        racks((2, 2), 1.05),
        racks((1, 1), 4.0),
    ):
        every = connections(machine)
        assert prune_congested(machine, every) == (every, {})
        assert "uncongested" not in {sketch.name for sketch in sketch_candidates(machine)}


def test_an_assumed_bandwidth_is_no_measured_contention() -> None:
    machine = racks((2, 2), 2.0)
    assumed = replace(
        machine,
        links=tuple(
            replace(link, provenance=Provenance.ASSUMED) if "spine" in link.dst + link.src else link
            for link in machine.links
        ),
    )
    assert prune_congested(machine, connections(machine))[1]
    assert not prune_congested(assumed, connections(assumed))[1]


def test_each_dropped_edge_has_its_score_in_the_sketch() -> None:
    pruned, uncongested, *_ = sketch_candidates(racks((2, 2), 2.0, nics=2))
    assert (pruned.name, uncongested.name) == ("pruned", "uncongested")
    gone = pruned.edge.keys() - uncongested.edge.keys()
    dropped = {
        (edge.src, edge.dst): edge.reason
        for edge in uncongested.dropped
        if edge.stage is PruningStage.CONGESTION
    }
    names = [f"n{rank // 2}/gpu{rank % 2}" for rank in range(8)]
    assert dropped.keys() == {(names[src], names[dst]) for src, dst in gone}
    assert len(gone) == 2 * 2 * 3
    assert all(reason.startswith("congestion score 0.50: ") for reason in dropped.values())
    assert not any(edge.stage is PruningStage.CONGESTION for edge in pruned.dropped)


def test_racks_turn_and_nodes_turn_inside_racks() -> None:
    pruned = sketch_candidates(racks((2, 2), 2.0))[0]
    assert pruned.symmetries == ((2, 3, 0, 1), (1, 0, 3, 2))
    assert all(is_symmetry(pruned, found) for found in pruned.symmetries)


@pytest.mark.long
@pytest.mark.parametrize("oversubscription", [2.0, 4.0])
@pytest.mark.parametrize("layout", list(NetworkLayout))
def test_gateways_cost_no_bandwidth(oversubscription: float, layout: NetworkLayout) -> None:
    """As no node is both an exit and an entrance, bounds are those of the unpruned sketch."""
    machine = racks((4, 4), oversubscription, layout=layout)
    pruned, uncongested, *_ = sketch_candidates(machine)
    for operation in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        whole, less = (
            time_bound(operation, each).time_us(1 << 30) for each in (pruned, uncongested)
        )
        assert less == pytest.approx(whole, rel=1e-3)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    oversubscription=st.sampled_from([1.0, 1.5, 2.0, 3.0, 8.0]),
    layout=st.sampled_from(list(NetworkLayout)),
)
def test_links_are_not_congested_any_more_and_all_racks_stay_connected(
    sizes: list[int], oversubscription: float, layout: NetworkLayout
) -> None:
    machine = racks(tuple(sizes), oversubscription, 2, layout)
    every = connections(machine)
    kept, removed = prune_congested(machine, every)
    assert set(kept) | removed.keys() == set(every)
    assert not set(kept) & removed.keys()
    rack_of_node = [number for number, size in enumerate(sizes) for _ in range(size)]
    rack = {nic.name: rack_of_node[nic.node] for nic in machine.nics}
    between = {(rack[a], rack[b]) for a, b in kept}
    assert between >= set(permutations(range(len(sizes)), 2))
    inside = {pair for pair in every if rack[pair[0]] == rack[pair[1]]}
    assert inside <= set(kept), "no link inside a rack is congested"
    assert prune_congested(machine, kept) == (kept, {}), "once is enough"


def test_a_link_straight_between_leaves_counts_its_senders() -> None:
    switches = [Device(f"leaf{i}", DeviceKind.NETWORK_SWITCH, NETWORK_NODE, i) for i in (0, 1)]
    nics = [Device(f"n{i}/nic0", DeviceKind.NIC, i, 0, line_rate_gb_per_s=25.0) for i in range(4)]
    ends = [(nic.name, f"leaf{nic.node // 2}", 25.0) for nic in nics] + [("leaf0", "leaf1", 25.0)]
    links = tuple(
        Link(a, b, LinkKind.NETWORK, gb_per_s, 1.0, Provenance.MEASURED)
        for src, dst, gb_per_s in ends
        for a, b in ((src, dst), (dst, src))
    )
    topology = Topology("leaves", (*nics, *switches), links)
    every = [(a.name, b.name) for a, b in permutations(nics, 2)]
    kept, _ = prune_congested(topology, every)
    crossing = [pair for pair in kept if int(pair[0][1]) // 2 != int(pair[1][1]) // 2]
    assert {src for src, _ in crossing} == {"n0/nic0", "n2/nic0"}
