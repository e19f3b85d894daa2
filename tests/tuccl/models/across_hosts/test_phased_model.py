"""Times of schedules across hosts: worked by hand, and beside what was measured."""

from dataclasses import replace
from statistics import median

import pytest

from lookup_tables.collective import Collective
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, Shape
from synthesizer.programs.phase_plans import phased_plans, plan_by_name
from synthesizer.programs.phases import PhasedSchedule
from tuccl.errors import ConfigurationFailedError
from tuccl.models.across_hosts.grid_figures import GridFigures
from tuccl.models.across_hosts.phased_model import PhasedModel, PhaseParameters, wire_times
from tuccl.models.executor_model import KernelParameters, kernel_us
from tuccl.models.figures import Fabric, Generation, figures_of
from tuccl.models.model_constants import SHIPPED
from tuccl.models.nccl_choice import nccl_choice
from tuccl.models.nccl_model import builtin_time_us
from tuccl.search.trials.config import STOCK, Config, ProcessProfile

KIB, MIB = 1 << 10, 1 << 20
LL, LL128 = NcclProtocol.LL, NcclProtocol.LL128
KERNELS = KernelParameters(LL, 4, 512)
FAST_KERNELS = KernelParameters(LL128, 32, 512)
ACROSS = (
    Collective.ALL_REDUCE,
    Collective.ALL_GATHER,
    Collective.REDUCE_SCATTER,
    Collective.ALLTOALL,
)


def grid(nodes: int, local_ranks: int, *, sockets: bool = False) -> GridFigures:
    """H100 with a NIC of 50 GB/s for each."""
    of_machine = (Fabric.NVLINK, Generation.HOPPER)
    shape = Shape(nodes * local_ranks, nodes, local_ranks)
    machine = figures_of(shape, *of_machine, 450.0, local_ranks, 50.0, 2.0, sockets=sockets)
    alone = Shape(nodes, nodes, 1)
    rail = figures_of(alone, *of_machine, float("inf"), 1, 50.0, 2.0, sockets=sockets)
    return GridFigures(machine, rail, 50.0, 450.0, 3350.0)


def time_us(
    phased: PhasedSchedule,
    size_bytes: int,
    slices: int = 1,
    profile: ProcessProfile = STOCK.profile,
    figures: GridFigures | None = None,
    kernels: KernelParameters = KERNELS,
) -> float:
    model = PhasedModel(figures or grid(phased.nodes, phased.local_ranks), SHIPPED)
    return model.time_us(phased, size_bytes, PhaseParameters(kernels, slices, profile))


def rail_us(operation: Collective, size_bytes: int, config: Config, nodes: int = 2) -> float:
    rail = grid(nodes, 8).rail
    choice = nccl_choice(operation, size_bytes, config, rail)
    return builtin_time_us(operation, size_bytes, choice, rail, SHIPPED)


def test_an_exchange_is_two_kernels_a_round_and_a_sum() -> None:
    # 64 KB over 8 ranks: chunks of 8 KB. A kernel sends 7 of them at 0.4 x 450 GB/s or, as here,
    # with 4 blocks of 512 threads at 0.0185 GB/s each: 4 x 9.472. A sum moves 3 chunks.
    chunk = 8 * KIB
    kernel = 2.5 + 0.45 + 7 * chunk / (4 * 9.472e3)
    gather = rail_us(Collective.ALL_GATHER, 2 * chunk, STOCK)
    add = 2.5 + 3 * chunk / (0.8 * 3350e3)
    plan = plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 8)
    assert time_us(plan, 64 * KIB) == pytest.approx(2 * kernel + gather + add)


def test_repeated_kernels_are_launched_one_by_one() -> None:
    plan = plan_by_name(Collective.ALL_GATHER, "rails_first", 4, 8)
    chunk = MIB / 32
    kernel = 2.5 + 0.45 + 7 * chunk / (4 * 9.472e3)
    gather = rail_us(Collective.ALL_GATHER, round(4 * chunk), STOCK, nodes=4)
    assert time_us(plan, MIB) == pytest.approx(4 * kernel + gather)


def test_a_rail_is_steered_by_plan_and_profile() -> None:
    plan = plan_by_name(Collective.ALL_REDUCE, "rail_all_reduce_full", 2, 8)
    steered = plan.with_rails(BuiltinConfig(NcclAlgorithm.RING, LL, 1))
    own = time_us(plan, 64 * KIB) - rail_us(Collective.ALL_REDUCE, 64 * KIB, STOCK)
    configured = rail_us(Collective.ALL_REDUCE, 64 * KIB, Config("ring", "LL", 1))
    assert time_us(steered, 64 * KIB) == pytest.approx(own + configured)
    few = ProcessProfile(nthreads=64)
    narrow = rail_us(Collective.ALL_REDUCE, 64 * KIB, few.applied_to(Config("ring", "LL", 1)))
    assert narrow > configured
    assert time_us(steered, 64 * KIB, profile=few) == pytest.approx(own + narrow)
    with pytest.raises(ConfigurationFailedError, match="nvls"):
        time_us(plan.with_rails(BuiltinConfig(NcclAlgorithm.NVLS, LL, 1)), 64 * KIB)


def test_what_other_rails_leave_of_the_network_decides_large_calls() -> None:
    plan = plan_by_name(Collective.ALL_REDUCE, "rail_all_reduce", 2, 8)
    free = grid(2, 8)
    shared = replace(free, rail_gb_per_s=12.5)
    slower = time_us(plan, 1 << 30, figures=shared) - time_us(plan, 1 << 30, figures=free)
    chunk = (1 << 30) / 8
    assert slower > 0.5 * chunk * (1 / 12.5e3 - 1 / 50e3)


def test_slices_and_lanes_hide_kernels_and_threads_that_drive_sockets() -> None:
    plan = plan_by_name(Collective.ALL_REDUCE, "rail_all_reduce", 2, 8)
    laned, size = plan.with_lanes(4), 256 * MIB
    whole = time_us(plan, size, kernels=FAST_KERNELS)
    sliced = time_us(plan, size, 8, kernels=FAST_KERNELS)
    assert 0.4 * whole < sliced < 0.9 * whole
    assert time_us(laned, size, 8, kernels=FAST_KERNELS) > 0.8 * sliced
    tcp = grid(2, 8, sockets=True)
    slow = time_us(plan, size, 8, figures=tcp, kernels=FAST_KERNELS)
    assert slow > size / 8 / (1e3 * SHIPPED.socket_gb_per_s)
    assert time_us(laned, size, 8, figures=tcp, kernels=FAST_KERNELS) < 0.4 * slow


@pytest.mark.parametrize("collective", ACROSS)
@pytest.mark.parametrize("shape", [(2, 1), (2, 8), (128, 8)])
def test_no_plan_is_faster_than_its_transfers(
    collective: Collective, shape: tuple[int, int]
) -> None:
    figures = grid(*shape)
    for plan in phased_plans(collective, *shape):
        for size_bytes in (KIB, MIB, 1 << 30):
            wires = wire_times(plan, size_bytes, figures).in_turn_us
            assert wires > figures.rail.network_latency_us
            # Payload of Simple was fitted to 1.07 of the NIC's figure.
            assert wires < 1.07 * time_us(plan, size_bytes)


KERNEL_US = {
    Collective.ALL_GATHER: (2.29, 2.37, 2.78, 3.00, 3.45, 5.34, 14.98, 44.63, 176.14),
    Collective.REDUCE_SCATTER: (2.28, 2.43, 2.86, 3.13, 3.62, 5.58, 15.15, 45.16, 178.20),
    Collective.ALL_REDUCE: (2.38, 2.78, 3.06, 3.49, 4.92, 8.28, 25.92, 85.78),
}
"""Times on four H200 from 1 KB, four times as much each (docs/lab/executor.md)."""


def test_kernels_take_what_they_took_on_four_h200() -> None:
    errors = []
    for collective, measured in KERNEL_US.items():
        for number, measured_us in enumerate(measured):
            size = KIB << 2 * number
            sent = [(3 * size / 4, 1)]
            if collective is Collective.ALL_REDUCE:
                sent = [(3.0 * size, 1), (1.5 * size, 2)]
            best = min(
                kernel_us(
                    KernelParameters(protocol, nchannels, 512),
                    sent_bytes=sent_bytes,
                    steps=steps,
                    launches=max(1, -(-size // staged)),
                    wires_gb_per_s=394.0,
                    launch_us=1.9,
                )
                for protocol, staged in ((LL, 4 * MIB), (LL128, 18 * MIB))
                for nchannels in ((1, 2, 4, 8) if size <= 256 * KIB else (4, 8, 16, 32))
                for sent_bytes, steps in sent
            )
            errors.append(abs(best / measured_us - 1))
    assert len(errors) == 26
    assert median(errors) < 0.07
    assert max(errors) < 0.2
