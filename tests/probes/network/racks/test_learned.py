"""Racks from latencies: found where they are, and never in noise."""

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.network.racks.learned import HostPair, learn_racks

NEAR_US, FAR_US = 2.0, 3.0


def circle(hosts: int, *steps: int) -> list[HostPair]:
    """Pairs as a campaign samples them."""
    return [(host, (host + step) % hosts) for step in steps for host in range(hosts)]


def latencies(
    pairs: list[HostPair], rack: list[int], noise: float, chance: random.Random
) -> dict[HostPair, float]:
    return {
        (a, b): (NEAR_US if rack[a] == rack[b] else FAR_US) * (1 + noise * chance.random())
        for a, b in pairs
    }


def test_two_racks_of_two_hosts() -> None:
    figures = {(0, 1): 2.0, (2, 3): 2.1, (0, 2): 3.0, (0, 3): 3.1, (1, 2): 3.05, (1, 3): 3.0}
    found = learn_racks(figures)
    assert found is not None
    assert found.racks == [[0, 1], [2, 3]]
    assert (found.near_us, found.far_us) == (2.05, 3.025)


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {(0, 1): 2.0},
        # 15 % is no gap; a late host is no rack; a cluster without a gap.
        {(0, 1): 2.0, (2, 3): 2.0, (0, 2): 2.3, (0, 3): 2.3, (1, 2): 2.3, (1, 3): 2.3},
        {(0, 1): 2.0, (0, 2): 2.0, (1, 2): 2.0, (0, 3): 9.0, (1, 3): 9.0, (2, 3): 9.0},
        {(0, 1): 2.0, (2, 3): 2.2, (0, 2): 2.4, (0, 3): 2.6, (1, 2): 2.8, (1, 3): 3.0},
        # Two kinds of hosts: 2 and 3 are late at their own ends.
        {(0, 1): 2.0, (2, 3): 12.0, (0, 2): 7.0, (0, 3): 7.0, (1, 2): 7.0, (1, 3): 7.0},
        # Far pairs inside what near pairs join.
        {(0, 1): 2.0, (1, 2): 2.0, (0, 2): 3.0, (3, 4): 2.0, (2, 3): 3.0},
    ],
)
def test_what_shows_no_racks(figures: dict[HostPair, float]) -> None:
    assert learn_racks(figures) is None


def test_a_congested_pair_inside_a_rack_hides_nothing() -> None:
    rack = [0] * 8 + [1] * 8
    figures = latencies(circle(16, 1, 2), rack, 0.0, random.Random(0))
    figures[3, 4] = 40.0
    found = learn_racks(figures)
    assert found is not None
    assert found.racks == [list(range(8)), list(range(8, 16))]


@given(
    sizes=st.lists(st.integers(2, 12), min_size=2, max_size=8),
    noise=st.floats(0.0, 0.1),
    seed=st.integers(0, 10_000),
)
def test_racks_are_found_and_names_of_hosts_do_not_matter(
    sizes: list[int], noise: float, seed: int
) -> None:
    chance = random.Random(seed)
    rack = [number for number, size in enumerate(sizes) for _ in range(size)]
    hosts = len(rack)
    pairs = circle(hosts, 1, 2) if hosts > 4 else list(combinations(range(hosts), 2))
    figures = latencies(pairs, rack, noise, chance)
    found = learn_racks(figures)
    assert found is not None
    assert dict(found.rack_of_host) == dict(enumerate(rack))
    new = list(range(hosts))
    chance.shuffle(new)
    renamed = learn_racks({(new[a], new[b]): latency for (a, b), latency in figures.items()})
    assert renamed is not None
    assert (renamed.near_us, renamed.far_us) == (found.near_us, found.far_us)
    assert {frozenset(members) for members in renamed.racks} == {
        frozenset(new[host] for host in members) for members in found.racks
    }


@settings(max_examples=300)
@given(
    hosts=st.integers(2, 64),
    spread=st.floats(0.0, 0.05),
    seed=st.integers(0, 1_000_000),
    late=st.integers(0, 2),
)
def test_noise_and_late_hosts_alone_never_make_racks(
    hosts: int, spread: float, seed: int, late: int
) -> None:
    """Noise of 5 % and single pairs that take up to twenty times as long, as pings do."""
    chance = random.Random(seed)
    pairs = circle(hosts, 1, 2) if hosts > 4 else list(combinations(range(hosts), 2))
    figures = {pair: 20.0 * chance.lognormvariate(0.0, spread) for pair in pairs}
    for pair in chance.sample(pairs, max(1, len(pairs) // 20)):
        figures[pair] *= chance.uniform(1.0, 20.0)
    for host in range(late):
        for pair in pairs:
            figures[pair] += 30.0 * (host in pair)
    assert learn_racks(figures) is None
