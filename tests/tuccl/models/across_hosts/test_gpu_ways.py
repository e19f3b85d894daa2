"""Ways between GPUs, and transfers that share them."""

from __future__ import annotations

import pytest

from sketches.sketch import Port
from tests.sketches.machines import cluster
from tests.synthesizer.plan.test_uneven_machines import Shape as Uneven
from tuccl.models.across_hosts.gpu_ways import GpuWays, shared_us_per_byte

LEFT, RIGHT = Port("left", 1.0), Port("right", 4.0)


def test_a_port_is_shared_fairly_and_given_on_when_a_transfer_ends() -> None:
    ways = {(0, 1): (LEFT,), (0, 2): (LEFT, RIGHT), (3, 2): (RIGHT,)}
    assert shared_us_per_byte({(0, 1): 1}, ways) == pytest.approx(1e-3)
    assert shared_us_per_byte({(0, 1): 1, (0, 2): 1}, ways) == pytest.approx(2e-3)
    # Each gets 0.5 of `left` until the first is over at 2, then the second sends 2 more alone.
    assert shared_us_per_byte({(0, 1): 1, (0, 2): 3}, ways) == pytest.approx(4e-3)
    # 3>2 has the 3.5 of `right` that 0>2 leaves it, and is over first.
    assert shared_us_per_byte({(0, 1): 1, (0, 2): 1, (3, 2): 7}, ways) == pytest.approx(2e-3)
    assert shared_us_per_byte({}, ways) == 0.0


def test_ways_of_a_node_are_its_switch_or_its_own_links() -> None:
    switched = GpuWays(cluster(2, 4, 2)).inside
    assert len(switched) == 2 * 4 * 3
    all_send = {(0, peer): 1 for peer in (1, 2, 3)}
    assert shared_us_per_byte(all_send, switched) == pytest.approx(3 / 300e3)
    mesh = GpuWays(Uneven((3, 1), 1, "mesh").topology()).inside
    assert shared_us_per_byte({(0, 1): 1, (0, 2): 1}, mesh) == pytest.approx(1 / 50e3)


def test_ranks_share_the_nic_that_they_are_bound_to() -> None:
    for nics, sharers in ((4, 1), (2, 2), (1, 4)):
        ways = GpuWays(cluster(2, 4, nics))
        rails = {(rank, rank + 4): 1 for rank in range(4)}
        # PCIe's 24 GB/s are less than the NIC's 25.
        assert shared_us_per_byte(rails, ways.across(rails)) == pytest.approx(sharers / 24e3)


def test_a_pair_whose_nics_do_not_reach_each_other_has_a_share_of_the_others() -> None:
    ways = GpuWays(cluster(2, 4, 2, rails_only=True))
    pairs = [(0, 4), (0, 7)]
    found = ways.across(pairs)
    assert shared_us_per_byte({(0, 4): 1}, found) == pytest.approx(1 / 24e3)
    assert shared_us_per_byte({(0, 7): 1}, found) == pytest.approx(1 / (0.5 * 24e3))
