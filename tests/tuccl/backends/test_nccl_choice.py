"""NCCL's own cost model, with numbers worked by hand from its source's formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.table import NcclAlgorithm, NcclProtocol, Operation, Shape
from tuccl.backends.figures import Fabric, Generation, MachineFigures
from tuccl.backends.nccl_choice import ring_steps, shrink, stock_choice

H200_X4 = MachineFigures(
    shape=Shape(4, 1, 4),
    fabric=Fabric.NVLINK,
    generation=Generation.HOPPER,
    intra_gb_per_s=450.0,
    nics_per_node=0,
    nic_gb_per_s=0.0,
    network_latency_us=0.0,
    channels=24,
    channel_gb_per_s=18.75,
)


def test_small_messages_take_ring_ll_and_large_ones_ring_simple_on_one_node() -> None:
    small = stock_choice(Operation.ALL_REDUCE, 4 << 10, H200_X4)
    assert small.protocol is NcclProtocol.LL
    large = stock_choice(Operation.ALL_REDUCE, 1 << 30, H200_X4)
    assert (large.algorithm, large.protocol) == (NcclAlgorithm.RING, NcclProtocol.SIMPLE)
    assert large.nchannels == 24


def test_halves_of_all_reduce_have_no_tree() -> None:
    for size_bytes in (1 << 10, 1 << 20, 1 << 30):
        for operation in (Operation.ALL_GATHER, Operation.REDUCE_SCATTER):
            choice = stock_choice(operation, size_bytes, H200_X4)
            assert choice.algorithm is NcclAlgorithm.RING


def test_channels_go_before_threads_when_a_message_is_small() -> None:
    # Ring LL: 512 threads x 8 bytes x 4 ranks = 16,384 bytes fill one channel.
    ring, ll = NcclAlgorithm.RING, NcclProtocol.LL
    assert shrink(16_384, ring, ll, H200_X4).nchannels == 1
    assert shrink(16_384, ring, ll, H200_X4).nthreads == 512
    assert shrink(16_384 * 3, ring, ll, H200_X4).nchannels == 3
    # 1,024 bytes: one channel, 512 threads halved while they divide by 128: 256, 128, 64.
    assert shrink(1_024, ring, ll, H200_X4).nthreads == 64


def test_a_tuner_lowers_the_channels_but_never_raises_them_above_the_graphs() -> None:
    ring, simple = NcclAlgorithm.RING, NcclProtocol.SIMPLE
    assert shrink(1 << 30, ring, simple, H200_X4, max_channels=4).nchannels == 4
    assert shrink(1 << 30, ring, simple, H200_X4, max_channels=64).nchannels == 24


@pytest.mark.parametrize(
    ("operation", "steps"),
    [(Operation.ALL_REDUCE, 14), (Operation.ALL_GATHER, 7), (Operation.BROADCAST, 8)],
)
def test_ring_steps_on_eight_ranks(operation: Operation, steps: int) -> None:
    assert ring_steps(operation, 8) == steps


@given(st.integers(1, 1 << 34), st.sampled_from([Operation.ALL_REDUCE, Operation.ALL_GATHER]))
def test_a_choice_is_always_runnable(size_bytes: int, operation: Operation) -> None:
    choice = stock_choice(operation, size_bytes, H200_X4)
    assert 1 <= choice.nchannels <= 24
    assert 64 <= choice.nthreads <= 640
