"""NCCL's own cost model, with numbers worked by hand from its source's formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Shape
from tuccl.errors import ConfigurationFailedError
from tuccl.models.figures import Fabric, Generation, MachineFigures, figures_of
from tuccl.models.nccl_choice import Choice, nccl_choice, ring_steps
from tuccl.search.trials.config import Config, ProcessProfile

H200_X4 = figures_of(Shape(4, 1, 4), Fabric.NVLINK, Generation.HOPPER, 450.0)
WIDE = ProcessProfile(min_nchannels=32)
RING, LL, SIMPLE = NcclAlgorithm.RING, NcclProtocol.LL, NcclProtocol.SIMPLE


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
    with pytest.raises(ConfigurationFailedError, match="nvls is not in the model"):
        nccl_choice(Collective.ALL_REDUCE, 1 << 20, Config("nvls", "Simple", 8), H200_X4)


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
