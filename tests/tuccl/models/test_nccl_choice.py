"""NCCL's own cost model, with numbers worked by hand from its source's formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.models.figures import Fabric, Generation, MachineFigures, figures_of
from tuccl.models.nccl_choice import (
    COLLNET_ON,
    NVLS_OFF,
    Choice,
    allowed_pairs,
    nccl_choice,
    nccl_estimate_us,
    ring_steps,
    under,
)
from tuccl.search.trials.config import Config, ProcessProfile

H200_X4 = figures_of(Shape(4, 1, 4), Fabric.NVLINK, Generation.HOPPER, 450.0)
WIDE = ProcessProfile(min_nchannels=32)
PAT, NVLS, NVLS_TREE = NcclAlgorithm.PAT, NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE
RING, LL, SIMPLE = NcclAlgorithm.RING, NcclProtocol.LL, NcclProtocol.SIMPLE
DIRECT, CHAIN = NcclAlgorithm.COLLNET_DIRECT, NcclAlgorithm.COLLNET_CHAIN
HALVES = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)


def all_reduce(
    size_bytes: int,
    protocol: str,
    nchannels: int = 0,
    profile: ProcessProfile = ProcessProfile(),  # noqa: B008 - frozen
) -> Choice:
    config = profile.applied_to(Config("ring", protocol, nchannels))
    return nccl_choice(Collective.ALL_REDUCE, size_bytes, config, H200_X4)


def stock_choice(operation: Collective, size_bytes: int, machine: MachineFigures) -> Choice:
    return nccl_choice(operation, size_bytes, ProcessProfile().default, machine)


def test_small_messages_take_ring_ll_and_large_ones_ring_simple_on_one_node() -> None:
    small = stock_choice(Collective.ALL_REDUCE, 4 << 10, H200_X4)
    assert small.protocol is NcclProtocol.LL
    large = stock_choice(Collective.ALL_REDUCE, 1 << 30, H200_X4)
    assert (large.algorithm, large.protocol) == (NcclAlgorithm.RING, NcclProtocol.SIMPLE)
    assert large.nchannels == 24


def test_halves_of_all_reduce_have_no_tree() -> None:
    for size_bytes in (1 << 10, 1 << 20, 1 << 30):
        for operation in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
            choice = stock_choice(operation, size_bytes, H200_X4)
            assert choice.algorithm is NcclAlgorithm.RING


def test_channels_go_before_threads_when_a_message_is_small() -> None:
    # Ring LL: 512 threads x 8 bytes x 4 ranks = 16,384 bytes fill one channel.
    assert all_reduce(16_384, "LL") == Choice(RING, LL, 1, 512, 256 << 10)
    assert all_reduce(16_384 * 3, "LL").nchannels == 3
    # 2,048 bytes: one channel, 512 threads halved while they divide by 128 down to 64, which NCCL
    # rounds up to three warps.
    assert all_reduce(2_048, "LL").nthreads == 96


def test_a_tuners_channels_do_not_shrink_with_the_threads_but_by_cells() -> None:
    # A cell of all_reduce has 16 KiB of traffic: 8 KiB, with LL a quarter. 64 KiB are 8 cells.
    assert all_reduce(64 << 10, "Simple", 32).nchannels == 8
    assert all_reduce(64 << 10, "LL", 32, WIDE).nchannels == 32
    # 32 cells over 24 channels are 2 each, which 16 channels take.
    assert all_reduce(64 << 10, "LL", 24).nchannels == 16


def test_a_tuner_lowers_the_channels_but_never_raises_them_above_the_communicators() -> None:
    assert all_reduce(1 << 30, "Simple", 4).nchannels == 4
    assert all_reduce(1 << 30, "Simple", 64).nchannels == 24
    assert all_reduce(1 << 30, "Simple", 64, WIDE).nchannels == 32


def test_threads_and_buffer_reach_only_the_protocols_that_nccl_gives_them_to() -> None:
    changed = ProcessProfile(nthreads=128, buffer_bytes=1 << 20)
    assert all_reduce(1 << 30, "LL", profile=changed) == Choice(RING, LL, 24, 128, 256 << 10)
    assert all_reduce(1 << 30, "Simple", profile=changed) == Choice(RING, SIMPLE, 24, 160, 1 << 20)
    assert all_reduce(1 << 30, "LL128", profile=changed) == all_reduce(1 << 30, "LL128")


def test_pat_where_nodes_have_several_ranks_is_nccls_own_choice_on_the_tuners_channels() -> None:
    config = Config("pat", "Simple", 8)
    stock = stock_choice(Collective.ALL_GATHER, 1 << 20, H200_X4)
    chosen = nccl_choice(Collective.ALL_GATHER, 1 << 20, config, H200_X4)
    assert (chosen.algorithm, chosen.protocol, chosen.nchannels) == (RING, stock.protocol, 8)
    single = figures_of(Shape(4, 4, 1), Fabric.NVLINK, Generation.HOPPER, 450.0, 1, 25.0, 2.0)
    chosen = nccl_choice(Collective.ALL_GATHER, 1 << 20, config, single)
    assert chosen.algorithm is NcclAlgorithm.PAT


def test_algorithms_that_the_model_does_not_know_fail_and_are_not_guessed() -> None:
    for algorithm in ("nvls", "nvls_tree", "collnet_direct"):
        with pytest.raises(ConfigurationFailedError, match=f"{algorithm} is not in the model"):
            nccl_choice(Collective.ALL_REDUCE, 1 << 20, Config(algorithm, "Simple", 8), H200_X4)


def hgx(nodes: int = 1, generation: Generation = Generation.HOPPER) -> MachineFigures:
    network = (8, 50.0, 2.0) if nodes > 1 else (0, 0.0, 0.0)
    shape = Shape(8 * nodes, nodes, 8)
    return figures_of(shape, Fabric.NVLINK, generation, 450.0, *network, multicasts=True)


def multicast_algorithms(operation: Collective, machine: MachineFigures) -> set[NcclAlgorithm]:
    return {algorithm for algorithm, _ in allowed_pairs(operation, machine)} & {NVLS, NVLS_TREE}


def test_nvls_is_allowed_as_by_nccls_rules() -> None:
    halves = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    for operation in (Collective.ALL_REDUCE, *halves):
        assert multicast_algorithms(operation, hgx()) == {NVLS}
        assert multicast_algorithms(operation, hgx(generation=Generation.AMPERE)) == set()
        assert multicast_algorithms(operation, H200_X4) == set(), "no multicast"
    assert multicast_algorithms(Collective.ALL_REDUCE, hgx(2)) == {NVLS_TREE}
    for operation in (*halves, Collective.BROADCAST, Collective.REDUCE, Collective.ALLTOALL):
        assert multicast_algorithms(operation, hgx(2)) == set()
    # A domain of 72 GPUs has 32 heads (NCCL_MAX_NVLS_ARITY), which bound the halves.
    rack = figures_of(Shape(72, 1, 72), Fabric.NVLINK, Generation.BLACKWELL, 900.0, multicasts=True)
    assert multicast_algorithms(Collective.ALL_REDUCE, rack) == {NVLS}
    assert multicast_algorithms(Collective.ALL_GATHER, rack) == set()


def test_eight_h100_take_nvls_from_two_megabytes_as_users_report() -> None:
    # nccl-tests issue 309: ring with LL from 8 bytes to 1 MB, NVLS with Simple from 2 MB to 16 GB.
    chosen = {k: stock_choice(Collective.ALL_REDUCE, 1 << k, hgx()) for k in range(10, 35)}
    assert {k for k, choice in chosen.items() if choice.algorithm is NVLS} == set(range(21, 35))
    assert {choice.nchannels for k, choice in chosen.items() if k >= 21} == {16}
    assert {choice.protocol for k, choice in chosen.items() if k < 21} == {LL}
    for k in range(10, 35):
        assert stock_choice(Collective.ALL_GATHER, 1 << k, hgx()).algorithm is RING
        off = nccl_choice(
            Collective.ALL_REDUCE, 1 << k, ProcessProfile(settings=NVLS_OFF).default, hgx()
        )
        assert off.algorithm is RING


def test_estimates_of_nvls_its_trees_and_pat_are_nccls() -> None:
    def estimate(operation: Collective, algorithm: NcclAlgorithm, machine: MachineFigures) -> float:
        return nccl_estimate_us(operation, 272_000_000, (algorithm, SIMPLE), machine)

    # Eight heads of 40 GB/s, the highest speed of which nine are within 0.82 x 450 GB/s: 0.85 x 7/8
    # of it, twice, times 8/14 of the bus bandwidth are 272 GB/s; 25 us of latency.
    assert estimate(Collective.ALL_REDUCE, NVLS, hgx()) == pytest.approx(25.0 + 1000.0)
    # Halves: 8 x 40 x 0.85 x 7/8 x 7/8 = 208.25 GB/s.
    halves_us = 25.0 + 272e6 / 208.25e3
    assert estimate(Collective.ALL_GATHER, NVLS, hgx()) == pytest.approx(halves_us)
    # Two nodes: a head has 59.5 GB/s inside and 2 x 48 between, of which NCCL counts 57.7; 16/30 of
    # 8 x 57.7. Latency: 25 + 2 x (20.9 + 2 x 2); four nodes 45.5, twice as many levels, 32/62.
    two_us = 25.0 + 2 * 24.9 + 272e6 / (8 * 57.7e3 * 16 / 30)
    assert estimate(Collective.ALL_REDUCE, NVLS_TREE, hgx(2)) == pytest.approx(two_us)
    four_us = 25.0 + 4 * 24.9 + 272e6 / (8 * 45.5e3 * 32 / 62)
    assert estimate(Collective.ALL_REDUCE, NVLS_TREE, hgx(4)) == pytest.approx(four_us)
    # Four nodes of one GPU: 24 GB/s, three quarters of it; 8 + 2 x (14 + 2 x 2) / 3.5 + 4 x 2.8 us.
    rail = figures_of(Shape(4, 4, 1), Fabric.NVLINK, Generation.HOPPER, 450.0, 1, 25.0, 2.0)
    pat_us = 8.0 + 2 * 18.0 / 3.5 + 11.2 + 272e6 / 18e3
    assert estimate(Collective.ALL_GATHER, PAT, rail) == pytest.approx(pat_us)


def with_sharp(
    nodes: int = 2, per_node: int = 8, nics: int = 8, *, switched: bool = True
) -> MachineFigures:
    """A100 with NICs of 25 GB/s that answer in 2 us, on switches that sum."""
    shape = Shape(per_node * nodes, nodes, per_node)
    return figures_of(
        shape,
        Fabric.NVLINK,
        Generation.AMPERE,
        300.0,
        nics,
        25.0,
        2.0,
        sums=True,
        switched=switched,
    )


def summing_algorithms(operation: Collective, machine: MachineFigures) -> set[NcclAlgorithm]:
    found = allowed_pairs(operation, under(COLLNET_ON, machine))
    return {algorithm for algorithm, _ in found} & {DIRECT, CHAIN}


def test_collnet_is_allowed_as_by_nccls_rules() -> None:
    assert summing_algorithms(Collective.ALL_REDUCE, with_sharp()) == {DIRECT, CHAIN}
    assert summing_algorithms(Collective.ALL_REDUCE, with_sharp(switched=False)) == {CHAIN}
    assert summing_algorithms(Collective.ALL_REDUCE, with_sharp(nodes=1)) == set()
    assert summing_algorithms(Collective.ALL_REDUCE, with_sharp(per_node=9)) == set()
    for operation in HALVES:
        assert summing_algorithms(operation, with_sharp()) == {DIRECT}
        assert summing_algorithms(operation, with_sharp(nics=4)) == set(), "a NIC for each GPU"
    for operation in (Collective.BROADCAST, Collective.REDUCE, Collective.ALLTOALL):
        assert summing_algorithms(operation, with_sharp()) == set()
    plain = figures_of(Shape(16, 2, 8), Fabric.NVLINK, Generation.AMPERE, 300.0, 8, 25.0, 2.0)
    assert summing_algorithms(Collective.ALL_REDUCE, plain) == set()


def test_nccl_uses_collnet_only_where_a_variable_lets_it() -> None:
    """Its estimate of CollNetDirect is the least from 256 KB on."""
    on = ProcessProfile(settings=COLLNET_ON).default
    for k in range(10, 31):
        stock = stock_choice(Collective.ALL_REDUCE, 1 << k, with_sharp())
        assert stock.algorithm in {RING, NcclAlgorithm.TREE}
        chosen = nccl_choice(Collective.ALL_REDUCE, 1 << k, on, with_sharp())
        assert (chosen.algorithm is DIRECT) == (k >= 18)
    with pytest.raises(ConfigurationFailedError, match="collnet_chain is not in the model of NCCL"):
        nccl_choice(Collective.ALL_REDUCE, 1, Config("collnet_chain", "Simple"), with_sharp())


def test_estimates_of_collnet_are_nccls() -> None:
    def estimate(
        operation: Collective, algorithm: NcclAlgorithm, machine: MachineFigures, mb: float
    ) -> float:
        asked = under(COLLNET_ON, machine)
        return nccl_estimate_us(operation, round(mb * 1e6), (algorithm, SIMPLE), asked)

    # Eight heads at 24 GB/s on a NIC and twice that inside, half of their sum for all_reduce. To a
    # head and back 3.7 us and 7 x 0.4 us each; 31 us in the network, and its 2 us twice.
    latency_us = 2 * (3.7 + 2.8) + 31.0 + 4.0
    for operation, gb_per_s in (
        (Collective.ALL_REDUCE, 8 * 48.0 / 2),
        (Collective.ALL_GATHER, 8 * 0.9 * 24.0),
    ):
        found = estimate(operation, DIRECT, with_sharp(), gb_per_s)
        assert found == pytest.approx(latency_us + 1000.0)
    # A chain of 8: 7 hops of 2.8 us up and down, 30 us in the network. Inside a node 246 GB/s, of
    # which half.
    chain_us = 14 * 2.8 + 30.0 + 4.0 + 1000.0
    assert estimate(Collective.ALL_REDUCE, CHAIN, with_sharp(), 123.0) == pytest.approx(chain_us)
    # Four NICs: 2 GPUs to each count as 1.5. One GPU to a node: the latency of a tree's hop.
    found = estimate(Collective.ALL_REDUCE, DIRECT, with_sharp(nics=4), 4 * 48.0 / 1.5 / 2)
    assert found == pytest.approx(latency_us + 1000.0)
    rail = with_sharp(nodes=4, per_node=1, nics=1)
    assert estimate(Collective.ALL_REDUCE, DIRECT, rail, 24.0) == pytest.approx(18.0 + 1000.0)


def test_collnet_has_half_as_many_channels_more_and_fewer_for_small_calls() -> None:
    def channels(algorithm: str, size_bytes: int) -> tuple[int, int]:
        config = Config(algorithm, "Simple", settings=COLLNET_ON)
        choice = nccl_choice(Collective.ALL_REDUCE, size_bytes, config, with_sharp())
        return choice.nchannels, choice.nthreads

    assert channels("collnet_direct", 1 << 30) == (24, 640)
    # Eight heads with 640 threads of 32 bytes, halved four times on the way: 160 KiB a channel.
    assert channels("collnet_direct", 1 << 20) == (3, 640)
    assert channels("collnet_direct", 1 << 10) == (1, 640)
    # 640 threads of 512 bytes a channel; then half as many threads.
    assert channels("collnet_chain", 4 << 20) == (12, 640)
    assert channels("collnet_chain", 1 << 10) == (1, 320)


def test_a_tuner_lowers_the_channels_of_nvls_and_the_profile_raises_them() -> None:
    def channels(asked: int, profile: ProcessProfile = ProcessProfile()) -> int:  # noqa: B008
        config = profile.applied_to(Config("nvls", "Simple", asked))
        return nccl_choice(Collective.ALL_REDUCE, 1 << 30, config, hgx()).nchannels

    assert [channels(asked) for asked in (0, 4, 32)] == [16, 4, 16]
    assert channels(0, WIDE) == 32


def test_two_nodes_with_few_nics_take_trees_because_these_halve_the_traffic() -> None:
    four_nics = figures_of(Shape(16, 2, 8), Fabric.NVLINK, Generation.AMPERE, 300.0, 4, 12.5, 15.0)
    assert stock_choice(Collective.ALL_REDUCE, 1 << 30, four_nics).algorithm is NcclAlgorithm.TREE
    eight = figures_of(Shape(16, 2, 8), Fabric.NVLINK, Generation.AMPERE, 300.0, 8, 24.0, 2.0)
    assert stock_choice(Collective.ALL_REDUCE, 1 << 30, eight).algorithm is RING


@pytest.mark.parametrize(
    ("operation", "steps"),
    [(Collective.ALL_REDUCE, 14), (Collective.ALL_GATHER, 7), (Collective.BROADCAST, 8)],
)
def test_ring_steps_on_eight_ranks(operation: Collective, steps: int) -> None:
    assert ring_steps(operation, 8) == steps


@given(st.integers(1, 1 << 34), st.sampled_from([Collective.ALL_REDUCE, Collective.ALL_GATHER]))
def test_a_choice_is_always_runnable(size_bytes: int, operation: Collective) -> None:
    choice = stock_choice(operation, size_bytes, H200_X4)
    assert 1 <= choice.nchannels <= 24
    assert 96 <= choice.nthreads <= 640
