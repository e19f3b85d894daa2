"""The model of NCCL's kernels: hand-worked times, and figures of a real machine."""

import csv
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.table import NcclAlgorithm, NcclProtocol, Operation, Shape
from probes.read import read_topology
from probes.shipped import shipped_machines
from tests.shared_data import SHARED_DATA, requires_shared_data
from tuccl.backends.figures import Fabric, Generation, MachineFigures, machine_figures
from tuccl.backends.nccl_choice import Choice, stock_choice
from tuccl.backends.nccl_model import builtin_time_us, channel_rate_gb_per_s

NVSWITCH_X4 = MachineFigures(
    shape=Shape(4, 1, 4),
    fabric=Fabric.NVLINK,
    generation=Generation.HOPPER,
    intra_gb_per_s=450.0,
    nics_per_node=0,
    nic_gb_per_s=0.0,
    network_latency_us=0.0,
    channels=32,
    channel_gb_per_s=14.0,
)
NAMES = {
    "allreduce": Operation.ALL_REDUCE,
    "allgather": Operation.ALL_GATHER,
    "reducescatter": Operation.REDUCE_SCATTER,
}
RING, LL, SIMPLE = NcclAlgorithm.RING, NcclProtocol.LL, NcclProtocol.SIMPLE


def test_a_tiny_all_gather_is_launch_and_hops() -> None:
    # 4.7 us launch + 3 hops of 0.77 us; the 256 bytes of a hop are less than 64 threads copy in
    # one pass; 768 bytes on the wire at 0.40 x 450 GB/s.
    choice = Choice(RING, LL, 1, 64)
    expected = 4.7 + 3 * 0.77 + 768 / (1e3 * 0.40 * 450.0)
    assert builtin_time_us(Operation.ALL_GATHER, 1024, choice, NVSWITCH_X4) == pytest.approx(
        expected
    )


def test_a_large_all_reduce_is_bound_by_the_wire() -> None:
    # 2 x 3/4 x 1 GiB a rank at 0.77 x 450 GB/s, 13.6 us launch, 6 hops of 2.4 us.
    choice = Choice(RING, SIMPLE, 32, 512)
    expected = 13.6 + 6 * 2.4 + 1.5 * (1 << 30) / (1e3 * 0.77 * 450.0)
    assert builtin_time_us(Operation.ALL_REDUCE, 1 << 30, choice, NVSWITCH_X4) == pytest.approx(
        expected
    )


def test_small_buffers_cost_synchronisations() -> None:
    choice = Choice(RING, SIMPLE, 8, 512)
    times = [
        builtin_time_us(Operation.ALL_REDUCE, 1 << 26, choice, NVSWITCH_X4, buffer_bytes)
        for buffer_bytes in (1 << 18, 1 << 20, 1 << 22)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.2 * times[2]


def test_few_channels_leave_nics_idle() -> None:
    two_nodes = MachineFigures(
        shape=Shape(16, 2, 8),
        fabric=Fabric.NVLINK,
        generation=Generation.AMPERE,
        intra_gb_per_s=300.0,
        nics_per_node=8,
        nic_gb_per_s=25.0,
        network_latency_us=2.0,
        channels=16,
        channel_gb_per_s=12.0,
    )
    times = [
        builtin_time_us(Operation.ALL_REDUCE, 1 << 30, Choice(RING, SIMPLE, n, 512), two_nodes)
        for n in (1, 2, 4, 8)
    ]
    assert times[0] == pytest.approx(2 * times[1], rel=0.05)
    assert times[2] == pytest.approx(2 * times[3], rel=0.05)


@given(
    st.integers(10, 32), st.sampled_from(list(NcclProtocol)), st.integers(1, 32), st.integers(2, 20)
)
def test_time_grows_with_size(
    exponent: int, protocol: NcclProtocol, nchannels: int, warps: int
) -> None:
    choice = Choice(RING, protocol, nchannels, 32 * warps)
    smaller, larger = (
        builtin_time_us(Operation.ALL_REDUCE, 1 << e, choice, NVSWITCH_X4)
        for e in (exponent, exponent + 1)
    )
    assert 0 < smaller < larger


@given(st.sampled_from(list(NcclProtocol)), st.integers(2, 19))
def test_more_threads_never_copy_slower(protocol: NcclProtocol, warps: int) -> None:
    fewer, more = (channel_rate_gb_per_s(protocol, 32 * n) for n in (warps, warps + 1))
    assert fewer <= more


def recorded_times(path: Path) -> dict[tuple[str, int, str, int], float]:
    """Median times by operation, bytes, protocol and channels, rings with 512 threads only."""
    with path.open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["algorithm"] == "ring"
            and row["nthreads"] == "512"
            and row["buffsize"] == "4194304"
            and row["t5"]
        ]
    return {
        (row["op"], int(row["bytes"]), row["protocol"], int(row["nchannels"])): median(
            float(row[f"t{i}"]) for i in range(1, 6)
        )
        for row in rows
    }


@requires_shared_data
def test_ring_times_of_four_h200_are_met_within_20_per_cent_in_the_median() -> None:
    recorded = recorded_times(SHARED_DATA / "replay" / "h200x4_nvlink_nccl2.28.9.csv")
    errors = []
    for (operation, size_bytes, protocol, nchannels), time_us in recorded.items():
        choice = Choice(RING, NcclProtocol(protocol), nchannels, 512)
        modelled = builtin_time_us(NAMES[operation], size_bytes, choice, NVSWITCH_X4)
        errors.append(abs(modelled / time_us - 1.0))
    assert len(errors) > 200
    assert median(errors) < 0.20


@requires_shared_data
def test_stock_nccl_on_four_h200_is_met_choice_included() -> None:
    machine = machine_figures(read_topology(shipped_machines()["h200-4gpu"]))
    path = SHARED_DATA / "replay" / "h200x4_nvlink_nccl2.28.9_default.csv"
    errors = []
    with path.open() as file:
        for row in csv.DictReader(file):
            operation, size_bytes = NAMES[row["op"]], int(row["bytes"])
            choice = stock_choice(operation, size_bytes, machine)
            modelled = builtin_time_us(operation, size_bytes, choice, machine)
            errors.append(abs(modelled / median(float(row[f"t{i}"]) for i in range(1, 6)) - 1.0))
    assert len(errors) == 63
    assert median(errors) < 0.15
