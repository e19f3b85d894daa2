"""The model of NCCL's kernels: times worked by hand with round constants, and what always holds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tuccl.models.figures import Fabric, Generation, MachineFigures, figures_of
from tuccl.models.model_constants import ModelConstants, ProtocolCosts
from tuccl.models.nccl_choice import Choice, nccl_choice
from tuccl.models.nccl_model import builtin_time_us
from tuccl.search.trials.config import Config, ProcessProfile

NVSWITCH_X4 = figures_of(Shape(4, 1, 4), Fabric.NVLINK, Generation.HOPPER, 450.0)
TWO_NODES = figures_of(Shape(16, 2, 8), Fabric.NVLINK, Generation.HOPPER, 300.0, 8, 25.0, 2.0)
CONSTANTS = ModelConstants(
    ll=ProtocolCosts(4.0, 0.5, 0.6, 1.0, 20.0, 512.0, 5.0, 0.5),
    ll128=ProtocolCosts(8.0, 2.0, 1.0, 1.0, 20.0, 1e-9, 10.0, 0.8),
    simple=ProtocolCosts(13.0, 3.0, 2.5, 2.0, 40.0, 256.0, 20.0, 0.8),
    pci_hop_share=1.5,
    network_hop_us=6.0,
    network_latencies=3.0,
    network_efficiency=1.0,
    launch_us=5.0,
)
TREE, RING, PAT = NcclAlgorithm.TREE, NcclAlgorithm.RING, NcclAlgorithm.PAT
LL, LL128, SIMPLE = NcclProtocol.LL, NcclProtocol.LL128, NcclProtocol.SIMPLE
LL_BUFFER, BUFFER = 256 << 10, 4 << 20


def modelled_us(
    operation: Collective,
    size_bytes: int,
    choice: Choice,
    machine: MachineFigures,
    launches: int = 0,
) -> float:
    return builtin_time_us(operation, size_bytes, choice, machine, CONSTANTS, launches)


def test_a_tiny_all_gather_is_launch_hops_and_one_pass_of_the_threads_a_hop() -> None:
    # 4 us and 3 hops of 0.5 us. A hop carries 256 bytes, the 512 threads move 4,096 in a pass at
    # 20 x 512 / (512 + 512) = 10 GB/s: 3 x 0.4096 us. The wire: 768 bytes at 0.5 x 450 GB/s.
    copy, wire = 3 * 0.4096, 768 / (1e3 * 0.5 * 450.0)
    expected = 4.0 + 3 * 0.5 + (copy**2 + wire**2) ** 0.5
    choice = Choice(RING, LL, 1, 512, LL_BUFFER)
    assert modelled_us(Collective.ALL_GATHER, 1024, choice, NVSWITCH_X4) == pytest.approx(expected)


def test_a_large_all_reduce_is_bound_by_wire_and_channels_together() -> None:
    # A rank sends 2 x 3/4 x 1 GiB. Wire: at 0.8 x 450 GB/s. Channels: 32 with 544 threads, each
    # 40 x 544 / 800 = 27.2 GB/s; 48 MiB of each in 6 pieces of 8 slices of 1 MiB: 42 further ones.
    traffic = 1.5 * (1 << 30)
    copy = traffic / 32 / 27.2e3 + 42 * 2.0
    wire = traffic / (1e3 * 0.8 * 450.0)
    expected = 13.0 + 6 * 3.0 + (copy**2 + wire**2) ** 0.5
    choice = Choice(RING, SIMPLE, 32, 544, BUFFER)
    assert modelled_us(Collective.ALL_REDUCE, 1 << 30, choice, NVSWITCH_X4) == pytest.approx(
        expected
    )


def test_a_tree_passes_its_first_piece_up_and_down_before_others_overlap() -> None:
    # 4 MiB over 8 channels: 512 KiB each, one piece of 512 KiB, 6 hops of 2.5 us and of the piece:
    # 20 GB/s a channel, all channels of it over 0.8 x 450 GB/s.
    fill = 6 * (512 << 10)
    copy, wire = fill / 20e3, 8 * fill / (1e3 * 0.8 * 450.0)
    expected = 13.0 + 6 * 2.5 + (copy**2 + wire**2) ** 0.5
    choice = Choice(TREE, SIMPLE, 8, 640, BUFFER)
    assert modelled_us(Collective.ALL_REDUCE, 4 << 20, choice, NVSWITCH_X4) == pytest.approx(
        expected
    )


def test_nvls_carries_the_message_once_and_a_heads_share_once_more() -> None:
    # Eight GPUs: 9/8 of 1 GiB a GPU each way. Wire: at 0.8 x 450 GB/s. Channels: 16 with 640
    # threads, each 40 x 640 / 896 GB/s; 13 us and four steps of 3 us.
    eight = figures_of(Shape(8, 1, 8), Fabric.NVLINK, Generation.HOPPER, 450.0, multicasts=True)
    traffic = 1.125 * (1 << 30)
    copy = traffic / 16 / (40e3 * 640 / 896)
    wire = traffic / (1e3 * 0.8 * 450.0)
    expected = 13.0 + 4 * 3.0 + (copy**2 + wire**2) ** 0.5
    for channels in (16, 32):  # Half of them reach the peak.
        choice = Choice(NcclAlgorithm.NVLS, SIMPLE, channels, 640, BUFFER)
        found = modelled_us(Collective.ALL_REDUCE, 1 << 30, choice, eight)
        assert found == pytest.approx(expected)


def test_trees_of_nvls_send_the_sum_of_a_node_once_each_way() -> None:
    # Four NICs of 25 GB/s carry 1 GiB in 10,737 us, longer than the NVSwitches take; two waits of 6
    # us and 3 x 2 us over the network.
    two = figures_of(
        Shape(16, 2, 8), Fabric.NVLINK, Generation.HOPPER, 450.0, 4, 25.0, 2.0, multicasts=True
    )
    traffic = 1.125 * (1 << 30)
    copy, network = traffic / 16 / (40e3 * 640 / 896), (1 << 30) / 100e3
    expected = 13.0 + 4 * 3.0 + 2 * 12.0 + (copy**2 + network**2) ** 0.5
    choice = Choice(NcclAlgorithm.NVLS_TREE, SIMPLE, 16, 640, BUFFER)
    found = modelled_us(Collective.ALL_REDUCE, 1 << 30, choice, two)
    assert found == pytest.approx(expected)


def summing_machine(nics: int = 8) -> MachineFigures:
    return figures_of(
        Shape(16, 2, 8), Fabric.NVLINK, Generation.HOPPER, 300.0, nics, 25.0, 2.0,
        sums=True, switched=True,
    )  # fmt: skip


def test_collnet_over_heads_sends_shares_to_them_and_results_back() -> None:
    # Each GPU sends seven of eight shares of 1 GiB to other heads, and its own sum's result to
    # seven. Channels: 24 with 640 threads, each 40 x 640 / 896 GB/s. Two hops of 3 us, and two of
    # 6 us and 3 x 2 us over the network.
    traffic = 1.75 * (1 << 30)
    copy, wire = traffic / 24 / (40e3 * 640 / 896), traffic / (1e3 * 0.8 * 300.0)
    expected = 13.0 + 2 * 3.0 + 2 * 12.0 + (copy**2 + wire**2) ** 0.5
    choice = Choice(NcclAlgorithm.COLLNET_DIRECT, SIMPLE, 24, 640, BUFFER)
    found = modelled_us(Collective.ALL_REDUCE, 1 << 30, choice, summing_machine())
    assert found == pytest.approx(expected)
    # Four NICs carry the sum of a node in longer than that: 1 GiB at 0.8 x 100 GB/s. Halves send
    # one way.
    heads = summing_machine(4)
    traffic = (0.75 + 7 / 4) * (1 << 30)
    copy, wire = traffic / 24 / (40e3 * 640 / 896), traffic / (1e3 * 0.8 * 300.0)
    network = (1 << 30) / 80e3
    assert network > wire
    expected = 13.0 + 2 * 3.0 + 2 * 12.0 + (copy**2 + network**2) ** 0.5
    found = modelled_us(Collective.ALL_REDUCE, 1 << 30, choice, heads)
    assert found == pytest.approx(expected)
    traffic = 0.875 * (1 << 30)
    copy, network = traffic / 24 / (40e3 * 640 / 896), (1 << 30) / 160e3
    expected = 13.0 + 2 * 3.0 + 2 * 12.0 + (copy**2 + network**2) ** 0.5
    found = modelled_us(Collective.ALL_GATHER, 1 << 30, choice, summing_machine())
    assert found == pytest.approx(expected)


def test_collnet_along_a_chain_passes_sums_up_and_results_down() -> None:
    # 7 hops of 2.5 us each way, two over the network. A channel moves 3 MiB, of which the first
    # piece goes 16 hops before others overlap: 64 KiB, as 3 MiB are fewer than 8 x 8 of 128 KiB.
    # Up and down the wire carries all but that twice, at 0.8 x 300 GB/s; a channel 20 GB/s.
    piece, channel = 64 << 10, 3 << 20
    fill = 16 * piece
    fill_us = ((fill / 20e3) ** 2 + (fill * 8 / 240e3) ** 2) ** 0.5
    copy = (channel - piece) / 20e3 + (48 - 1) * 2.0
    wire = 2 * (channel - piece) * 8 / 240e3
    expected = 13.0 + 14 * 2.5 + 2 * 12.0 + fill_us + (copy**2 + wire**2) ** 0.5
    choice = Choice(NcclAlgorithm.COLLNET_CHAIN, SIMPLE, 8, 640, BUFFER)
    found = modelled_us(Collective.ALL_REDUCE, 24 << 20, choice, summing_machine())
    assert found == pytest.approx(expected)


def test_pieces_of_a_sixteenth_make_a_tree_faster() -> None:
    large, small = (Choice(TREE, SIMPLE, 8, 640, size) for size in (BUFFER, BUFFER // 16))
    slow, fast = (
        modelled_us(Collective.ALL_REDUCE, 4 << 20, choice, NVSWITCH_X4)
        for choice in (large, small)
    )
    assert fast < 0.8 * slow


def test_a_hop_over_the_network_waits_for_it() -> None:
    # PAT on 2 nodes of one rank: one hop of 6 us and of 3 times the latency of 2 us, 13 us to
    # launch; half of 1 KiB at 25 GB/s a NIC, and what 640 threads copy.
    machine = figures_of(Shape(2, 2, 1), Fabric.NVLINK, Generation.HOPPER, 450.0, 1, 25.0, 2.0)
    copy, wire = 512 / (40e3 * 640 / 896), 512 / 25e3
    expected = 13.0 + 6.0 + 3 * 2.0 + (copy**2 + wire**2) ** 0.5
    choice = Choice(PAT, SIMPLE, 1, 640, BUFFER)
    assert modelled_us(Collective.ALL_GATHER, 1024, choice, machine) == pytest.approx(expected)


def test_without_graphs_a_thread_that_launches_eight_gpus_is_the_limit_of_small_calls() -> None:
    choice = Choice(RING, LL, 1, 128, LL_BUFFER)
    graph, calls = (
        modelled_us(Collective.ALL_GATHER, 1024, choice, NVSWITCH_X4, launches)
        for launches in (0, 8)
    )
    assert calls == pytest.approx((graph**2 + (8 * 5.0) ** 2) ** 0.5)


def test_slower_clocks_make_everything_but_wires_slower() -> None:
    choice = Choice(RING, LL, 1, 512, LL_BUFFER)
    ampere = replace(NVSWITCH_X4, generation=Generation.AMPERE)
    times = [modelled_us(Collective.ALL_GATHER, 1024, choice, m) for m in (NVSWITCH_X4, ampere)]
    assert times[1] == pytest.approx(times[0] / 0.71, rel=0.001)


def test_small_buffers_cost_synchronisations_and_few_threads_copying() -> None:
    def of(profile: ProcessProfile) -> float:
        config = profile.applied_to(Config("ring", "Simple", 8))
        choice = nccl_choice(Collective.ALL_REDUCE, 1 << 26, config, NVSWITCH_X4)
        return modelled_us(Collective.ALL_REDUCE, 1 << 26, choice, NVSWITCH_X4)

    assert of(ProcessProfile(0, 1 << 18)) > 1.2 * of(ProcessProfile())
    assert of(ProcessProfile(64)) > 2.0 * of(ProcessProfile(512))
    assert of(ProcessProfile(512)) == of(ProcessProfile()), "512 is NCCL's own"


def test_more_channels_than_nccl_opens_help_where_a_channel_is_the_limit() -> None:
    def of(profile: ProcessProfile) -> float:
        config = profile.applied_to(Config("ring", "LL", 32))
        choice = nccl_choice(Collective.ALL_REDUCE, 1 << 20, config, NVSWITCH_X4)
        return modelled_us(Collective.ALL_REDUCE, 1 << 20, choice, NVSWITCH_X4)

    assert of(ProcessProfile(min_nchannels=32)) < 0.95 * of(ProcessProfile())


def test_few_channels_leave_nics_idle() -> None:
    times = [
        modelled_us(Collective.ALL_REDUCE, 1 << 30, Choice(RING, SIMPLE, n, 544, BUFFER), TWO_NODES)
        for n in (1, 2, 4, 8)
    ]
    assert times[0] == pytest.approx(2 * times[1], rel=0.05)
    assert times[2] == pytest.approx(2 * times[3], rel=0.05)


def test_pairs_leave_a_node_for_the_ranks_of_others() -> None:
    # 16 parts of 64 MiB from each of 8 ranks, 8 of them to the other node: 4 GiB over 8 NICs of
    # 25 GB/s. Inside, 15 parts at 0.8 x 300 GB/s take less.
    choice = Choice(RING, SIMPLE, 32, 640, BUFFER)
    hops_us = 13.0 + 13 * 3.0 + 2 * (6.0 + 3 * 2.0)
    copy = (15 << 26) / 32 / (40e3 * 640 / 896) + 15 * 1 * 2.0
    wire = (4 << 30) / (8 * 25e3)
    expected = hops_us + (copy**2 + wire**2) ** 0.5
    found = modelled_us(Collective.ALLTOALL, 1 << 30, choice, TWO_NODES)
    assert found == pytest.approx(expected, rel=0.01)


def test_pairs_are_no_faster_than_what_they_share() -> None:
    # A GPU sends 3/4 of 1 GiB at 0.8 x 15 GB/s.
    shared = replace(NVSWITCH_X4, pairs_gb_per_s=15.0)
    choice = Choice(RING, SIMPLE, 32, 640, BUFFER)
    found = modelled_us(Collective.ALLTOALL, 1 << 30, choice, shared)
    assert found == pytest.approx(0.75 * (1 << 30) / (0.8 * 15e3), rel=0.01)
    ring = [modelled_us(Collective.ALL_GATHER, 1 << 30, choice, m) for m in (shared, NVSWITCH_X4)]
    assert ring[0] == ring[1]


def test_a_single_gpu_has_nothing_to_send() -> None:
    alone = figures_of(Shape(1, 1, 1), Fabric.NVLINK, Generation.HOPPER, 450.0)
    choice = nccl_choice(Collective.ALL_REDUCE, 1 << 20, ProcessProfile().default, alone)
    assert 0 < modelled_us(Collective.ALL_REDUCE, 1 << 20, choice, alone) < 1e6


@given(
    st.integers(10, 34),
    st.sampled_from([(RING, LL), (RING, LL128), (RING, SIMPLE), (TREE, LL), (TREE, LL128),
                     (TREE, SIMPLE)]),
    st.integers(1, 32),
    st.integers(3, 20),
    st.sampled_from([NVSWITCH_X4, TWO_NODES]),
)  # fmt: skip
def test_time_is_finite_and_grows_with_size(
    exponent: int,
    pair: tuple[NcclAlgorithm, NcclProtocol],
    nchannels: int,
    warps: int,
    machine: MachineFigures,
) -> None:
    choice = Choice(*pair, nchannels, 32 * warps, LL_BUFFER if pair[1] is LL else BUFFER)
    smaller, larger = (
        modelled_us(Collective.ALL_REDUCE, 1 << e, choice, machine)
        for e in (exponent, exponent + 1)
    )
    assert 0 < smaller <= larger < float("inf")


@given(
    st.sampled_from(COLLECTIVES), st.integers(1, 1 << 36),
    st.builds(ProcessProfile, st.sampled_from([0, 64, 128, 256, 512]),
              st.sampled_from([0, 1 << 18, 1 << 24]), st.sampled_from([0, 4, 32])),
    st.integers(0, 64), st.sampled_from(["default", "ring", "tree", "pat"]),
    st.sampled_from(list(NcclProtocol)),
)  # fmt: skip
def test_every_configuration_has_a_positive_time(
    operation: Collective,
    size_bytes: int,
    profile: ProcessProfile,
    nchannels: int,
    algorithm: str,
    protocol: NcclProtocol,
) -> None:
    config = Config(algorithm, "" if algorithm == "default" else protocol.value, nchannels)
    choice = nccl_choice(operation, size_bytes, profile.applied_to(config), TWO_NODES)
    assert 0 < modelled_us(operation, size_bytes, choice, TWO_NODES) < float("inf")
